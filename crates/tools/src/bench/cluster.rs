//! The nodes under load: processes of this binary that end with the benchmark, or existing nodes.

use super::tls;
use crate::args::BenchCommon;
use convoke_cli::{CommandError, Result, call};
use convoke_client::log::{Ambassador, ReplicaChange};
use convoke_lab::{NodeAddresses, NodeCommand, NodeError, NodeProcess};
use convoke_proto::v1;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

/// Time for a node to become ready, even with very many members to receive.
const READY_WITHIN: Duration = Duration::from_secs(300);

/// Time for an existing node to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// After this time, a message tells the user what the benchmark waits for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time for a new node to catch up with an empty log.
const VOTER_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Cluster {
    /// Nodes started here; empty if existing nodes are used.
    nodes: Vec<Node>,
    given: Vec<String>,
    /// Processes of the given nodes, if their CPU time is measured.
    processes: Vec<u32>,
    /// Binary of the started nodes, if it is not this one.
    binary: Option<PathBuf>,
    /// Dropped after the nodes, which write to it.
    directory: Option<Directory>,
}

impl Cluster {
    /// Returns the nodes to use: those given, or new ones that are connected.
    pub(super) async fn of(common: &BenchCommon) -> Result<Cluster> {
        if common.nodes_given.is_empty() {
            return Cluster::start(common, common.nodes).await;
        }
        let cluster = Cluster::given(common)?;
        for address in &cluster.given {
            answers(common, address).await?;
        }
        Ok(cluster)
    }

    pub(super) async fn start(common: &BenchCommon, count: u16) -> Result<Cluster> {
        let directory = Some(Directory::make()?);
        let binary = common.binary.clone();
        let mut cluster = Cluster { nodes: Vec::new(), given: Vec::new(), processes: Vec::new(), binary, directory };
        for _ in 0..count {
            cluster.add().await?;
        }
        Ok(cluster)
    }

    /// Starts new nodes that are all voters of one log.
    pub(super) async fn start_log(common: &BenchCommon) -> Result<Cluster> {
        let count = common.nodes;
        let cluster = Cluster::start(common, count).await?;
        let ambassador = Ambassador::start(cluster.addresses())?;
        for number in 2..=count {
            for change in [
                ReplicaChange::Add { node: format!("n{number}"), address: None },
                ReplicaChange::Promote(format!("n{number}")),
            ] {
                let changed = ambassador.change(&change, VOTER_WITHIN, Some(VOTER_WITHIN)).await?;
                if !changed.settled {
                    return Err(CommandError::failed(format!(
                        "n{number} did not become a voter within {VOTER_WITHIN:?}"
                    )));
                }
            }
        }
        Ok(cluster)
    }

    pub(super) fn given(common: &BenchCommon) -> Result<Cluster> {
        let given = tls::prepare(common)?;
        let processes = common.server_pid.clone();
        Ok(Cluster { nodes: Vec::new(), given, processes, binary: None, directory: None })
    }

    /// Adds a node and waits until it is ready.
    pub(super) async fn add(&mut self) -> Result<&Node> {
        let Some(directory) = &self.directory else { return Err(needs_own()) };
        let id = format!("n{}", self.nodes.len() + 1);
        let join = self.nodes.first().map(|node| node.addresses.peers);
        let node = Node::start(&directory.0, &id, join, self.binary.as_deref()).await?;
        self.nodes.push(node);
        self.nodes.last().ok_or_else(needs_own)
    }

    /// Returns the nodes whose memory can be measured.
    pub(super) fn own(&self) -> Result<&[Node]> {
        if self.nodes.is_empty() { Err(needs_own()) } else { Ok(&self.nodes) }
    }

    /// Client addresses of all nodes.
    pub(super) fn addresses(&self) -> Vec<String> {
        if self.nodes.is_empty() {
            return self.given.clone();
        }
        self.nodes.iter().map(Node::clients).collect()
    }

    /// The address for the client, watcher or connection with this number.
    pub(super) fn address(&self, number: usize) -> String {
        let addresses = self.addresses();
        addresses[number % addresses.len()].clone()
    }

    /// Processes of the nodes, if they are known.
    pub(super) fn processes(&self) -> Vec<u32> {
        self.nodes.iter().map(Node::id).chain(self.processes.iter().copied()).collect()
    }

    /// CPU time that all nodes have used so far, if their processes are known.
    pub(super) fn cpu(&self) -> Option<Duration> {
        let times: Vec<Duration> = self.processes().into_iter().filter_map(super::usage::cpu).collect();
        (!times.is_empty()).then(|| times.iter().sum())
    }
}

/// Checks that an existing node answers and accepts clients, before there is load.
async fn answers(common: &BenchCommon, address: &str) -> Result {
    let connect = tls::flags(common, vec![address.to_owned()], ANSWER_WITHIN);
    let request = v1::ListRequest { limit: 1, ..v1::ListRequest::default() };
    let mut asking = pin!(call(&connect, async |node| node.registry().list(request.clone()).await));
    let answer = match tokio::time::timeout(PATIENCE, &mut asking).await {
        Ok(answer) => answer,
        Err(_) => {
            eprintln!("convoke: waiting for an answer from {address}, at most {} s", ANSWER_WITHIN.as_secs());
            asking.await
        }
    };
    answer.map(drop)
}

fn needs_own() -> CommandError {
    CommandError::usage("this benchmark measures nodes that it starts itself: leave out --addr")
}

/// A node that was started here. Peers reach it without a relay, which would be measured too.
#[derive(Debug)]
pub(super) struct Node {
    process: Process,
    addresses: NodeAddresses,
}

impl Node {
    async fn start(directory: &Path, id: &str, join: Option<SocketAddr>, binary: Option<&Path>) -> Result<Node> {
        let binary = match binary {
            Some(binary) => binary.to_owned(),
            None => std::env::current_exe()
                .map_err(|error| CommandError::failed(format!("cannot find the binary of a node: {error}")))?,
        };
        let log = directory.join(format!("{id}.log"));
        let mut command = NodeCommand::new(&binary, id, 0, &directory.join(id), &log);
        command.option("--log-level", "warn");
        if let Some(join) = join {
            command.option("--join", join.to_string());
        }
        // The kernel ends the node with the thread that starts it: this is the main thread, on which everything runs
        // that is not spawned.
        let failed = |error: NodeError| CommandError::failed(error.to_string());
        let mut process = Process(command.spawn().map_err(failed)?);
        let addresses = process.0.ready(READY_WITHIN).await.map_err(failed)?;
        Ok(Node { process, addresses })
    }

    /// Client address.
    pub(super) fn clients(&self) -> String {
        self.addresses.clients.to_string()
    }

    /// Process id.
    pub(super) fn id(&self) -> u32 {
        self.process.0.pid()
    }

    /// Resident memory in bytes.
    pub(super) fn resident(&self) -> Result<u64> {
        let resident = super::usage::resident(self.id());
        resident.ok_or_else(|| CommandError::failed("cannot read the memory of a node: this works on Linux only"))
    }
}

/// Ends the process when dropped, also while the node starts. The node writes to its directory, which is removed afterwards.
#[derive(Debug)]
struct Process(NodeProcess);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill_and_wait();
    }
}

/// Removes the directory and its content when dropped.
#[derive(Debug)]
struct Directory(PathBuf);

impl Directory {
    fn make() -> Result<Directory> {
        let path = std::env::temp_dir().join(format!("convoke-bench-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| {
            CommandError::failed(format!("cannot create the directory {}: {error}", path.display()))
        })?;
        Ok(Directory(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("convoke: cannot remove {}: {error}", self.0.display());
        }
    }
}
