//! Watches on real nodes: of other nodes' members, resumed, slow.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_core::filter::Filter;
use convoke_core::member::{MetadataUpdate, Space};
use convoke_core::node::{ResetReason, Resume, StreamEvent, WatchSelection};
use convoke_core::version::Version;
use convoke_node::{ClientOperation, OperationResult, WatchHandle};
use convoke_testkit::{Cluster, TEST_TIMEOUT, TestClient, eventually, member};
use std::collections::BTreeMap;
use std::sync::Arc;

fn members(filter: &str) -> WatchSelection {
    WatchSelection::new(Space::Member, Filter::parse(filter).unwrap())
}

/// The state that a watcher has received.
#[derive(Debug, Default)]
struct Seen {
    view: BTreeMap<String, Version>,
    /// Versions received since the last mark, including unregistrations.
    recent: BTreeMap<String, Version>,
    token: Option<Vec<u8>>,
    resets: Vec<ResetReason>,
    caught_up: bool,
    snapshots: usize,
}

impl Seen {
    fn note(&mut self, event: StreamEvent) {
        match event {
            StreamEvent::Snapshot(member) => {
                self.snapshots += 1;
                self.recent.insert(member.id().to_owned(), member.version());
                self.view.insert(member.id().to_owned(), member.version());
            }
            StreamEvent::Registered(member)
            | StreamEvent::Updated(member)
            | StreamEvent::StatusChanged(member)
            | StreamEvent::OwnerChanged(member) => {
                self.recent.insert(member.id().to_owned(), member.version());
                self.view.insert(member.id().to_owned(), member.version());
            }
            StreamEvent::Unregistered { id, version } => {
                self.view.remove(&id);
                self.recent.insert(id, version);
            }
            StreamEvent::CaughtUp => self.caught_up = true,
            StreamEvent::Reset(reason) => {
                self.resets.push(reason);
                self.view.clear();
                self.recent.clear();
                self.caught_up = false;
            }
            StreamEvent::Mark(token) => {
                self.token = Some(token.into());
                self.recent.clear();
            }
        }
    }

