//! Watches at a node without a replica: one stream from a replica for all of them (H8, H9).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::log::{Kv, Op, Txn};
use convoke_client::{Error, ErrorCode};
use convoke_log::{CoordinationLimits, LogLimits};
use convoke_proto::v1;
use convoke_proto::v1::key_watch::Which;
use convoke_proto::v1::key_watch_response::Message;
use convoke_proto::v1::log_client::LogClient;
use convoke_testkit::eventually;
use futures_util::future::join_all;
use serde_json::json;
use support::Served;
use support::access::Keys;
use support::http::{Sse, SseEvent};
use support::log::LogCluster;
use tonic::Streaming;
use tonic::transport::Channel;

async fn metric(served: &Served, name: &str) -> u64 {
    let text = served.get("/metrics").await.body_text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no metric {name}")).parse().unwrap()
}

async fn log_client(served: &Served) -> LogClient<Channel> {
    let address = format!("http://{}", served.address());
    LogClient::new(Channel::from_shared(address).unwrap().connect().await.unwrap())
}

fn prefix(prefix: &'static str) -> v1::KeyWatch {
    v1::KeyWatch { which: Some(Which::Range(v1::KeyRange::prefix(prefix))), ..v1::KeyWatch::default() }
}

fn request(watch: v1::KeyWatch) -> v1::KeyWatchRequest {
    v1::KeyWatchRequest { watches: vec![watch], ..v1::KeyWatchRequest::default() }
}

/// A key and its revision, and whether it is the last one of the revision.
type Seen = (String, u64, bool);

fn seen(event: &SseEvent) -> Seen {
    let key = event.data["key"].as_str().unwrap().to_owned();
    (key, event.data["revision"].as_u64().unwrap(), event.data["last"].as_bool().unwrap())
}

/// A reader of a prefix over HTTP. On a busy machine the node may end a stream; the reader then resumes it.
struct Reader<'a> {
    served: &'a Served,
    path: &'static str,
    stream: Sse,
    seen: Vec<Seen>,
}

impl<'a> Reader<'a> {
    /// Returns a reader whose watch has begun.
    async fn open(served: &'a Served, path: &'static str) -> Reader<'a> {
        let mut stream = Sse::open_at(served, path, "").await;
        let first = stream.next().await.unwrap();
        let seen = Some(first).iter().filter(|event| event.event == "put").map(seen).collect();
        Reader { served, path, stream, seen }
    }

    async fn read(&mut self, count: usize) {
        while self.seen.len() < count {
            match self.stream.next().await {
                Some(event) if event.event == "put" => self.seen.push(seen(&event)),
                Some(event) if event.event == "progress" => {}
                Some(event) if event.event == "reset" => panic!("{event:?}"),
                _ => {
                    let last_id = self.stream.last_id.clone();
                    self.stream = Sse::open_at(self.served, self.path, &last_id).await;
                }
            }
        }
    }
}

/// Reads events over gRPC, and resumes at its position if the node ends the stream.
async fn read_grpc(served: &Served, started: tokio::sync::oneshot::Sender<()>, count: usize) -> Vec<Seen> {
    let mut client = log_client(served).await;
    let (mut log, mut next, mut seen) = (None, None, Vec::new());
    let mut started = Some(started);
    loop {
        let watch = v1::KeyWatchRequest { log, ..request(v1::KeyWatch { from: next, ..prefix("w/") }) };
        let Ok(stream) = client.watch(watch).await else { continue };
        let mut stream = stream.into_inner();
        while let Ok(Some(message)) = stream.message().await {
            match message.message.unwrap() {
                Message::Started(begun) => log = begun.log,
                Message::Progress(progress) => {
                    next = progress.next;
                    started.take().map(|started| started.send(()));
                }
                Message::Events(events) => {
                    for event in events.events {
                        let Some(v1::key_event::Change::Put(record)) = event.change else { panic!("a put") };
                        let key = String::from_utf8(record.key.to_vec()).unwrap();
                        seen.push((key, event.position.unwrap().revision, event.last));
                    }
                    next = events.next;
                }
                Message::Compacted(compacted) => panic!("{compacted:?}"),
            }
            if seen.len() >= count {
                return seen;
            }
        }
    }
}

