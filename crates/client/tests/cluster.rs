//! The SDK with a cluster of real nodes: crashes, graceful stops, long interruptions, slow readers, many members.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::{Client, CloseOutcome, ConnectionState, ErrorCode, Event, Member, ResetReason, Update, View};
use convoke_testkit::eventually;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Proxy, Served, client, is_connected, next, orders};

/// Statuses and owners that a client observes.
#[derive(Clone, Default)]
struct Seen {
    statuses: Arc<Mutex<Vec<String>>>,
    owners: Arc<Mutex<Vec<String>>>,
}

impl Seen {
    fn by(client: &Client) -> (Seen, convoke_client::CallbackGuard) {
        let seen = Seen::default();
        let noting = seen.clone();
        let calls = client.on_change("service == \"orders\"", move |event| match event {
            Event::StatusChanged(member) => noting.statuses.lock().unwrap().push(member.status.to_string()),
            Event::OwnerChanged(member) => noting.owners.lock().unwrap().push(member.owner.node.clone()),
            Event::Unregistered { .. } => noting.statuses.lock().unwrap().push("left".to_owned()),
            _ => {}
        });
        (seen, calls.unwrap())
    }
}

async fn full_view(client: &Client) -> View {
    let view = client.view("service == \"orders\"").unwrap();
    view.wait_caught_up().await.unwrap();
    view
}

#[tokio::test]
async fn a_node_crash_makes_no_member_down() {
    let mut cluster = Served::cluster(3).await;
    let observer = client(cluster[2].address()).await;
    let (seen, _calls) = Seen::by(&observer);
    // The client initially knows only the node that will crash.
    let client = client(cluster[0].address()).await;
    let registration = client.register(orders("orders-1")).await.unwrap();
    let view = full_view(&observer).await;
    eventually("the observer sees it", async || view.get("orders-1").is_some()).await;

    cluster.remove(0).kill().await;
    eventually(
        "the client is connected to another node",
        async || matches!(client.state(), ConnectionState::Connected { node, .. } if node != "n0"),
    )
    .await;
    registration.update(Update::merge().set("v", "2")).await.unwrap();
    eventually("the observer sees the update", async || view.get("orders-1").unwrap().metadata["v"] == "2").await;
    assert_eq!(seen.statuses.lock().unwrap().as_slice(), [] as [String; 0]);
    assert_eq!(seen.owners.lock().unwrap().len(), 1);
}

/// C13: the other node has not received the unregistration when its node dies.
#[tokio::test]
async fn an_acknowledged_unregistration_survives_the_loss_of_its_node() {
    let first = Served::start("n0", &[], |_| {}).await;
    let proxy = Proxy::start(first.node.peer_address()).await;
    let join = vec![proxy.address().to_owned()];
    let second = Served::start("n1", &[], |config| config.join = join).await;
    convoke_testkit::meshed([&first.node, &second.node].into_iter()).await;
    let builder = Client::builder().seeds([first.address().to_string()]);
    let client = builder.operation_timeout(Duration::from_secs(30)).connect().await.unwrap();
    let gone = client.register(orders("orders-1")).await.unwrap();
    let _kept = client.register(orders("orders-2")).await.unwrap();
    eventually("the other node has both", async || second.status("orders-1") == Some("up")).await;

    proxy.block(true);
    gone.unregister().await.unwrap();
    first.kill().await;
    proxy.close();
    assert_eq!(second.status("orders-1"), Some("up"), "the other node has received it");
    eventually("the unregistration is repeated", async || second.status("orders-1").is_none()).await;
    eventually("the client is attached", async || second.status("orders-2") == Some("up")).await;
}

/// C18: when the client has its answer, the other node has the unregistrations.
#[tokio::test]
async fn a_close_is_answered_when_another_node_has_it() {
    let cluster = Served::cluster(2).await;
    for round in 0..10 {
        let client = client(cluster[0].address()).await;
        let id = format!("orders-{round}");
        let _registration = client.register(orders(&id)).await.unwrap();
        eventually("the other node has it", async || cluster[1].status(&id) == Some("up")).await;
        assert_eq!(client.close().await.unwrap(), CloseOutcome::Replicated);
        assert_eq!(cluster[1].status(&id), None);
    }
}

