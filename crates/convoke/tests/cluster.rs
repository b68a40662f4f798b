//! Nodes that join, fail, return and are replaced.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{Process, TestNode, until};
use std::time::Duration;
use support::{cluster, member_status, output, query, registered, start, state, watch};

#[test]
fn a_killed_node_is_detected_forgotten_and_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = cluster(dir.path(), 3);
    let mut third = nodes.pop().unwrap();
    third.process.kill();
    until("both others notice", || nodes.iter().all(|node| ["lost", "failed"].contains(&state(node, "n3").as_str())));
    // Connected nodes cannot be forgotten; lost ones can.
    let error = support::fails(&["nodes", "forget", "n2", "--addr", &nodes[0].clients], 5);
    assert!(error.contains("n2 is connected; stop it first"), "{error}");
    assert_eq!(output(&["nodes", "forget", "n3", "--json", "--addr", &nodes[0].clients]), "{\"forgotten\":\"n3\"}\n");

    // The same data directory is the same node with another incarnation.
    let third = TestNode::spawn(&mut start(&dir.path().join("n3"), &["--join", &nodes[0].peers])).ready();
    let status = query(&third, &["status"]);
    assert_eq!((status["id"].as_str(), status["incarnation"].as_u64()), (Some("n3"), Some(2)));
    until("it is back", || nodes.iter().all(|node| state(node, "n3") == "up"));
}

#[test]
fn one_of_two_nodes_with_one_id_stops() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = TestNode::spawn(&mut start(&dir.path().join("a"), &["--id", "n1"])).ready();
    let arguments = ["--id", "n1", "--join", &first.peers];
    let mut second = TestNode::spawn(&mut start(&dir.path().join("b"), &arguments));
    let given_up = |node: &TestNode| node.process.stderr().contains("uses the node id n1: give each node its own id");
    until("one of them stops", || given_up(&first) || given_up(&second));
    let loser = if given_up(&first) { &mut first } else { &mut second };
    assert_eq!(loser.process.wait().code(), Some(5));
}

#[test]
fn a_graceful_stop_hands_clients_over_and_unregisters_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = cluster(dir.path(), 2);
    let seen = watch(&nodes[1].clients, "");
    let _web = registered(&nodes[0].clients, "web-1");
    seen.line("web-1", |line| line.contains("\"register\"") && line.contains("web-1"));
    let first = &mut nodes[0].process;
    first.terminate();
    assert_eq!(first.wait().code(), Some(0), "{}", first.stderr());
    seen.line("n1 unregisters itself", |line| line.contains("unregister") && line.contains("convoke.n1"));
    seen.line("web-1 moves", |line| line.contains("\"owner\"") && line.contains("web-1"));
    until("n1 has left", || state(&nodes[1], "n1") == "left");
    assert_eq!(member_status(&nodes[1], "web-1").as_deref(), Some("up"));
    let bad =
        |line: &str| line.contains("\"status\":\"down\"") || line.contains("unregister") && line.contains("web-1");
    assert!(!seen.stdout().lines().any(bad), "{}", seen.stdout());
}

#[test]
fn a_second_signal_ends_the_node_immediately() {
    let dir = tempfile::tempdir().unwrap();
    let first = TestNode::spawn(&mut start(&dir.path().join("n1"), &["--id", "n1"])).ready();
    let mut command = start(&dir.path().join("n2"), &["--id", "n2", "--join", &first.peers]);
    let mut second = TestNode::spawn(command.env("CONVOKE_TIMERS_HANDOVER_TIMEOUT", "1h")).ready();
    // A stopped client, which cannot move to another node.
    let stuck = registered(&second.clients, "web-1");
    stuck.pause();
    second.process.terminate();
    until("it is stopping", || second.process.stderr().contains("signal=SIGTERM"));
    second.process.terminate();
    assert_eq!(second.process.wait().code(), Some(1));
    assert!(second.process.stderr().contains("SIGTERM: stopped immediately"), "{}", second.process.stderr());
}

/// A process that starts with the id of a live node reports that immediately, retries for a while and stops. The other
/// process keeps running (N4).
#[test]
fn a_second_process_with_the_id_of_a_live_node_stops() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = cluster(dir.path(), 2);
    let mut second = Process::spawn(&mut start(&dir.path().join("second"), &["--id", "n1", "--join", &nodes[1].peers]));
    until("it reports why it waits", || second.stderr().contains("node id in use stops_after_s=6"));
    assert_eq!(second.wait().code(), Some(5));
    assert!(second.stderr().contains("give each node its own id (--id)"), "{}", second.stderr());
    assert_eq!((state(&nodes[0], "n2").as_str(), state(&nodes[1], "n1").as_str()), ("up", "up"));
}

/// A short pause, as seen from another node.
#[test]
fn a_paused_node_makes_no_member_down() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = cluster(dir.path(), 2);
    let seen = watch(&nodes[1].clients, "service == \"web\"");
    let _web = registered(&nodes[0].clients, "web-1");
    seen.line("web-1", |line| line.contains("\"register\""));
    nodes[0].process.pause();
    until("the other one loses it", || ["lost", "failed"].contains(&state(&nodes[1], "n1").as_str()));
    nodes[0].process.resume();
    until("it is back", || state(&nodes[1], "n1") == "up");
    until("it has its clients", || state(&nodes[0], "n2") == "up");
    for node in &nodes {
        assert_eq!(member_status(node, "web-1").as_deref(), Some("up"));
    }
    assert!(!seen.stdout().contains("\"status\":\"down\""), "{}", seen.stdout());
}

/// A pause longer than the heartbeat timeout of the only node: no other node could receive its clients'
/// heartbeats.
#[test]
fn a_node_gives_its_clients_time_after_a_long_pause() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = start(dir.path(), &["--id", "n1"]);
    let node = TestNode::spawn(command.env("CONVOKE_TIMERS_HEARTBEAT_TIMEOUT", "3s")).ready();
    let seen = watch(&node.clients, "service == \"web\"");
    let _web = registered(&node.clients, "web-1");
    seen.line("web-1", |line| line.contains("\"register\""));
    node.process.pause();
    // The duration of the fault, not a wait for a condition.
    #[allow(clippy::disallowed_methods, reason = "the pause is the fault")]
    std::thread::sleep(Duration::from_secs(4));
    node.process.resume();
    let _other = registered(&node.clients, "web-2");
    seen.line("the watch continues", |line| line.contains("web-2"));
    until("the client is back", || query(&node, &["status"])["counts"]["sessions"].as_u64() == Some(3));
    assert_eq!(member_status(&node, "web-1").as_deref(), Some("up"));
    assert!(!seen.stdout().contains("\"status\":\"down\""), "{}", seen.stdout());
}

/// Shows that the line whose absence the tests above check does appear.
#[test]
fn the_member_of_a_dead_client_is_down() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = cluster(dir.path(), 2);
    let seen = watch(&nodes[1].clients, "service == \"web\"");
    let mut web = support::register(&nodes[0].clients, "web-1", &["--fast"]);
    web.line("is registered", |line| line.contains("is registered"));
    web.kill();
    seen.line("down", |line| line.contains("\"status\":\"down\""));
}
