//! HTTP sessions at one node: every request and every rejection.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_node::Config;
use convoke_testkit::eventually;
use serde_json::json;
use std::time::Duration;
use support::grpc::{Attachment, attach};
use support::http::{answer, open, request};
use support::{Served, quick};

#[tokio::test(flavor = "multi_thread")]
async fn a_session_registers_updates_and_unregisters() {
    let served = Served::alone().await;
    let created = served.post("/api/v1/sessions", "").await.ok();
    assert_eq!((&created["heartbeat_interval_ms"], &created["timeout_ms"]), (&json!(500), &json!(120_000)));
    let session = format!("/api/v1/sessions/{}", created["session"].as_str().unwrap());
    let member = format!("{session}/members/orders-1");
    let body = json!({
        "id": "orders-1", "service": "orders", "locality": "eu.a", "revision": "r1", "address": "10.0.0.1:80",
        "endpoints": {"grpc": "10.0.0.1:81"}, "weight": 3, "metadata": {"a": "1", "b": "2"}, "created": 7,
    });
    let first = served.put(&member, &body.to_string()).await.ok()["version"].clone();
    let shown = served.get("/api/v1/members/orders-1").await.ok();
    assert_eq!((&shown["version"], &shown["client"], &shown["created"]), (&first, &created["client"], &json!(7)));
    for (field, value) in body.as_object().unwrap() {
        assert_eq!(&shown[field], value);
    }
    assert_eq!((&shown["status"], &shown["owner"]["node"]), (&json!("up"), &json!("n0")));

    // The same member with other metadata is an update; other attributes are rejected.
    let mut again = body.clone();
    again["metadata"] = json!({"c": "3"});
    let second = served.put(&member, &again.to_string()).await.ok()["version"].clone();
    assert_ne!(first, second);
    again["locality"] = json!("eu.b");
    served.put(&member, &again.to_string()).await.rejected(409, "ALREADY_REGISTERED");

    let third = served.patch(&member, r#"{"d":"4","c":null}"#).await.ok()["version"].clone();
    let metadata = async || served.get("/api/v1/members/orders-1").await.ok()["metadata"].clone();
    assert_eq!(metadata().await, json!({"d": "4"}));
    let stale = served.send("PATCH", &member, &[("If-Match", second.as_str().unwrap())], r#"{"e":"5"}"#).await;
    stale.rejected(412, "STALE_VERSION");
    let quoted = format!("\"{}\"", third.as_str().unwrap());
    served.send("PATCH", &member, &[("If-Match", &quoted)], r#"{"e":"5"}"#).await.ok();
    served.patch(&format!("{member}?mode=replace"), r#"{"f":"6"}"#).await.ok();
    assert_eq!(metadata().await, json!({"f": "6"}));

    let response = served.put(&format!("{session}/heartbeat"), "").await.ok();
    assert_eq!(response, json!({"node": "n0", "heartbeat_interval_ms": 500, "timeout_ms": 120_000}));
    assert_eq!(served.delete(&member).await.ok(), json!({"replicated": false}));
    served.get("/api/v1/members/orders-1").await.rejected(404, "NOT_FOUND");
    served.delete(&member).await.rejected(404, "NOT_REGISTERED");
    served.patch(&member, "{}").await.rejected(404, "NOT_REGISTERED");

    served.put(&format!("{session}/members/a"), r#"{"service":"s"}"#).await.ok();
    assert_eq!(served.delete(&session).await.ok(), json!({"replicated": false}));
    served.get("/api/v1/members/a").await.rejected(404, "NOT_FOUND");
    served.put(&format!("{session}/heartbeat"), "").await.rejected(404, "SESSION_GONE");
    served.delete(&session).await.rejected(404, "SESSION_GONE");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_may_choose_its_client_id_and_timeout() {
    let served = Served::alone().await;
    let created = served.post("/api/v1/sessions", r#"{"client":"shop","liveness":"normal","timeout_ms":1500}"#).await;
    let created = created.ok();
    assert_eq!((&created["client"], &created["timeout_ms"]), (&json!("shop"), &json!(1_500)));
    for (body, field) in [
        (r#"{"timeout_ms":0}"#, "timeout_ms"),
        (r#"{"timeout_ms":1}"#, "timeout_ms"),
        (r#"{"timeout_ms":99999999999}"#, "timeout_ms"),
        (r#"{"timeout_ms":"5s"}"#, "timeout_ms"),
        (r#"{"client":""}"#, "client"),
        (r#"{"client":"a\nb"}"#, "client"),
        (r#"{"liveness":"brisk"}"#, "liveness"),
        (r#"{"nonce":7}"#, "nonce"),
        ("[]", "body"),
        ("{", "body"),
        ("nonsense", "body"),
    ] {
        let field_found = served.post("/api/v1/sessions", body).await.rejected(400, "INVALID_ARGUMENT");
        assert_eq!(field_found.as_deref(), Some(field), "{body}");
    }
    served.post("/api/v1/sessions", r#"{"client":"convoke.n9"}"#).await.rejected(403, "PERMISSION_DENIED");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_members_are_rejected_with_the_field() {
    let served = Served::alone().await;
    let session = served.session("").await;
    let path = format!("{session}/members/a");
    let long = format!(r#"{{"service":"s","metadata":{{"k":"{}"}}}}"#, "v".repeat(5_000));
    for (body, code, field) in [
        (r#"{"id":"b","service":"s"}"#, "INVALID_ARGUMENT", "id"),
        ("{}", "INVALID_MEMBER", "service"),
        (r#"{"id":"a"}"#, "INVALID_MEMBER", "service"),
        (r#"{"service":"s","metadata":{"":"v"}}"#, "INVALID_MEMBER", "metadata"),
        (r#"{"service":""}"#, "INVALID_MEMBER", "service"),
        (r#"{"service":"a\u0000"}"#, "INVALID_MEMBER", "service"),
        (r#"{"service":"s","status":"up"}"#, "INVALID_ARGUMENT", "status"),
        (r#"{"service":"s","version":"1"}"#, "INVALID_ARGUMENT", "version"),
        (r#"{"service":"s","weight":70000}"#, "INVALID_ARGUMENT", "weight"),
        (r#"{"service":"s","metadata":{"k":5}}"#, "INVALID_ARGUMENT", "metadata.k"),
        (r#"{"service":"s","address":"nowhere"}"#, "INVALID_MEMBER", "address"),
        (r#"{"service":7}"#, "INVALID_ARGUMENT", "service"),
        (&long, "INVALID_MEMBER", "metadata"),
    ] {
        assert_eq!(served.put(&path, body).await.rejected(400, code).as_deref(), Some(field), "{body}");
    }
    let reserved = served.put(&format!("{session}/members/convoke.n7"), r#"{"service":"s"}"#).await;
    assert_eq!(reserved.rejected(403, "PERMISSION_DENIED").as_deref(), Some("id"));
    let reserved = served.put(&path, r#"{"service":"convoke"}"#).await;
    assert_eq!(reserved.rejected(403, "PERMISSION_DENIED").as_deref(), Some("service"));
    for (body, field) in [(r#"{"k":5}"#, "k"), ("[]", "body"), (r#"{"k":{"x":"y"}}"#, "k")] {
        assert_eq!(served.patch(&path, body).await.rejected(400, "INVALID_ARGUMENT").as_deref(), Some(field));
    }
    for (method, path, body, field) in [
        ("PATCH", format!("{path}?mode=both"), "{}", "mode"),
        ("PUT", format!("{path}?takeover=perhaps"), r#"{"service":"s"}"#, "takeover"),
        ("PUT", format!("{session}/heartbeat"), r#"{"members":["a"]}"#, "members"),
        ("PUT", format!("{session}/heartbeat"), "alive", "body"),
        ("DELETE", path.clone(), r#"{"force":true}"#, "force"),
        ("DELETE", session.clone(), r#"{"force":true}"#, "force"),
    ] {
        let answer = served.send(method, &path, &[], body).await;
        assert_eq!(answer.rejected(400, "INVALID_ARGUMENT").as_deref(), Some(field), "{method} {path} {body}");
    }
    let odd = served.send("PATCH", &path, &[("If-Match", "W/7")], "{}").await;
    assert_eq!(odd.rejected(400, "INVALID_ARGUMENT").as_deref(), Some("If-Match"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_belongs_to_its_client() {
    let served = Served::alone().await;
    let (one, two) = (served.session("").await, served.session("").await);
    served.put(&format!("{one}/members/a"), r#"{"service":"s"}"#).await.ok();
    let path = format!("{two}/members/a");
    served.put(&path, r#"{"service":"s"}"#).await.rejected(409, "ALREADY_REGISTERED");
    served.patch(&path, r#"{"k":"v"}"#).await.rejected(403, "PERMISSION_DENIED");
    served.delete(&path).await.rejected(403, "PERMISSION_DENIED");
    served.put(&format!("{path}?takeover=true"), r#"{"service":"s"}"#).await.ok();
    served.patch(&format!("{one}/members/a"), r#"{"k":"v"}"#).await.rejected(409, "TAKEN_OVER");
    served.put(&format!("{one}/heartbeat"), "").await.rejected(409, "TAKEN_OVER");
}

/// A rejected registration changes nothing, however high the claim of the member's owner is.
#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_registration_leaves_the_session_as_it_was() {
    let served = Served::alone().await;
    let (_holder, _) = Attachment::attached(&served, attach("holder", 5_000, &["a"])).await;
    let session = served.session("").await;
    served.put(&format!("{session}/members/b"), r#"{"service":"s"}"#).await.ok();
    let shown = async |id: &str| served.get(&format!("/api/v1/members/{id}")).await.ok();
    let before = (shown("a").await, shown("b").await);
    served.put(&format!("{session}/members/a"), r#"{"service":"s"}"#).await.rejected(409, "ALREADY_REGISTERED");
    assert_eq!((shown("a").await, shown("b").await), before);
    assert!(served.get("/metrics").await.body_text().contains("convoke_client_sessions_reattached_total 0\n"));
    served.put(&format!("{session}/members/a?takeover=true"), r#"{"service":"s"}"#).await.ok();
    assert_eq!(shown("a").await["client"], shown("b").await["client"]);
}

/// An id that was used before with a higher claim can be registered.
#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_was_used_with_a_higher_claim_can_be_registered() {
    let served = Served::alone().await;
    let (mut previous, _) = Attachment::attached(&served, attach("past", 5_000, &["a"])).await;
    let gone = convoke_proto::v1::Unregister { id: "a".into() };
    previous.call(convoke_proto::v1::request::Operation::Unregister(gone)).await.unwrap();
    let session = served.session("").await;
    served.put(&format!("{session}/members/b"), r#"{"service":"s"}"#).await.ok();
    served.put(&format!("{session}/members/a"), r#"{"service":"s"}"#).await.ok();
    served.put(&format!("{session}/members/c"), r#"{"service":"s"}"#).await.ok();
    for id in ["a", "b", "c"] {
        assert_eq!(served.get(&format!("/api/v1/members/{id}")).await.ok()["status"], "up");
    }
}

/// A process that uses the client id of another one replaces it, and the other one is rejected from then on.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_id_is_used_by_one_process_at_a_time() {
    let served = Served::alone().await;
    let one = served.session(r#"{"client":"shop"}"#).await;
    served.put(&format!("{one}/members/a"), r#"{"service":"s"}"#).await.ok();
    let two = served.session(r#"{"client":"shop"}"#).await;
    served.put(&format!("{two}/members/a"), r#"{"service":"s"}"#).await.ok();
    served.put(&format!("{one}/heartbeat"), "").await.rejected(409, "SUPERSEDED");
    served.put(&format!("{two}/heartbeat"), "").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_session_goes_down_and_expires_and_any_request_counts_as_heartbeat() {
    let served = Served::start("n0", &[], quick, |_| {}).await;
    let session = served.session(r#"{"timeout_ms":1500}"#).await;
    served.put(&format!("{session}/members/a"), r#"{"service":"s"}"#).await.ok();
    let status = async || served.node.member("a").map(|member| member.status().as_str());
    eventually("it is down", async || status().await == Some("down")).await;
    // An invalid request counts as well.
    served.put(&format!("{session}/members/b"), "nonsense").await.rejected(400, "INVALID_ARGUMENT");
    assert_eq!(status().await, Some("up"));
    eventually("it is down again", async || status().await == Some("down")).await;
    served.put(&format!("{session}/heartbeat?quick"), "").await.rejected(400, "INVALID_ARGUMENT");
    assert_eq!(status().await, Some("up"));
    eventually("it is gone", async || status().await.is_none()).await;
    served.put(&format!("{session}/heartbeat"), "").await.rejected(404, "SESSION_GONE");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_session_secrets_are_rejected() {
    let served = Served::alone().await;
    let good = served.session("").await;
    let last = good.chars().last().unwrap();
    let guessed = format!("{}{}", &good[..good.len() - 1], if last == 'A' { 'Q' } else { 'A' });
    for session in ["/api/v1/sessions/x", "/api/v1/sessions/%20", &guessed] {
        served.put(&format!("{session}/heartbeat"), "").await.rejected(404, "SESSION_GONE");
        served.put(&format!("{session}/members/a"), r#"{"service":"s"}"#).await.rejected(404, "SESSION_GONE");
        served.patch(&format!("{session}/members/a"), "{}").await.rejected(404, "SESSION_GONE");
        served.delete(&format!("{session}/members/a")).await.rejected(404, "SESSION_GONE");
        served.delete(session).await.rejected(404, "SESSION_GONE");
    }
    // The secret is not shown anywhere.
    served.put(&format!("{good}/members/a"), r#"{"service":"s"}"#).await.ok();
    let secret = good.rsplit('/').next().unwrap();
    for path in ["/api/v1/members", "/api/v1/members/a/explain", "/metrics", "/api/v1/status"] {
        let answer = served.get(path).await;
        assert!(!String::from_utf8_lossy(&answer.body).contains(secret), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_bounded() {
    let served = Served::start("n0", &[], |_| {}, |server| server.limits.http_sessions = 2).await;
    let first = served.session("").await;
    served.session("").await;
    served.post("/api/v1/sessions", "").await.rejected(429, "RESOURCE_EXHAUSTED");
    served.delete(&first).await.ok();
    served.session("").await;
}

/// With `fast` liveness, the session depends on the connection of its last request.
#[tokio::test(flavor = "multi_thread")]
async fn a_fast_session_is_down_when_its_connection_ends() {
    // Enough time between `down` and the expiry to observe both on a busy machine.
    let patient = |config: &mut Config| {
        quick(config);
        config.timers.reconnect_timeout = Duration::from_secs(6);
    };
    let served = Served::start("n0", &[], patient, |_| {}).await;
    let mut connection = open(served.address()).await;
    let mut call = async |method: &str, path: &str, body: &str| {
        connection.ready().await.unwrap();
        answer(connection.send_request(request(method, path, &[], body.to_owned())).await.unwrap()).await.ok()
    };
    let created = call("POST", "/api/v1/sessions", r#"{"liveness":"fast"}"#).await;
    let session = format!("/api/v1/sessions/{}", created["session"].as_str().unwrap());
    call("PUT", &format!("{session}/members/a"), r#"{"service":"s"}"#).await;
    // A request on another connection binds the session to it, and that connection ends.
    let status = async || served.node.member("a").map(|member| member.status().as_str());
    served.put(&format!("{session}/heartbeat"), "").await.ok();
    eventually("it is down", async || status().await == Some("down")).await;
    let response = call("PUT", &format!("{session}/heartbeat"), "").await;
    assert_eq!((&response["members"], status().await), (&json!(["a"]), Some("up")));
    drop(connection);
    eventually("it is down again", async || status().await == Some("down")).await;
    eventually("it is gone", async || status().await.is_none()).await;
}
