//! Several nodes as processes of the real binary, on this machine's loopback or on hosts of a [`Network`], each with a
//! directory and ports that it keeps when it is started again. Nodes are numbered from 0 and named `n1`, `n2`, …

use crate::network::Network;
use crate::process::{NodeProcess, run_to_end};
use crate::{free_address, until};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// On a host of their own all nodes use the usual ports.
const CLIENT_PORT: u16 = 7700;
const PEER_PORT: u16 = 7701;

/// What a cluster is made of.
#[derive(Debug)]
pub struct ProcessClusterPlan {
    binary: PathBuf,
    dir: PathBuf,
    network: Option<Network>,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl ProcessClusterPlan {
    /// For every node: further arguments of `convoke start`.
    #[must_use]
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// For every node: a variable of the environment. The last one of a name counts.
    #[must_use]
    pub fn environment(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Puts the nodes on the first hosts of a network.
    #[must_use]
    pub fn on(mut self, network: Network) -> Self {
        self.network = Some(network);
        self
    }

    /// Starts nodes one after the other, each joining the first, and waits until all know each other.
    pub fn start(self, count: usize) -> io::Result<ProcessCluster> {
        let mut cluster = ProcessCluster { plan: self, nodes: Vec::new() };
        for _ in 0..count {
            cluster.add()?;
        }
        cluster.wait_meshed();
        Ok(cluster)
    }

    /// Starts nodes at the same moment, all with the same list of addresses to join, and waits until all know each other.
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

    /// A node that was not started yet.
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

    /// The binary, run where this node is, free of what the own environment says about Convoke.
    fn binary(&self, index: usize) -> Command {
        let mut command = match &self.network {
            Some(network) => network.command(index, &self.binary),
            None => Command::new(&self.binary),
        };
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CONVOKE_")) {
            command.env_remove(name);
        }
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
    process: Option<NodeProcess>,
}

/// The nodes. Dropping it kills them.
#[derive(Debug)]
pub struct ProcessCluster {
    // Before the network: processes end before the place they run in.
    nodes: Vec<Member>,
    plan: ProcessClusterPlan,
}

impl ProcessCluster {
    /// Of this `convoke` binary, with the nodes' directories in this one.
    pub fn plan(binary: &Path, dir: &Path) -> ProcessClusterPlan {
        let (binary, dir) = (binary.to_owned(), dir.to_owned());
        ProcessClusterPlan { binary, dir, network: None, arguments: Vec::new(), environment: Vec::new() }
    }

    /// How many nodes there are, running or not.
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// Indexes of those that run.
    pub fn running(&self) -> impl Iterator<Item = usize> {
        self.nodes.iter().enumerate().filter(|(_, member)| member.process.is_some()).map(|(index, _)| index)
    }

    pub fn id(&self, index: usize) -> &str {
        &self.nodes[index].id
    }

    /// Where clients connect.
    pub fn clients(&self, index: usize) -> &str {
        &self.nodes[index].clients
    }

    /// Where clients connect: all nodes, separated by commas, as `--addr` takes them.
    pub fn all_clients(&self) -> String {
        self.nodes.iter().map(|member| member.clients.as_str()).collect::<Vec<_>>().join(",")
    }

    /// What other nodes join.
    pub fn peers(&self, index: usize) -> &str {
        &self.nodes[index].peers
    }

    pub fn data_dir(&self, index: usize) -> &Path {
        &self.nodes[index].data_dir
    }

    /// A variable of the environment for one node, from its next start on.
    pub fn set_environment(&mut self, index: usize, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.nodes[index].environment.push((name.into(), value.into()));
    }

    /// The process of a running node.
    ///
    /// # Panics
    /// If it does not run.
    #[track_caller]
    pub fn node(&self, index: usize) -> &NodeProcess {
        self.nodes[index].process.as_ref().expect("the node is running")
    }

    /// The network it is on.
    ///
    /// # Panics
    /// If it is on loopback.
    #[track_caller]
    pub fn network(&self) -> &Network {
        self.plan.network.as_ref().expect("the cluster was started on a network")
    }

    /// Adds a node that joins the first one still running; returns its index when it is ready.
    pub fn add(&mut self) -> io::Result<usize> {
        let index = self.reserve();
        self.restart(index)?;
        Ok(index)
    }

    /// Adds a node that is not started yet, so that its environment can be set before.
    pub fn reserve(&mut self) -> usize {
        let index = self.nodes.len();
        let mut member = self.plan.member(index);
        member.join.extend(self.running().next().map(|first| self.nodes[first].peers.clone()));
        self.nodes.push(member);
        index
    }

    /// SIGKILL; returns when it is gone.
    pub fn kill(&mut self, index: usize) {
        self.nodes[index].process = None;
    }

    /// SIGSTOP.
    pub fn pause(&self, index: usize) {
        self.node(index).process.pause();
    }

    /// SIGCONT.
    pub fn resume(&self, index: usize) {
        self.node(index).process.resume();
    }

    /// SIGTERM; returns when it has ended, with how and with what it said on stderr.
    pub fn stop(&mut self, index: usize) -> (ExitStatus, String) {
        let mut node = self.nodes[index].process.take().expect("the node is running");
        node.process.terminate();
        (node.process.wait(), node.process.stderr())
    }

    /// Starts a node again that was killed or stopped, with its old ports and directory, and waits until it is ready.
    pub fn restart(&mut self, index: usize) -> io::Result<()> {
        self.launch(index)?;
        self.node(index).wait_ready()
    }

    /// Starts all nodes that do not run at the same moment, and waits until they are ready.
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
        // Nobody asks for it by number.
        command.args(["--dns-port", "0"]);
        if self.plan.network.is_some() {
            command.arg("--insecure-public");
        }
        command.args(&self.plan.arguments);
        command.envs(self.plan.environment.iter().cloned()).envs(member.environment.iter().cloned());
        self.nodes[index].process = Some(NodeProcess::launch(&mut command)?);
        Ok(())
    }

    /// A command of the binary, run where this node is and not yet told whom to ask.
    pub fn command(&self, index: usize, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = self.plan.binary(index);
        command.args(arguments);
        command
    }

    /// What a node answers to a command of the binary, as JSON.
    pub fn ask(&self, index: usize, arguments: &[&str]) -> io::Result<Value> {
        let mut command = self.command(index, arguments);
        command.args(["--json", "--timeout", "30s", "--addr", self.clients(index)]);
        let output = run_to_end(&mut command)?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// The state of one node as another sees it; empty if it knows none of that name.
    pub fn state(&self, at: usize, of: usize) -> io::Result<String> {
        let answer = self.ask(at, &["nodes"])?;
        let nodes = answer["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let found = nodes.iter().find(|node| node["id"] == self.id(of));
        Ok(found.and_then(|node| node["state"].as_str()).unwrap_or_default().to_owned())
    }

    /// Whether every running node sees every other as up.
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

    /// Waits for that.
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
