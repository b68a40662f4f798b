//! One client offers far more than the node handles. Everybody else keeps its session, and the node keeps its peers.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_core::filter::Filter;
use convoke_core::member::{MetadataUpdate, Space};
use convoke_core::node::{RegistryEvent, Resume, StreamEvent, WatchSelection};
use convoke_core::{ErrorCode, Timers};
use convoke_node::{ClientOperation, Delivery, NodeEvent, NodeHandle, OperationResult};
use convoke_testkit::{Cluster, TestClient, eventually, member, quick_timers};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// Connections of the busy client, the operations of each of its batches, and the batches that may wait in the node.
const BUSY: usize = 48;
const BATCH: u64 = 64;
const INBOX: usize = 128;
/// Sessions that only send heartbeats.
const QUIET: usize = 40;

fn timers() -> Timers {
    Timers { heartbeat_interval: Duration::from_millis(400), ..quick_timers() }
}

/// Submits updates as fast as the node rejects them.
async fn flood(node: NodeHandle, index: usize, stop: Arc<AtomicBool>) {
    let id = format!("busy-{index}");
    let mut client = TestClient::attach(&node, &id, vec![member(&id, "busy")]).await;
    let update = Arc::new(MetadataUpdate::set("key", "value"));
    while !stop.load(Ordering::Relaxed) {
        let session = client.session;
        let batch: Vec<_> = (0..BATCH)
            .map(|_| {
                let (seq, update) = (client.next_seq(), update.clone());
                ClientOperation::Update { session, seq, id: id.clone(), update, expected: None }
            })
            .collect();
        if client.connection.submit(batch).is_err() {
            tokio::task::yield_now().await;
        }
        while let Some(Some(delivery)) = if_ready(client.connection.next()).await {
            assert!(!matches!(delivery, Delivery::Closed(_)), "{delivery:?}");
        }
    }
}

/// The output of a future if it is ready.
async fn if_ready<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        value = future => Some(value),
        () = std::future::ready(()) => None,
    }
}

/// Sends one heartbeat after the other, in the form of the gRPC or of the HTTP interface. None may be rejected.
async fn beat(node: NodeHandle, index: usize, stop: Arc<AtomicBool>) {
    let id = format!("quiet-{index}");
    let mut client = TestClient::attach(&node, &id, vec![member(&id, "quiet")]).await;
    let session = client.session;
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(timers().heartbeat_interval).await;
        if index.is_multiple_of(2) {
            client.connection.heartbeat_echoed(session, 7).unwrap();
            let answer = client.connection.next().await;
            assert!(matches!(answer, Some(Delivery::Heartbeat { echo: 7, result: Ok(()), .. })), "{answer:?}");
        } else {
            let answers = client.connection.call(vec![ClientOperation::Heartbeat { session }]).await.unwrap();
            assert_eq!(answers, [OperationResult::Heartbeat(Ok(()))]);
        }
    }
}

/// Watches the quiet members. None may change.
async fn watch(node: NodeHandle) {
    let interest = WatchSelection { space: Space::Member, filter: Filter::service("quiet") };
    let mut stream = node.watch(interest, Resume::Fresh).await.unwrap();
    while let Some(batch) = stream.next().await {
        let quiet = |event: &StreamEvent| {
            matches!(event, StreamEvent::Snapshot(_) | StreamEvent::CaughtUp | StreamEvent::Mark(_))
        };
        assert!(batch.iter().all(quiet), "changed during the overload: {batch:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_down_while_one_client_overloads_the_node() {
    let cluster = Cluster::start_with(2, |config| {
        config.timers = timers();
        config.network.inbox = INBOX;
        // No judgement waits because many sessions are silent at once (L6).
        config.mass_failure_share = 1.0;
    })
    .await;
    let node = cluster.node(0).handle();
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for index in 0..QUIET {
        tasks.spawn(beat(node.clone(), index, stop.clone()));
    }
    eventually("all quiet members are registered", async || {
        (0..QUIET).all(|index| cluster.node(1).member(&format!("quiet-{index}")).is_some())
    })
    .await;
    let mut watchers = JoinSet::new();
    for node in cluster.running() {
        watchers.spawn(watch(node.handle()));
    }
    for index in 0..BUSY {
        tasks.spawn(flood(node.clone(), index, stop.clone()));
    }
    // Three times as long as a session may be silent.
    let load = tokio::time::sleep(timers().heartbeat_timeout * 3);
    tokio::select! {
        () = load => {}
        Some(ended) = tasks.join_next() => panic!("a client ended: {ended:?}"),
        Some(ended) = watchers.join_next() => panic!("a watcher ended: {ended:?}"),
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let counters = node.counters().await.unwrap();
    assert!(counters.network.inbox_full > counters.network.turns, "the client offered too little: {counters:?}");
    assert_eq!(counters.network.heartbeats_rejected, 0);
    assert!(watchers.try_join_next().is_none(), "a watcher ended");
    for node in cluster.running() {
        let lost = node.events_after(0);
        let lost = lost.iter().find(|event| {
            matches!(event.what, NodeEvent::Registry(RegistryEvent::PeerFailed { .. } | RegistryEvent::PeerLost { .. }))
        });
        assert!(lost.is_none(), "a peer was lost during the overload: {lost:?}");
    }
}

#[tokio::test]
async fn a_rejected_request_counts_as_a_heartbeat() {
    let cluster = Cluster::start_with(1, |config| config.network.inbox = 16).await;
    let node = cluster.node(0);
    let mut client = TestClient::attach(node, "c", vec![]).await;
    let session = client.session;
    // With one thread, the event loop does not run until this task waits.
    let mut register = |id: &str| {
        let heartbeat = ClientOperation::Heartbeat { session };
        let seq = client.next_seq();
        let register = ClientOperation::Register { session, seq, member: Arc::new(member(id, "s")) };
        client.connection.submit(vec![heartbeat, register])
    };
    register("first").unwrap();
    register("second").unwrap();
    let rejection = register("third").unwrap_err();
    assert_eq!((rejection.code, rejection.limit), (ErrorCode::ResourceExhausted, Some(2)));
    for _ in 0..2 {
        let answered = client.connection.next().await;
        assert!(matches!(answered, Some(Delivery::Answers(answers)) if answers.len() == 2));
    }
    assert_eq!(node.counters().await.unwrap().registry.heartbeats, 3);
    assert!(node.member("second").is_some() && node.member("third").is_none());
}
