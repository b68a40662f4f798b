//! Nodes that may create a log (FD1 to FD5).

use crate::cluster::{Client, Disks, Host, agree, config, leader};
use convoke_replica::{
    Config, Dial, DialWithLookup, Duplex, Founding, Mutant, Mutation, NodeLog, NodeLookup, Role, TcpDial,
};
use convoke_testkit::{eventually, free_address};
use futures_util::future::BoxFuture;
use std::io;
use std::sync::Arc;
use std::time::Duration;

const NAME: &str = "convoke.example:7701";

/// One name for several nodes, like a headless service of Kubernetes.
#[derive(Debug)]
struct SharedName(Vec<String>);

impl Dial for SharedName {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Duplex>>> {
        TcpDial.dial(address)
    }

    fn resolve<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Vec<String>>> {
        let found = if address == NAME { self.0.clone() } else { vec![address.to_owned()] };
        Box::pin(async move { Ok(found) })
    }
}

async fn behind_one_name(disks: &Disks, founding: Founding) -> Vec<Host> {
    let mut configs: Vec<Config> = ["a", "b", "c"].iter().map(|node| config(disks, node)).collect();
    let dialer = Arc::new(SharedName(configs.iter().map(|config| config.address.clone()).collect()));
    let mut hosts = Vec::new();
    for config in &mut configs {
        config.join = vec![NAME.to_owned()];
        config.founding = founding;
        hosts.push(Host::start_with(config.clone(), dialer.clone()).await);
    }
    hosts
}

fn obstacle(host: &Host) -> String {
    host.handle().status().obstacle.unwrap_or_default()
}

/// A node that waits, and says why.
async fn waits(host: &Host, why: &str) {
    eventually(why, async || obstacle(host).contains(why)).await;
    assert_eq!(host.handle().status().role, Role::Outside);
}

#[tokio::test(flavor = "multi_thread")]
async fn fd2_one_name_for_all_nodes_creates_no_log() {
    let disks = Disks::new();
    let hosts = behind_one_name(&disks, Founding::Listed).await;
    for host in &hosts {
        waits(host, "set --bootstrap=NODES").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fd3_one_name_and_the_number_of_nodes_create_one_log() {
    let disks = Disks::new();
    let mut hosts = behind_one_name(&disks, Founding::Expected(3)).await;
    leader(&hosts).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "v").await;
    agree(&hosts).await;
    let log = hosts[0].handle().status().log;
    assert!(hosts.iter().all(|host| host.handle().status().log == log));
    // A node that lost its disk creates no second log.
    let old = hosts.remove(0).stop().await;
    let name = Arc::new(SharedName(hosts.iter().map(|host| host.config.address.clone()).collect()));
    let empty = Host::start_with(Config { data_dir: Some(disks.of("empty")), ..old }, name).await;
    eventually("it knows the group", async || empty.handle().group().replicas.len() == 3).await;
    assert_eq!(empty.handle().status().role, Role::Outside);
}

/// A registry that shows a node with a log.
struct Shows(NodeLog);

impl NodeLookup for Shows {
    fn find(&self, _: &str) -> Option<String> {
        None
    }

    fn logs(&self) -> Vec<NodeLog> {
        vec![self.0.clone()]
    }
}

fn alone(disks: &Disks, node: &str, after: Duration) -> Config {
    Config { founding: Founding::Alone { after }, ..config(disks, node) }
}

#[tokio::test(flavor = "multi_thread")]
async fn fd4_a_node_with_bootstrap_creates_a_log_unless_another_node_has_one() {
    let disks = Disks::new();
    let first = [Host::start(alone(&disks, "a", Duration::from_millis(200))).await];
    leader(&first).await;
    // The flag stays set on a node that lost its disk. The registry shows the log of the others.
    let status = first[0].handle().status();
    let node = NodeLog { log: status.log.unwrap(), node: "a".to_owned(), address: first[0].config.address.clone() };
    let registry = Arc::new(DialWithLookup(Shows(node)));
    let second = Host::start_with(alone(&disks, "b", Duration::ZERO), registry).await;
    eventually("b knows the group", async || second.handle().group().leader().is_some()).await;
    assert_eq!(second.handle().status().role, Role::Outside);
}

#[tokio::test(flavor = "multi_thread")]
async fn fd5_a_log_of_an_unreachable_node_prevents_another_one_and_the_mutant_does_not_notice() {
    let disks = Disks::new();
    let gone = NodeLog { log: 7, node: "z".to_owned(), address: free_address() };
    let registry = Arc::new(DialWithLookup(Shows(gone)));
    let host = Host::start_with(alone(&disks, "a", Duration::ZERO), registry.clone()).await;
    waits(&host, "a log exists on z").await;
    let mutant = Config { mutation: Mutation::of(Mutant::LogsIgnored), ..alone(&disks, "b", Duration::ZERO) };
    let mutant = Host::start_with(mutant, registry).await;
    eventually("the mutant creates a second log", async || mutant.handle().status().log.is_some()).await;
}
