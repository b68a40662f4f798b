//! A peer that reads more slowly than others write costs a bounded queue and catches up (D5).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_core::node::{AttachMember, RegistryEvent};
use convoke_node::{Config, NodeEvent, NodeHandle};
use convoke_testkit::{Cluster, Proxy, TestClient, eventually, member};
use std::time::Duration;

/// Long timeouts, so that no link is lost while these tests block the connection.
fn long_timeouts(config: &mut Config) {
    config.timers.ping_timeout = Duration::from_secs(60);
}

fn lost(node: &NodeHandle) -> bool {
    let lost = |what: &NodeEvent| matches!(what, NodeEvent::Registry(RegistryEvent::PeerLost { .. }));
    node.events_after(0).iter().any(|event| lost(&event.what))
}

fn large_member(id: &str) -> AttachMember {
    let mut member = member(id, "s");
    member.spec.metadata.insert("payload".to_owned(), "x".repeat(1_000));
    member
}

/// Writes until the condition holds, at most much more than the system buffers.
async fn write_until(node: &NodeHandle, client: &mut TestClient, mut until: impl AsyncFnMut() -> bool) -> usize {
    for round in 0..10_000 {
        client.register(large_member(&format!("m{round:05}"))).await.unwrap();
        if round % 50 == 0 && until().await {
            return round + 1;
        }
    }
    panic!("{} wrote 10 MB without congestion", node.id());
}

async fn two_nodes(adjust: impl Fn(&mut Config)) -> (Cluster, Proxy) {
    let mut cluster = Cluster::start_with(1, &adjust).await;
    let proxy = Proxy::start(cluster.node(0).peer_address()).await;
    cluster
        .add(|config| {
            adjust(config);
            config.join = vec![proxy.address().to_owned()];
        })
        .await;
    cluster.meshed().await;
    (cluster, proxy)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushing_to_a_slow_peer_stops_and_exchanges_bring_the_rest() {
    let (cluster, proxy) = two_nodes(|config| {
        long_timeouts(config);
        config.network.congestion_bytes = 64 * 1024;
    })
    .await;
    let node = cluster.node(0);
    let mut client = TestClient::attach(node, "c", vec![]).await;
    proxy.block(true);
    let written =
        write_until(node, &mut client, async || node.counters().await.unwrap().registry.pushes_suspended > 0).await;
    assert_eq!(node.counters().await.unwrap().network.links_overflowed, 0);
    proxy.block(false);
    let last = format!("m{:05}", written - 1);
    eventually("the slow peer has caught up", async || cluster.node(1).member(&last).is_some()).await;
    cluster.agreed().await;
    assert!(!lost(node) && !lost(cluster.node(1)), "the link was not lost");
    // Deltas are pushed again.
    client.register(member("one-more", "s")).await.unwrap();
    eventually("the next write arrives", async || cluster.node(1).member("one-more").is_some()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_closes_the_link_and_the_peer_reconnects() {
    let (cluster, proxy) = two_nodes(|config| {
        long_timeouts(config);
        config.limits.chunk_bytes = 16 * 1024;
        config.limits.frame_bytes = 128 * 1024;
        config.network.link_queue_bytes = 400 * 1024;
        config.network.congestion_bytes = usize::MAX;
    })
    .await;
    let node = cluster.node(0);
    let mut client = TestClient::attach(node, "c", vec![]).await;
    proxy.block(true);
    write_until(node, &mut client, async || node.counters().await.unwrap().network.links_overflowed > 0).await;
    let overflow = |what: &NodeEvent| matches!(what, NodeEvent::LinkOverflow { .. });
    assert!(node.events_after(0).iter().any(|event| overflow(&event.what)));
    assert!(lost(node));
    proxy.block(false);
    cluster.agreed().await;
    cluster.meshed().await;
}
