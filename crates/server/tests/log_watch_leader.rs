//! Watches without a leader, and watches of positions that a node has not reached (H7).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::{Error, ErrorCode};
use convoke_proto::v1;
use convoke_proto::v1::key_watch::Which;
use convoke_proto::v1::key_watch_response::Message;
use convoke_proto::v1::log_client::LogClient;
use convoke_server::{Config, Timeouts};
use convoke_testkit::eventually;
use std::time::Duration;
use support::Served;
use support::http::Sse;
use support::log::LogCluster;
use tonic::Streaming;
use tonic::transport::Channel;

fn request(from: Option<u64>, stale: bool) -> v1::KeyWatchRequest {
    let watch = v1::KeyWatch {
        which: Some(Which::Range(v1::KeyRange::prefix(""))),
        from: from.map(|revision| v1::EventPosition { revision, index: 0 }),
        ..v1::KeyWatch::default()
    };
    v1::KeyWatchRequest { watches: vec![watch], stale, progress_ms: 100, ..v1::KeyWatchRequest::default() }
}

async fn watch(served: &Served, request: v1::KeyWatchRequest) -> Result<Streaming<v1::KeyWatchResponse>, Error> {
    let address = format!("http://{}", served.address());
    let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
    Ok(LogClient::new(channel).watch(request).await?.into_inner())
}

/// Reads until the stream ends, and returns its error.
async fn end(stream: &mut Streaming<v1::KeyWatchResponse>) -> Error {
    let ending = async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("a stream ends with an error"),
                Err(status) => return Error::from(status),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ending).await.expect("the stream ends")
}

async fn progress(stream: &mut Streaming<v1::KeyWatchResponse>) {
    loop {
        if let Message::Progress(_) = stream.message().await.unwrap().unwrap().message.unwrap() {
            return;
        }
    }
}

/// A replica without a leader ends its streams, at itself and at nodes that follow it. Watches with `stale` go on.
#[tokio::test(flavor = "multi_thread")]
async fn h7_a_replica_without_a_leader_ends_its_streams_unless_they_are_stale() {
    let mut cluster = LogCluster::start(2).await;
    let outside = cluster.outsider().await;
    let rest = cluster.follower().await;
    let leader = cluster.leader().await;
    let mut streams = Vec::new();
    for index in [rest, outside] {
        let mut fresh = watch(cluster.served(index), request(None, false)).await.unwrap();
        progress(&mut fresh).await;
        let stale = watch(cluster.served(index), request(None, true)).await.unwrap();
        let events = Sse::open_at(cluster.served(index), "/api/v1/kv-watch", "").await;
        let mut leaders = Sse::open_at(cluster.served(index), "/api/v1/elections/e/watch", "").await;
        assert_eq!(leaders.next().await.expect("the current leader").event, "leader");
        streams.push((fresh, stale, [events, leaders]));
    }
    cluster.kill(leader).await;
    for (mut fresh, mut stale, watches) in streams {
        let error = end(&mut fresh).await;
        assert_eq!(error.code, ErrorCode::NoQuorum, "{error}");
        assert!(!error.log.unwrap().replicas.is_empty(), "the error names the replicas");
        for mut events in watches {
            let last = loop {
                let event = events.next().await.expect("the last event is the end");
                if event.event == "end" {
                    break event;
                }
            };
            assert_eq!(last.data["error"]["code"], serde_json::json!("NO_QUORUM"));
            assert_eq!(events.next().await, None);
        }
        // Marks that were sent before the others ended may be queued. The last ones are later.
        for _ in 0..50 {
            progress(&mut stale).await;
        }
    }
}

/// A position ahead of the node waits, and is then served or rejected.
#[tokio::test(flavor = "multi_thread")]
async fn h7_a_position_ahead_waits_for_a_limited_time() {
    let timeouts = Timeouts { request: Duration::from_secs(2), ..Timeouts::default() };
    let mut cluster = LogCluster::start_with(1, Config { timeouts, ..Config::default() }).await;
    let outside = cluster.outsider().await;
    let kv = cluster.ambassador().kv();
    let revision = kv.put("a", "0").await.unwrap().revision;
    for index in [0, outside] {
        let served = cluster.served(index);
        // The node without a replica follows one while somebody watches.
        let mut watching = None;
        eventually("the node serves watches", async || {
            watching = watch(served, request(None, false)).await.ok();
            watching.is_some()
        })
        .await;
        let error = watch(served, request(Some(revision + 1_000), false)).await.unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::NotReady, Some("from")), "{error}");
        let known = format!("revision {revision}");
        assert!(error.message.contains(&known), "{error}");
        let answer = served.get(&format!("/api/v1/kv-watch?from={}", revision + 1_000)).await;
        assert_eq!(answer.rejected(503, "NOT_READY").as_deref(), Some("from"));
    }
    let cluster = LogCluster::start(1).await;
    let kv = cluster.ambassador().kv();
    let waiting = async {
        let mut stream = watch(cluster.served(0), request(Some(3), false)).await.unwrap();
        loop {
            if let Message::Events(events) = stream.message().await.unwrap().unwrap().message.unwrap() {
                return events.events[0].position.unwrap().revision;
            }
        }
    };
    let writing = async {
        for number in 0..3 {
            kv.put("a", number.to_string()).await.unwrap();
        }
    };
    assert_eq!(tokio::join!(waiting, writing).0, 3);
}
