//! Several nodes in one process.

use crate::wait::eventually;
use convoke_core::Timers;
use convoke_core::node::PeerState;
use convoke_node::{Config, Node, NodeHandle, Phase};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Short timers that still work on a busy machine.
pub fn quick_timers() -> Timers {
    let ms = Duration::from_millis;
    Timers {
        heartbeat_interval: ms(500),
        heartbeat_timeout: ms(3_000),
        reconnect_timeout: ms(2_000),
        tombstone_timeout: ms(30_000),
        peer_retry_interval: ms(200),
        dead_peer_timeout: ms(12_000),
        forget_timeout: ms(3_600_000),
        gossip_interval: ms(100),
        ping_interval: ms(100),
        ping_timeout: ms(1_000),
        health_query_delay: ms(20),
        health_report_wait: ms(200),
        lone_start_wait: ms(500),
        resume_wait: ms(2_000),
        mark_interval: ms(100),
        handover_timeout: ms(5_000),
    }
}

/// [`quick_timers`] with timeouts of minutes, for tests that send no heartbeats.
pub fn patient_timers() -> Timers {
    Timers {
        heartbeat_interval: Duration::from_secs(40),
        heartbeat_timeout: Duration::from_secs(120),
        dead_peer_timeout: Duration::from_secs(300),
        tombstone_timeout: Duration::from_secs(600),
        ..quick_timers()
    }
}

/// The range of ephemeral ports.
const EPHEMERAL_PORTS: u16 = 32_768;
const FIRST_PORT: u16 = 12_000;

/// Returns a free address for a node whose port must be known in advance. It is outside the ephemeral range, and never the
/// same twice in one process.
///
/// # Panics
/// If no port is free.
pub fn free_address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let range = u32::from(EPHEMERAL_PORTS - FIRST_PORT);
    // Parallel test processes start at different ports.
    let start = std::process::id().wrapping_mul(2_654_435_761) % range;
    (0..range)
        .map(|_| (start + NEXT.fetch_add(1, Ordering::Relaxed)) % range)
        .map(|offset| FIRST_PORT + u16::try_from(offset).expect("the range is of ports"))
        .find_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok())
        .and_then(|listener| listener.local_addr().ok())
        .expect("a free port")
        .to_string()
}

/// Starts a node whose only seed does not answer, and waits until it serves clients without having reached it (N7).
///
/// # Panics
/// If the node does not start.
pub async fn start_alone(mut config: Config) -> Node {
    config.join = vec![free_address()];
    let node = Node::start(config).await.expect("the node starts");
    let mut phases = node.phases();
    phases.wait_for(|phase| *phase == Phase::Alone).await.expect("the node runs");
    node
}

/// Nodes `n0`, `n1`, … in one process. Killed and stopped nodes leave a gap.
#[derive(Debug, Default)]
pub struct Cluster {
    nodes: Vec<Option<Node>>,
    configs: Vec<Config>,
}

impl Cluster {
    /// Starts nodes in turn, each joining the first, and waits until all are connected.
    pub async fn start(count: usize) -> Self {
        Self::start_with(count, |_| {}).await
    }

    /// Like [`Cluster::start`], with other settings.
    pub async fn start_with(count: usize, adjust: impl Fn(&mut Config)) -> Self {
        let mut cluster = Cluster::default();
        for _ in 0..count {
            cluster.add(&adjust).await;
        }
        cluster.meshed().await;
        cluster
    }

    /// Starts nodes concurrently, all with the same join list.
    pub async fn start_at_once(count: usize, adjust: impl Fn(&mut Config)) -> Self {
        let mut cluster = Cluster { configs: (0..count).map(base).collect(), ..Cluster::default() };
        let addresses: Vec<String> = cluster.configs.iter().map(|config| config.bind.clone()).collect();
        for config in &mut cluster.configs {
            config.join.clone_from(&addresses);
            adjust(config);
        }
        let starting = cluster.configs.iter().map(|config| tokio::spawn(Node::start(config.clone())));
        for node in starting.collect::<Vec<_>>() {
            let node = node.await.expect("starting does not panic").expect("the node starts");
            cluster.nodes.push(Some(node));
        }
        cluster.meshed().await;
        cluster
    }

    /// Adds a node that joins the first running one. Returns its index.
    pub async fn add(&mut self, adjust: impl Fn(&mut Config)) -> usize {
        let index = self.nodes.len();
        let mut config = base(index);
        config.join.extend(self.running().next().map(|node| node.peer_address().to_owned()));
        adjust(&mut config);
        let node = Node::start(config.clone()).await.expect("the node starts");
        node.ready().await.expect("the node becomes ready");
        self.configs.push(config);
        self.nodes.push(Some(node));
        index
    }

    /// A running node.
    ///
    /// # Panics
    /// If it was killed or stopped.
    #[track_caller]
    pub fn node(&self, index: usize) -> &Node {
        self.nodes[index].as_ref().expect("the node is running")
    }

    pub fn running(&self) -> impl Iterator<Item = &Node> + Clone {
        self.nodes.iter().flatten()
    }

    pub fn config(&mut self, index: usize) -> &mut Config {
        &mut self.configs[index]
    }

    /// Ends a node like a crash, and waits until its port and data directory are free.
    pub async fn kill(&mut self, index: usize) {
        if let Some(node) = self.nodes[index].take() {
            node.abort();
            node.stopped().await;
        }
    }

    /// Stops a node gracefully.
    pub async fn stop(&mut self, index: usize) {
        if let Some(node) = self.nodes[index].take() {
            node.stop().await;
        }
    }

    /// Restarts a killed or stopped node at its old address, and waits until it is ready.
    pub async fn restart(&mut self, index: usize) {
        let node = Node::start(self.configs[index].clone()).await.expect("the node starts again");
        node.ready().await.expect("the node becomes ready");
        self.nodes[index] = Some(node);
    }

    /// Waits until every node is connected to every other and sees it ready.
    pub async fn meshed(&self) {
        meshed(self.running()).await;
    }

    /// Waits until all nodes have the same records.
    pub async fn agreed(&self) {
        eventually("all nodes have the same records", async || {
            let mut hashes = Vec::new();
            for node in self.running() {
                hashes.push(context_hash(node).await);
            }
            hashes.iter().all(|hash| hash.is_some() && *hash == hashes[0])
        })
        .await;
    }
}

/// Waits until each of these nodes is connected to every other and sees it ready.
pub async fn meshed<'a>(nodes: impl Iterator<Item = &'a Node> + Clone) {
    let others = nodes.clone().count() - 1;
    for node in nodes {
        eventually("every node is linked to every other", async || {
            let peers = node.nodes().await.unwrap_or_default();
            node.is_ready() && peers.iter().filter(|peer| peer.state == PeerState::Up && peer.serving).count() == others
        })
        .await;
    }
}

async fn context_hash(node: &NodeHandle) -> Option<u64> {
    node.status().await.ok().map(|status| status.context_hash)
}

fn base(index: usize) -> Config {
    let mut config = Config::new(&format!("n{index}")).expect("a valid node id");
    config.timers = patient_timers();
    config.bind = free_address();
    // Tests place their clients; the other end of a test connection may ignore notices.
    config.rebalance = false;
    config
}
