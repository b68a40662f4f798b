//! Nodes that reach none of their seeds (N7), and nodes that find each other although none is ready.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{Process, TestNode, free_address, run, skip, until};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use support::http::{json, metric, request};
use support::{binary, failure, founders, output, registered, start, start_on, states};

/// Waits until a node has given up reaching its seeds for now.
fn alone(command: &mut Command) -> TestNode {
    let node = TestNode::spawn(command);
    until("the node is alone", || json(&node.clients, "GET", "/api/v1/status", "")["alone"] != "");
    node
}

/// Requires 503 and returns the message.
#[track_caller]
fn unavailable(node: &TestNode, method: &str, path: &str, body: &str) -> String {
    let (status, answer) = request(&node.clients, method, path, body);
    assert_eq!(status, 503, "{method} {path}: {answer}");
    answer
}

#[test]
fn a_node_that_reaches_no_seed_serves_and_asserts_no_absence() {
    let dir = tempfile::tempdir().unwrap();
    let seed = free_address();
    let node = alone(&mut start(&dir.path().join("n1"), &["--id", "n1", "--join", &seed]));
    let reason = unavailable(&node, "GET", "/readyz", "");
    assert!(reason.contains(&seed) && reason.contains("connection refused"), "{reason}");
    assert_eq!(request(&node.clients, "GET", "/healthz", "").0, 200);
    for path in
        ["members", "members?service=web", "members/web-9", "members/web-9/explain", "services", "sd/prometheus"]
    {
        unavailable(&node, "GET", &format!("/api/v1/{path}"), "");
    }
    unavailable(&node, "DELETE", "/api/v1/services/web/members/web-9", "");
    // It takes registrations, and serves what it holds.
    let _member = registered(&node.clients, "web-1");
    assert_eq!(json(&node.clients, "GET", "/api/v1/members/web-1", "")["service"], "web");
    let held = json(&node.clients, "GET", "/api/v1/members?partial=true&service=web", "");
    assert_eq!((held["complete"].as_bool(), held["members"].as_array().unwrap().len()), (Some(false), 1), "{held}");
    assert_eq!(json(&node.clients, "GET", "/api/v1/services?partial", "")["complete"], false);
    // The session of another node, which this one cannot reach: it is not declared gone.
    let other = TestNode::spawn(&mut start(&dir.path().join("n2"), &["--id", "n2"])).ready();
    let created = |node: &TestNode| {
        let (status, answer) = request(&node.clients, "POST", "/api/v1/sessions", "");
        assert!((200..300).contains(&status), "{answer}");
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        format!("/api/v1/sessions/{}/heartbeat", answer["session"].as_str().unwrap())
    };
    let unknown = unavailable(&node, "PUT", &created(&other), "");
    assert!(unknown.contains("NOT_READY"), "{unknown}");
    assert_eq!(request(&node.clients, "PUT", &created(&node), "").0 / 100, 2, "it takes sessions of its own");
    let failed = run(binary(), ["members", "--addr", &node.clients, "--timeout", "5s"]);
    assert!(failure(&failed, failed.status.code().unwrap()).contains("none of its seeds"));
    let partial = output(&["members", "--partial", "--addr", &node.clients]);
    assert!(partial.contains("web-1"), "{partial}");
    assert_eq!((metric(&node.clients, "convoke_alone"), metric(&node.clients, "convoke_ready")), (1.0, 0.0));
    assert!(output(&["status", "--addr", &node.clients]).contains("alone: this node has reached none of its seeds"));
    assert!(output(&["nodes", "--addr", &node.clients]).contains("alone: no seed reached"));
    // A new watch is not complete.
    let watch = Process::spawn(&mut support::convoke(&["watch", "--json", "--addr", &node.clients]));
    watch.line("the member", |line| line.contains("web-1"));
    assert!(!watch.stdout().contains("caught-up"));
    // The operator says that this is the first node. No log begins by that.
    output(&["nodes", "declare-first", "--addr", &node.clients]);
    watch.line("caught-up", |line| line.contains("caught-up"));
    until("the node is ready", || request(&node.clients, "GET", "/readyz", "").0 == 200);
    assert_eq!(request(&node.clients, "GET", "/api/v1/members/web-9", "").0, 404);
    assert_eq!(json(&node.clients, "GET", "/api/v1/members", "")["complete"], true);
    let log = json(&node.clients, "GET", "/api/v1/log/status", "");
    assert_eq!(log["available"], false, "{log}");
    let again = run(binary(), ["nodes", "declare-first", "--addr", &node.clients]);
    assert!(failure(&again, 5).contains("joined a cluster already"));
}

