//! Real nodes with their client ports, and a proxy that fails on demand.

#![allow(dead_code, reason = "each test uses a part of it")]

pub use convoke_testkit::Proxy;

use convoke_client::{Client, ConnectionState, Event, MemberSpec, Watch};
use convoke_core::member::Member;
use convoke_node::{Config, Node};
use convoke_server::{Bound, Server};
use convoke_testkit::quick_timers;
use std::net::SocketAddr;
use std::time::Duration;

/// A node and its client port.
pub struct Served {
    pub node: Node,
    pub server: Server,
}

impl Served {
    pub async fn alone() -> Served {
        Served::start("n0", &[], |_| {}).await
    }

    /// Starts a node that advertises the address of a proxy to its clients.
    pub async fn behind_proxy() -> (Served, Proxy) {
        let bound = Server::bind(convoke_server::Config::default()).await.unwrap();
        let proxy = Proxy::start(&bound.address().to_string()).await;
        let served =
            Served::serve(bound, "n0", &[], |config| proxy.address().clone_into(&mut config.client_address)).await;
        (served, proxy)
    }

    pub async fn start(id: &str, join: &[&Served], adjust: impl FnOnce(&mut Config)) -> Served {
        let bound = Server::bind(convoke_server::Config::default()).await.unwrap();
        Served::serve(bound, id, join, adjust).await
    }

    async fn serve(bound: Bound, id: &str, join: &[&Served], adjust: impl FnOnce(&mut Config)) -> Served {
        let mut config = Config::new(id).unwrap();
        config.timers = quick_timers();
        config.client_address = bound.address().to_string();
        config.join = join.iter().map(|served| served.node.peer_address().to_owned()).collect();
        adjust(&mut config);
        let node = Node::start(config).await.unwrap();
        let server = bound.serve(node.handle(), None);
        node.ready().await.unwrap();
        Served { node, server }
    }

    /// Starts a node that has reached none of its seeds.
    pub async fn without_seed() -> Served {
        let bound = Server::bind(convoke_server::Config::default()).await.unwrap();
        let mut config = Config::new("n0").unwrap();
        config.timers = quick_timers();
        config.client_address = bound.address().to_string();
        let node = convoke_testkit::start_alone(config).await;
        let server = bound.serve(node.handle(), None);
        Served { node, server }
    }

    /// Starts nodes `n0`, `n1`, … that are connected to each other.
    pub async fn cluster(count: usize) -> Vec<Served> {
        let mut cluster: Vec<Served> = Vec::new();
        for index in 0..count {
            let first: Vec<&Served> = cluster.first().into_iter().collect();
            // On a busy machine a client may need a while to reconnect.
            let long_timeout = |config: &mut Config| config.timers.heartbeat_timeout = Duration::from_secs(6);
            let served = Served::start(&format!("n{index}"), &first, long_timeout).await;
            cluster.push(served);
        }
        convoke_testkit::meshed(cluster.iter().map(|served| &served.node)).await;
        cluster
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub fn member(&self, id: &str) -> Option<Member> {
        self.node.member(id)
    }

    pub fn status(&self, id: &str) -> Option<&'static str> {
        self.member(id).map(|member| member.status().as_str())
    }

    /// Ends node and port like a crash.
    pub async fn kill(self) {
        self.node.abort();
        self.node.stopped().await;
    }
}

pub async fn client(address: impl ToString) -> Client {
    let builder = Client::builder().seeds([address.to_string()]).operation_timeout(Duration::from_secs(30));
    builder.connect().await.unwrap()
}

pub fn orders(id: &str) -> MemberSpec {
    MemberSpec::new(id, "orders").address("10.0.0.1:80").locality("eu.a").metadata("v", "1")
}

pub async fn next(watch: &mut Watch) -> Event {
    tokio::time::timeout(Duration::from_secs(60), watch.next()).await.expect("an event in time").expect("a live watch")
}

pub fn is_connected(client: &Client) -> bool {
    matches!(client.state(), ConnectionState::Connected { .. })
}
