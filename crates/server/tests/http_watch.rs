//! Server-sent events: names and formats, resuming at any node without gap or duplicate, slow readers.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_proto::v1;
use convoke_proto::v1::client_message::Message as ClientMessage;
use convoke_proto::v1::request::Operation;
use convoke_proto::v1::server_message::Message as ServerMessage;
use convoke_testkit::eventually;
use serde_json::json;
use std::collections::BTreeMap;
use support::Served;
use support::grpc::{Attachment, attach};
use support::http::{Sse, SseEvent};

const ORDERS: &str = "?filter=service%20==%20%22orders%22";

async fn register(served: &Served, session: &str, id: &str) {
    served.put(&format!("{session}/members/{id}"), r#"{"service":"orders"}"#).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_have_the_documented_names_and_fields() {
    let cluster = Served::cluster(2).await;
    let served = &cluster[0];
    let session = served.session("").await;
    register(served, &session, "a").await;
    let mut watch = Sse::open(served, ORDERS, "").await;
    let snapshot = watch.event().await;
    assert_eq!(snapshot.brief(), "snapshot a");
    assert_eq!(snapshot.data["member"], served.get("/api/v1/members/a").await.ok());
    let caught_up = watch.event().await;
    assert_eq!((caught_up.brief().as_str(), &caught_up.data), ("caught-up", &json!({})));
    register(served, &session, "b").await;
    assert_eq!(watch.event().await.brief(), "register b");
    served.patch(&format!("{session}/members/b"), r#"{"k":"v"}"#).await.ok();
    let update = watch.event().await;
    assert_eq!((update.brief().as_str(), &update.data["member"]["metadata"]), ("update b", &json!({"k": "v"})));
    served.delete(&format!("{session}/members/b")).await.ok();
    let gone = watch.event().await;
    assert_eq!((gone.brief().as_str(), gone.data.as_object().unwrap().len()), ("unregister b", 2));
    // The session times out.
    let session = served.session(r#"{"timeout_ms":500}"#).await;
    register(served, &session, "c").await;
    assert_eq!(watch.event().await.brief(), "register c");
    let down = watch.event().await;
    assert_eq!((down.brief().as_str(), &down.data["member"]["status"]), ("status c", &json!("down")));
    served.put(&format!("{session}/heartbeat"), "").await.ok();
    assert_eq!(watch.event().await.brief(), "status c");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_stream_sends_keep_alive_comments() {
    let short = |server: &mut convoke_server::Config| {
        server.timeouts.keep_alive = std::time::Duration::from_millis(20);
    };
    let served = Served::start("n0", &[], |_| {}, short).await;
    let mut watch = Sse::open(&served, ORDERS, "").await;
    watch.until("caught-up").await;
    for _ in 0..3 {
        watch.comment().await;
    }
}

/// Reads a stream event by event, each time over a new connection at another node, from every position in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_resumed_at_any_node_after_any_event() {
    let cluster = Served::cluster(3).await;
    let session = cluster[0].session("").await;
    register(&cluster[0], &session, "a").await;
    let mut watch = Sse::open(&cluster[0], ORDERS, "").await;
    watch.until("caught-up").await;
    let mut last_id = watch.last_id.clone();
    drop(watch);
    let mut versions = Vec::new();
    for round in 0..30 {
        let body = json!({"round": round.to_string()}).to_string();
        let written = cluster[0].patch(&format!("{session}/members/a"), &body).await.ok();
        versions.push(written["version"].as_str().unwrap().to_owned());
        // The node may not have received the last change yet; it never shows an older state than was seen before.
        let mut watch = Sse::open(&cluster[round % 3], ORDERS, &last_id).await;
        loop {
            let event = watch.event().await;
            assert_ne!(event.event, "reset");
            if event.event != "caught-up" {
                assert_eq!(event.member(), "a");
                let position = versions.iter().position(|version| version == event.version());
                assert_eq!(position, Some(round), "{event:?}");
                last_id = event.id;
                break;
            }
        }
    }
}

/// Watchers with the same filter share the text of events, whose ids are valid for this filter only.
#[tokio::test(flavor = "multi_thread")]
async fn watchers_that_share_events_resume_from_their_own_ids() {
    const NOT_USERS: &str = "?filter=service%20!=%20%22users%22";
    let cluster = Served::cluster(1).await;
    let served = &cluster[0];
    let session = served.session("").await;
    register(served, &session, "a").await;
    let update = async |round: usize| {
        let body = json!({"round": round.to_string()}).to_string();
        let written = served.patch(&format!("{session}/members/a"), &body).await.ok();
        format!("update a {}", written["version"].as_str().unwrap())
    };
    let shown = |event: &SseEvent| format!("{} {}", event.brief(), event.version());
    let mut watches = Vec::new();
    for filter in [ORDERS, ORDERS, NOT_USERS, ORDERS, NOT_USERS] {
        let mut watch = Sse::open(served, filter, "").await;
        watch.until("caught-up").await;
        watches.push((filter, watch));
    }
    for round in 0..20 {
        let written = update(round).await;
        for (_, watch) in &mut watches {
            assert_eq!(shown(&watch.event().await), written);
        }
    }
    let written = update(20).await;
    for (filter, watch) in &mut watches {
        let last_id = watch.last_id.clone();
        assert_eq!(shown(&watch.event().await), written);
        let mut resumed = Sse::open(served, filter, &last_id).await;
        let event = resumed.event().await;
        assert_eq!((event.event.as_str(), event.version()), ("snapshot", written.rsplit(' ').next().unwrap()));
        assert_eq!(resumed.event().await.brief(), "caught-up");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_is_read_in_parts_without_gap_or_duplicate() {
    let cluster = Served::cluster(2).await;
    let session = cluster[0].session("").await;
    let mut watch = Sse::open(&cluster[0], ORDERS, "").await;
    watch.until("caught-up").await;
    let mut last_id = watch.last_id.clone();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for id in 0..60 {
        register(&cluster[0], &session, &format!("m{id:02}")).await;
    }
    let mut node = 0;
    while seen.len() < 60 {
        // Three events from one node, the next ones from the other.
        let mut watch = Sse::open(&cluster[node], ORDERS, &last_id).await;
        let mut read = 0;
        while read < 3 && seen.len() < 60 {
            let event = watch.event().await;
            assert_ne!(event.event, "reset");
            last_id.clone_from(&event.id);
            if event.event != "caught-up" {
                let before = seen.insert(event.member().to_owned(), event.version().to_owned());
                assert_eq!(before, None, "sent twice: {event:?}");
                read += 1;
            }
        }
        node = 1 - node;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_left_during_an_interruption_are_reported() {
    let mut cluster = Served::cluster(2).await;
    let session = cluster[0].session("").await;
    for id in ["a", "b", "c"] {
        register(&cluster[0], &session, id).await;
    }
    let mut watch = Sse::open(&cluster[0], ORDERS, "").await;
    watch.until("caught-up").await;
    let last_id = watch.last_id.clone();
    drop(watch);
    cluster[0].delete(&format!("{session}/members/b")).await.ok();
    cluster[0].patch(&format!("{session}/members/c"), r#"{"k":"v"}"#).await.ok();
    eventually("the other node has received the changes", async || {
        cluster[1].node.member("b").is_none()
            && cluster[1].node.member("c").is_some_and(|member| !member.metadata().is_empty())
    })
    .await;
    cluster.remove(0).kill().await;
    let mut watch = Sse::open(&cluster[0], ORDERS, &last_id).await;
    let mut reported = watch.until("caught-up").await;
    reported.sort();
    assert_eq!(reported, ["caught-up", "snapshot c", "unregister b"]);
}

/// Members of other services change while the watch is interrupted. None of them is reported as gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_watch_reports_no_members_outside_of_its_filter() {
    let cluster = Served::cluster(2).await;
    let session = cluster[0].session("").await;
    for id in ["a", "b"] {
        register(&cluster[0], &session, id).await;
    }
    let other = cluster[0].session("").await;
    for number in 0..20 {
        cluster[0].put(&format!("{other}/members/web-{number}"), r#"{"service":"web"}"#).await.ok();
    }
    let mut watch = Sse::open(&cluster[0], ORDERS, "").await;
    watch.until("caught-up").await;
    let last_id = watch.last_id.clone();
    drop(watch);
    for number in 0..20 {
        let path = format!("{other}/members/web-{number}");
        if number % 2 == 0 {
            cluster[0].patch(&path, r#"{"k":"v"}"#).await.ok();
        } else {
            cluster[0].delete(&path).await.ok();
        }
    }
    cluster[0].delete(&format!("{session}/members/b")).await.ok();
    // The last write of the node: the other one has received all before it, too.
    register(&cluster[0], &session, "c").await;
    eventually("the changes have arrived", async || cluster[1].node.member("c").is_some()).await;
    let mut watch = Sse::open(&cluster[1], ORDERS, &last_id).await;
    let mut reported = watch.until("caught-up").await;
    reported.sort();
    assert_eq!(reported, ["caught-up", "snapshot c", "unregister b"]);
    // The position has moved on, and a third stream reports nothing twice.
    let mut watch = Sse::open(&cluster[0], ORDERS, &watch.last_id).await;
    assert_eq!(watch.until("caught-up").await, ["caught-up"]);
}

/// A position names up to 64 members. A reader of more members gets every departure of one that it has, and may get
/// departures of members that it never had (docs/http.md). No member that matches is reported as gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_watch_of_many_members_misses_no_departure() {
    let served = Served::alone().await;
    let ids: Vec<String> = (0..65).map(|number| format!("m{number:02}")).collect();
    let session = served.session("").await;
    for id in &ids {
        register(&served, &session, id).await;
    }
    served.put(&format!("{session}/members/web"), r#"{"service":"web"}"#).await.ok();
    let mut watch = Sse::open(&served, ORDERS, "").await;
    watch.until("caught-up").await;
    let last_id = watch.last_id.clone();
    assert!(last_id.len() < 600, "the size of a position does not grow with the members: {}", last_id.len());
    drop(watch);
    served.delete(&format!("{session}/members/m07")).await.ok();
    served.patch(&format!("{session}/members/m08"), r#"{"k":"v"}"#).await.ok();
    served.delete(&format!("{session}/members/web")).await.ok();
    let mut reported = Sse::open(&served, ORDERS, &last_id).await.until("caught-up").await;
    reported.sort();
    // The last one is the price of a bounded position.
    assert_eq!(reported, ["caught-up", "snapshot m08", "unregister m07", "unregister web"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_that_cannot_be_resumed_start_with_a_reset() {
    let served = Served::alone().await;
    let session = served.session("").await;
    for id in ["a", "b"] {
        register(&served, &session, id).await;
    }
    let mut watch = Sse::open(&served, ORDERS, "").await;
    let first = watch.event().await;
    watch.until("caught-up").await;
    let last_id = watch.last_id.clone();
    for (query, id, reason) in [
        // A position in the middle of a snapshot.
        (ORDERS, first.id.as_str(), "incomplete"),
        (ORDERS, "nonsense", "unreadable"),
        // A position of another filter.
        ("", &last_id, "unreadable"),
    ] {
        let mut watch = Sse::open(&served, query, id).await;
        let reset = watch.event().await;
        assert_eq!((reset.event.as_str(), &reset.data), ("reset", &json!({"reason": reason})));
        assert!(watch.until("caught-up").await.len() >= 3);
    }
}

/// More changes than a position can hold. None is lost, whichever event was read last.
#[tokio::test(flavor = "multi_thread")]
async fn a_position_in_a_flood_resumes_or_is_reset() {
    let served = Served::alone().await;
    let mut watch = Sse::open(&served, ORDERS, "").await;
    watch.until("caught-up").await;
    let ids: Vec<String> = (0..500).map(|i| format!("m{i:03}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (_session, _) = Attachment::attached(&served, attach("c", 1, &ids)).await;
    let mut events: Vec<SseEvent> = Vec::new();
    while events.len() < 500 {
        events.push(watch.event().await);
    }
    for read in [1, 10, 100, 300, 499, 500] {
        let mut view: BTreeMap<String, String> = BTreeMap::new();
        let known = |event: &SseEvent| (event.member().to_owned(), event.version().to_owned());
        view.extend(events[..read].iter().map(known));
        let mut watch = Sse::open(&served, ORDERS, &events[read - 1].id).await;
        loop {
            let event = watch.event().await;
            assert!(event.id.len() < 8_192);
            match event.event.as_str() {
                "reset" => view.clear(),
                "caught-up" => break,
                _ => assert_eq!(view.insert(event.member().to_owned(), event.version().to_owned()), None),
            }
        }
        assert_eq!(view.len(), 500, "{read}");
    }
}

/// A reader that stops reading costs a bounded queue and receives a reset.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_is_reset() {
    let adjust = |config: &mut convoke_node::Config| config.limits.watcher_queue = 64;
    let served = Served::start("n0", &[], adjust, |_| {}).await;
    let (mut session, _) = Attachment::attached(&served, attach("c", 1, &["a"])).await;
    let mut watch = Sse::open(&served, ORDERS, "").await;
    watch.until("caught-up").await;
    // Nobody reads: first the socket buffers fill up, then the queue.
    for round in 0..20 {
        let update = |key: usize| {
            let set = (0..3).map(|part| (part.to_string(), format!("{round}-{key}-{}", "x".repeat(4_000)))).collect();
            Operation::Update(v1::Update { id: "a".into(), set, ..v1::Update::default() })
        };
        let requests = (0..100).map(|key| session.request(update(key))).collect();
        session.send(ClientMessage::Requests(v1::Requests { requests })).await;
        let ServerMessage::Answers(answers) = session.receive().await else { panic!() };
        assert!(answers.answers.iter().all(|answer| answer.error.is_none()));
    }
    let seen = watch.until("reset").await;
    assert!(seen.iter().all(|event| event == "update a" || event == "reset"));
    let rest = watch.until("caught-up").await;
    assert_eq!(rest, ["snapshot a", "caught-up"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_are_bounded_and_end_with_their_node() {
    let served = Served::start("n0", &[], |_| {}, |server| server.limits.http_watchers = 1).await;
    let mut watch = Sse::open(&served, "", "").await;
    watch.until("caught-up").await;
    served.get("/api/v1/watch").await.rejected(429, "RESOURCE_EXHAUSTED");
    drop(watch);
    eventually("the permit is released", async || {
        served.get("/metrics").await.body_text().contains("convoke_client_http_streams 0")
    })
    .await;
    let mut watch = Sse::open(&served, "", "").await;
    watch.until("caught-up").await;
    let Served { node, server } = served;
    let stopping = tokio::spawn(server.stop());
    while watch.next().await.is_some() {}
    assert_eq!(stopping.await.unwrap(), convoke_node::Ending::Graceful);
    drop(node);
}
