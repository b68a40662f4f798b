//! The list of watchers, and the status of other nodes through one node.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_proto::v1;
use convoke_testkit::eventually;
use serde_json::Value;
use support::Served;
use support::http::Sse;

async fn watchers(served: &Served, query: &str) -> Value {
    served.get(&format!("/api/v1/watchers{query}")).await.ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn http_and_grpc_streams_are_listed_while_they_are_open() {
    let served = Served::alone().await;
    assert_eq!(watchers(&served, "").await["count"], 0);
    let http = Sse::open(&served, "?filter=service%20==%20%27s%27", "").await;
    let request = v1::WatchRequest { filter: String::new(), resume: None };
    let grpc = support::grpc::registry(&served).await.watch(request).await.unwrap().into_inner();

    let listed = watchers(&served, "").await;
    assert_eq!((&listed["count"], &listed["at_node"]), (&2.into(), &2.into()));
    let [first, second] = &listed["watchers"].as_array().unwrap()[..] else { panic!("{listed}") };
    assert_eq!((&first["surface"], &first["filter"]), (&"http".into(), &"service == \"s\"".into()));
    assert_eq!((&second["surface"], &second["filter"]), (&"grpc".into(), &"".into()));
    assert!(second["agent"].as_str().unwrap().contains("tonic"), "{second}");
    for one in [first, second] {
        assert!(one["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{one}");
        assert!(one["since"].as_u64().unwrap() > 0);
    }
    let one = watchers(&served, "?limit=1").await;
    assert_eq!((one["watchers"].as_array().unwrap().len(), &one["count"]), (1, &2.into()));
    assert_eq!(
        served.get("/api/v1/watchers?limit=0").await.rejected(400, "INVALID_ARGUMENT").as_deref(),
        Some("limit")
    );

    drop((http, grpc));
    eventually("streams that ended are not listed", async || watchers(&served, "").await["count"] == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_forwards_requests_for_another_nodes_status() {
    let mut cluster = Served::cluster(2).await;
    let _watch = Sse::open(&cluster[1], "", "").await;
    assert_eq!(cluster[0].get("/api/v1/nodes/n1/watchers").await.ok()["count"], 1);
    assert_eq!(cluster[0].get("/api/v1/nodes/n0/watchers").await.ok()["count"], 0);
    assert_eq!(cluster[0].get("/api/v1/nodes/n1/status").await.ok()["id"], "n1");
    let nodes = cluster[0].get("/api/v1/nodes/n1/nodes").await.ok();
    let own: Vec<&Value> = nodes["nodes"].as_array().unwrap().iter().filter(|node| node["self"] == true).collect();
    assert_eq!(own[0]["id"], "n1");

    let other = cluster[0].get("/api/v1/nodes/n1/members").await;
    assert_eq!(other.rejected(400, "INVALID_ARGUMENT").as_deref(), Some("resource"));
    let unknown = cluster[0].get("/api/v1/nodes/n7/status").await;
    assert_eq!(unknown.rejected(404, "NOT_FOUND").as_deref(), Some("id"));
    cluster.pop().unwrap().kill().await;
    eventually("the node is reported as lost", async || {
        cluster[0].get("/api/v1/nodes/n1/status").await.rejection().0 == 503
    })
    .await;
}

/// The nodes list shows how long ago a peer was response from and that nothing is outstanding once all has arrived.
#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_list_shows_the_replication_lag() {
    let cluster = Served::cluster(2).await;
    let session = cluster[1].session("").await;
    cluster[1].put(&format!("{session}/members/a"), r#"{"service":"s"}"#).await.ok();
    eventually("the write has arrived and the evidence of the other node is direct", async || {
        let nodes = cluster[0].get("/api/v1/nodes").await.ok();
        let [own, other] = &nodes["nodes"].as_array().unwrap()[..] else { panic!("{nodes}") };
        assert_eq!((&own["id"], &own["evidence_age_ms"]), (&"n0".into(), &Value::Null));
        other["evidence_age_ms"].is_u64()
            && other["evidence_via"] == ""
            && other["behind"] == 0
            && cluster[0].get("/api/v1/members/a").await.status == 200
    })
    .await;
}
