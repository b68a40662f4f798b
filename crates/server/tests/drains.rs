//! Maintenance over HTTP: reasons, ends, and what members and explanations show (C21).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::eventually;
use serde_json::json;
use support::Served;
use support::grpc::{Attachment, attach};

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_over_http_has_a_reason_and_an_end() {
    let cluster = Served::cluster(2).await;
    let (_session, _) = Attachment::attached(&cluster[0], attach("c", 1, &["a"])).await;
    eventually("both nodes have the member", async || cluster[1].node.member("a").is_some()).await;
    // The request goes to a node that is not the owner.
    let served = &cluster[1];
    let path = "/api/v1/members/a/drain";
    assert_eq!(served.post(path, r#"{"for_ms":600000,"reason":"new disk"}"#).await.ok(), json!({ "drained": true }));
    eventually("it is drained", async || served.node.member("a").unwrap().drained()).await;
    let shown = served.get("/api/v1/members/a").await.ok();
    assert_eq!(shown["maintenance"]["reason"], "new disk");
    assert!(shown["maintenance"]["until"].as_u64().unwrap() > 1_700_000_600_000, "{shown}");
    assert_eq!(cluster[0].get("/api/v1/members/a").await.ok(), shown, "both nodes show the same");
    let explained = served.get("/api/v1/members/a/explain").await.ok();
    let remaining = explained["maintenance"]["remaining_ms"].as_u64().unwrap();
    assert!((500_000..=600_000).contains(&remaining), "{explained}");
    assert!(explained["sentences"].to_string().contains("new disk"), "{explained}");

    // A further drain replaces it, and this one ends by itself.
    served.post(path, r#"{"for_ms":1000}"#).await.ok();
    eventually("the reason is gone", async || {
        served.node.member("a").unwrap().maintenance().is_none_or(|maintenance| maintenance.reason().is_empty())
    })
    .await;
    eventually("the drain has ended", async || !served.node.member("a").unwrap().drained()).await;
    assert!(served.get("/api/v1/members/a").await.ok().get("maintenance").is_none());

    served.post(path, "").await.ok();
    eventually("it is drained without an end", async || served.node.member("a").unwrap().drained()).await;
    assert!(served.get("/api/v1/members/a").await.ok().get("maintenance").is_none());
    assert_eq!(served.delete(path).await.ok(), json!({ "drained": false }));
    eventually("it is undrained", async || !served.node.member("a").unwrap().drained()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_drained_over_http() {
    let cluster = Served::cluster(2).await;
    let path = "/api/v1/nodes/n0/drain";
    cluster[1].post(path, r#"{"reason":"kernel"}"#).await.ok();
    let node = || cluster[1].node.member("convoke.n0").unwrap();
    eventually("the node is drained", async || node().drained()).await;
    assert_eq!(node().maintenance().unwrap().reason(), "kernel");
    let nodes = cluster[1].get("/api/v1/nodes").await.ok();
    assert_eq!((&nodes["nodes"][0]["drained"], &nodes["nodes"][0]["sessions"]), (&json!(true), &json!(0)));
    cluster[1].delete(path).await.ok();
    eventually("the node is undrained", async || !node().drained()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_drains_are_rejected() {
    let served = Served::alone().await;
    let (_session, _) = Attachment::attached(&served, attach("c", 1, &["a"])).await;
    let path = "/api/v1/members/a/drain";
    let rejected = async |body: &str| served.post(path, body).await.rejected(400, "INVALID_ARGUMENT");
    assert_eq!(rejected(r#"{"for_ms":0}"#).await.as_deref(), Some("for_ms"));
    assert_eq!(rejected(r#"{"for_ms":31622400001}"#).await.as_deref(), Some("for_ms"));
    assert_eq!(rejected(&json!({ "reason": "x".repeat(257) }).to_string()).await.as_deref(), Some("reason"));
    assert_eq!(rejected(r#"{"reason":"a\nb"}"#).await.as_deref(), Some("reason"));
    rejected(r#"{"for":"30m"}"#).await;
    assert!(!served.node.member("a").unwrap().drained());
    served.post("/api/v1/members/x/drain", "").await.rejected(404, "NOT_FOUND");
    let field = served.post("/api/v1/nodes/x/drain", "").await.rejected(404, "NOT_FOUND");
    assert_eq!(field.as_deref(), Some("node"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_forgotten_over_http() {
    let mut cluster = Served::cluster(2).await;
    let dead = cluster.remove(1);
    let served = &cluster[0];
    served.delete("/api/v1/nodes/n1").await.rejected(412, "FAILED_PRECONDITION");
    served.delete("/api/v1/nodes/n0").await.rejected(412, "FAILED_PRECONDITION");
    served.delete("/api/v1/nodes/n9").await.rejected(404, "NOT_FOUND");
    dead.kill().await;
    eventually("the node is lost and forgotten", async || served.delete("/api/v1/nodes/n1").await.status.is_success())
        .await;
    let nodes = served.get("/api/v1/nodes").await.ok();
    assert_eq!(nodes["nodes"].as_array().map(Vec::len), Some(1), "{nodes}");
}