#[test]
fn a_node_is_ready_when_a_seed_appears() {
    let dir = tempfile::tempdir().unwrap();
    let seed = free_address();
    let node = alone(&mut start(&dir.path().join("n1"), &["--id", "n1", "--join", &seed]));
    let _member = registered(&node.clients, "web-1");
    let port = seed.rsplit_once(':').unwrap().1;
    let other = TestNode::spawn(&mut start_on(&dir.path().join("n2"), ["0", port], &["--id", "n2"])).ready();
    until("the node is ready", || request(&node.clients, "GET", "/readyz", "").0 == 200);
    until("the member is known", || request(&other.clients, "GET", "/api/v1/members/web-1", "").0 == 200);
    // It has met the cluster: it is never alone again.
    drop(other);
    until("the seed is lost", || states(&node).iter().any(|(id, state)| id == "n2" && state != "up"));
    assert_eq!(request(&node.clients, "GET", "/readyz", "").0, 200);
    assert_eq!(request(&node.clients, "GET", "/api/v1/members/web-9", "").0, 404);
}

#[test]
fn the_log_names_each_seed_that_failed_and_why() {
    let dir = tempfile::tempdir().unwrap();
    let http = TcpListener::bind("127.0.0.1:0").unwrap();
    let speaks_http = http.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in http.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let foreign = ["--id", "n9", "--cluster", "another"];
    let foreign = TestNode::spawn(&mut start(&dir.path().join("n9"), &foreign)).ready();
    let refused = free_address();
    let unresolvable = "no-such-host.invalid:7701";
    let join = [&refused, unresolvable, &speaks_http, &foreign.peers].join(",");
    let node = TestNode::spawn(&mut start(&dir.path().join("n1"), &["--id", "n1", "--join", &join]));
    for (seed, reason) in [
        (refused.as_str(), "connection refused"),
        (unresolvable, "the name does not resolve"),
        (speaks_http.as_str(), "speaks HTTP"),
        (foreign.peers.as_str(), "belongs to another cluster"),
    ] {
        until("the log names the seed", || {
            node.process
                .stderr()
                .lines()
                .any(|line| line.contains("seed not reached") && line.contains(seed) && line.contains(reason))
        });
    }
}

/// As the pods of a stateful set: all start at once, with the same list, and none is ready before it has met another.
#[test]
fn nodes_that_start_at_once_with_the_same_list_become_ready() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = founders(dir.path(), &[("convoke-0", ""), ("convoke-1", ""), ("convoke-2", "")]);
    for node in &nodes {
        assert_eq!(request(&node.clients, "GET", "/readyz", "").0, 200);
        assert!(!node.process.stderr().contains("node alone"), "{}", node.process.stderr());
        assert_eq!(json(&node.clients, "GET", "/api/v1/members", "")["complete"], true);
    }
}

