//! The shipped alerts fire when a node dies: a real Prometheus with the shipped files, and a real kill.
//!
//! If Prometheus is not installed, the test reports that and passes without a check. `.ci/run` installs it.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{Process, TestNode, free_address, skip, until};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use support::http::raw;
use support::start;

/// A third of the default: a dead node is `down` after about 7 s instead of 23 s, and leaves the registry 90 s later.
const SCALE: &[(&str, &str)] =
    &[("HEARTBEAT_TIMEOUT", "6s"), ("RECONNECT_TIMEOUT", "90s"), ("DEAD_PEER_TIMEOUT", "120s")];
/// The times of the shipped files on the same scale; intervals as short as Prometheus allows.
const TIMES: &[(&str, &str)] = &[
    ("scrape_interval: 5s", "scrape_interval: 1s"),
    ("evaluation_interval: 15s", "evaluation_interval: 1s"),
    ("refresh_interval: 10s", "refresh_interval: 1s"),
    ("for: 1m", "for: 18s"),
    ("for: 5m", "for: 20s"),
];

fn shipped(name: &str, replaced: &[(&str, &str)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/prometheus").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    for (from, _) in replaced {
        assert!(text.contains(from), "{name} does not contain {from:?}");
    }
    TIMES.iter().chain(replaced).fold(text, |text, (from, to)| text.replace(from, to))
}

fn cluster(dir: &Path) -> Vec<TestNode> {
    let mut nodes: Vec<TestNode> = Vec::new();
    for id in ["n1", "n2", "n3", "n4"] {
        let mut arguments = vec!["--id", id];
        if let Some(first) = nodes.first() {
            arguments.extend(["--join", &first.peers]);
        }
        let mut command = start(&dir.join(id), &arguments);
        for (name, value) in SCALE {
            command.env(format!("CONVOKE_TIMERS_{name}"), value);
        }
        nodes.push(TestNode::spawn(&mut command).ready());
    }
    nodes
}

/// The answer of Prometheus; null while it starts.
fn ask(prometheus: &str, path: &str) -> Value {
    if std::net::TcpStream::connect(prometheus).is_err() {
        return Value::Null;
    }
    // Without chunks.
    let answer = raw(prometheus, format!("GET {path} HTTP/1.0\r\nhost: x\r\n\r\n").as_bytes());
    let answer = String::from_utf8_lossy(&answer);
    answer.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok()).unwrap_or_default()
}

/// Node label and health of the targets of the job for nodes.
fn targets(prometheus: &str) -> Vec<(String, String)> {
    let answer = ask(prometheus, "/api/v1/targets?state=active");
    let targets = answer["data"]["activeTargets"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of_nodes = targets.iter().filter(|target| target["labels"]["job"] == "convoke");
    let mut targets: Vec<_> =
        of_nodes.map(|target| (text(&target["labels"]["node"]), text(&target["health"]))).collect();
    targets.sort();
    targets
}

/// Alerts of this name that fire, with their node label.
fn firing(prometheus: &str, name: &str) -> Vec<String> {
    let answer = ask(prometheus, "/api/v1/alerts");
    let alerts = answer["data"]["alerts"].as_array().cloned().unwrap_or_default();
    let fires = alerts.iter().filter(|alert| alert["labels"]["alertname"] == name && alert["state"] == "firing");
    fires.map(|alert| alert["labels"]["node"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_killed_node_raises_the_shipped_alerts() {
    if Command::new("prometheus").arg("--version").output().is_err() {
        return skip("a_killed_node_raises_the_shipped_alerts", "needs prometheus (.ci/run installs it)");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = cluster(dir.path());
    let places = [
        ("127.0.0.1:7700", nodes[0].clients.as_str()),
        ("127.0.0.1:7702", nodes[1].clients.as_str()),
        ("127.0.0.1:7704", nodes[2].clients.as_str()),
    ];
    std::fs::write(dir.path().join("prometheus.yml"), shipped("prometheus.yml", &places)).unwrap();
    std::fs::write(dir.path().join("alerts.yml"), shipped("alerts.yml", &[])).unwrap();
    let listening = free_address();
    let start_prometheus = |data: &str| {
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", dir.path().join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", dir.path().join(data).display()));
        command.arg(format!("--web.listen-address={listening}")).current_dir(dir.path());
        Process::spawn(&mut command)
    };
    let up = |id: &str| (id.to_owned(), "up".to_owned());
    let mut prometheus = start_prometheus("first");
    until("all nodes are scraped once each", || targets(&listening) == [up("n1"), up("n2"), up("n3"), up("n4")]);
    assert_eq!(firing(&listening, "ConvokeNodeGone"), [""; 0]);

    // The first address of the discovery dies, too.
    nodes[0].process.kill();
    until("the alert fires", || firing(&listening, "ConvokeNodeGone") == ["n1"]);
    until("the other nodes miss it", || !firing(&listening, "ConvokeNodesMissing").is_empty());

    // A Prometheus that starts now finds the others.
    prometheus.kill();
    let _prometheus = start_prometheus("second");
    until("a new Prometheus finds the remaining nodes", || {
        let targets = targets(&listening);
        targets.contains(&up("n2")) && targets.contains(&up("n3")) && targets.contains(&up("n4"))
    });

    // A node that stops in an orderly way is no target any more.
    nodes[3].process.terminate();
    assert_eq!(nodes[3].process.wait().code(), Some(0));
    until("a stopped node is not scraped", || !targets(&listening).iter().any(|(node, _)| node == "n4"));
}
