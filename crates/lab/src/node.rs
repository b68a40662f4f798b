//! One node: a process and the relay in front of its peer port.

use crate::network::RelayNetwork;
use crate::relay::Relay;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Time for a node to listen, and to be ready once it can reach others.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for a node to stop after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the log file that are searched for its last line, for the error of a failed start.
const LAST_LOG_BYTES: u64 = 2_000;

#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("cannot start {id}: {source}")]
    Spawn { id: String, source: io::Error },
    #[error("{id} exited before it was ready: {log_tail}")]
    Ended { id: String, log_tail: String },
    #[error("{id} was not ready within {} s: {log_tail}", START_TIMEOUT.as_secs())]
    Slow { id: String, log_tail: String },
    #[error("{id} is not running: start it with restart")]
    NotRunning { id: String },
    #[error("{id} is already running")]
    Running { id: String },
    #[error("cannot send {id} a signal: {source}")]
    Signal { id: String, source: io::Error },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    Running,
    /// SIGSTOP.
    Paused,
    /// Killed, or ended by itself.
    Dead,
}

impl NodeState {
    pub fn as_str(self) -> &'static str {
        match self {
            NodeState::Running => "running",
            NodeState::Paused => "paused",
            NodeState::Dead => "dead",
        }
    }
}

/// Settings that all nodes of a cluster share.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) binary: PathBuf,
    pub(crate) cluster: String,
    pub(crate) environment: Vec<(OsString, OsString)>,
}

/// A node that keeps its addresses and directory when it is restarted. Dropping it kills its process.
#[derive(Debug)]
pub struct LocalNode {
    id: String,
    region: String,
    host: IpAddr,
    /// Client address; port 0 until the node has chosen one.
    clients: SocketAddr,
    relay: Relay,
    dir: PathBuf,
    running: Option<Running>,
    paused: bool,
}

#[derive(Debug)]
struct Running {
    child: Child,
    pid: Pid,
    stage: watch::Receiver<Stage>,
    _reading: JoinSet<()>,
}

/// The state that a node has printed on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Starting,
    Listening(Places),
    Ready(Places),
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places {
    clients: SocketAddr,
    peers: SocketAddr,
}

impl LocalNode {
    /// A node at this host that is not started. It uses the given ports if they are free.
    pub(crate) fn new(
        id: String,
        region: String,
        network: &RelayNetwork,
        relay: Relay,
        client_port: u16,
        dir: PathBuf,
    ) -> LocalNode {
        let host = relay.address().ip();
        network.forget(host);
        let wanted = SocketAddr::new(host, client_port);
        let clients = if TcpListener::bind(wanted).is_ok() { wanted } else { SocketAddr::new(host, 0) };
        LocalNode { id, region, host, clients, relay, dir, running: None, paused: false }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn region(&self) -> &str {
        &self.region
    }

    /// The address it dials from.
    pub fn host(&self) -> IpAddr {
        self.host
    }

    /// The client address.
    pub fn clients(&self) -> SocketAddr {
        self.clients
    }

    /// The address that other nodes dial: the relay.
    pub fn peers(&self) -> SocketAddr {
        self.relay.address()
    }

    /// File with the stderr output of all starts.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The process id, if the node runs.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().and_then(|running| u32::try_from(running.pid.as_raw_nonzero().get()).ok())
    }

    pub fn state(&self) -> NodeState {
        match &self.running {
            Some(running) if *running.stage.borrow() != Stage::Ended && self.paused => NodeState::Paused,
            Some(running) if *running.stage.borrow() != Stage::Ended => NodeState::Running,
            _ => NodeState::Dead,
        }
    }

    /// Starts the process and waits until the node is ready.
    pub(crate) async fn start(&mut self, launch: &Launch, join: &[SocketAddr]) -> Result<(), NodeError> {
        if self.state() != NodeState::Dead {
            return Err(NodeError::Running { id: self.id.clone() });
        }
        // Remains of a process that ended by itself.
        self.kill().await;
        let spawned = self.spawn(launch, join);
        // Stored at once: if the future is dropped, the process can still be ended.
        self.running = Some(spawned.map_err(|source| NodeError::Spawn { id: self.id.clone(), source })?);
        let places = self.wait(|stage| *stage != Stage::Starting).await?;
        self.clients = places.clients;
        self.relay.lead_to(Some(places.peers));
        self.wait(|stage| !matches!(stage, Stage::Starting | Stage::Listening(_))).await?;
        Ok(())
    }

