//! HTTP clients that number their requests and return the token of their session (C10 to C12).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_http_session::SessionToken;
use convoke_testkit::eventually;
use serde_json::json;
use support::Served;
use support::http::Answer;

const MEMBER: &str = r#"{"service":"s","metadata":{"v":"0"}}"#;

/// A client that orders its requests.
struct Client {
    session: String,
    number: u64,
    token: String,
}

impl Client {
    async fn at(node: &Served) -> Client {
        let created = node.post("/api/v1/sessions", "").await;
        let token = token(&created);
        let session = format!("/api/v1/sessions/{}", created.ok()["session"].as_str().unwrap());
        Client { session, number: 0, token }
    }

    /// Sends the next request.
    async fn send(&mut self, node: &Served, method: &str, path: &str, body: &str) -> Answer {
        self.number += 1;
        self.send_numbered(node, self.number, method, path, body).await
    }

    async fn send_numbered(&mut self, node: &Served, number: u64, method: &str, path: &str, body: &str) -> Answer {
        let number = number.to_string();
        let headers = [("Convoke-Session-Request", number.as_str()), ("Convoke-Session-Token", self.token.as_str())];
        let answer = node.send(method, &format!("{}{path}", self.session), &headers, body.to_owned()).await;
        let newer = token(&answer);
        assert!(newer >= self.token, "tokens of a session rise");
        self.token = newer;
        answer
    }
}

