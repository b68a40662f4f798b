//! One node: a process and the relay in front of its peer port.

use crate::network::RelayNetwork;
use crate::process::{NodeAddresses, NodeCommand, NodeError, NodeProcess};
use crate::relay::Relay;
use rustix::process::Signal;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time for a node to listen, and to be ready once it can reach others.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for a node to stop after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

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
    running: Option<NodeProcess>,
    paused: bool,
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
        self.running.as_ref().map(NodeProcess::pid)
    }

    pub fn state(&self) -> NodeState {
        match &self.running {
            Some(running) if !running.has_ended() && self.paused => NodeState::Paused,
            Some(running) if !running.has_ended() => NodeState::Running,
            _ => NodeState::Dead,
        }
    }

    /// Starts the process, and waits until the node is ready. A node that can reach none of its seeds is not ready (N7), so
    /// unless `others` run, this waits until it listens.
    pub(crate) async fn start(&mut self, launch: &Launch, join: &[SocketAddr], others: bool) -> Result<(), NodeError> {
        if self.state() != NodeState::Dead {
            return Err(NodeError::Running { id: self.id.clone() });
        }
        // Remains of a process that ended by itself.
        self.kill().await;
        std::fs::create_dir_all(&self.dir).map_err(|source| NodeError::Spawn { id: self.id.clone(), source })?;
        // Stored at once: if the future is dropped, the process can still be ended.
        let running = self.running.insert(self.command(launch, join).spawn()?);
        let listening = running.listening(START_TIMEOUT).await;
        if let Ok(NodeAddresses { clients, peers }) = listening {
            self.clients = clients;
            self.relay.lead_to(Some(peers));
        }
        let started = match listening {
            Ok(_) if others || join.is_empty() => running.ready(START_TIMEOUT).await,
            Ok(addresses) => Ok(addresses),
            Err(error) => Err(error),
        };
        if started.is_err() {
            self.kill().await;
        }
        started.map(drop)
    }

    fn command(&self, launch: &Launch, join: &[SocketAddr]) -> NodeCommand {
        let (data_dir, client_port) = (self.dir.join("data"), self.clients.port());
        let mut command = NodeCommand::new(&launch.binary, &self.id, client_port, &data_dir, &self.log());
        command.environment(&launch.environment).option("--cluster", &launch.cluster);
        command.option("--bind", self.host.to_string()).option("--advertise", self.peers().to_string());
        if !self.region.is_empty() {
            command.option("--region", &self.region);
        }
        if !join.is_empty() {
            let join: Vec<String> = join.iter().map(ToString::to_string).collect();
            command.option("--join", join.join(","));
        }
        command
    }

    /// Sends SIGKILL and waits for the end of the process.
    pub(crate) async fn kill(&mut self) {
        self.relay.lead_to(None);
        self.paused = false;
        if let Some(running) = self.running.take() {
            running.kill().await;
        }
    }

    /// Sends SIGTERM, and SIGKILL after a timeout. Waits for the end of the process.
    pub(crate) async fn stop(&mut self) {
        let resumed = self.resume();
        let Some(running) = &mut self.running else { return };
        if resumed.is_ok() && running.signal(Signal::TERM).is_ok() {
            running.ended(STOP_TIMEOUT).await;
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
        match &self.running {
            Some(running) if self.state() != NodeState::Dead => running.signal(signal),
            _ => Err(NodeError::NotRunning { id: self.id.clone() }),
        }
    }

    /// The directory of the node, for tests.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}
