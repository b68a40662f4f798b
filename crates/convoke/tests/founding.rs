//! Creation of a log, and a cluster with two logs (docs/log-protocol.md, FD).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::log::{Ambassador, Options};
use convoke_testkit::{ProcessCluster, until};
use serde_json::Value;
use std::time::Duration;
use support::http::{metric, raw, request};
use support::patient_plan;

fn log_status(cluster: &ProcessCluster, index: usize) -> Value {
    cluster.ask(index, &["log", "status"]).unwrap_or_default()
}

fn text(status: &Value, field: &str) -> String {
    status[field].as_str().unwrap_or_default().to_owned()
}

/// Sends a write of a key that names a log. Returns the status code.
fn put(address: &str, log: &str) -> u16 {
    let head = format!("PUT /api/v1/kv/k HTTP/1.1\r\nhost: {address}\r\nconvoke-log: {log}\r\n");
    let answer = raw(address, format!("{head}content-length: 1\r\nconnection: close\r\n\r\nv").as_bytes());
    String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap().parse().unwrap()
}

fn wait_for_three_voters(cluster: &ProcessCluster) {
    for index in 0..3 {
        until("every replica follows a leader", || {
            let status = log_status(cluster, index);
            status["available"] == true
                && status["settled"] == true
                && status["voters"].as_array().map(Vec::len) == Some(3)
        });
    }
}

#[test]
fn fd4_a_founder_that_lost_its_disk_creates_no_second_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = patient_plan(dir.path()).start_at_once(3).unwrap();
    wait_for_three_voters(&cluster);
    let log = text(&log_status(&cluster, 1), "log");
    cluster.kill(0);
    std::fs::remove_dir_all(cluster.data_dir(0)).unwrap();
    // The flag with which an operator once created the cluster is still set.
    cluster.set_environment(0, "CONVOKE_BOOTSTRAP", "1");
    cluster.restart(0).unwrap();
    until("the node finds the log of the others", || {
        let status = log_status(&cluster, 0);
        assert_eq!((text(&status, "log"), text(&status, "conflict")), (String::new(), String::new()), "{status}");
        status["role"] == "outside" && status["available"] == true
    });
    until("it can be replaced by itself", || cluster.ask(1, &["log", "replace", "n1", "n1"]).is_ok());
    until("it holds the same log", || text(&log_status(&cluster, 0), "log") == log);
}

/// Each node is a host of its own. The list and the number stay set at every node, as in a unit file or a manifest.
#[test]
fn fd3_hosts_create_one_log_and_an_erased_founder_no_second_one() {
    let Some(network) = support::network("fd3_hosts_create_one_log_and_an_erased_founder_no_second_one", 3) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let plan = patient_plan(dir.path()).environment("CONVOKE_BOOTSTRAP", "3");
    let mut cluster = plan.on(network).start_at_once(3).unwrap();
    wait_for_three_voters(&cluster);
    let log = text(&log_status(&cluster, 0), "log");
    assert_eq!([1, 2].map(|index| text(&log_status(&cluster, index), "log")), [log.clone(), log.clone()]);
    assert!(cluster.ask(0, &["kv", "put", "k", "v"]).is_ok());

    for bootstrap in ["3", "1"] {
        cluster.kill(0);
        std::fs::remove_dir_all(cluster.data_dir(0)).unwrap();
        cluster.set_environment(0, "CONVOKE_BOOTSTRAP", bootstrap);
        cluster.restart(0).unwrap();
        until("the node finds the log of the others", || {
            let status = log_status(&cluster, 0);
            assert_eq!((text(&status, "log"), text(&status, "conflict")), (String::new(), String::new()), "{status}");
            status["role"] == "outside" && status["available"] == true
        });
        for index in 1..3 {
            let status = log_status(&cluster, index);
            assert_eq!((text(&status, "log"), text(&status, "conflict")), (log.clone(), String::new()), "{status}");
        }
    }
    until("it can be replaced by itself", || cluster.ask(1, &["log", "replace", "n1", "n1"]).is_ok());
    until("it holds the same log", || text(&log_status(&cluster, 0), "log") == log);
    until("it serves the keys", || cluster.ask(0, &["kv", "get", "k"]).is_ok());
}

#[test]
fn fd2_a_list_of_one_name_creates_no_log_and_bootstrap_does() {
    let dir = tempfile::tempdir().unwrap();
    let peers = convoke_testkit::free_address();
    let port = peers.rsplit_once(':').unwrap().1;
    let join = format!("localhost:{port}");
    let start = |bootstrap: &[&str]| {
        let arguments = [&["--id", "n1", "--join", join.as_str()], bootstrap].concat();
        // Its only seed is itself, so its registry is alone, and it does not become ready (N7).
        convoke_testkit::TestNode::spawn(&mut support::start_on(&dir.path().join("n1"), ["0", port], &arguments))
    };
    let node = start(&[]);
    until("the node says why there is no log", || {
        let status = support::query(&node, &["log", "status"]);
        assert_eq!(text(&status, "log"), "", "{status}");
        text(&status, "obstacle").contains("set --bootstrap=NODES")
    });
    let status = support::query(&node, &["status"]);
    assert!(status["degraded"][0].as_str().unwrap().contains("--bootstrap=NODES"), "{status}");
    drop(node);
    let node = start(&["--bootstrap"]);
    until("a log is created", || !text(&support::query(&node, &["log", "status"]), "log").is_empty());
}