#[track_caller]
fn token(answer: &Answer) -> String {
    answer
        .headers
        .get("convoke-session-token")
        .unwrap_or_else(|| panic!("no token: {answer:?}"))
        .to_str()
        .unwrap()
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_count_in_the_order_of_their_numbers_at_every_node() {
    let cluster = Served::cluster(3).await;
    let mut client = Client::at(&cluster[0]).await;
    let written = client.send(&cluster[0], "PUT", "/members/a", MEMBER).await.ok();
    assert_eq!(written["replicated"], true);
    for (round, node) in [1, 2, 0, 2, 1].into_iter().enumerate() {
        let body = json!({"v": round.to_string()}).to_string();
        let written = client.send(&cluster[node], "PATCH", "/members/a", &body).await.ok();
        assert_eq!(written["replicated"], true);
        let copy = client.send_numbered(&cluster[node], client.number, "PATCH", "/members/a", &body).await.ok();
        assert_eq!(copy, written, "a copy also reports that the write is replicated");
        let again = client.send_numbered(&cluster[0], client.number, "PATCH", "/members/a", &body).await.ok();
        assert_eq!(again["version"], written["version"], "a repeated request returns the first result");
    }
    let late = client.send_numbered(&cluster[1], 2, "PATCH", "/members/a", r#"{"v":"late"}"#).await;
    assert_eq!(late.rejected(409, "STALE_REQUEST").as_deref(), Some("Convoke-Session-Request"));
    assert_eq!(cluster[0].get("/api/v1/members/a").await.ok()["metadata"]["v"], "4");
    assert_eq!(client.send(&cluster[2], "DELETE", "/members/a", "").await.ok()["replicated"], true);
    let late = client.send_numbered(&cluster[1], 3, "PUT", "/members/a", MEMBER).await;
    late.rejected(409, "STALE_REQUEST");
    assert_eq!(cluster[0].node.member("a"), None);
}

/// Sends a request with these tokens, and returns the answer.
async fn send(node: &Served, session: &str, number: u64, tokens: &str, path: &str, body: &str) -> Answer {
    let number = number.to_string();
    let headers = [("Convoke-Session-Request", number.as_str()), ("Convoke-Session-Token", tokens)];
    node.send("PATCH", &format!("{session}{path}"), &headers, body.to_owned()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_greater_token_of_parallel_requests_covers_the_lesser_one() {
    let cluster = Served::cluster(2).await;
    let mut client = Client::at(&cluster[0]).await;
    client.send(&cluster[0], "PUT", "/members/a", MEMBER).await.ok();
    let (session, old) = (client.session, client.token);
    for round in 0..20 {
        let number = 10 * (round + 1);
        let written = send(&cluster[0], &session, number, &old, "/members/a", r#"{"v":"1"}"#);
        let rejected = send(&cluster[0], &session, number + 1, &old, "/members/unregistered", r#"{"v":"1"}"#);
        let (written, rejected) = tokio::join!(written, rejected);
        rejected.rejected(404, "NOT_REGISTERED");
        let heartbeat = [("Convoke-Session-Token", old.as_str())];
        let heartbeat = cluster[0].send("PUT", &format!("{session}/heartbeat"), &heartbeat, String::new()).await;
        let mut tokens = [token(&written), token(&rejected), token(&heartbeat)];
        written.ok();
        assert_eq!(tokens[2], *tokens.iter().max().unwrap(), "a heartbeat returns the current token");
        tokens.sort();
        let [lesser, middle, greatest] = tokens.map(|token| SessionToken::parse(&token).unwrap());
        assert!(greatest.covers(&middle) && middle.covers(&lesser), "{greatest:?} {middle:?} {lesser:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_can_contain_several_tokens() {
    let node = Served::alone().await;
    let mut client = Client::at(&node).await;
    let first = token(&client.send(&node, "PUT", "/members/a", MEMBER).await);
    let second = token(&client.send(&node, "PATCH", "/members/a", r#"{"v":"1"}"#).await);
    let both = format!("{first}, {second}");
    let third = send(&node, &client.session, 3, &both, "/members/a", r#"{"v":"2"}"#).await;
    assert!(token(&third) > second);
    third.ok();
    let path = format!("{}/members/a", client.session);
    let twice = [
        ("Convoke-Session-Request", "4"),
        ("Convoke-Session-Token", first.as_str()),
        ("Convoke-Session-Token", "nonsense"),
    ];
    let answer = node.send("PATCH", &path, &twice, r#"{"v":"3"}"#.to_owned()).await;
    assert_eq!(answer.rejected(400, "INVALID_ARGUMENT").as_deref(), Some("Convoke-Session-Token"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_alone_answers_at_once_that_a_write_is_not_replicated() {
    let node = Served::alone().await;
    let mut client = Client::at(&node).await;
    assert_eq!(client.send(&node, "PUT", "/members/a", MEMBER).await.ok()["replicated"], false);
    let heartbeat = client.send(&node, "PUT", "/heartbeat", "").await.ok();
    assert_eq!(heartbeat.get("replicated"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_no_node_has_are_reported_and_can_be_repaired() {
    let mut cluster = Served::cluster(3).await;
    let mut client = Client::at(&cluster[0]).await;
    client.send(&cluster[0], "PUT", "/members/a", MEMBER).await.ok();
    eventually("all nodes have the member", async || cluster.iter().all(|node| node.node.member("a").is_some())).await;
    // A token with a write that no node has: the same node, a later number.
    let (order, writes) = client.token.split_at(16);
    let mut bytes = decode(writes);
    bytes[24] = bytes[24].wrapping_add(100);
    client.token = format!("{order}{}", encode(&bytes));
    cluster.remove(0).kill().await;
    let lost = client.send(&cluster[0], "PATCH", "/members/a", r#"{"v":"1"}"#).await;
    lost.rejected(409, "WRITES_LOST");
    let body: serde_json::Value = lost.json();
    assert_eq!(body["members"].as_object().unwrap().keys().collect::<Vec<_>>(), ["a"]);
    assert_eq!(cluster[0].get("/api/v1/members/a").await.ok()["metadata"]["v"], "0", "the request was not executed");
    client.send(&cluster[0], "PATCH", "/members/a", r#"{"v":"2"}"#).await.ok();
    assert_eq!(cluster[0].get("/api/v1/members/a").await.ok()["metadata"]["v"], "2");
}

fn decode(text: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).unwrap()
}

fn encode(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_headers_are_named_and_the_request_is_a_heartbeat() {
    let node = Served::alone().await;
    let session = node.session("").await;
    let path = format!("{session}/members/a");
    for (name, value) in [
        ("Convoke-Session-Request", "0"),
        ("Convoke-Session-Request", "4294967296"),
        ("Convoke-Session-Request", "one"),
        ("Convoke-Session-Token", "nonsense"),
    ] {
        let answer = node.send("PUT", &path, &[(name, value)], MEMBER).await;
        assert_eq!(answer.rejected(400, "INVALID_ARGUMENT").as_deref(), Some(name), "{value}");
        token(&answer);
    }
    assert_eq!(node.node.member("a"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_reports_members_that_were_taken_over() {
    let node = Served::alone().await;
    let [loser, winner] = [node.session("").await, node.session("").await];
    for id in ["a", "b"] {
        node.put(&format!("{loser}/members/{id}"), MEMBER).await.ok();
    }
    node.put(&format!("{winner}/members/a?takeover=true"), MEMBER).await.ok();
    assert_eq!(node.put(&format!("{loser}/heartbeat"), "").await.ok()["taken_over"], json!(["a"]));
    node.put(&format!("{winner}/members/b?takeover=true"), MEMBER).await.ok();
    node.put(&format!("{loser}/heartbeat"), "").await.rejected(409, "TAKEN_OVER");
    node.put(&format!("{loser}/members/a?takeover=true"), MEMBER).await.ok();
    node.put(&format!("{loser}/heartbeat"), "").await.ok();
}