/// C18: the node has no link to the other one, which the client reaches.
#[tokio::test]
async fn a_close_at_a_node_that_is_cut_off_is_repeated_at_another() {
    let first = Served::start("n0", &[], |_| {}).await;
    let proxy = Proxy::start(first.node.peer_address()).await;
    let join = vec![proxy.address().to_owned()];
    let second = Served::start("n1", &[], |config| config.join = join).await;
    let nodes = [&first, &second];
    convoke_testkit::meshed([&first.node, &second.node].into_iter()).await;
    let builder = Client::builder().seeds(nodes.map(|node| node.address().to_string()));
    let client = builder.operation_timeout(Duration::from_secs(30)).connect().await.unwrap();
    let _registration = client.register(orders("orders-1")).await.unwrap();
    for node in nodes {
        eventually("both nodes have it", async || node.status("orders-1") == Some("up")).await;
    }

    proxy.block(true);
    assert_eq!(client.close().await.unwrap(), CloseOutcome::OneNode, "neither node can confirm that the other has it");
    assert_eq!(nodes.map(|node| node.status("orders-1")), [None, None]);
}

#[tokio::test]
async fn a_stopping_node_hands_its_clients_over() {
    let mut cluster = Served::cluster(2).await;
    let observer = client(cluster[1].address()).await;
    let (seen, _calls) = Seen::by(&observer);
    let view = full_view(&observer).await;
    let client = client(cluster[0].address()).await;
    let registration = client.register(orders("orders-1")).await.unwrap();
    let mut watch = client.watch("service == \"orders\"").unwrap();
    assert!(matches!(next(&mut watch).await, Event::Snapshot(_)));
    assert_eq!(next(&mut watch).await, Event::CaughtUp);
    eventually("the observer sees it", async || view.get("orders-1").is_some()).await;

    let Served { server, .. } = cluster.remove(0);
    server.stop().await;
    eventually(
        "the client has moved",
        async || matches!(client.state(), ConnectionState::Connected { node, .. } if node == "n1"),
    )
    .await;
    assert!(matches!(next(&mut watch).await, Event::OwnerChanged(member) if member.owner.node == "n1"));
    registration.update(Update::merge().set("v", "2")).await.unwrap();
    assert!(matches!(next(&mut watch).await, Event::Updated(member) if member.metadata["v"] == "2"));
    eventually("the observer sees the update", async || view.get("orders-1").unwrap().metadata["v"] == "2").await;
    assert_eq!(seen.statuses.lock().unwrap().as_slice(), [] as [String; 0]);
}

#[tokio::test]
async fn a_watch_moves_between_nodes_without_gap_or_duplicate() {
    let mut cluster = Served::cluster(3).await;
    let writer = client(cluster[2].address()).await;
    let registration = writer.register(orders("orders-0")).await.unwrap();
    let watcher = client(cluster[0].address()).await;
    let mut watch = watcher.watch("service == \"orders\"").unwrap();
    let mut seen: BTreeMap<String, Arc<Member>> = BTreeMap::new();
    for round in 0..3 {
        registration.update(Update::merge().set("round", round.to_string())).await.unwrap();
        let extra = writer.register(orders(&format!("extra-{round}"))).await.unwrap();
        if round > 0 {
            cluster.remove(0).kill().await;
        }
        extra.unregister().await.unwrap();
        registration.update(Update::merge().set("done", round.to_string())).await.unwrap();
        let complete = |seen: &BTreeMap<String, Arc<Member>>| {
            seen.len() == 1 && seen["orders-0"].metadata.get("done") == Some(&round.to_string())
        };
        while !complete(&seen) {
            let event = next(&mut watch).await;
            match &event {
                Event::Snapshot(member) | Event::Registered(member) => {
                    assert!(seen.insert(member.id.clone(), member.clone()).is_none(), "{event:?}");
                }
                Event::Updated(member) | Event::OwnerChanged(member) | Event::StatusChanged(member) => {
                    let before = seen.insert(member.id.clone(), member.clone()).expect("known before");
                    assert_ne!(before.version, member.version, "{event:?}");
                }
                Event::Unregistered { member, .. } => assert!(seen.remove(&member.id).is_some(), "{event:?}"),
                Event::CaughtUp => {}
                Event::Reset(reason) => panic!("{reason:?}"),
            }
        }
    }
}

