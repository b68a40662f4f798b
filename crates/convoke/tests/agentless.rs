//! Members without a client, with real processes (docs/protocol.md, AG).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{ProcessCluster, until};
use serde_json::{Value, json};
use support::http;
use support::patient_plan;

fn member(cluster: &ProcessCluster, index: usize, id: &str) -> Option<Value> {
    cluster.ask(index, &["member", id]).ok()
}

/// Sends a request and returns the status and the JSON body.
fn request(address: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let (status, body) = http::request(address, method, path, body);
    (status, serde_json::from_str(&body).unwrap())
}

fn wait_until_up(cluster: &ProcessCluster, nodes: &[usize], id: &str) {
    for index in nodes {
        until("the member is up everywhere", || {
            member(cluster, *index, id).is_some_and(|member| member["status"] == "up")
        });
    }
}

#[test]
fn members_without_a_client_survive_their_node_and_a_total_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = patient_plan(dir.path()).start_at_once(3).unwrap();
    let file = dir.path().join("members.json");
    let described = json!([
        { "id": "db-1", "service": "db", "address": "10.0.0.1:5432", "metadata": { "role": "primary" } },
        { "id": "db-2", "service": "db", "address": "10.0.0.2:5432" },
    ]);
    std::fs::write(&file, described.to_string()).unwrap();
    let answer = cluster.ask(0, &["service", "register", file.to_str().unwrap()]).unwrap();
    assert_eq!(answer["members"][0]["stored"], true, "{answer}");
    wait_until_up(&cluster, &[0, 1, 2], "db-1");
    wait_until_up(&cluster, &[0, 1, 2], "db-2");

    // Its owner dies: another node adopts it, and it never shows `down`.
    let owner = member(&cluster, 0, "db-1").unwrap()["owner"]["node"].as_str().unwrap().to_owned();
    let dead: usize = owner.trim_start_matches('n').parse::<usize>().unwrap() - 1;
    let others: Vec<usize> = (0..3).filter(|index| *index != dead).collect();
    cluster.kill(dead);
    for index in &others {
        until("another node adopts the member", || {
            let member = member(&cluster, *index, "db-1").unwrap();
            assert_eq!(member["status"], "up", "{member}");
            member["owner"]["node"] != owner.as_str()
        });
    }

    // Any node can deregister it. The dead node has it on its disk.
    let deregistered = cluster.ask(others[0], &["service", "deregister", "db-2"]).unwrap();
    assert_eq!(deregistered["stored"], true, "{deregistered}");
    until("it is gone at the other node", || member(&cluster, others[1], "db-2").is_none());
    for index in &others {
        cluster.kill(*index);
    }
    cluster.start_all().unwrap();
    wait_until_up(&cluster, &[0, 1, 2], "db-1");
    assert_eq!(member(&cluster, 0, "db-1").unwrap()["metadata"]["role"], "primary");
    for index in 0..3 {
        assert!(member(&cluster, index, "db-2").is_none(), "a deregistered member came back");
    }
    let listed = cluster.ask(1, &["service", "list"]).unwrap();
    assert_eq!(listed["members"].as_array().map(Vec::len), Some(1), "{listed}");
}

#[test]
fn http_registers_and_deregisters_members_without_a_client() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = patient_plan(dir.path()).start_at_once(2).unwrap();
    let address = cluster.node(0).clients.clone();
    let path = "/api/v1/services/db/members/db-1";
    let put = |body: Value| request(&address, "PUT", path, &body.to_string());
    let (status, answer) = put(json!({ "address": "10.0.0.1:5432" }));
    assert_eq!((status, &answer["stored"]), (200, &json!(true)), "{answer}");
    let (_, again) = put(json!({ "address": "10.0.0.1:5432" }));
    assert_eq!(answer["version"], again["version"], "the same registration writes nothing");
    let (_, changed) = put(json!({ "address": "10.0.0.2:5432" }));
    assert_ne!(answer["version"], changed["version"]);
    for (body, code) in [
        (json!({ "service": "other" }), "INVALID_ARGUMENT"),
        (json!({ "checks": [{ "id": "without-a-probe" }] }), "INVALID_MEMBER"),
        (json!({ "checks": [{ "script": "x" }] }), "INVALID_ARGUMENT"),
        (json!({ "address": "nowhere" }), "INVALID_MEMBER"),
    ] {
        let (status, answer) = put(body);
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(code)), "{answer}");
    }
    let (status, _) = request(&address, "DELETE", "/api/v1/services/other/members/db-1", "");
    assert_eq!(status, 404, "it belongs to another service");
    // A client cannot take its id.
    let (_, session) = request(&address, "POST", "/api/v1/sessions", "{}");
    let session = session["session"].as_str().unwrap().to_owned();
    let member = format!("/api/v1/sessions/{session}/members/db-1?takeover=true");
    let (status, answer) = request(&address, "PUT", &member, r#"{"service":"db"}"#);
    assert_eq!((status, &answer["error"]["code"]), (409, &json!("ALREADY_REGISTERED")), "{answer}");
    let (status, _) = request(&address, "DELETE", path, "");
    assert_eq!(status, 200);
    let (status, answer) = request(&address, "DELETE", path, "");
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("NOT_REGISTERED")), "{answer}");
}
