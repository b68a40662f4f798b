//! Watches of keys over HTTP, gRPC and the SDK.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::log::{KeyWatch, KeyWatchEvent, Op, ResetReason, Txn, WatchKeys};
use convoke_client::{Error, ErrorCode};
use convoke_log::{CoordinationLimits, LogLimits};
use convoke_proto::v1;
use convoke_proto::v1::key_watch_response::Message;
use convoke_proto::v1::log_client::LogClient;
use serde_json::json;
use support::http::{Sse, SseEvent};
use support::log::LogCluster;

async fn event(watch: &mut Sse) -> SseEvent {
    loop {
        let event = watch.next().await.expect("the stream continues");
        if event.event != "progress" {
            return event;
        }
    }
}

/// Every event arrives once, also if the reader resumes inside of a transaction, at a replica and at a node without one.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_resumes_exactly_at_every_node() {
    let mut cluster = LogCluster::start(1).await;
    let outside = cluster.outsider().await;
    let kv = cluster.ambassador().kv();
    kv.put("w/0", "zero").await.unwrap();
    kv.commit(
        Txn::new()
            .then(Op::put("w/1", "a"))
            .then(Op::put("x", "no"))
            .then(Op::put("w/2", "b"))
            .then(Op::put("w/3", "c")),
    )
    .await
    .unwrap();
    kv.delete_prefix("w/").await.unwrap();
    for index in [0, outside] {
        let mut watch = Sse::open_at(cluster.served(index), "/api/v1/kv-watch?prefix=w/&from=1&prev", "").await;
        let mut seen = Vec::new();
        for _ in 0..8 {
            let found = event(&mut watch).await;
            let (key, revision) =
                (found.data["key"].as_str().unwrap().to_owned(), found.data["revision"].as_u64().unwrap());
            seen.push((found.event.clone(), key, revision, found.data["last"].as_bool().unwrap()));
            if seen.len() == 2 {
                assert_eq!(found.data["value"], "YQ==");
            }
            // Another connection continues after every event.
            let last_id = watch.last_id.clone();
            watch = Sse::open_at(cluster.served(index), "/api/v1/kv-watch?prefix=w/&prev", &last_id).await;
        }
        let expected = [
            ("put", "w/0", 1, true),
            ("put", "w/1", 2, false),
            ("put", "w/2", 2, false),
            ("put", "w/3", 2, true),
            ("delete", "w/0", 3, false),
            ("delete", "w/1", 3, false),
            ("delete", "w/2", 3, false),
            ("delete", "w/3", 3, true),
        ];
        let expected: Vec<_> = expected
            .iter()
            .map(|(event, key, revision, last)| ((*event).to_owned(), (*key).to_owned(), *revision, *last))
            .collect();
        assert_eq!(seen, expected, "n{index}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_from_now_has_only_later_changes() {
    let cluster = LogCluster::start(1).await;
    cluster.http(0, "PUT", "/api/v1/kv/a", "1").await.ok();
    let mut watch = Sse::open_at(cluster.served(0), "/api/v1/kv-watch?key=a", "").await;
    let started = watch.next().await.unwrap();
    assert_eq!((started.event.as_str(), &started.data["revision"]), ("progress", &json!(1)));
    cluster.http(0, "PUT", "/api/v1/kv/b", "1").await.ok();
    cluster.http(0, "PUT", "/api/v1/kv/a", "2").await.ok();
    let found = event(&mut watch).await;
    let expected = json!({"revision": 3, "last": true, "key": "a", "value": "Mg==", "create_revision": 1, "mod_revision": 3, "version": 2});
    assert_eq!((found.event.as_str(), found.data), ("put", expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_watches_are_rejected_with_the_field() {
    let cluster = LogCluster::start(1).await;
    for (path, field) in [
        ("?key=a&prefix=b", "prefix"),
        ("?key=a&until_key=b", "first_key"),
        ("?events=all", "events"),
        ("?from=0", "from"),
        ("?from=x", "from"),
        ("?nonsense", "nonsense"),
    ] {
        let answer = cluster.http(0, "GET", &format!("/api/v1/kv-watch{path}"), "").await;
        assert_eq!(answer.rejected(400, "INVALID_ARGUMENT").as_deref(), Some(field), "{path}");
    }
    let answer = cluster.served(0).send("GET", "/api/v1/kv-watch", &[("Last-Event-ID", "12")], String::new()).await;
    assert_eq!(answer.rejected(400, "INVALID_ARGUMENT").as_deref(), Some("Last-Event-ID"));
    let address = format!("http://{}", cluster.served(0).address());
    let channel = tonic::transport::Channel::from_shared(address).unwrap().connect().await.unwrap();
    let mut client = LogClient::new(channel);
    let all =
        v1::KeyWatch { which: Some(v1::key_watch::Which::Range(v1::KeyRange::prefix(""))), ..v1::KeyWatch::default() };
    let union = |count| {
        let union = v1::KeyWatchUnion { ranges: vec![v1::KeyRange::prefix("a"); count], locks: vec![] };
        v1::KeyWatch { which: Some(v1::key_watch::Which::Union(union)), ..v1::KeyWatch::default() }
    };
    let silent = v1::KeyWatch { no_puts: true, no_deletes: true, ..all.clone() };
    for (watches, code, field) in [
        (vec![], ErrorCode::InvalidArgument, "watches"),
        (vec![all.clone(); 129], ErrorCode::TooLarge, "watches"),
        (vec![v1::KeyWatch::default()], ErrorCode::InvalidArgument, "watches[0].which"),
        (vec![all.clone(), all.clone()], ErrorCode::InvalidArgument, "watches[1].id"),
        (vec![silent], ErrorCode::InvalidArgument, "watches[0].no_deletes"),
        (vec![union(0)], ErrorCode::InvalidArgument, "watches[0].union"),
        (vec![union(1_025)], ErrorCode::TooLarge, "union"),
    ] {
        let request = v1::KeyWatchRequest { watches, ..v1::KeyWatchRequest::default() };
        let error = Error::from(client.watch(request).await.err().unwrap());
        assert_eq!((error.code, error.field.as_deref()), (code, Some(field)), "{error}");
    }
    let other = v1::KeyWatchRequest { log: Some(7.into()), watches: vec![all], ..v1::KeyWatchRequest::default() };
    assert_eq!(Error::from(client.watch(other).await.err().unwrap()).code, ErrorCode::SessionGone);
}

/// Several watches share a stream, and each has its own position.
#[tokio::test(flavor = "multi_thread")]
async fn one_stream_has_several_watches() {
    let cluster = LogCluster::start(1).await;
    let kv = cluster.ambassador().kv();
    for key in ["a", "b", "a"] {
        kv.put(key, "1").await.unwrap();
    }
    let address = format!("http://{}", cluster.served(0).address());
    let channel = tonic::transport::Channel::from_shared(address).unwrap().connect().await.unwrap();
    let watch = |id, key: &'static str| v1::KeyWatch {
        id,
        which: Some(v1::key_watch::Which::Key(key.into())),
        from: Some(v1::EventPosition { revision: 1, index: 0 }),
        ..v1::KeyWatch::default()
    };
    let request = v1::KeyWatchRequest { watches: vec![watch(7, "a"), watch(9, "b")], ..v1::KeyWatchRequest::default() };
    let mut stream = LogClient::new(channel).watch(request).await.unwrap().into_inner();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        match stream.message().await.unwrap().unwrap().message.unwrap() {
            Message::Started(started) => assert_eq!(started.revision, 3),
            Message::Progress(_) => {}
            Message::Events(events) => {
                seen.extend(events.events.iter().map(|event| (events.watch, event.position.unwrap().revision)));
            }
            Message::Compacted(compacted) => panic!("{compacted:?}"),
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, [(7, 1), (7, 3), (9, 2)]);
}

/// The watches of all streams of a connection count, also those over HTTP. Another connection has its own limit.
#[tokio::test(flavor = "multi_thread")]
async fn h11_the_watches_of_a_connection_are_limited() {
    const LIMIT: usize = 4_096;
    let cluster = LogCluster::start(1).await;
    let address = format!("http://{}", cluster.served(0).address());
    let channel = tonic::transport::Channel::from_shared(address.clone()).unwrap().connect().await.unwrap();
    let mut client = LogClient::new(channel.clone());
    let request = |count: usize| {
        let which = Some(v1::key_watch::Which::Key("a".into()));
        let watch = |id| v1::KeyWatch { id, which: which.clone(), ..v1::KeyWatch::default() };
        v1::KeyWatchRequest { watches: (0..count as u64).map(watch).collect(), ..v1::KeyWatchRequest::default() }
    };
    let mut open = Vec::new();
    for _ in 0..LIMIT / 128 {
        open.push(client.watch(request(128)).await.unwrap());
    }
    let refused = |error: Error| (error.code, error.limit);
    let expected = (ErrorCode::ResourceExhausted, Some(LIMIT as u64));
    assert_eq!(refused(client.watch(request(1)).await.err().unwrap().into()), expected);
    // The same connection over HTTP/2.
    for path in ["/api/v1/kv-watch?key=a", "/api/v1/elections/e/watch"] {
        let request = http::Request::get(format!("{address}{path}")).body(tonic::body::Body::empty()).unwrap();
        let answer = tower::ServiceExt::oneshot(channel.clone(), request).await.unwrap();
        assert_eq!(answer.status(), 429, "{path}");
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        let error: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&error["error"]["code"], &error["error"]["limit"]), (&json!("RESOURCE_EXHAUSTED"), &json!(LIMIT)));
    }
    let metrics = cluster.http(0, "GET", "/metrics", "").await.body;
    let metrics = String::from_utf8_lossy(&metrics);
    assert!(metrics.contains("convoke_log_watch_streams_rejected_total 3"), "{metrics}");
    let another = tonic::transport::Channel::from_shared(address).unwrap().connect().await.unwrap();
    let mut other = LogClient::new(another);
    other.watch(request(128)).await.unwrap();
    // The end of a stream makes room.
    open.pop();
    convoke_testkit::eventually("room for a stream", async || client.watch(request(128)).await.is_ok()).await;
}

/// Watches with the same selection and options share the messages; one that differs, or has another position, does not.
#[tokio::test(flavor = "multi_thread")]
async fn h5_equal_watches_of_a_stream_share_their_messages() {
    let cluster = LogCluster::start(1).await;
    let kv = cluster.ambassador().kv();
    for value in ["1", "2"] {
        kv.put("a", value).await.unwrap();
    }
    let address = format!("http://{}", cluster.served(0).address());
    let channel = tonic::transport::Channel::from_shared(address).unwrap().connect().await.unwrap();
    let watch = |id, revision, previous| v1::KeyWatch {
        id,
        which: Some(v1::key_watch::Which::Key("a".into())),
        from: Some(v1::EventPosition { revision, index: 0 }),
        previous,
        ..v1::KeyWatch::default()
    };
    let watches = vec![watch(1, 1, false), watch(2, 2, false), watch(3, 1, true), watch(4, 1, false)];
    let request = v1::KeyWatchRequest { watches, ..v1::KeyWatchRequest::default() };
    let mut stream = LogClient::new(channel).watch(request).await.unwrap().into_inner();
    let mut seen: [Vec<(u64, bool)>; 4] = Default::default();
    let (mut messages, mut written) = (0, false);
    while seen.iter().map(Vec::len).sum::<usize>() < 11 {
        let Message::Events(events) = stream.message().await.unwrap().unwrap().message.unwrap() else { continue };
        messages += 1;
        for id in [events.watch].iter().chain(&events.same) {
            let found = events.events.iter().map(|event| (event.position.unwrap().revision, event.previous.is_some()));
            seen[*id as usize - 1].extend(found);
        }
        if seen.iter().map(Vec::len).sum::<usize>() == 7 && !std::mem::replace(&mut written, true) {
            assert_eq!(messages, 3, "1 and 4 share one");
            kv.put("a", "3").await.unwrap();
        }
    }
    let plain = vec![(1, false), (2, false), (3, false)];
    assert_eq!(seen, [plain.clone(), plain[1..].to_vec(), vec![(1, false), (2, true), (3, true)], plain]);
    assert_eq!(messages, 5, "all but 3 have the same position now");
}

/// A range, and one kind of changes, over HTTP and in the SDK.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_selects_a_range_and_a_kind_of_changes() {
    let mut cluster = LogCluster::start(1).await;
    let outside = cluster.outsider().await;
    let kv = cluster.ambassador().kv();
    for key in ["a", "b", "c", "d"] {
        kv.put(key, "1").await.unwrap();
    }
    kv.delete_prefix("").await.unwrap();
    kv.put("b", "2").await.unwrap();
    for index in [0, outside] {
        for (query, expected) in [
            ("first_key=b&until_key=d", vec![("put", "b", 2), ("put", "c", 3), ("delete", "b", 5), ("delete", "c", 5)]),
            ("first_key=c&events=put", vec![("put", "c", 3), ("put", "d", 4)]),
            ("until_key=c&events=delete", vec![("delete", "a", 5), ("delete", "b", 5)]),
            ("prefix=b&events=put", vec![("put", "b", 2), ("put", "b", 6)]),
        ] {
            let path = format!("/api/v1/kv-watch?{query}&from=1");
            let mut watch = Sse::open_at(cluster.served(index), &path, "").await;
            for (kind, key, revision) in expected {
                let found = event(&mut watch).await;
                let at = found.data["revision"].as_u64().unwrap();
                assert_eq!((&*found.event, found.data["key"].as_str().unwrap(), at), (kind, key, revision), "{query}");
            }
        }
    }
    let mut deletes = kv.watch(WatchKeys::range("b", Some("d".into())).only_deletes().from(1));
    let mut puts = kv.watch(WatchKeys::key("b").only_puts().from(1));
    for (watch, revisions) in [(&mut deletes, [5, 5]), (&mut puts, [2, 6])] {
        for revision in revisions {
            let KeyWatchEvent::Change(change) = change(watch).await else { panic!("a change") };
            assert_eq!(change.revision, revision);
        }
    }
}

