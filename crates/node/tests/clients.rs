//! Client connections: batches, order, rejections, and a paused node.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_core::ErrorCode;
use convoke_core::filter::Filter;
use convoke_core::member::{MetadataUpdate, Space, UpdateMode};
use convoke_core::node::{AttachMember, Notice, Resume, WatchSelection};
use convoke_node::{ClientOperation, CloseReason, Config, Delivery, Node, OperationResult};
use convoke_testkit::{Cluster, TestClient, eventually, member, quick_timers};
use std::sync::Arc;
use std::time::Duration;

fn register(client: &mut TestClient, id: &str) -> ClientOperation {
    ClientOperation::Register { session: client.session, seq: client.next_seq(), member: Arc::new(member(id, "s")) }
}

#[tokio::test]
async fn a_batch_is_executed_in_order_and_answered_as_one() {
    let cluster = Cluster::start(1).await;
    let node = cluster.node(0);
    let mut client = TestClient::attach(node, "c", vec![]).await;
    let session = client.session;
    let mut batch: Vec<ClientOperation> = (0..3).map(|i| register(&mut client, &format!("m{i}"))).collect();
    let id = "m0".to_owned();
    batch.push(ClientOperation::Unregister { session, seq: client.next_seq(), id: id.clone() });
    batch.push(ClientOperation::Unregister { session, seq: client.next_seq(), id });
    batch.push(ClientOperation::Heartbeat { session });
    client.connection.submit(batch).unwrap();
    let more = register(&mut client, "m3");
    client.connection.submit(vec![more]).unwrap();
    let Some(Delivery::Answers(answers)) = client.connection.next().await else { panic!("no answers") };
    assert!(answers[..3].iter().all(|answer| matches!(answer, OperationResult::Written(Ok(_)))), "{answers:?}");
    assert!(matches!(answers[3], OperationResult::Unregistered(Ok(_))));
    assert!(
        matches!(&answers[4], OperationResult::Unregistered(Err(rejection)) if rejection.code == ErrorCode::NotRegistered)
    );
    assert_eq!(answers[5], OperationResult::Heartbeat(Ok(())));
    assert_eq!(answers.len(), 6);
    // An answered operation is visible to readers.
    let page = node.members(&Filter::service("s"), None, 10).unwrap();
    let ids: Vec<&str> = page.members.iter().map(convoke_core::member::Member::id).collect();
    assert!(ids.starts_with(&["m1", "m2"]), "{ids:?}");
    let Some(Delivery::Answers(answers)) = client.connection.next().await else { panic!("no answers") };
    assert!(matches!(answers[..], [OperationResult::Written(Ok(_))]));
    assert!(node.member("m3").is_some());
}

#[tokio::test]
async fn metadata_is_merged_deleted_replaced_and_compared() {
    let cluster = Cluster::start(1).await;
    let node = cluster.node(0);
    let mut client = TestClient::attach(node, "c", vec![member("a", "s")]).await;
    let (connection, session) = (&client.connection, client.session);
    let first = connection.update(session, 1, "a", MetadataUpdate::set("x", "1"), None).await.unwrap();
    let mut update = MetadataUpdate::set("y", "2");
    update.changes.insert("x".to_owned(), None);
    let second = connection.update(session, 2, "a", update, Some(first)).await.unwrap();
    let stale = connection.update(session, 3, "a", MetadataUpdate::set("z", "3"), Some(first)).await.unwrap_err();
    assert_eq!(stale.code, ErrorCode::StaleVersion);
    let pairs = |id| node.member(id).unwrap().metadata().to_map().into_iter().collect::<Vec<_>>();
    assert_eq!(pairs("a"), [("y".to_owned(), "2".to_owned())]);
    assert_eq!(node.member("a").unwrap().version(), second);
    let replace = MetadataUpdate { mode: UpdateMode::Replace, ..MetadataUpdate::set("only", "this") };
    connection.update(session, 4, "a", replace, Some(second)).await.unwrap();
    assert_eq!(pairs("a"), [("only".to_owned(), "this".to_owned())]);
    client.connection.close(session).await.unwrap();
    assert!(node.member("a").is_none());
    let gone = client.register(member("b", "s")).await.unwrap_err();
    assert_eq!(gone.code, ErrorCode::SessionGone);
    client.connection.heartbeat(session).unwrap();
    let rejected = client.connection.next().await;
    assert!(matches!(rejected, Some(Delivery::HeartbeatRejected { session: s, .. }) if s == session), "{rejected:?}");
}

#[tokio::test]
async fn the_loss_of_a_member_or_session_is_notified() {
    let cluster = Cluster::start(1).await;
    let node = cluster.node(0);
    let mut first = TestClient::attach(node, "first", vec![member("a", "s"), member("b", "s")]).await;
    let taken = AttachMember { takeover: true, ..member("a", "s") };
    let claim = first.claim + 1;
    let (_second, attached) = TestClient::try_attach(node, "second", claim, vec![taken]).await.unwrap();
    assert_eq!(attached.rejected, []);
    let notice = first.connection.next().await;
    assert_eq!(notice, Some(Delivery::Notice(Notice::TakenOver { id: "a".to_owned(), last: false })));
    let (again, _) = TestClient::try_attach(node, "first", claim, vec![member("b", "s")]).await.unwrap();
    assert_eq!(first.connection.next().await, Some(Delivery::Notice(Notice::Lost { known: again.claim })));
}

