//! One client offers far more than the node handles. Everybody else keeps its session, and the node keeps its peers.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_core::filter::Filter;
use convoke_core::member::{MetadataUpdate, Space};
use convoke_core::node::{RegistryEvent, Resume, StreamEvent, WatchSelection};
use convoke_core::{ErrorCode, Timers};
use convoke_node::{ClientOperation, Delivery, NodeEvent, NodeHandle, OperationResult};
use convoke_testkit::{Cluster, TestClient, eventually, member, quick_timers};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
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

/// How long the overload lasts: `CONVOKE_OVERLOAD_SECONDS`, or three times as long as a session may be silent.
fn duration() -> Duration {
    let seconds = std::env::var("CONVOKE_OVERLOAD_SECONDS").ok();
    let seconds = seconds.map(|text| text.parse().expect("CONVOKE_OVERLOAD_SECONDS is a number"));
    seconds.map_or(timers().heartbeat_timeout * 3, Duration::from_secs)
}

/// Counts of the clients' operations, for the report.
#[derive(Debug, Default)]
struct Load {
    stop: AtomicBool,
    /// Operations of the busy client.
    offered: AtomicU64,
    accepted: AtomicU64,
    heartbeats: AtomicU64,
    /// The longest time until a heartbeat was answered.
    slowest_us: AtomicU64,
}

impl Load {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn report(&self, lasted: Duration) -> String {
        let [offered, accepted, heartbeats, slowest] =
            [&self.offered, &self.accepted, &self.heartbeats, &self.slowest_us].map(|n| n.load(Ordering::Relaxed));
        let rate = |count: u64| count as f64 / lasted.as_secs_f64();
        format!(
            "{:.0} s: {:.0} updates offered per second, {:.0} accepted; {heartbeats} heartbeats of {QUIET} clients, the \
             slowest answered after {:.0} ms",
            lasted.as_secs_f64(),
            rate(offered),
            rate(accepted),
            slowest as f64 / 1_000.0
        )
    }
}

/// Submits updates as fast as the node rejects them.
async fn flood(mut client: TestClient, id: String, load: Arc<Load>) {
    let update = Arc::new(MetadataUpdate::set("key", "value"));
    while load.goes_on() {
        let session = client.session;
        let batch: Vec<_> = (0..BATCH)
            .map(|_| {
                let (seq, update) = (client.next_seq(), update.clone());
                ClientOperation::Update { session, seq, id: id.clone(), update, expected: None }
            })
            .collect();
        load.offered.fetch_add(BATCH, Ordering::Relaxed);
        if client.connection.submit(batch).is_ok() {
            load.accepted.fetch_add(BATCH, Ordering::Relaxed);
        } else {
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
async fn beat(node: NodeHandle, index: usize, load: Arc<Load>) {
    let id = format!("quiet-{index}");
    let mut client = TestClient::attach(&node, &id, vec![member(&id, "quiet")]).await;
    let session = client.session;
    while load.goes_on() {
        tokio::time::sleep(timers().heartbeat_interval).await;
        let sent = Instant::now();
        if index.is_multiple_of(2) {
            client.connection.heartbeat_echoed(session, 7).unwrap();
            let answer = client.connection.next().await;
            assert!(matches!(answer, Some(Delivery::Heartbeat { echo: 7, result: Ok(()), .. })), "{answer:?}");
        } else {
            let answers = client.connection.call(vec![ClientOperation::Heartbeat { session }]).await.unwrap();
            assert_eq!(answers, [OperationResult::Heartbeat(Ok(()))]);
        }
        load.heartbeats.fetch_add(1, Ordering::Relaxed);
        let took = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
        load.slowest_us.fetch_max(took, Ordering::Relaxed);
    }
}

/// Watches the quiet members. None may change.
async fn watch(node: NodeHandle) {
    let interest = WatchSelection::new(Space::Member, Filter::service("quiet"));
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
    let load = Arc::new(Load::default());
    let mut tasks = JoinSet::new();
    for index in 0..QUIET {
        tasks.spawn(beat(node.clone(), index, load.clone()));
    }
    eventually("all quiet members are registered", async || {
        (0..QUIET).all(|index| cluster.node(1).member(&format!("quiet-{index}")).is_some())
    })
    .await;
    let mut watchers = JoinSet::new();
    for node in cluster.running() {
        watchers.spawn(watch(node.handle()));
    }
    // All of them attach before the first one overloads the node.
    let mut busy = Vec::new();
    for index in 0..BUSY {
        let id = format!("busy-{index}");
        busy.push((TestClient::attach(&node, &id, vec![member(&id, "busy")]).await, id));
    }
    for (client, id) in busy {
        tasks.spawn(flood(client, id, load.clone()));
    }
    let began = Instant::now();
    tokio::select! {
        () = tokio::time::sleep(duration()) => {}
        Some(ended) = tasks.join_next() => panic!("a client ended: {ended:?}"),
        Some(ended) = watchers.join_next() => panic!("a watcher ended: {ended:?}"),
    }
    load.stop.store(true, Ordering::Relaxed);
    eprintln!("{}", load.report(began.elapsed()));
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
