//! Nodes with their client ports, and clients over HTTP and gRPC.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod access;
pub mod grpc;
pub mod http;
pub mod log;
pub mod log_link;

use convoke_core::Timers;
use convoke_node::{Config, Node};
use convoke_server::Server;
use convoke_testkit::{patient_timers, quick_timers};
use std::net::SocketAddr;
use std::time::Duration;

/// Timeouts long enough for a busy machine. Sessions may still request shorter ones.
fn timers() -> Timers {
    Timers {
        heartbeat_interval: Duration::from_millis(500),
        reconnect_timeout: Duration::from_secs(60),
        resume_wait: Duration::from_secs(60),
        handover_timeout: Duration::from_secs(60),
        ..patient_timers()
    }
}

/// Short timeouts, for tests that wait for sessions to expire.
pub fn quick(config: &mut Config) {
    config.timers = quick_timers();
}

/// A node and its client port.
#[derive(Debug)]
pub struct Served {
    pub node: Node,
    pub server: Server,
}

impl Served {
    /// Starts one node without peers.
    pub async fn alone() -> Served {
        Served::start("n0", &[], |_| {}, |_| {}).await
    }

    /// Starts a node that has reached none of its seeds (N7).
    pub async fn without_seed() -> Served {
        let bound = Server::bind(convoke_server::Config::default()).await.unwrap();
        let mut config = Config::new("n0").unwrap();
        config.timers = timers();
        config.client_address = bound.address().to_string();
        let node = convoke_testkit::start_alone(config).await;
        let server = bound.serve(node.handle(), None);
        Served { node, server }
    }

    pub async fn start(
        id: &str,
        join: &[&Served],
        adjust: impl FnOnce(&mut Config),
        adjust_server: impl FnOnce(&mut convoke_server::Config),
    ) -> Served {
        let mut server = convoke_server::Config::default();
        adjust_server(&mut server);
        let bound = Server::bind(server).await.unwrap();
        let mut config = Config::new(id).unwrap();
        config.timers = timers();
        config.client_address = bound.address().to_string();
        config.join = join.iter().map(|served| served.node.peer_address().to_owned()).collect();
        adjust(&mut config);
        let node = Node::start(config).await.unwrap();
        let server = bound.serve(node.handle(), None);
        node.ready().await.unwrap();
        Served { node, server }
    }

    /// Starts nodes `n0`, `n1`, … that are connected to each other.
    pub async fn cluster(count: usize) -> Vec<Served> {
        Served::cluster_with(count, |_| {}).await
    }

    pub async fn cluster_with(count: usize, adjust: impl Fn(&mut Config)) -> Vec<Served> {
        let mut cluster: Vec<Served> = Vec::new();
        for index in 0..count {
            let first: Vec<&Served> = cluster.first().into_iter().collect();
            let served = Served::start(&format!("n{index}"), &first, &adjust, |_| {}).await;
            cluster.push(served);
        }
        convoke_testkit::meshed(cluster.iter().map(|served| &served.node)).await;
        cluster
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Ends node and port like a crash.
    pub async fn kill(self) {
        self.node.abort();
        self.node.stopped().await;
    }
}
