//! Nodes on real sockets: discovery, convergence, loss and return.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_core::member::Status;
use convoke_core::node::{Notice, PeerState, RegistryEvent};
use convoke_node::{Config, Delivery, Ending, Node, NodeEvent, NodeHandle};
use convoke_testkit::{Cluster, TestClient, eventually, free_address, member, quick_timers};

async fn state_of(node: &NodeHandle, peer: &str) -> Option<PeerState> {
    let nodes = node.nodes().await.unwrap();
    nodes.iter().find(|view| view.node.as_str() == peer).map(|view| view.state)
}

fn has_event(node: &NodeHandle, what: impl Fn(&NodeEvent) -> bool) -> bool {
    node.events_after(0).iter().any(|event| what(&event.what))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_find_each_other_by_join_alone() {
    let cluster = Cluster::start(3).await;
    let _client = TestClient::attach(cluster.node(0), "c", vec![member("orders-1", "orders")]).await;
    // A writer reads its own write immediately; the others follow.
    assert_eq!(cluster.node(0).member("orders-1").unwrap().service(), "orders");
    for node in cluster.running() {
        eventually("the member is seen", async || node.member("orders-1").is_some()).await;
        assert_eq!(node.member("orders-1").unwrap().owner().node, "n0");
    }
    cluster.agreed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_started_at_once_form_one_cluster() {
    let cluster = Cluster::start_at_once(3, |_| {}).await;
    let _client = TestClient::attach(cluster.node(2), "c", vec![member("a", "s")]).await;
    for node in cluster.running() {
        eventually("the member is seen", async || node.member("a").is_some()).await;
    }
    cluster.agreed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_peer_is_detected_and_its_members_stay() {
    let mut cluster = Cluster::start_with(3, |config| config.timers = quick_timers()).await;
    let _client = TestClient::attach(cluster.node(2), "c", vec![member("a", "s")]).await;
    cluster.node(2).register("shard", "n2/worker").await.unwrap();
    cluster.agreed().await;
    cluster.kill(2).await;
    for node in cluster.running() {
        eventually("the peer has failed", async || state_of(node, "n2").await == Some(PeerState::Failed)).await;
        assert!(has_event(node, |what| matches!(what, NodeEvent::Registry(RegistryEvent::PeerLost { .. }))));
        assert_eq!(node.lookup("shard").unwrap().location, "n2/worker");
        assert!(node.member("a").is_some());
    }
    // The owner is silent: its members are shown as down, although no node writes that.
    for node in cluster.running() {
        eventually("the member is down", async || node.member("a").is_some_and(|m| m.status() == Status::Down)).await;
        let services = node.services();
        let counts = services.iter().find(|view| view.service == "s").unwrap();
        assert_eq!((counts.up, counts.down, counts.drained), (0, 1, 0));
    }
    // Finally they expire and are not shown any more.
    for node in cluster.running() {
        eventually("the member has left", async || node.member("a").is_none()).await;
        assert!(node.services().iter().all(|view| view.service != "s"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_restarts_with_the_incarnation_of_its_data_directory() {
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(2).await;
    let path = directory.path().to_owned();
    let third = cluster.add(|config| config.data_dir = Some(path.clone())).await;
    cluster.meshed().await;
    let before = cluster.node(third).status().await.unwrap().incarnation;
    cluster.kill(third).await;
    // There is no peer, so the number must come from disk.
    cluster.config(third).join.clear();
    cluster.restart(third).await;
    let after = cluster.node(third).status().await.unwrap().incarnation;
    assert_eq!(after.number, before.number + 1);
    cluster.meshed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_data_directory_learns_its_incarnation_from_peers() {
    let mut cluster = Cluster::start(3).await;
    cluster.node(2).register("mine", "before").await.unwrap();
    cluster.agreed().await;
    let before = cluster.node(2).status().await.unwrap().incarnation;
    cluster.kill(2).await;
    cluster.restart(2).await;
    let after = cluster.node(2).status().await.unwrap().incarnation;
    assert!(after > before, "{after} is not after {before}");
    cluster.meshed().await;
    // Names that the application does not register again are removed when it declares its names complete.
    cluster.node(2).register("other", "now").await.unwrap();
    cluster.node(2).names_complete().await.unwrap();
    for node in cluster.running() {
        eventually("the old name is gone", async || node.lookup("mine").is_none()).await;
        eventually("the new name is there", async || node.lookup("other").is_some()).await;
    }
    cluster.agreed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_with_one_id_are_detected() {
    let cluster = Cluster::start(2).await;
    let mut config = Config::new("n1").unwrap();
    config.timers = quick_timers();
    config.join = vec![cluster.node(0).peer_address().to_owned()];
    let second = Node::start(config).await.unwrap();
    let id_in_use = |what: &NodeEvent| matches!(what, NodeEvent::Registry(RegistryEvent::IdInUse { .. }));
    eventually("the node reports why it is not ready", async || has_event(&second, id_in_use)).await;
    assert_eq!(second.stopped().await, Ending::IdentityConflict);
    assert_eq!(second.events_after(0).iter().filter(|event| id_in_use(&event.what)).count(), 1, "reported once");
    assert!(second.ready().await.is_err());
    assert!(cluster.node(1).is_ready(), "the established node stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_cluster_is_rejected() {
    let cluster = Cluster::start(1).await;
    let mut config = Config::new("stranger").unwrap();
    config.timers = quick_timers();
    config.cluster = "elsewhere".to_owned();
    config.join = vec![cluster.node(0).peer_address().to_owned()];
    let foreign = Node::start(config).await.unwrap();
    let rejected = |what: &NodeEvent| matches!(what, NodeEvent::Registry(RegistryEvent::PeerRejected { .. }));
    eventually("the foreign node is rejected", async || has_event(cluster.node(0), rejected)).await;
    eventually("the foreign node is notified", async || has_event(&foreign, rejected)).await;
    assert_eq!(cluster.node(0).nodes().await.unwrap(), []);
    let counters = cluster.node(0).counters().await.unwrap();
    assert!(counters.registry.handshakes_rejected > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graceful_stop_hands_its_clients_over_without_a_down() {
    let mut cluster =
        Cluster::start_with(2, |config| config.client_address = format!("clients-of-{}:1", config.id)).await;
    let mut client = TestClient::attach(cluster.node(0), "c", vec![member("a", "s")]).await;
    cluster.agreed().await;
    let stopping = cluster.node(0).handle();
    let stopping = tokio::spawn(async move { stopping.stop().await });
    let notice = client.connection.next().await;
    let Some(Delivery::Notice(Notice::Handover { target: Some(target) })) = notice else {
        panic!("no handover: {notice:?}")
    };
    assert_eq!((target.node.as_str(), target.client_address.as_str()), ("n1", "clients-of-n1:1"));
    let claim = client.claim + 1;
    let (_moved, attached) = TestClient::try_attach(cluster.node(1), "c", claim, vec![member("a", "s")]).await.unwrap();
    assert_eq!(attached.rejected, []);
    assert_eq!(stopping.await.unwrap(), Ending::Graceful);
    cluster.kill(0).await;
    let node = cluster.node(1);
    eventually("the peer has left", async || state_of(node, "n0").await == Some(PeerState::Left)).await;
    let member = node.member("a").unwrap();
    assert_eq!((member.status(), member.owner().node), (Status::Up, "n1"));
    assert!(node.member("convoke.n0").is_none(), "the node unregistered itself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seed_that_starts_later_is_found() {
    let address = free_address();
    let mut config = Config::new("early").unwrap();
    config.timers = quick_timers();
    config.join = vec![address.clone()];
    let early = Node::start(config).await.unwrap();
    let mut config = Config::new("late").unwrap();
    config.timers = quick_timers();
    config.bind = address;
    let late = Node::start(config).await.unwrap();
    eventually("they are linked", async || state_of(&late, "early").await == Some(PeerState::Up)).await;
    early.ready().await.unwrap();
    assert_eq!(state_of(&early, "late").await, Some(PeerState::Up));
}
