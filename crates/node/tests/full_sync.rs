//! A node joins a large registry while pings continue (R-25, P6).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_core::Timers;
use convoke_core::filter::Filter;
use convoke_core::node::RegistryEvent;
use convoke_node::{ClientOperation, Config, MemberPage, NodeEvent};
use convoke_testkit::{Cluster, TestClient, eventually, member};

const SESSIONS: usize = 100;
const PER_SESSION: usize = 1_000;

/// Printed if the test fails.
fn print_timelines(cluster: &Cluster) {
    for node in cluster.running() {
        for event in node.events_after(0) {
            println!("{} {} {}", event.wall_ms, node.id(), event.what);
        }
    }
}

/// Uses the default link timeouts.
fn usual_links(config: &mut Config) {
    config.timers.ping_timeout = Timers::default().ping_timeout;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_joining_node_receives_a_hundred_thousand_members_without_losing_a_link() {
    let mut cluster = Cluster::start_with(2, usual_links).await;
    let mut clients = Vec::new();
    for session in 0..SESSIONS {
        let members = (0..PER_SESSION).map(|i| member(&format!("m-{session:03}-{i:04}"), &format!("s{}", i % 50)));
        clients.push(TestClient::attach(cluster.node(0), &format!("c{session}"), members.collect()).await);
    }
    cluster.agreed().await;
    let joined = cluster.add(usual_links).await;
    // A ready node is complete.
    let count = |node: &convoke_node::NodeHandle| {
        node.services().iter().filter(|view| view.service.starts_with('s')).map(|view| view.up).sum::<usize>()
    };
    let node = cluster.node(joined);
    print_timelines(&cluster);
    println!("{:?}", node.services());
    assert_eq!(count(node), SESSIONS * PER_SESSION);
    assert!(node.counters().await.unwrap().network.received_bytes > 4 << 20, "that was more than one frame");
    cluster.meshed().await;
    for client in &clients {
        client.connection.submit(vec![ClientOperation::Heartbeat { session: client.session }]).unwrap();
    }
    cluster.agreed().await;
    for node in cluster.running() {
        assert_eq!(count(node), SESSIONS * PER_SESSION);
        let lost = |what: &NodeEvent| matches!(what, NodeEvent::Registry(RegistryEvent::PeerLost { .. }));
        assert!(!node.events_after(0).iter().any(|event| lost(&event.what)), "{} lost a link", node.id());
    }
    // All nodes return the same members in the same order, page by page, with the cursor of another node.
    let (mut cursor, mut pages) = (None, 0);
    loop {
        let filter = Filter::service("s7");
        let page = cluster.node(0).members(&filter, cursor.as_deref(), 333).unwrap();
        let other = cluster.node(joined).members(&filter, cursor.as_deref(), 333).unwrap();
        let versions =
            |page: &MemberPage| page.members.iter().map(|m| (m.id().to_owned(), m.version())).collect::<Vec<_>>();
        assert!(versions(&page) == versions(&other) && page.next == other.next, "page {pages} differs");
        pages += 1;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(pages, 2_000_usize.div_ceil(333));
    eventually("heartbeats were received", async || {
        cluster.node(0).counters().await.unwrap().registry.heartbeats == SESSIONS as u64
    })
    .await;
}
