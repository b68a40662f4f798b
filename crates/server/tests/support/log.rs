//! Nodes with the log plane, in one process.

use super::http::Answer;
use super::{Served, timers};
use convoke_client::log::Ambassador;
use convoke_core::Timers;
use convoke_log::LogLimits;
use convoke_node::{Config, Node};
use convoke_replica::{LOG_PREAMBLE, Replica, Role};
use convoke_server::Server;
use convoke_testkit::{Proxy, eventually, free_address};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub struct LogNode {
    pub served: Served,
    pub replica: Replica,
    accepting: JoinHandle<()>,
}

/// Nodes `n0`, `n1`, …; killed nodes leave a gap.
pub struct LogCluster {
    pub nodes: Vec<Option<LogNode>>,
    pub addresses: Vec<String>,
    config: convoke_server::Config,
    state: LogLimits,
    /// Whether the registries of the nodes know each other.
    joined: bool,
    /// Timers of the registry.
    timers: Timers,
    /// If each node advertises a proxy to clients, these proxies.
    pub proxies: Option<Vec<Proxy>>,
}

impl LogCluster {
    /// Starts nodes that form one log. The log has a leader when this returns.
    pub async fn start(count: usize) -> LogCluster {
        LogCluster::start_with(count, convoke_server::Config::default()).await
    }

    pub async fn start_with(count: usize, config: convoke_server::Config) -> LogCluster {
        LogCluster::start_limited(count, config, LogLimits::default()).await
    }

    /// Starts nodes whose log has these limits.
    pub async fn start_limited(count: usize, config: convoke_server::Config, state: LogLimits) -> LogCluster {
        let addresses: Vec<String> = (0..count).map(|_| free_address()).collect();
        let mut cluster =
            LogCluster { nodes: Vec::new(), addresses, config, state, joined: true, timers: timers(), proxies: None };
        cluster.form(count).await;
        cluster
    }

    /// Starts nodes that clients and other nodes reach through proxies.
    pub async fn start_behind_proxies(count: usize, config: convoke_server::Config) -> LogCluster {
        let addresses: Vec<String> = (0..count).map(|_| free_address()).collect();
        let (state, proxies) = (LogLimits::default(), Some(Vec::new()));
        let mut cluster =
            LogCluster { nodes: Vec::new(), addresses, config, state, joined: true, timers: timers(), proxies };
        cluster.form(count).await;
        cluster
    }

    /// Starts nodes whose registries have a short heartbeat timeout.
    pub async fn start_quick(count: usize) -> LogCluster {
        let addresses: Vec<String> = (0..count).map(|_| free_address()).collect();
        let (config, state) = (convoke_server::Config::default(), LogLimits::default());
        let timers = Timers { heartbeat_timeout: std::time::Duration::from_secs(3), ..timers() };
        let mut cluster =
            LogCluster { nodes: Vec::new(), addresses, config, state, joined: true, timers, proxies: None };
        cluster.form(count).await;
        cluster
    }

    /// Starts nodes whose registries do not know each other.
    pub async fn start_apart(count: usize) -> LogCluster {
        let addresses: Vec<String> = (0..count).map(|_| free_address()).collect();
        let (config, state) = (convoke_server::Config::default(), LogLimits::default());
        let mut cluster =
            LogCluster { nodes: Vec::new(), addresses, config, state, joined: false, timers: timers(), proxies: None };
        cluster.form(count).await;
        cluster
    }

    async fn form(&mut self, count: usize) {
        let join = if count == 1 { Vec::new() } else { self.addresses.clone() };
        for index in 0..count {
            self.add(index, join.clone()).await;
        }
        self.leader().await;
    }

    /// Adds a node that is no replica yet.
    pub async fn outsider(&mut self) -> usize {
        let index = self.nodes.len();
        self.addresses.push(free_address());
        let join = self.addresses.clone();
        self.add(index, join).await;
        index
    }

