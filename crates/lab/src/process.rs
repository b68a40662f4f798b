//! One `convoke start` process: its command line, its output and its end.

use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Bytes of the log file that are searched for its last line, for the error of a failed start.
const LAST_LOG_BYTES: u64 = 2_000;

#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("cannot start {id}: {source}")]
    Spawn { id: String, source: io::Error },
    #[error("{id} exited before it was ready: {log_tail}")]
    Ended { id: String, log_tail: String },
    #[error("{id} was not ready within {} s: {log_tail}", within.as_secs())]
    Slow { id: String, within: Duration, log_tail: String },
    #[error("{id} is not running: start it with restart")]
    NotRunning { id: String },
    #[error("{id} is already running")]
    Running { id: String },
    #[error("cannot send {id} a signal: {source}")]
    Signal { id: String, source: io::Error },
}

/// The command line of a node. Its ports for DNS and peers are free ones.
#[derive(Debug)]
pub struct NodeCommand {
    id: String,
    command: Command,
    log: PathBuf,
}

/// A node that was started. Its process is killed when this is dropped, and ends with this process.
///
/// Linux ends the node with the *thread* that started it: start nodes from a thread that outlives them.
#[derive(Debug)]
pub struct NodeProcess {
    id: String,
    log: PathBuf,
    child: Child,
    pid: Pid,
    stage: watch::Receiver<Stage>,
    _reading: JoinSet<()>,
}

/// The addresses of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAddresses {
    pub clients: SocketAddr,
    pub peers: SocketAddr,
}

/// The state that a node has printed on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Starting,
    Listening(NodeAddresses),
    Ready(NodeAddresses),
    Ended,
}

/// Removes the configuration of the calling program from a command: the node gets only its own.
pub fn remove_configuration(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CONVOKE_")) {
        command.env_remove(name);
    }
}

impl NodeCommand {
    /// A node with this data directory. It appends its stderr to the log file.
    pub fn new(binary: &Path, id: &str, client_port: u16, data_dir: &Path, log: &Path) -> NodeCommand {
        let mut command = Command::new(binary);
        remove_configuration(&mut command);
        command.args(["start", "--id", id, "--client-port", &client_port.to_string()]);
        command.args(["--peer-port", "0", "--dns-port", "0", "--end-with", &std::process::id().to_string()]);
        command.arg("--data-dir").arg(data_dir);
        NodeCommand { id: id.to_owned(), command, log: log.to_owned() }
    }

    /// Adds an option with its value.
    pub fn option(&mut self, name: &str, value: impl AsRef<OsStr>) -> &mut Self {
        self.command.arg(name).arg(value);
        self
    }

    pub fn environment(&mut self, variables: &[(OsString, OsString)]) -> &mut Self {
        self.command.envs(variables.iter().cloned());
        self
    }

    /// Starts the process.
    pub fn spawn(self) -> Result<NodeProcess, NodeError> {
        let id = self.id.clone();
        self.try_spawn().map_err(|source| NodeError::Spawn { id, source })
    }

    fn try_spawn(self) -> io::Result<NodeProcess> {
        let NodeCommand { id, command, log } = self;
        let mut command = tokio::process::Command::from(command);
        let stderr = File::options().create(true).append(true).open(&log)?;
        // Its own process group: Ctrl-C in the terminal does not reach the node.
        command.process_group(0).kill_on_drop(true);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).ok_or(io::ErrorKind::NotFound)?;
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (stages, stage) = watch::channel(Stage::Starting);
        let mut reading = JoinSet::new();
        reading.spawn(read(stdout, stages));
        Ok(NodeProcess { id, log, child, pid, stage, _reading: reading })
    }
}

impl NodeProcess {
    /// The process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    pub fn has_ended(&self) -> bool {
        *self.stage.borrow() == Stage::Ended
    }

    /// Waits until the node listens, and returns its addresses.
    pub async fn listening(&mut self, within: Duration) -> Result<NodeAddresses, NodeError> {
        self.wait(within, |stage| *stage != Stage::Starting).await
    }

    /// Waits until the node is ready.
    pub async fn ready(&mut self, within: Duration) -> Result<NodeAddresses, NodeError> {
        self.wait(within, |stage| !matches!(stage, Stage::Starting | Stage::Listening(_))).await
    }

    async fn wait(&mut self, within: Duration, wanted: impl Fn(&Stage) -> bool) -> Result<NodeAddresses, NodeError> {
        let stage = timeout(within, self.stage.wait_for(wanted)).await;
        let stage = stage.map(|stage| stage.map_or(Stage::Ended, |stage| *stage));
        if let Ok(Stage::Listening(addresses) | Stage::Ready(addresses)) = stage {
            return Ok(addresses);
        }
        let (id, log_tail) = (self.id.clone(), last_line(&self.log));
        Err(if stage.is_ok() { NodeError::Ended { id, log_tail } } else { NodeError::Slow { id, within, log_tail } })
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), NodeError> {
        let failed = |error: rustix::io::Errno| NodeError::Signal { id: self.id.clone(), source: error.into() };
        kill_process(self.pid, signal).map_err(failed)
    }

    /// Waits for the end of the process, but not longer than a timeout.
    pub(crate) async fn ended(&mut self, within: Duration) {
        let _ = timeout(within, self.child.wait()).await;
    }

    /// Sends SIGKILL and waits for the end of the process.
    pub async fn kill(mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill().await;
    }

    /// Sends SIGKILL and blocks until the process has ended, for use in a destructor.
    pub fn kill_and_wait(&mut self) {
        let _ = self.child.start_kill();
        while matches!(self.child.try_wait(), Ok(None)) {
            #[allow(clippy::disallowed_methods, reason = "a destructor cannot wait in the runtime")]
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The last line of a log file.
fn last_line(log: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
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

/// Reads the stdout of a node until it ends.
async fn read(output: impl AsyncRead + Unpin, stage: watch::Sender<Stage>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(addresses) = line.strip_prefix("listening: ").and_then(node_addresses) {
            stage.send_replace(Stage::Listening(addresses));
        } else if let Some(addresses) = line.strip_prefix("ready: ").and_then(node_addresses) {
            stage.send_replace(Stage::Ready(addresses));
        }
    }
    stage.send_replace(Stage::Ended);
}

/// Parses `clients A, peers B, …`.
fn node_addresses(text: &str) -> Option<NodeAddresses> {
    let mut parts = text.split(", ");
    let clients = parts.next()?.strip_prefix("clients ")?.parse().ok()?;
    let peers = parts.next()?.strip_prefix("peers ")?.parse().ok()?;
    Some(NodeAddresses { clients, peers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_nodes_write_them() {
        let found = node_addresses("clients 127.1.2.3:7700, peers 127.1.2.3:40001, dns 127.1.2.3:7753").unwrap();
        assert_eq!((found.clients.port(), found.peers.port()), (7700, 40001));
        assert_eq!(node_addresses("clients 127.1.2.3:7700, peers 127.1.2.3:40001").unwrap(), found);
        assert_eq!(node_addresses("clients here, peers there"), None);
    }
}