/// A process that cannot open its log announces no incarnation.
#[test]
fn a_process_with_a_damaged_log_leaves_no_trace_in_the_registry() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = founders(dir.path(), &[("n1", ""), ("n2", ""), ("n3", "")]);
    let known = |id: &str| {
        let nodes = support::query(&nodes[0], &["nodes"]);
        let nodes = nodes["nodes"].as_array().unwrap().clone();
        nodes.iter().find(|node| node["id"] == id).map(|node| node["incarnation"].as_u64().unwrap())
    };
    let before = known("n2");
    let log = dir.path().join("n4").join("log");
    std::fs::create_dir_all(&log).unwrap();
    std::fs::write(log.join("identity"), b"damaged").unwrap();
    let join = nodes.iter().map(|node| node.peers.clone()).collect::<Vec<_>>().join(",");
    for _ in 0..3 {
        let mut process = Process::spawn(&mut start(&dir.path().join("n4"), &["--id", "n4", "--join", &join]));
        assert!(!process.wait().success());
    }
    assert_eq!((known("n4"), known("n2")), (None, before));
}

/// Runs a command in a mount namespace with another `/etc/hosts`.
fn with_hosts(hosts: &std::path::Path, command: &Command) -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--map-root-user", "--mount", "sh", "-c", r#"mount --bind "$0" /etc/hosts && exec "$@""#]);
    unshare.arg(hosts).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => unshare.env(name, value),
            None => unshare.env_remove(name),
        };
    }
    unshare
}

/// R-43: a seed is given by its name. Its address changes while the other node runs.
#[test]
fn the_name_of_a_seed_is_resolved_with_every_attempt() {
    let test = "the_name_of_a_seed_is_resolved_with_every_attempt";
    let dir = tempfile::tempdir().unwrap();
    let hosts = dir.path().join("hosts");
    std::fs::write(&hosts, "127.0.0.2 seed.test\n").unwrap();
    if !with_hosts(&hosts, &Command::new("true")).output().is_ok_and(|output| output.status.success()) {
        return skip(test, "cannot replace /etc/hosts for a process here");
    }
    let seed = TestNode::spawn(&mut start(&dir.path().join("n1"), &["--id", "n1"])).ready();
    let port = seed.peers.rsplit_once(':').unwrap().1;
    let join = format!("seed.test:{port}");
    let node = alone(&mut with_hosts(&hosts, &start(&dir.path().join("n2"), &["--id", "n2", "--join", &join])));
    // The same file, because the mount shows its content.
    std::fs::write(&hosts, "127.0.0.1 seed.test\n").unwrap();
    until("the node has met the seed", || {
        let states = json(&node.clients, "GET", "/api/v1/status", "");
        states["alone"] == "" && support::state(&seed, "n2") == "up"
    });
}

/// P12: the name of a headless service leads every node to itself first, and to the others.
#[test]
fn nodes_with_one_name_in_their_join_list_form_a_registry() {
    let test = "nodes_with_one_name_in_their_join_list_form_a_registry";
    let dir = tempfile::tempdir().unwrap();
    let addresses = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
    let peers = free_address();
    let port = peers.rsplit_once(':').unwrap().1;
    let join = format!("nodes.test:{port}");
    let start_at = |own: usize| {
        let hosts = dir.path().join(format!("hosts-{own}"));
        let ordered = addresses[own..].iter().chain(&addresses[..own]);
        std::fs::write(&hosts, ordered.map(|address| format!("{address} nodes.test\n")).collect::<String>()).unwrap();
        let id = format!("n{}", own + 1);
        let arguments = ["--id", &id, "--join", &join, "--bind", addresses[own]];
        with_hosts(&hosts, &start_on(&dir.path().join(&id), ["0", port], &arguments))
    };
    let hosts = dir.path().join("hosts");
    std::fs::write(&hosts, "").unwrap();
    if !with_hosts(&hosts, &Command::new("true")).output().is_ok_and(|output| output.status.success()) {
        return skip(test, "cannot replace /etc/hosts for a process here");
    }
    let nodes = [0, 1, 2].map(|own| TestNode::spawn(&mut start_at(own)));
    let nodes = nodes.map(TestNode::ready);
    for id in ["n2", "n3"] {
        until("all nodes are linked", || support::state(&nodes[0], id) == "up");
    }
}