    /// Reads until the condition holds.
    async fn read(&mut self, stream: &mut WatchHandle, what: &str, until: impl Fn(&Seen) -> bool) {
        let reading = async {
            while !until(self) {
                let batch = stream.next().await.expect("the stream continues");
                assert!(!batch.is_empty(), "batches are not empty");
                batch.into_iter().for_each(|event| self.note(event));
            }
        };
        if tokio::time::timeout(TEST_TIMEOUT, reading).await.is_err() {
            panic!("condition not met: {what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_sees_another_nodes_members_and_resumes_at_a_third() {
    let mut cluster = Cluster::start(3).await;
    let mut client = TestClient::attach(cluster.node(0), "c", vec![member("a", "s"), member("x", "other")]).await;
    cluster.agreed().await;
    let interest = members("service == 's'");
    let mut stream = cluster.node(1).watch(interest.clone(), Resume::Fresh).await.unwrap();
    let mut seen = Seen::default();
    seen.read(&mut stream, "the snapshot", |seen| seen.caught_up && seen.token.is_some()).await;
    assert_eq!(seen.view.keys().collect::<Vec<_>>(), ["a"]);
    client.register(member("b", "s")).await.unwrap();
    seen.read(&mut stream, "the change", |seen| seen.view.contains_key("b") && seen.recent.is_empty()).await;
    // The watcher's node dies, and members change meanwhile.
    cluster.kill(1).await;
    assert_eq!(stream.next().await, None);
    let seq = client.next_seq();
    client.connection.unregister(client.session, seq, "a").await.unwrap();
    client.register(member("c", "s")).await.unwrap();
    let node = cluster.node(2);
    eventually("the third node knows", async || node.member("a").is_none() && node.member("c").is_some()).await;
    let resume = Resume::Token { token: seen.token.clone().unwrap(), recent: seen.recent.clone(), known: None };
    seen.caught_up = false;
    seen.snapshots = 0;
    let mut stream = node.watch(interest, resume).await.unwrap();
    seen.read(&mut stream, "it has caught up", |seen| seen.caught_up).await;
    assert_eq!(seen.view.keys().collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(seen.resets, []);
    assert!(seen.snapshots <= 2, "only possible changes are sent, not {}", seen.snapshots);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_watcher_is_reset_and_does_not_delay_others() {
    let cluster = Cluster::start_with(1, |config| config.limits.watcher_queue = 16).await;
    let node = cluster.node(0);
    let mut slow = node.watch(members(""), Resume::Fresh).await.unwrap();
    let mut quick = node.watch(members(""), Resume::Fresh).await.unwrap();
    let (mut slow_seen, mut quick_seen) = (Seen::default(), Seen::default());
    slow_seen.read(&mut slow, "caught up", |seen| seen.caught_up).await;
    quick_seen.read(&mut quick, "caught up", |seen| seen.caught_up).await;
    let mut client = TestClient::attach(node, "c", vec![member("a", "s")]).await;
    let mut version = None;
    for round in 0..200 {
        let update = MetadataUpdate::set("round", round.to_string());
        let seq = client.next_seq();
        version = Some(client.connection.update(client.session, seq, "a", update, None).await.unwrap());
        let reached = version;
        quick_seen.read(&mut quick, "each update", |seen| seen.view.get("a").copied() == reached).await;
    }
    assert_eq!(quick_seen.resets, []);
    slow_seen.read(&mut slow, "the last update", |seen| seen.view.get("a").copied() == version).await;
    assert_eq!(slow_seen.resets, [ResetReason::Overflow]);
    assert!(node.counters().await.unwrap().registry.watcher_resets > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_watchers_receive_the_same_changes() {
    let cluster = Cluster::start(1).await;
    let node = cluster.node(0);
    let specs = (0..2_000).map(|i| member(&format!("m{i:04}"), &format!("s{}", i % 10))).collect();
    let mut client = TestClient::attach(node, "c", specs).await;
    let mut streams = Vec::new();
    for index in 0..500 {
        let filter = if index % 2 == 0 { String::new() } else { format!("service == 's{}'", index % 10) };
        streams.push((node.watch(members(&filter), Resume::Fresh).await.unwrap(), Seen::default()));
    }
    for (stream, seen) in &mut streams {
        seen.read(stream, "the snapshot", |seen| seen.caught_up).await;
    }
    assert_eq!(streams[0].1.view.len(), 2_001, "the node itself too");
    assert_eq!(streams[1].1.view.len(), 200);
    client.register(member("late", "s1")).await.unwrap();
    for (index, (stream, seen)) in streams.iter_mut().enumerate() {
        if index % 2 == 0 || index % 10 == 1 {
            seen.read(stream, "the change", |seen| seen.view.contains_key("late")).await;
        }
    }
    drop(streams);
    eventually("all are gone", async || node.status().await.unwrap().sizes.watchers == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_selective_filter_finds_its_members_among_many() {
    let cluster = Cluster::start(1).await;
    let node = cluster.node(0);
    let specs = (0..20_000).map(|i| member(&format!("m{i:05}"), "s")).collect();
    let client = TestClient::attach(node, "c", specs).await;
    let update = Arc::new(MetadataUpdate::set("rare", "yes"));
    let operation =
        ClientOperation::Update { session: client.session, seq: 1, id: "m19999".to_owned(), update, expected: None };
    let answers = client.connection.call(vec![operation]).await.unwrap();
    assert!(matches!(&answers[..], [OperationResult::Written(Ok(_))]), "{answers:?}");
    let mut stream = node.watch(members("meta.rare == 'yes'"), Resume::Fresh).await.unwrap();
    let mut seen = Seen::default();
    seen.read(&mut stream, "the snapshot", |seen| seen.caught_up).await;
    assert_eq!(seen.view.keys().collect::<Vec<_>>(), ["m19999"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_can_be_watched() {
    let cluster = Cluster::start(2).await;
    let mut stream = cluster.node(1).watch_names(Resume::Fresh).await.unwrap();
    let mut seen = Seen::default();
    seen.read(&mut stream, "caught up", |seen| seen.caught_up).await;
    cluster.node(0).register("shard", "here").await.unwrap();
    seen.read(&mut stream, "the name", |seen| seen.view.contains_key("shard")).await;
    cluster.node(0).unregister("shard").await.unwrap();
    seen.read(&mut stream, "its end", |seen| seen.view.is_empty()).await;
}
