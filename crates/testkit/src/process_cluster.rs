//! Clusters of nodes as processes of the binary, on loopback or on hosts of a [`NamespaceNetwork`]. A node keeps its directory and
//! ports when it is restarted. Nodes are numbered from 0 and named `n1`, `n2`, …

use crate::network::NamespaceNetwork;
use crate::process::{TestNode, run_to_end};
use crate::{free_address, until};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Ports of nodes on their own hosts.
const CLIENT_PORT: u16 = 7700;
const PEER_PORT: u16 = 7701;

/// The plan of a cluster.
#[derive(Debug)]
pub struct ProcessClusterPlan {
    binary: PathBuf,
    dir: PathBuf,
    network: Option<NamespaceNetwork>,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl ProcessClusterPlan {
    /// Further arguments of `convoke start` for every node.
    #[must_use]
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// An environment variable of every node. A later value replaces an earlier one.
    #[must_use]
    pub fn environment(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Puts the nodes on the first hosts of a network.
    #[must_use]
    pub fn on(mut self, network: NamespaceNetwork) -> Self {
        self.network = Some(network);
        self
    }

    /// Starts nodes in turn, each joining the first, and waits until all are connected.
    pub fn start(self, count: usize) -> io::Result<ProcessCluster> {
        let mut cluster = ProcessCluster { plan: self, nodes: Vec::new() };
        for _ in 0..count {
            cluster.add()?;
        }
        cluster.wait_meshed();
        Ok(cluster)
    }

    /// Starts nodes concurrently with the same join list, and waits until all are connected.
    pub fn start_at_once(self, count: usize) -> io::Result<ProcessCluster> {
        let mut cluster = ProcessCluster { plan: self, nodes: Vec::new() };
        for index in 0..count {
            let member = cluster.plan.member(index);
            cluster.nodes.push(member);
        }
        let all: Vec<String> = cluster.nodes.iter().map(|member| member.peers.clone()).collect();
        for member in &mut cluster.nodes {
            member.join.clone_from(&all);
        }
        cluster.start_all()?;
        cluster.wait_meshed();
        Ok(cluster)
    }

    /// A node that is not started.
    fn member(&self, index: usize) -> Member {
        let address = |port: u16| match &self.network {
            Some(network) => format!("{}:{port}", network.address(index)),
            None => free_address(),
        };
        let id = format!("n{}", index + 1);
        let (clients, peers) = (address(CLIENT_PORT), address(PEER_PORT));
        let data_dir = self.dir.join(&id);
        Member { id, clients, peers, join: Vec::new(), environment: Vec::new(), data_dir, process: None }
    }

    /// A command that runs the binary on the host of this node, without the `CONVOKE_…` variables of the test.
    fn binary(&self, index: usize) -> Command {
        let mut command = match &self.network {
            Some(network) => network.command(index, &self.binary),
            None => Command::new(&self.binary),
        };
        convoke_lab::remove_configuration(&mut command);
        command
    }
}

#[derive(Debug)]
struct Member {
    id: String,
    clients: String,
    peers: String,
    join: Vec<String>,
    environment: Vec<(OsString, OsString)>,
    data_dir: PathBuf,
    process: Option<TestNode>,
}

/// The nodes. Dropping it kills them.
#[derive(Debug)]
pub struct ProcessCluster {
    // Dropped before the network that the processes run in.
    nodes: Vec<Member>,
    plan: ProcessClusterPlan,
}

impl ProcessCluster {
    /// A plan with this `convoke` binary and this parent of the data directories.
    pub fn plan(binary: &Path, dir: &Path) -> ProcessClusterPlan {
        let (binary, dir) = (binary.to_owned(), dir.to_owned());
        ProcessClusterPlan { binary, dir, network: None, arguments: Vec::new(), environment: Vec::new() }
    }

    /// Number of nodes, running or not.
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// Indexes of the running nodes.
    pub fn running(&self) -> impl Iterator<Item = usize> {
        self.nodes.iter().enumerate().filter(|(_, member)| member.process.is_some()).map(|(index, _)| index)
    }

    pub fn id(&self, index: usize) -> &str {
        &self.nodes[index].id
    }

    /// Client address of a node.
    pub fn clients(&self, index: usize) -> &str {
        &self.nodes[index].clients
    }

    /// Client addresses of all nodes, separated by commas, for `--addr`.
    pub fn all_clients(&self) -> String {
        self.nodes.iter().map(|member| member.clients.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Peer address of a node.
    pub fn peers(&self, index: usize) -> &str {
        &self.nodes[index].peers
    }

    pub fn data_dir(&self, index: usize) -> &Path {
        &self.nodes[index].data_dir
    }

    /// Sets an environment variable of one node for its next start.
    pub fn set_environment(&mut self, index: usize, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.nodes[index].environment.push((name.into(), value.into()));
    }

    /// The process of a running node.
    ///
    /// # Panics
    /// If the node does not run.
    #[track_caller]
    pub fn node(&self, index: usize) -> &TestNode {
        self.nodes[index].process.as_ref().expect("the node is running")
    }

    /// The network of the cluster.
    ///
    /// # Panics
    /// If the cluster is on loopback.
    #[track_caller]
    pub fn network(&self) -> &NamespaceNetwork {
        self.plan.network.as_ref().expect("the cluster was started on a network")
    }

    /// Adds a node that joins the first running one, and returns its index when it is ready.
    pub fn add(&mut self) -> io::Result<usize> {
        let index = self.reserve();
        self.restart(index)?;
        Ok(index)
    }

    /// Adds a node without starting it, so that its environment can be set first.
    pub fn reserve(&mut self) -> usize {
        let index = self.nodes.len();
        let mut member = self.plan.member(index);
        member.join.extend(self.running().next().map(|first| self.nodes[first].peers.clone()));
        self.nodes.push(member);
        index
    }

    /// Adds another node to the join list of a node, for its next start.
    pub fn add_join(&mut self, index: usize, other: usize) {
        let peers = self.nodes[other].peers.clone();
        self.nodes[index].join.push(peers);
    }

    /// Sends SIGKILL and waits for the end of the process.
    pub fn kill(&mut self, index: usize) {
        self.nodes[index].process = None;
    }

    /// Sends SIGSTOP.
    pub fn pause(&self, index: usize) {
        self.node(index).process.pause();
    }

    /// Sends SIGCONT.
    pub fn resume(&self, index: usize) {
        self.node(index).process.resume();
    }

    /// Sends SIGTERM and waits. Returns the exit status and stderr.
    pub fn stop(&mut self, index: usize) -> (ExitStatus, String) {
        let mut node = self.nodes[index].process.take().expect("the node is running");
        node.process.terminate();
        (node.process.wait(), node.process.stderr())
    }

    /// Restarts a killed or stopped node with its ports and directory, and waits until it is ready.
    pub fn restart(&mut self, index: usize) -> io::Result<()> {
        self.launch(index)?;
        self.node(index).wait_ready()
    }

    /// Starts all nodes that do not run concurrently, and waits until they are ready.
    pub fn start_all(&mut self) -> io::Result<()> {
        let stopped: Vec<usize> = (0..self.nodes.len()).filter(|index| self.nodes[*index].process.is_none()).collect();
        stopped.iter().try_for_each(|index| self.launch(*index))?;
        stopped.iter().try_for_each(|index| self.node(*index).wait_ready())
    }

    fn launch(&mut self, index: usize) -> io::Result<()> {
        let member = &self.nodes[index];
        let (host, client_port) = split(&member.clients);
        let (_, peer_port) = split(&member.peers);
        let mut command = self.plan.binary(index);
        command.args([
            "start",
            "--id",
            &member.id,
            "--bind",
            host,
            "--client-port",
            client_port,
            "--peer-port",
            peer_port,
        ]);
        command.arg("--data-dir").arg(&member.data_dir);
        if !member.join.is_empty() {
            command.args(["--join", &member.join.join(",")]);
        }
        // The number is not used.
        command.args(["--dns-port", "0"]);
        if self.plan.network.is_some() {
            command.arg("--insecure-public");
            if member.join.is_empty() {
                command.arg("--bootstrap");
            }
        }
        command.args(&self.plan.arguments);
        command.envs(self.plan.environment.iter().cloned()).envs(member.environment.iter().cloned());
        self.nodes[index].process = Some(TestNode::launch(&mut command)?);
        Ok(())
    }

    /// A command that runs the binary on the host of this node, without `--addr`.
    pub fn command(&self, index: usize, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = self.plan.binary(index);
        command.args(arguments);
        command
    }

    /// The JSON answer of a node to a command of the binary.
    pub fn ask(&self, index: usize, arguments: &[&str]) -> io::Result<Value> {
        let mut command = self.command(index, arguments);
        command.args(["--json", "--timeout", "30s", "--addr", self.clients(index)]);
        let output = run_to_end(&mut command)?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// State of one node as another reports it; empty if it does not know the node.
    pub fn state(&self, at: usize, of: usize) -> io::Result<String> {
        let answer = self.ask(at, &["nodes"])?;
        let nodes = answer["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let found = nodes.iter().find(|node| node["id"] == self.id(of));
        Ok(found.and_then(|node| node["state"].as_str()).unwrap_or_default().to_owned())
    }

    /// Whether every running node reports every other up.
    pub fn is_meshed(&self) -> bool {
        let running: Vec<usize> = self.running().collect();
        running.iter().all(|at| {
            self.ask(*at, &["nodes"]).is_ok_and(|answer| {
                let nodes = answer["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
                let up = |id: &str| nodes.iter().any(|node| node["id"] == id && node["state"] == "up");
                running.iter().all(|other| up(self.id(*other)))
            })
        })
    }

    /// Waits until every running node reports every other up.
    ///
    /// # Panics
    /// If it does not become so.
    #[track_caller]
    pub fn wait_meshed(&self) {
        until("every node is linked to every other", || self.is_meshed());
    }
}

fn split(address: &str) -> (&str, &str) {
    address.rsplit_once(':').expect("an address has a port")
}