#[tokio::test]
async fn members_are_registered_again_after_a_long_interruption() {
    let (node, proxy) = Served::behind_proxy().await;
    let client = client(proxy.address()).await;
    let registration = client.register(orders("orders-1")).await.unwrap();
    registration.update(Update::merge().set("v", "2")).await.unwrap();
    proxy.close();
    eventually("it is down", async || node.status("orders-1") == Some("down")).await;
    eventually("it has left", async || node.status("orders-1").is_none()).await;
    proxy.open();
    eventually("it is back", async || node.status("orders-1") == Some("up")).await;
    assert_eq!(node.member("orders-1").unwrap().metadata().to_map()["v"], "2");
    registration.update(Update::merge().set("v", "3")).await.unwrap();
}

#[tokio::test]
async fn the_newer_of_two_processes_with_one_client_id_stays() {
    let node = Served::alone().await;
    let process = || Client::builder().seeds([node.address().to_string()]).client_id("shop");
    let first = process().connect().await.unwrap();
    let registration = first.register(orders("orders-1")).await.unwrap();
    let second = process().connect().await.unwrap();
    let _taken = second.register(orders("orders-1").metadata("by", "second")).await.unwrap();
    assert_eq!(registration.lost().await.code, ErrorCode::Superseded);
    assert_eq!(first.register(orders("orders-2")).await.unwrap_err().code, ErrorCode::Superseded);
    assert_eq!(node.member("orders-1").unwrap().metadata().to_map()["by"], "second");
    assert!(is_connected(&second));
    // The older client can still read.
    eventually("it is connected again", async || is_connected(&first)).await;
    assert_eq!(full_view(&first).await.len(), 1);
}

#[tokio::test]
async fn many_members_are_attached_in_parts_and_restored_together() {
    const MEMBERS: usize = 3_000;
    let (node, proxy) = Served::behind_proxy().await;
    let client = client(proxy.address()).await;
    let register = |index: usize| {
        let client = client.clone();
        tokio::spawn(async move { client.register(orders(&format!("m{index}")).metadata("k", "x".repeat(1000))).await })
    };
    for registering in (0..MEMBERS).map(register).collect::<Vec<_>>() {
        registering.await.unwrap().unwrap();
    }
    let view = full_view(&client).await;
    assert_eq!(view.len(), MEMBERS);
    proxy.close();
    eventually("all are gone", async || node.status("m0").is_none() && node.status("m2999").is_none()).await;
    proxy.open();
    eventually("all are back", async || (0..MEMBERS).all(|index| node.status(&format!("m{index}")) == Some("up")))
        .await;
    eventually("the view is up to date", async || {
        view.len() == MEMBERS && view.list().iter().all(|member| member.routable())
    })
    .await;
    client.close().await.unwrap();
    assert_eq!(node.status("m0"), None);
}

#[tokio::test]
async fn a_slow_reader_is_reset_and_does_not_slow_others() {
    let node = Served::start("n0", &[], |config| config.limits.watcher_queue = 64).await;
    let (writer, slow) = (client(node.address()).await, client(node.address()).await);
    let registration = writer.register(orders("orders-1").metadata("pad", "x".repeat(2000))).await.unwrap();
    let mut watch = slow.watch("service == \"orders\"").unwrap();
    assert!(matches!(next(&mut watch).await, Event::Snapshot(_)));
    assert_eq!(next(&mut watch).await, Event::CaughtUp);
    // Many more events than all queues and windows on the way can hold.
    let mut last = String::new();
    for round in 0..6_000 {
        last = round.to_string();
        registration.update(Update::merge().set("round", last.clone())).await.unwrap();
    }
    let (mut reset, mut round) = (false, String::new());
    while round != last {
        match next(&mut watch).await {
            Event::Reset(reason) => {
                assert_eq!(reason, ResetReason::SlowReader);
                reset = true;
            }
            event => {
                let seen = event.member().and_then(|member| member.metadata.get("round").cloned());
                round = seen.unwrap_or(round);
            }
        }
    }
    assert!(reset);
}
