//! Service discovery for Prometheus. It returns the routable members of the list.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use serde_json::json;
use support::Served;

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_receives_routable_members() {
    let served = Served::alone().await;
    let session = served.session("{}").await;
    let put = async |id: &str, body: serde_json::Value| {
        served.put(&format!("{session}/members/{id}"), &body.to_string()).await.ok();
    };
    put(
        "o-1",
        json!({"service": "orders", "address": "10.0.0.1:80", "locality": "eu", "metadata": {"team.name": "a"}}),
    )
    .await;
    let endpoints = json!({"metrics": "10.0.0.2:9100", "admin": "10.0.0.2:7"});
    put("o-2", json!({"service": "orders", "address": "10.0.0.2:80", "endpoints": endpoints})).await;
    put("o-3", json!({"service": "orders", "address": "10.0.0.3:80"})).await;
    put("o-4", json!({"service": "orders"})).await;
    served.node.drain("o-3", true).await.unwrap();
    convoke_testkit::eventually("it is drained", async || served.node.member("o-3").unwrap().drained()).await;

    let groups = served.get("/api/v1/sd/prometheus?service=orders").await.ok();
    let targets: Vec<_> = groups.as_array().unwrap().iter().map(|group| &group["targets"]).collect();
    assert_eq!(targets, [&json!(["10.0.0.1:80"]), &json!(["10.0.0.2:9100"])]);
    let any = served.get("/api/v1/sd/prometheus?service=orders&status=any").await.ok();
    let targets: Vec<_> = any.as_array().unwrap().iter().map(|group| group["targets"][0].as_str().unwrap()).collect();
    assert_eq!(targets, ["10.0.0.1:80", "10.0.0.2:9100", "10.0.0.3:80"]);
    assert_eq!(
        served.get("/api/v1/sd/prometheus?status=up").await.rejected(400, "INVALID_ARGUMENT").unwrap(),
        "status"
    );
    let expected = json!({
        "__meta_convoke_id": "o-1",
        "__meta_convoke_service": "orders",
        "__meta_convoke_locality": "eu",
        "__meta_convoke_revision": "",
        "__meta_convoke_address": "10.0.0.1:80",
        "__meta_convoke_node": "n0",
        "__meta_convoke_metadata_team_name": "a",
    });
    assert_eq!(groups[0]["labels"], expected);
    let admin = served.get("/api/v1/sd/prometheus?endpoint=admin").await.ok();
    assert_eq!((admin[0]["targets"].clone(), admin.as_array().unwrap().len()), (json!(["10.0.0.2:7"]), 1));
    let none = served.get("/api/v1/sd/prometheus?filter=service%20==%20%22other%22").await.ok();
    assert_eq!(none, json!([]));
    served.get("/api/v1/sd/prometheus?filter=service").await.rejected(400, "INVALID_FILTER");
    served.get("/api/v1/sd/prometheus?servise=orders").await.rejected(400, "INVALID_ARGUMENT");
}