    async fn wait(&mut self, wanted: impl Fn(&Stage) -> bool) -> Result<Places, NodeError> {
        let Some(running) = &mut self.running else { return Err(NodeError::NotRunning { id: self.id.clone() }) };
        let stage = timeout(START_TIMEOUT, running.stage.wait_for(wanted)).await;
        let stage = stage.map(|stage| stage.map_or(Stage::Ended, |stage| *stage));
        if let Ok(Stage::Listening(places) | Stage::Ready(places)) = stage {
            return Ok(places);
        }
        self.kill().await;
        let (id, log_tail) = (self.id.clone(), self.last_log_line());
        Err(if stage.is_ok() { NodeError::Ended { id, log_tail } } else { NodeError::Slow { id, log_tail } })
    }

    fn spawn(&self, launch: &Launch, join: &[SocketAddr]) -> io::Result<Running> {
        std::fs::create_dir_all(&self.dir)?;
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut command = Command::new(&launch.binary);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CONVOKE_")) {
            command.env_remove(name);
        }
        command.envs(launch.environment.iter().cloned());
        command.args(["start", "--id", &self.id, "--cluster", &launch.cluster]);
        command.args(["--bind", &self.host.to_string(), "--advertise", &self.peers().to_string()]);
        command.args(["--client-port", &self.clients.port().to_string(), "--peer-port", "0", "--dns-port", "0"]);
        command.args(["--end-with", &std::process::id().to_string()]);
        command.arg("--data-dir").arg(self.dir.join("data"));
        if !self.region.is_empty() {
            command.args(["--region", &self.region]);
        }
        if !join.is_empty() {
            let join: Vec<String> = join.iter().map(ToString::to_string).collect();
            command.args(["--join", &join.join(",")]);
        }
        // Its own process group: Ctrl-C in the terminal does not reach the node.
        command.process_group(0).kill_on_drop(true);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).ok_or(io::ErrorKind::NotFound)?;
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (stages, stage) = watch::channel(Stage::Starting);
        let mut reading = JoinSet::new();
        reading.spawn(read(stdout, stages));
        Ok(Running { child, pid, stage, _reading: reading })
    }

    /// The last line of its log file.
    fn last_log_line(&self) -> String {
        let read = || -> io::Result<String> {
            let mut file = File::open(self.log())?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(LAST_LOG_BYTES)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let text = read().unwrap_or_default();
        match text.trim().lines().last() {
            Some(line) => line.to_owned(),
            None => "no output".to_owned(),
        }
    }

    /// Sends SIGKILL and waits for the end of the process.
    pub(crate) async fn kill(&mut self) {
        self.relay.lead_to(None);
        self.paused = false;
        if let Some(mut running) = self.running.take() {
            // The process may have ended by itself.
            let _ = running.child.kill().await;
        }
    }

    /// Sends SIGTERM, and SIGKILL after a timeout. Waits for the end of the process.
    pub(crate) async fn stop(&mut self) {
        let resumed = self.resume();
        let Some(running) = &mut self.running else { return };
        if resumed.is_ok() && kill_process(running.pid, Signal::TERM).is_ok() {
            let _ = timeout(STOP_TIMEOUT, running.child.wait()).await;
        }
        self.kill().await;
    }

    /// SIGSTOP.
    pub(crate) fn pause(&mut self) -> Result<(), NodeError> {
        self.signal(Signal::STOP)?;
        self.paused = true;
        Ok(())
    }

    /// SIGCONT.
    pub(crate) fn resume(&mut self) -> Result<(), NodeError> {
        self.signal(Signal::CONT)?;
        self.paused = false;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<(), NodeError> {
        let id = || self.id.clone();
        match &self.running {
            Some(running) if self.state() != NodeState::Dead => {
                kill_process(running.pid, signal).map_err(|error| NodeError::Signal { id: id(), source: error.into() })
            }
            _ => Err(NodeError::NotRunning { id: id() }),
        }
    }

    /// The directory of the node, for tests.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Reads the stdout of a node until it ends.
async fn read(output: impl AsyncRead + Unpin, stage: watch::Sender<Stage>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(places) = line.strip_prefix("listening: ").and_then(places) {
            stage.send_replace(Stage::Listening(places));
        } else if let Some(places) = line.strip_prefix("ready: ").and_then(places) {
            stage.send_replace(Stage::Ready(places));
        }
    }
    stage.send_replace(Stage::Ended);
}

/// Parses `clients A, peers B, …`.
fn places(text: &str) -> Option<Places> {
    let mut parts = text.split(", ");
    let clients = parts.next()?.strip_prefix("clients ")?.parse().ok()?;
    let peers = parts.next()?.strip_prefix("peers ")?.parse().ok()?;
    Some(Places { clients, peers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_nodes_write_them() {
        let found = places("clients 127.1.2.3:7700, peers 127.1.2.3:40001, dns 127.1.2.3:7753").unwrap();
        assert_eq!((found.clients.port(), found.peers.port()), (7700, 40001));
        assert_eq!(places("clients 127.1.2.3:7700, peers 127.1.2.3:40001").unwrap(), found);
        assert_eq!(places("clients here, peers there"), None);
    }
}