/// Writes puts and transactions, and returns the events of `w/`.
async fn write(kv: &Kv, from: usize, until: usize) -> Vec<Seen> {
    let mut written = Vec::new();
    for number in from..until {
        if number % 3 == 0 {
            let keys = [format!("w/{number}a"), format!("x/{number}"), format!("w/{number}b")];
            let txn = keys.iter().fold(Txn::new(), |txn, key| txn.then(Op::put(key.clone(), "v")));
            let revision = kv.commit(txn).await.unwrap().revision;
            written.push((keys[0].clone(), revision, false));
            written.push((keys[2].clone(), revision, true));
        } else {
            let key = format!("w/{number}");
            written.push((key.clone(), kv.put(key, "v").await.unwrap().revision, true));
        }
    }
    written
}

async fn streams(cluster: &LogCluster, indexes: &[usize]) -> Vec<u64> {
    join_all(indexes.iter().map(|index| metric(cluster.served(*index), "convoke_log_watch_streams"))).await
}

/// 50 watchers cost the replicas one stream. When the replica of that stream dies, another one continues it, and every
/// watcher gets every event once, in order.
#[tokio::test(flavor = "multi_thread")]
async fn h8_fifty_watchers_share_one_stream_and_survive_its_replica() {
    const GRPC: usize = 10;
    const HTTP: usize = 40;
    let mut cluster = LogCluster::start(3).await;
    let outside = cluster.outsider().await;
    let kv = cluster.ambassador().kv();
    write(&kv, 0, 3).await;
    let node = cluster.nodes[outside].take().unwrap();
    let served = &node.served;
    let mut readers = join_all((0..HTTP).map(|_| Reader::open(served, "/api/v1/kv-watch?prefix=w/"))).await;
    let (begun, beginning): (Vec<_>, Vec<_>) = (0..GRPC).map(|_| tokio::sync::oneshot::channel()).unzip();
    let reading = async {
        let http = join_all(readers.iter_mut().map(|reader| reader.read(40)));
        let grpc = join_all(begun.into_iter().map(|begun| read_grpc(served, begun, 40)));
        tokio::join!(http, grpc).1
    };
    let writing = async {
        join_all(beginning).await;
        let replicas = [0, 1, 2];
        eventually("one replica serves one stream", async || {
            let mut streams = streams(&cluster, &replicas).await;
            streams.sort_unstable();
            streams == [0, 0, 1]
        })
        .await;
        assert_eq!(metric(served, "convoke_log_watch_streams").await, (GRPC + HTTP) as u64);
        assert_eq!(metric(served, "convoke_log_watch_upstreams").await, 1);
        let mut written = write(&kv, 3, 18).await;
        let followed = streams(&cluster, &replicas).await.iter().position(|streams| *streams > 0).unwrap();
        cluster.kill(followed).await;
        written.extend(write(&kv, 18, 33).await);
        (written, replicas.into_iter().filter(|index| *index != followed).collect::<Vec<usize>>())
    };
    let both = async { tokio::join!(reading, writing) };
    let (grpc, (written, rest)) = tokio::time::timeout(std::time::Duration::from_secs(120), both).await.unwrap();
    assert_eq!(written.len(), 40);
    for seen in grpc.into_iter().chain(readers.iter().map(|reader| reader.seen.clone())) {
        assert_eq!(seen, written);
    }
    drop(readers);
    eventually("the stream ends with its last watcher", async || {
        metric(served, "convoke_log_watch_upstreams").await == 0 && streams(&cluster, &rest).await == [0, 0]
    })
    .await;
}

