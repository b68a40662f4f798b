//! HTTP sessions continue at another node when theirs dies (C8).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::eventually;
use serde_json::json;
use support::Served;
use support::http::Sse;

async fn agreed(cluster: &[&Served], id: &str, owner: &str) {
    eventually("all nodes show the owner", async || {
        cluster.iter().all(|served| served.node.member(id).is_some_and(|member| member.owner().node == owner))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_continues_at_another_node_when_its_node_dies() {
    let mut cluster = Served::cluster(3).await;
    let session = cluster[0].session(r#"{"timeout_ms":50000}"#).await;
    for id in ["a", "b", "c"] {
        let body = json!({"service": "orders", "metadata": {"k": id}, "created": 7});
        cluster[0].put(&format!("{session}/members/{id}"), &body.to_string()).await.ok();
    }
    cluster[0].delete(&format!("{session}/members/c")).await.ok();
    agreed(&[&cluster[1], &cluster[2]], "b", "n0").await;
    eventually("the unregistration arrived", async || cluster[1].node.member("c").is_none()).await;
    let mut watch = Sse::open(&cluster[2], "?filter=service%20==%20%22orders%22", "").await;
    assert_eq!(watch.until("caught-up").await.len(), 3);

    cluster.remove(0).kill().await;
    let response = cluster[0].put(&format!("{session}/heartbeat"), "").await.ok();
    assert_eq!((&response["node"], &response["timeout_ms"]), (&json!("n1"), &json!(50_000)));
    let mut members: Vec<&str> =
        response["members"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    members.sort_unstable();
    assert_eq!(members, ["a", "b"]);
    agreed(&[&cluster[0], &cluster[1]], "a", "n1").await;
    agreed(&[&cluster[0], &cluster[1]], "b", "n1").await;
    let shown = cluster[1].get("/api/v1/members/b").await.ok();
    assert_eq!(
        (&shown["status"], &shown["created"], &shown["metadata"]),
        (&json!("up"), &json!(7), &json!({"k": "b"}))
    );

    // All operations of the session work there.
    cluster[0].patch(&format!("{session}/members/a"), r#"{"k":"z"}"#).await.ok();
    cluster[0].put(&format!("{session}/members/d"), r#"{"service":"orders"}"#).await.ok();
    let response = cluster[0].put(&format!("{session}/heartbeat"), "").await.ok();
    assert_eq!(response.get("members"), None);
    let mut seen = watch.until("register").await;
    seen.sort();
    // The watcher sees changes of owner and never a `down`.
    assert_eq!(seen, ["owner a", "owner b", "register d", "update a"]);
    cluster[0].delete(&session).await.ok();
    assert_eq!(watch.until("unregister").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn any_request_moves_the_session() {
    for request in ["put", "patch", "delete", "close"] {
        let mut cluster = Served::cluster(2).await;
        let session = cluster[0].session("").await;
        cluster[0].put(&format!("{session}/members/a"), r#"{"service":"s"}"#).await.ok();
        cluster[0].put(&format!("{session}/members/b"), r#"{"service":"s"}"#).await.ok();
        agreed(&[&cluster[1]], "b", "n0").await;
        cluster.remove(0).kill().await;
        let there = &cluster[0];
        let path = format!("{session}/members/a");
        match request {
            "put" => drop(there.put(&path, r#"{"service":"s","metadata":{"k":"v"}}"#).await.ok()),
            "patch" => drop(there.patch(&path, r#"{"k":"v"}"#).await.ok()),
            "delete" => drop(there.delete(&path).await.ok()),
            _ => drop(there.delete(&session).await.ok()),
        }
        let shown = |id: &str| there.node.member(id).map(|member| member.owner().node.to_owned());
        let here = Some("n1".to_owned());
        let expected = match request {
            "delete" => (None, here),
            "close" => (None, None),
            _ => (here.clone(), here),
        };
        assert_eq!((shown("a"), shown("b")), expected, "{request}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_up_keeps_its_session_whichever_node_receives_the_request() {
    let cluster = Served::cluster(2).await;
    let session = cluster[0].session("").await;
    cluster[0].put(&format!("{session}/members/a"), r#"{"service":"s"}"#).await.ok();
    agreed(&[&cluster[1]], "a", "n0").await;
    let elsewhere = &cluster[1];
    let response = elsewhere.put(&format!("{session}/heartbeat"), "").await.ok();
    assert_eq!(response["node"], "n0");
    let written = elsewhere.patch(&format!("{session}/members/a"), r#"{"k":"v"}"#).await.ok();
    let stale = elsewhere.send("PATCH", &format!("{session}/members/a"), &[("If-Match", "1.1.00000000")], "{}").await;
    stale.rejected(412, "STALE_VERSION");
    assert_eq!(cluster[0].get("/api/v1/members/a").await.ok()["version"], written["version"]);
    elsewhere.put(&format!("{session}/members/b"), "nonsense").await.rejected(400, "INVALID_ARGUMENT");
    // A node that has not received the unregistration yet must not claim the member again.
    for round in 0..20 {
        let path = format!("{session}/members/m{round}");
        elsewhere.put(&path, r#"{"service":"s"}"#).await.ok();
        cluster[0].delete(&path).await.ok();
        elsewhere.put(&format!("{session}/heartbeat"), "").await.ok();
        assert_eq!(cluster[0].node.member(&format!("m{round}")), None);
    }
    elsewhere.delete(&session).await.ok();
    elsewhere.put(&format!("{session}/heartbeat"), "").await.rejected(404, "SESSION_GONE");
}

/// Returns how many client connections a node has accepted, including this one.
async fn accepted(served: &Served) -> u64 {
    let metrics = served.get("/metrics").await;
    let name = "convoke_client_connections_accepted_total ";
    let metrics = metrics.body_text();
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_requests_share_connections() {
    let cluster = Served::cluster(2).await;
    let session = cluster[0].session("").await;
    cluster[0].put(&format!("{session}/members/a"), r#"{"service":"s"}"#).await.ok();
    agreed(&[&cluster[1]], "a", "n0").await;
    let before = accepted(&cluster[0]).await;
    for _ in 0..50 {
        assert_eq!(cluster[1].put(&format!("{session}/heartbeat"), "").await.ok()["node"], "n0");
    }
    let opened = accepted(&cluster[0]).await - before;
    assert!(opened < 10, "{opened} connections for 50 requests");
}

/// The node's client port is unreachable, but its peer port works: its session is not taken from it.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_not_taken_from_a_node_that_is_up() {
    let nowhere = convoke_testkit::free_address();
    let first = Served::start("n0", &[], |config| config.client_address = nowhere, |_| {}).await;
    let second = Served::start("n1", &[&first], |_| {}, |_| {}).await;
    convoke_testkit::meshed([&first.node, &second.node].into_iter()).await;
    let session = first.session("").await;
    first.put(&format!("{session}/members/a"), r#"{"service":"s"}"#).await.ok();
    agreed(&[&second], "a", "n0").await;
    second.put(&format!("{session}/heartbeat"), "").await.rejected(503, "NOT_READY");
    assert_eq!(second.node.member("a").unwrap().owner().node, "n0");
    first.kill().await;
    second.put(&format!("{session}/heartbeat"), "").await.ok();
    agreed(&[&second], "a", "n1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_at_two_nodes_at_once_end_in_one_session() {
    let mut cluster = Served::cluster(3).await;
    let session = cluster[0].session("").await;
    for id in ["a", "b", "c"] {
        cluster[0].put(&format!("{session}/members/{id}"), r#"{"service":"s"}"#).await.ok();
    }
    agreed(&[&cluster[1], &cluster[2]], "c", "n0").await;
    cluster.remove(0).kill().await;
    let path = format!("{session}/heartbeat");
    for _ in 0..5 {
        let (one, two) = tokio::join!(cluster[0].put(&path, ""), cluster[1].put(&path, ""));
        one.ok();
        two.ok();
    }
    eventually("one node has all of them", async || {
        let response = cluster[0].put(&path, "").await.ok();
        let owners =
            |served: &Served, id: &str| served.node.member(id).map(|m| (m.owner().node.to_owned(), m.version()));
        let first = owners(&cluster[0], "a").unwrap().0;
        response["node"] == first
            && ["a", "b", "c"].iter().all(|id| {
                owners(&cluster[0], id) == owners(&cluster[1], id) && owners(&cluster[0], id).unwrap().0 == first
            })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_node_hands_over_without_a_down() {
    let mut cluster = Served::cluster(2).await;
    let session = cluster[0].session("").await;
    cluster[0].put(&format!("{session}/members/a"), r#"{"service":"s"}"#).await.ok();
    agreed(&[&cluster[1]], "a", "n0").await;
    let mut watch = Sse::open(&cluster[1], "?filter=service%20==%20%22s%22", "").await;
    watch.until("caught-up").await;
    let Served { node, server } = cluster.remove(0);
    assert_eq!(server.stop().await, convoke_node::Ending::Graceful);
    cluster[0].put(&format!("{session}/heartbeat"), "").await.ok();
    assert_eq!(watch.event().await.brief(), "owner a");
    drop(node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_members_ends_with_its_node() {
    let mut cluster = Served::cluster(2).await;
    let (empty, emptied) = (cluster[0].session("").await, cluster[0].session("").await);
    cluster[0].put(&format!("{emptied}/members/a"), r#"{"service":"s"}"#).await.ok();
    agreed(&[&cluster[1]], "a", "n0").await;
    cluster[0].delete(&format!("{emptied}/members/a")).await.ok();
    eventually("the unregistration arrived", async || cluster[1].node.member("a").is_none()).await;
    cluster.remove(0).kill().await;
    for session in [empty, emptied] {
        // Until its peers agree that the node has failed, the session may still be there.
        let heartbeat = async || cluster[0].put(&format!("{session}/heartbeat"), "").await;
        eventually("the session is gone", async || heartbeat().await.status == 404).await;
        heartbeat().await.rejected(404, "SESSION_GONE");
    }
}

/// Another process uses the same client id at another node, and the session's own node is dead.
#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_process_is_rejected_at_every_node() {
    let mut cluster = Served::cluster(2).await;
    let one = cluster[0].session(r#"{"client":"shop"}"#).await;
    cluster[0].put(&format!("{one}/members/a"), r#"{"service":"s"}"#).await.ok();
    agreed(&[&cluster[1]], "a", "n0").await;
    let two = cluster[1].session(r#"{"client":"shop"}"#).await;
    cluster[1].put(&format!("{two}/members/a"), r#"{"service":"s"}"#).await.ok();
    agreed(&[&cluster[0]], "a", "n1").await;
    cluster[0].put(&format!("{one}/heartbeat"), "").await.rejected(409, "SUPERSEDED");
    cluster.remove(0).kill().await;
    cluster[0].put(&format!("{one}/heartbeat"), "").await.rejected(409, "SUPERSEDED");
    cluster[0].put(&format!("{two}/heartbeat"), "").await.ok();
}