#[test]
fn fd2_lists_of_the_other_nodes_create_one_log() {
    let dir = tempfile::tempdir().unwrap();
    let peers: Vec<String> = (0..3).map(|_| convoke_testkit::free_address()).collect();
    let nodes: Vec<_> = (0..3)
        .map(|index| {
            let (id, port) = (format!("n{}", index + 1), peers[index].rsplit_once(':').unwrap().1);
            let others: Vec<&str> = peers.iter().filter(|peer| **peer != peers[index]).map(String::as_str).collect();
            let arguments = ["--id", &id, "--join", &others.join(",")];
            convoke_testkit::TestNode::spawn(&mut support::start_on(&dir.path().join(&id), ["0", port], &arguments))
        })
        .collect();
    for node in &nodes {
        until("every node is a voter of one log", || {
            let status = support::query(node, &["log", "status"]);
            status["available"] == true && status["voters"].as_array().map(Vec::len) == Some(3)
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fd6_two_logs_are_an_error_at_every_node_and_named_requests_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = patient_plan(dir.path()).start(1).unwrap();
    until("the first log exists", || !text(&log_status(&cluster, 0), "log").is_empty());
    cluster.kill(0);
    let second = cluster.reserve();
    cluster.restart(second).unwrap();
    until("the second log exists", || log_status(&cluster, second)["available"] == true);
    let ambassador = Ambassador::start([cluster.clients(second)]).unwrap();
    let before = ambassador.kv_with(Options::default().timeout(Duration::from_secs(20)));
    before.put("k", "before").await.unwrap();

    // The nodes meet, each with its own log.
    let peers = cluster.peers(second).to_owned();
    cluster.set_environment(0, "CONVOKE_JOIN", peers);
    cluster.restart(0).unwrap();
    let mut logs = Vec::new();
    for index in [0, second] {
        let address = cluster.clients(index);
        until("the node shows both logs", || text(&log_status(&cluster, index), "conflict").contains("has 2 logs"));
        let status = log_status(&cluster, index);
        logs.push(text(&status, "log"));
        assert!(text(&status, "conflict").contains(logs.last().unwrap()), "{status}");
        let (code, body) = request(address, "GET", "/readyz?log", "");
        assert!(code == 503 && body.contains("has 2 logs"), "{code} {body}");
        assert_eq!(request(address, "GET", "/readyz", "").0, 200, "the registry goes on");
        assert!(metric(address, "convoke_log_conflict") > 0.0);
        let degraded = cluster.ask(index, &["status"]).unwrap()["degraded"].to_string();
        assert!(degraded.contains("has 2 logs"), "{degraded}");
        until("the event is logged", || cluster.node(index).process.stderr().contains("log conflict reason="));
        let (code, body) = request(address, "PUT", "/api/v1/kv/k", "v");
        assert!(code == 412 && body.contains("names no log"), "{code} {body}");
        assert_eq!(request(address, "GET", "/api/v1/kv/k?consistency=local", "").0, 412);
    }
    let (first, second_log) = (&logs[0], &logs[1]);
    assert_ne!(first, second_log);
    let address = cluster.clients(second).to_owned();
    assert_eq!(put(&address, second_log), 200);
    assert_eq!(put(&address, first), 412, "it belongs to another log");
    // A client of one of the logs goes on, and a client that names a log begins. Others are rejected.
    before.put("k", "during").await.unwrap();
    let named = Ambassador::start([address.clone()]).unwrap();
    named.use_log(second_log.parse().unwrap());
    named.kv_with(Options::default().timeout(Duration::from_secs(20))).put("k", "named").await.unwrap();
    let unnamed = Ambassador::start([address.clone()]).unwrap();
    let error = unnamed.kv_with(Options::default().timeout(Duration::from_secs(2))).put("k", "x").await.unwrap_err();
    assert_eq!(error.code, convoke_client::ErrorCode::FailedPrecondition, "{error}");

    // The way out: the node of the wrong log starts without it.
    cluster.kill(0);
    std::fs::rename(cluster.data_dir(0).join("log"), dir.path().join("old-log")).unwrap();
    cluster.restart(0).unwrap();
    for index in [0, second] {
        until("there is one log", || text(&log_status(&cluster, index), "conflict").is_empty());
    }
    until("requests need no name", || request(&address, "PUT", "/api/v1/kv/k", "v").0 == 200);
    until("the end is logged", || cluster.node(second).process.stderr().contains("log conflict ended"));
}