/// Watchers join at old positions while events arrive: they are caught up by their own reads and then share the stream.
#[tokio::test(flavor = "multi_thread")]
async fn h8_watchers_of_old_positions_are_caught_up_without_a_gap() {
    const COUNT: usize = 150;
    let mut cluster = LogCluster::start(1).await;
    let outside = cluster.outsider().await;
    let kv = cluster.ambassador().kv();
    let mut written = write(&kv, 0, 50).await;
    let served = cluster.served(outside);
    // The feed begins after these events.
    let _first = Reader::open(served, "/api/v1/kv-watch?prefix=w/").await;
    let joining = join_all((0..8).map(async |late| {
        eventually("events arrive meanwhile", async || {
            metric(cluster.served(0), "convoke_log_revision").await > 50 + late * 10
        })
        .await;
        let mut reader = Reader::open(served, "/api/v1/kv-watch?prefix=w/&from=1").await;
        reader.read(COUNT / 3 * 4).await;
        reader.seen
    }));
    let (seen, rest) = tokio::join!(joining, write(&kv, 50, COUNT));
    written.extend(rest);
    for seen in seen {
        assert_eq!(seen, written);
    }
    assert!(metric(served, "convoke_log_watch_catch_ups_total").await >= 8);
    eventually("only the shared stream is left", async || {
        metric(cluster.served(0), "convoke_log_watch_streams").await == 1
    })
    .await;
}

/// Errors of the replica reach each watcher: a compacted position, a position of another log, and one that is ahead.
#[tokio::test(flavor = "multi_thread")]
async fn h9_compacted_and_foreign_positions_are_reported_to_each_watcher() {
    let coordination = CoordinationLimits { history_bytes: 4_096, ..CoordinationLimits::default() };
    let limits = LogLimits { coordination, ..LogLimits::default() };
    let mut cluster = LogCluster::start_limited(1, convoke_server::Config::default(), limits).await;
    let outside = cluster.outsider().await;
    let kv = cluster.ambassador().kv();
    let mut early = Sse::open_at(cluster.served(outside), "/api/v1/kv-watch", "").await;
    let start = early.next().await.unwrap().id;
    drop(early);
    for number in 0..50 {
        kv.put(format!("k/{number:02}"), "v").await.unwrap();
    }
    let machine = cluster.node(0).replica.handle().local().unwrap();
    let oldest = machine.history().oldest();
    assert!(oldest > 1);
    let rejected = cluster.http(outside, "GET", "/api/v1/kv-watch?from=1", "").await;
    rejected.rejected(410, "COMPACTED");
    assert_eq!(rejected.json::<serde_json::Value>()["error"]["known"], oldest);
    let mut resumed = Sse::open_at(cluster.served(outside), "/api/v1/kv-watch", &start).await;
    let reset = not_progress(&mut resumed).await;
    assert_eq!((reset.event.as_str(), reset.data), ("reset", json!({"reason": "compacted", "revision": 50})));
    let mut client = log_client(cluster.served(outside)).await;
    let from = Some(v1::EventPosition { revision: 1, index: 0 });
    let mut stream = client.watch(request(v1::KeyWatch { id: 7, from, ..prefix("") })).await.unwrap().into_inner();
    let compacted = loop {
        match stream.message().await.unwrap().unwrap().message.unwrap() {
            Message::Compacted(compacted) => break compacted,
            Message::Started(_) | Message::Progress(_) => {}
            message @ Message::Events(_) => panic!("{message:?}"),
        }
    };
    assert_eq!(compacted, v1::WatchCompacted { watch: 7, oldest, revision: 50 });
    let mut other =
        Sse::open_at(cluster.served(outside), "/api/v1/kv-watch", "0000000000000000000000000000000a-3-0").await;
    let reset = not_progress(&mut other).await;
    assert_eq!((reset.event.as_str(), &reset.data["reason"]), ("reset", &json!("log")));
    let foreign = v1::KeyWatchRequest { log: Some(10.into()), ..request(prefix("")) };
    assert_eq!(Error::from(client.watch(foreign).await.unwrap_err()).code, ErrorCode::SessionGone);
    kv.put("k/00", "w").await.unwrap();
    for watch in [&mut resumed, &mut other] {
        assert_eq!(not_progress(watch).await.data["revision"], 51);
    }
}

async fn not_progress(watch: &mut Sse) -> SseEvent {
    loop {
        let event = watch.next().await.expect("the stream continues");
        if event.event != "progress" {
            return event;
        }
    }
}

