//! Several nodes on one machine.

use crate::network::{Direction, RelayNetwork};
use crate::node::{Launch, LocalNode, NodeState};
use crate::process::NodeError;
use crate::relay::Relay;
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Largest number of nodes of a cluster, to bound the number of processes.
pub const NODES_MAX: usize = 32;
const CLIENT_PORT: u16 = 7700;
const PEER_PORT: u16 = 7701;
/// Range of the addresses of clusters: 127.64.0.0 to 127.127.255.0, away from 127.0.0.1, which most programs use.
const FIRST_NET: u8 = 64;
const LAST_NET: u8 = 127;
const NETS_TRIED: usize = 64;

/// The plan of a cluster.
#[derive(Debug)]
pub struct ClusterPlan {
    /// Cluster name of the nodes.
    pub cluster: String,
    /// The `convoke` binary.
    pub binary: PathBuf,
    /// Directory for the data of the nodes. The caller removes it.
    pub dir: PathBuf,
    /// Prefix of the node ids; a number from 1 follows.
    pub prefix: &'static str,
    /// Environment variables of all nodes: `CONVOKE_…`.
    pub environment: Vec<(OsString, OsString)>,
    /// Use 127.0.0.1 for the first node if its ports are free.
    pub at_localhost: bool,
}

/// The nodes and the network between them. Dropping it kills the nodes.
///
/// Linux ends the nodes with the *thread* that started them: start nodes from a thread that outlives them.
#[derive(Debug)]
pub struct LocalCluster {
    launch: Launch,
    plan: ClusterPlan,
    network: RelayNetwork,
    /// The first three bytes of all addresses.
    net: [u8; 3],
    /// Reserves the addresses until the first node is added.
    first: Option<Relay>,
    nodes: Vec<LocalNode>,
    /// Ids and addresses are not reused.
    added: usize,
}

impl LocalCluster {
    /// Creates a cluster without nodes, with addresses that no other cluster uses.
    pub fn new(plan: ClusterPlan) -> io::Result<LocalCluster> {
        let network = RelayNetwork::default();
        let (net, first) = claim_net(&network, plan.at_localhost)?;
        let (binary, cluster) = (plan.binary.clone(), plan.cluster.clone());
        let launch = Launch { binary, cluster, environment: plan.environment.clone() };
        Ok(LocalCluster { launch, plan, network, net, first: Some(first), nodes: Vec::new(), added: 0 })
    }

    pub fn name(&self) -> &str {
        &self.plan.cluster
    }

    pub fn network(&self) -> &RelayNetwork {
        &self.network
    }

    pub fn nodes(&self) -> &[LocalNode] {
        &self.nodes
    }

    pub fn node(&self, id: &str) -> Option<&LocalNode> {
        self.nodes.iter().find(|node| node.id() == id)
    }

    /// Adds a node that joins all others, waits until it is ready and returns its id. If the future is dropped, the node keeps
    /// starting.
    pub async fn add(&mut self, region: &str) -> Result<String, NodeError> {
        let number = self.added + 1;
        let id = format!("{}{number}", self.plan.prefix);
        let host = self.host(number).map_err(|source| NodeError::Spawn { id: id.clone(), source })?;
        let relay = match self.first.take() {
            Some(relay) => Ok(relay),
            None => listen(&self.network, host),
        };
        let relay = relay.map_err(|source| NodeError::Spawn { id: id.clone(), source })?;
        let dir = self.plan.dir.join(&id);
        let node = LocalNode::new(id.clone(), region.to_owned(), &self.network, relay, CLIENT_PORT, dir);
        let join = self.others(&id);
        self.added = number;
        self.nodes.push(node);
        let others = self.others_run(&id);
        let started = match self.nodes.last_mut() {
            Some(node) => node.start(&self.launch, &join, others).await,
            None => Ok(()),
        };
        if started.is_err() {
            self.nodes.pop();
        }
        started.map(|()| id)
    }

    fn host(&self, number: usize) -> io::Result<IpAddr> {
        let [a, b, c] = self.net;
        let last = u8::try_from(number).ok().filter(|last| *last < u8::MAX);
        let last = last.ok_or_else(|| io::Error::other("all addresses of this cluster were used: create another"))?;
        Ok(Ipv4Addr::new(a, b, c, last).into())
    }