#[tokio::test]
async fn a_busy_node_rejects_clients_and_keeps_running() {
    let mut config = Config::new("a").unwrap();
    config.network.inbox = 64;
    config.network.unanswered_operations = 4;
    let node = Node::start(config).await.unwrap();
    let mut client = TestClient::attach(&node, "c", vec![]).await;
    // With one thread, the event loop does not run until this task waits.
    let heartbeats: Vec<_> = (0..20).map(|_| client.connection.heartbeat(client.session)).collect();
    assert_eq!(heartbeats.iter().filter(|result| result.is_ok()).count(), 4);
    let rejection = heartbeats[19].clone().unwrap_err();
    assert_eq!((rejection.code, rejection.limit), (ErrorCode::ResourceExhausted, Some(4)));
    assert_eq!(node.status().await.unwrap().sizes.sessions, 1);
    // One connection must not have too many unanswered operations either.
    let session = client.session;
    let beat = || vec![ClientOperation::Heartbeat { session }];
    let submitted: Vec<_> = (0..6).map(|_| client.connection.submit(beat())).collect();
    assert_eq!(submitted.iter().filter(|result| result.is_ok()).count(), 4);
    for _ in 0..4 {
        assert_eq!(client.connection.next().await, Some(Delivery::Answers(vec![OperationResult::Heartbeat(Ok(()))])));
    }
    client.connection.submit(beat()).unwrap();
    let counters = node.counters().await.unwrap();
    assert_eq!((counters.registry.heartbeats, counters.network.heartbeats_rejected), (9, 16));
    // One connection takes a share of the queue, and the rest is left to others.
    let others: Vec<_> = (0..7).map(|_| node.connect().unwrap()).collect();
    let started: Vec<_> = (0..20).map(|_| client.connection.start(vec![])).collect();
    assert_eq!(started.iter().filter(|result| result.is_ok()).count(), 8);
    assert!(others.iter().all(|other| other.start(vec![]).is_ok()));
    let queues = node.status().await.unwrap().queues;
    assert_eq!((queues.client_requests, queues.calls), (8 + 7 + 7, 0), "a connection is a request, too");
    assert_eq!(node.status().await.unwrap().queues.client_requests, 0);
    drop(started);
    assert_eq!(node.counters().await.unwrap().network.inbox_full, 12);
}

#[tokio::test]
async fn a_node_that_was_paused_too_long_restarts_in_place() {
    let mut config = Config::new("a").unwrap();
    config.timers = quick_timers();
    config.timers.heartbeat_interval = Duration::from_millis(50);
    config.timers.heartbeat_timeout = Duration::from_millis(200);
    config.timers.ping_timeout = Duration::from_millis(200);
    config.timers.reconnect_timeout = Duration::from_millis(100);
    config.timers.dead_peer_timeout = Duration::from_millis(600);
    let node = Node::start(config).await.unwrap();
    let before = node.status().await.unwrap().incarnation;
    let mut client = TestClient::attach(&node, "c", vec![member("m", "s")]).await;
    node.register("shard", "here").await.unwrap();
    let everything = WatchSelection::new(Space::Member, Filter::all());
    let mut stream = node.watch(everything, Resume::Fresh).await.unwrap();
    // Simulates a pause of the machine: the node has no other thread than this one.
    #[allow(clippy::disallowed_methods, reason = "the pause is the fault")]
    std::thread::sleep(Duration::from_millis(1_500));
    eventually("the node has restarted", async || {
        node.status().await.is_ok_and(|status| status.incarnation > before) && node.is_ready()
    })
    .await;
    assert_eq!(client.connection.next().await, Some(Delivery::Closed(CloseReason::NodePaused)));
    assert_eq!(client.connection.next().await, None);
    let rejected = client.register(member("late", "s")).await.unwrap_err();
    assert_eq!(rejected.code, ErrorCode::SessionGone, "an old connection cannot reach the new incarnation");
    while stream.next().await.is_some() {}
    // The registry starts empty. Names belong to the application and are registered again.
    assert!(node.member("m").is_none());
    assert_eq!(node.lookup("shard").unwrap().location, "here");
    assert_eq!(node.services().iter().map(|view| view.service.as_str()).collect::<Vec<_>>(), ["convoke"]);
    let _again = TestClient::attach(&node, "c", vec![member("m", "s")]).await;
    assert!(node.member("m").is_some());
}

#[tokio::test]
async fn drain_explain_forget_and_a_stopped_node() {
    let mut cluster = Cluster::start(2).await;
    let _client = TestClient::attach(cluster.node(0), "c", vec![member("a", "s")]).await;
    cluster.agreed().await;
    // The request goes to the other node, and the owner executes it.
    cluster.node(1).drain("a", true).await.unwrap();
    let owner = cluster.node(0);
    eventually("it is drained", async || owner.member("a").unwrap().drained()).await;
    let counts = owner.services().into_iter().find(|view| view.service == "s").unwrap();
    assert_eq!((counts.up, counts.down, counts.drained), (0, 0, 1));
    owner.drain_node(true).await.unwrap();
    assert!(owner.member("convoke.n0").unwrap().drained());
    let explanation = cluster.node(1).explain("a").await.unwrap().unwrap();
    assert_eq!(explanation.written.origin.node.as_str(), "n0");
    assert_eq!(cluster.node(1).explain("unknown").await.unwrap(), None);
    let id = owner.id().clone();
    assert!(cluster.node(1).forget(&id).await.is_err(), "a connected node cannot be forgotten");
    let stopped = cluster.node(0).handle();
    cluster.kill(0).await;
    let rejection = stopped.status().await.unwrap_err();
    assert_eq!(rejection.code, ErrorCode::NotReady);
    assert!(stopped.connect().is_err());
    let node = cluster.node(1);
    eventually("it can be forgotten", async || node.forget(&id).await.is_ok()).await;
}