/// A node follows replicas only, so that no two nodes follow each other.
#[tokio::test(flavor = "multi_thread")]
async fn h9_a_node_without_a_replica_rejects_what_only_a_replica_may_serve() {
    let mut cluster = LogCluster::start(1).await;
    let outside = cluster.outsider().await;
    let mut client = log_client(cluster.served(outside)).await;
    let wanted = v1::KeyWatchRequest { replica_only: true, ..request(prefix("")) };
    // A node that has just started does not know the group yet.
    let log = loop {
        let error = Error::from(client.watch(wanted.clone()).await.unwrap_err());
        assert_eq!(error.code, ErrorCode::NotReady, "{error}");
        if let Some(log) = error.log {
            break log;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(log.replicas[0].address, cluster.served(0).address().to_string());
}

/// Returns the next events of a stream.
async fn events(stream: &mut Streaming<v1::KeyWatchResponse>) -> v1::KeyEvents {
    loop {
        if let Message::Events(events) = stream.message().await.unwrap().unwrap().message.unwrap() {
            return events;
        }
    }
}

/// The stream from the replica has the changes that somebody watches, and previous records only if somebody asked.
#[tokio::test(flavor = "multi_thread")]
async fn h10_the_stream_carries_only_what_is_watched() {
    let mut cluster = LogCluster::start(1).await;
    let outside = cluster.outsider().await;
    let (kv, served) = (cluster.ambassador().kv(), cluster.served(outside));
    let mut client = log_client(served).await;
    let mut some = client.watch(request(prefix("w/"))).await.unwrap().into_inner();
    for number in 0..30 {
        kv.put(format!("x/{number}"), "v").await.unwrap();
    }
    kv.put("w/1", "v").await.unwrap();
    assert_eq!(events(&mut some).await.events.len(), 1);
    assert_eq!(metric(served, "convoke_log_watch_upstream_events_total").await, 1);
    // A part of what is watched already, then previous records, then other keys.
    let mut part = client.watch(request(prefix("w/1"))).await.unwrap().into_inner();
    let mut before = client.watch(request(v1::KeyWatch { previous: true, ..prefix("w/") })).await.unwrap().into_inner();
    let from = Some(v1::EventPosition { revision: 1, index: 0 });
    let mut others = client.watch(request(v1::KeyWatch { from, ..prefix("x/") })).await.unwrap().into_inner();
    kv.put("w/1", "w").await.unwrap();
    kv.put("x/0", "w").await.unwrap();
    kv.put("y/0", "w").await.unwrap();
    for stream in [&mut some, &mut part] {
        assert!(events(stream).await.events[0].previous.is_none());
    }
    assert_eq!(events(&mut before).await.events[0].previous.as_ref().unwrap().value, "v");
    let mut revisions = Vec::new();
    while revisions.len() < 31 {
        let page = events(&mut others).await.events;
        revisions.extend(page.iter().map(|event| event.position.unwrap().revision));
    }
    assert_eq!(revisions, (1..=30).chain([33]).collect::<Vec<u64>>(), "each once, across the change of the stream");
    eventually("one stream carries both", async || {
        metric(served, "convoke_log_watch_upstream_events_total").await == 3
            && metric(served, "convoke_log_watch_upstreams").await == 1
    })
    .await;
}

/// Watches of locks and elections share the stream, also those that the node itself makes for HTTP clients.
#[tokio::test(flavor = "multi_thread")]
async fn h8_locks_and_elections_are_watched_without_a_replica() {
    let mut cluster = LogCluster::start(1).await;
    let outside = cluster.outsider().await;
    let (kv, served) = (cluster.ambassador().kv(), cluster.served(outside));
    let mut client = log_client(served).await;
    let lock = |name: &'static str, election| {
        let which = Some(Which::Lock(v1::LockGuard { name: name.into(), fence: 0, election }));
        request(v1::KeyWatch { which, ..v1::KeyWatch::default() })
    };
    let mut locks = client.watch(lock("jobs", false)).await.unwrap().into_inner();
    let mut keys = client.watch(request(prefix("w/"))).await.unwrap().into_inner();
    let mut elections = client.watch(lock("jobs", true)).await.unwrap().into_inner();
    let mut observed = Sse::open_at(served, "/api/v1/elections/jobs/watch", "").await;
    assert_eq!(observed.next().await.unwrap().data["leader"], json!(null));
    let guard = kv.locks().lock("jobs").await.unwrap();
    let leadership = kv.elections().campaign("jobs", "me").await.unwrap();
    kv.put("w/1", "v").await.unwrap();
    let seen = |page: v1::KeyEvents| match page.events[0].change.clone() {
        Some(v1::key_event::Change::Lock(event)) => event,
        other => panic!("{other:?}"),
    };
    let granted = seen(events(&mut locks).await);
    assert_eq!((granted.kind(), granted.fence), (v1::lock_event::Kind::Granted, guard.fence()));
    assert!(granted.name.is_empty(), "as at a replica: {granted:?}");
    let elected = seen(events(&mut elections).await);
    assert_eq!((elected.fence, &elected.value[..]), (leadership.fence(), &b"me"[..]));
    assert_eq!(events(&mut keys).await.events.len(), 1);
    assert_eq!(observed.next().await.unwrap().data["leader"]["fence"], leadership.fence());
    guard.release().await.unwrap();
    assert_eq!(seen(events(&mut locks).await).kind(), v1::lock_event::Kind::Released);
    leadership.resign().await.unwrap();
    assert_eq!(seen(events(&mut elections).await).kind(), v1::lock_event::Kind::Released);
    assert_eq!(observed.next().await.unwrap().data["leader"], json!(null));
    assert_eq!(metric(served, "convoke_log_watch_upstreams").await, 1);
    assert_eq!(metric(cluster.served(0), "convoke_log_watch_streams").await, 1);
}

/// The node reads everything with its own credentials. Each watcher gets only what its own grants allow.
#[tokio::test(flavor = "multi_thread")]
async fn h9_each_watcher_needs_its_own_grant() {
    let keys = Keys::new();
    let mut cluster = keys.log_cluster(1).await;
    let outside = cluster.outsider().await;
    let served = cluster.served(outside);
    let operator = keys.token("operator", &["* *"]);
    let alice = keys.token("alice", &["read key:a/"]);
    let watch = async |token: &str| {
        let mut client = log_client(served).await;
        let mut call = tonic::Request::new(request(prefix("a/")));
        call.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        client.watch(call).await.unwrap().into_inner()
    };
    let (mut all, mut own) = (watch(&operator).await, watch(&alice).await);
    for denied in ["b/", ""] {
        let path = format!("/api/v1/kv-watch?prefix={denied}");
        keys.send(served, &alice, "GET", &path, "").await.rejected(403, "PERMISSION_DENIED");
        let mut call = tonic::Request::new(request(prefix(denied)));
        call.metadata_mut().insert("authorization", format!("Bearer {alice}").parse().unwrap());
        let error = Error::from(log_client(served).await.watch(call).await.unwrap_err());
        assert_eq!(error.code, ErrorCode::PermissionDenied, "{error}");
    }
    for key in ["b/1", "a/1"] {
        keys.send(served, &operator, "PUT", &format!("/api/v1/kv/{key}"), "x").await.ok();
    }
    for stream in [&mut all, &mut own] {
        let events = loop {
            if let Message::Events(events) = stream.message().await.unwrap().unwrap().message.unwrap() {
                break events.events;
            }
        };
        let Some(v1::key_event::Change::Put(record)) = &events[0].change else { panic!("{events:?}") };
        assert_eq!((events.len(), &record.key[..]), (1, &b"a/1"[..]));
    }
    assert_eq!(metric_as(&keys, &operator, served, "convoke_log_watch_upstreams").await, "1");
}

async fn metric_as(keys: &Keys, token: &str, served: &Served, name: &str) -> String {
    let text = keys.send(served, token, "GET", "/metrics", "").await.body_text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no metric {name}")).to_owned()
}
