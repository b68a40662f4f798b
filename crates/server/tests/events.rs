//! Recent events of a node over server-sent events.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_node::Config;
use serde_json::json;
use std::time::Duration;
use support::Served;
use support::http::{Sse, SseEvent};

const EVENTS: &str = "/api/v1/events";

/// Kind and subject of an event.
fn brief(event: &SseEvent) -> String {
    let data = &event.data;
    let what = data["id"].as_str().or(data["text"].as_str()).unwrap_or_default();
    format!("{} {what}", event.event).trim().to_owned()
}

async fn until_caught_up(stream: &mut Sse) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let event = stream.event().await;
        if event.event == "caught-up" {
            return seen;
        }
        seen.push(brief(&event));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_kept_sent_and_resumed() {
    let served = Served::alone().await;
    let session = served.session("").await;
    served.put(&format!("{session}/members/a"), r#"{"service":"s"}"#).await.ok();
    let mut stream = Sse::open_at(&served, EVENTS, "").await;
    let seen = until_caught_up(&mut stream).await;
    assert_eq!(seen, ["node started with incarnation 1", "node ready as the first node", "register a"]);

    served.patch(&format!("{session}/members/a"), r#"{"k":"v"}"#).await.ok();
    let event = stream.event().await;
    assert_eq!(brief(&event), "update a");
    assert!(event.data["at"].as_u64().is_some_and(|at| at > 0));
    let version = served.get("/api/v1/members/a").await.ok()["version"].clone();
    let expected =
        json!({"id": "a", "service": "s", "status": "up", "drained": false, "owner": "n0", "version": version});
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&event.data[field], value, "{field}");
    }

    // After a reconnect no event is repeated and none is lost.
    let last = event.id;
    drop(stream);
    served.delete(&format!("{session}/members/a")).await;
    let mut stream = Sse::open_at(&served, EVENTS, &last).await;
    assert_eq!(until_caught_up(&mut stream).await, ["unregister a"]);

    // A position of another incarnation, and a text that is not a position.
    for wrong in ["1.2.3", "what"] {
        let mut stream = Sse::open_at(&served, EVENTS, wrong).await;
        assert_eq!(stream.event().await.event, "reset");
        assert_eq!(until_caught_up(&mut stream).await.len(), 5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_filter_selects_members() {
    let served = Served::alone().await;
    let session = served.session("").await;
    for (id, service) in [("a", "s"), ("b", "t")] {
        served.put(&format!("{session}/members/{id}"), &json!({"service": service}).to_string()).await.ok();
    }
    let mut stream = Sse::open_at(&served, &format!("{EVENTS}?filter=service%20==%20%22t%22"), "").await;
    let seen = until_caught_up(&mut stream).await;
    assert_eq!(seen.iter().filter(|event| !event.starts_with("node ")).collect::<Vec<_>>(), ["register b"]);
    let answer = served.get(&format!("{EVENTS}?filter=service")).await;
    assert_eq!(answer.rejected(400, "INVALID_FILTER").as_deref(), Some("filter"));
    served.get(&format!("{EVENTS}?since=1")).await.rejected(400, "INVALID_ARGUMENT");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_were_not_kept_are_reported_as_missed() {
    let served = Served::start("n0", &[], |config| config.network.changes_kept = 2, |_| {}).await;
    let session = served.session("").await;
    for id in ["a", "b", "c"] {
        served.put(&format!("{session}/members/{id}"), r#"{"service":"s"}"#).await.ok();
    }
    let mut stream = Sse::open_at(&served, EVENTS, "").await;
    let first = stream.event().await;
    assert_eq!((first.event.as_str(), &first.data), ("missed", &json!({"count": 1})));
    let seen = until_caught_up(&mut stream).await;
    assert_eq!(seen[seen.len() - 2..], ["register b", "register c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_that_come_and_go_are_reported_and_the_stream_ends_with_its_node() {
    // A stopping node that has lost the only other node waits for it this long (N6).
    let short_handover = |config: &mut Config| config.timers.handover_timeout = Duration::from_secs(1);
    let mut cluster = Served::cluster_with(2, short_handover).await;
    let mut stream = Sse::open_at(&cluster[0], EVENTS, "").await;
    let seen = until_caught_up(&mut stream).await;
    assert!(seen.contains(&"node peer n1 is up".to_owned()), "{seen:?}");
    cluster.pop().unwrap().kill().await;
    loop {
        let event = stream.event().await;
        if event.data["subject"] == "n1" && event.data["warning"] == true {
            break;
        }
    }
    let served = cluster.pop().unwrap();
    let stopping = tokio::spawn(served.server.stop());
    while stream.next().await.is_some() {}
    stopping.await.unwrap();
}