async fn change(watch: &mut KeyWatch) -> KeyWatchEvent {
    loop {
        match watch.next().await.unwrap().unwrap() {
            KeyWatchEvent::Progress { .. } => {}
            event => return event,
        }
    }
}

/// Below the oldest revision, HTTP reports COMPACTED or a reset, and the SDK lists the keys again.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_below_the_history_is_reset() {
    let coordination = CoordinationLimits { history_bytes: 4_096, ..CoordinationLimits::default() };
    let limits = LogLimits { coordination, ..LogLimits::default() };
    let cluster = LogCluster::start_limited(1, convoke_server::Config::default(), limits).await;
    let kv = cluster.ambassador().kv();
    kv.put("first", "1").await.unwrap();
    let mut watch = Sse::open_at(cluster.served(0), "/api/v1/kv-watch?from=1", "").await;
    assert_eq!(event(&mut watch).await.data["key"], "first");
    let last_id = watch.last_id.clone();
    drop(watch);
    for number in 0..50 {
        kv.put(format!("k/{number:02}"), "v").await.unwrap();
    }
    let gone = cluster.http(0, "GET", "/api/v1/kv-watch?from=1", "").await;
    gone.rejected(410, "COMPACTED");
    let mut resumed = Sse::open_at(cluster.served(0), "/api/v1/kv-watch", &last_id).await;
    let reset = event(&mut resumed).await;
    assert_eq!((reset.event.as_str(), reset.data), ("reset", json!({"reason": "compacted", "revision": 51})));
    let mut watch = kv.watch(WatchKeys::prefix("k/").from(1));
    let KeyWatchEvent::Reset { reason, revision, records } = change(&mut watch).await else { panic!("a reset") };
    assert_eq!((reason, revision, records.len()), (ResetReason::Compacted, 51, 50));
    kv.put("k/00", "w").await.unwrap();
    let KeyWatchEvent::Change(found) = change(&mut watch).await else { panic!("a change") };
    assert_eq!((found.revision, &found.key[..]), (52, &b"k/00"[..]));
    assert_eq!(event(&mut resumed).await.data["revision"], 52);
    // A position of another log is a reset, too.
    let mut other = Sse::open_at(cluster.served(0), "/api/v1/kv-watch", "0000000000000000000000000000000a-3-0").await;
    let reset = event(&mut other).await;
    assert_eq!((reset.event.as_str(), &reset.data["reason"]), ("reset", &json!("log")));
}