    fn others(&self, id: &str) -> Vec<SocketAddr> {
        self.nodes.iter().filter(|node| node.id() != id).map(LocalNode::peers).collect()
    }

    fn others_run(&self, id: &str) -> bool {
        self.nodes.iter().any(|node| node.id() != id && node.state() == NodeState::Running)
    }

    /// Stops a node, forgets it and removes its directory. Returns whether the node existed.
    pub async fn remove(&mut self, id: &str) -> bool {
        let Some(index) = self.index(id) else { return false };
        self.nodes[index].stop().await;
        let node = self.nodes.remove(index);
        self.network.forget(node.host());
        // A failure does not matter: the directory of the cluster is removed later.
        let _ = std::fs::remove_dir_all(node.dir());
        true
    }

    /// Sends SIGKILL to a node; `None` if there is no such node.
    pub async fn kill(&mut self, id: &str) -> Option<()> {
        let index = self.index(id)?;
        self.nodes[index].kill().await;
        Some(())
    }

    /// Starts the process of a dead node again, with its old addresses and directory, and waits until it is ready. If no
    /// other node runs, it is not ready alone, so this waits until it listens.
    pub async fn restart(&mut self, id: &str) -> Option<Result<(), NodeError>> {
        let index = self.index(id)?;
        let (join, others) = (self.others(id), self.others_run(id));
        Some(self.nodes[index].start(&self.launch, &join, others).await)
    }

    /// SIGSTOP.
    pub fn pause(&mut self, id: &str) -> Option<Result<(), NodeError>> {
        let index = self.index(id)?;
        Some(self.nodes[index].pause())
    }

    /// SIGCONT.
    pub fn resume(&mut self, id: &str) -> Option<Result<(), NodeError>> {
        let index = self.index(id)?;
        Some(self.nodes[index].resume())
    }

    /// The direction from one node to another; `None` if one of them does not exist.
    pub fn direction(&self, from: &str, to: &str) -> Option<Direction> {
        Some(Direction::new(self.node(from)?.host(), self.node(to)?.host()))
    }

    /// The node at this address.
    pub fn id_of(&self, host: IpAddr) -> Option<&str> {
        self.nodes.iter().find(|node| node.host() == host).map(LocalNode::id)
    }

    /// Kills all nodes and waits for their end.
    pub async fn end(mut self) {
        for node in &mut self.nodes {
            node.kill().await;
        }
    }

    fn index(&self, id: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.id() == id)
    }
}

fn listen(network: &RelayNetwork, host: IpAddr) -> io::Result<Relay> {
    // Another program may listen at this port of all addresses.
    Relay::listen(network, host, SocketAddr::new(host, PEER_PORT))
        .or_else(|_| Relay::listen(network, host, SocketAddr::new(host, 0)))
}

/// Finds unused addresses. The relay at the first address reserves them.
fn claim_net(network: &RelayNetwork, at_localhost: bool) -> io::Result<([u8; 3], Relay)> {
    let random = || [127, fastrand::u8(FIRST_NET..=LAST_NET), fastrand::u8(..)];
    let localhost = at_localhost.then_some([127, 0, 0]);
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for net in localhost.into_iter().chain(std::iter::repeat_with(random).take(NETS_TRIED)) {
        let [a, b, c] = net;
        let host = Ipv4Addr::new(a, b, c, 1);
        let free = std::net::TcpListener::bind((host, CLIENT_PORT));
        match free.and_then(|_| Relay::listen(network, host.into(), SocketAddr::from((host, PEER_PORT)))) {
            Ok(relay) => return Ok((net, relay)),
            Err(error) => last = error,
        }
    }
    // The default ports are in use at all addresses: use any port.
    let [a, b, c] = random();
    let host = Ipv4Addr::new(a, b, c, 1);
    let relay = Relay::listen(network, host.into(), SocketAddr::from((host, 0)));
    relay.map(|relay| ([a, b, c], relay)).map_err(|_| {
        let kind = last.kind();
        io::Error::new(kind, format!("cannot listen on loopback addresses like {host} (that needs Linux): {last}"))
    })
}