    async fn add(&mut self, index: usize, join: Vec<String>) {
        let bound = Server::bind(self.config.clone()).await.unwrap();
        let id = format!("n{index}");
        let mut config = Config::new(&id).unwrap();
        config.timers = self.timers.clone();
        config.client_address = bound.address().to_string();
        if let Some(proxies) = &mut self.proxies {
            let proxy = Proxy::start(&config.client_address).await;
            config.client_address = proxy.address().to_owned();
            proxies.push(proxy);
        }
        let clients = config.client_address.clone();
        config.join = self
            .nodes
            .iter()
            .filter(|_| self.joined)
            .flatten()
            .map(|node| node.served.node.peer_address().to_owned())
            .collect();
        let node = Node::start(config).await.unwrap();
        let address = self.addresses[index].clone();
        let listener = TcpListener::bind(&address).await.unwrap();
        let mut config = convoke_replica::Config::new(id, address);
        // One node creates its log alone.
        config.join = if join.len() > 1 { join } else { Vec::new() };
        config.state = self.state.clone();
        config.client_address = clients;
        let replica = Replica::start(config).await.unwrap();
        let handle = replica.handle();
        let accepting = tokio::spawn(async move {
            while let Ok((mut stream, from)) = listener.accept().await {
                let mut preamble = [0; LOG_PREAMBLE.len()];
                if stream.read_exact(&mut preamble).await.is_ok() && preamble == LOG_PREAMBLE {
                    handle.accept(stream, from);
                }
            }
        });
        let server = bound.serve(node.handle(), Some(replica.handle()));
        node.ready().await.unwrap();
        self.nodes.push(Some(LogNode { served: Served { node, server }, replica, accepting }));
    }

    pub fn node(&self, index: usize) -> &LogNode {
        self.nodes[index].as_ref().expect("the node runs")
    }

    pub fn served(&self, index: usize) -> &Served {
        &self.node(index).served
    }

    /// Waits until there is a leader that all other nodes know.
    pub async fn leader(&self) -> usize {
        let mut leader = None;
        eventually("the log has a leader that all nodes know", async || {
            let running: Vec<(usize, &LogNode)> =
                self.nodes.iter().enumerate().filter_map(|(index, node)| Some((index, node.as_ref()?))).collect();
            leader = running.iter().find(|(_, node)| node.replica.handle().epoch().is_ok()).map(|(index, _)| *index);
            let known = running.iter().filter(|(_, node)| {
                let status = node.replica.handle().status();
                status.role == Role::Outside || status.available
            });
            leader.is_some() && known.count() == running.len()
        })
        .await;
        leader.unwrap()
    }

    /// Returns a node that does not lead.
    pub async fn follower(&self) -> usize {
        let leader = self.leader().await;
        (0..self.nodes.len()).find(|index| *index != leader && self.nodes[*index].is_some()).unwrap()
    }

    /// Returns an ambassador with the addresses of all running nodes.
    pub fn ambassador(&self) -> Ambassador {
        Ambassador::start(self.nodes.iter().flatten().map(|node| node.served.address().to_string())).unwrap()
    }

    /// Stops a node like its process does.
    pub async fn stop(&mut self, index: usize) {
        let LogNode { served, replica, accepting } = self.nodes[index].take().expect("the node runs");
        let log = replica.handle();
        let leaving = async {
            log.hand_over().await;
            log.stop().await;
        };
        tokio::join!(served.server.stop(), leaving);
        accepting.abort();
    }

    /// Ends a node like a crash.
    pub async fn kill(&mut self, index: usize) {
        let node = self.nodes[index].take().expect("the node runs");
        node.accepting.abort();
        let handle = node.replica.handle();
        drop(node.replica);
        node.served.kill().await;
        handle.stop().await;
    }

    /// Sends an HTTP request.
    pub async fn http(&self, index: usize, method: &str, path: &str, body: &str) -> Answer {
        self.served(index).send(method, path, &[], body.to_owned()).await
    }
}
