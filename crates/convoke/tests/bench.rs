//! `convoke bench`: its counts are correct and it leaves nothing behind. Speed is not tested here.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{Process, TestNode, free_address, until};
use serde_json::Value;
use std::fs;
use std::path::Path;
use support::{convoke, failure, query};

/// Runs a benchmark and returns its report.
#[track_caller]
fn bench(arguments: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let mut all = vec!["bench", "--json", "--nodes", "2", "--duration", "500ms"];
    all.extend(arguments);
    let output = convoke(&all).env("TMPDIR", dir.path()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert_nothing_left(dir.path());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |key: &str| report[key].as_f64().unwrap_or_else(|| panic!("{key} in {report}"));
    assert_eq!(report["errors"], serde_json::json!({}), "{report}");
    assert!(number("operations") > 0.0, "{report}");
    let rate = number("operations") / number("seconds");
    assert!((number("per_second") - rate).abs() < rate / 100.0, "{report}");
    if let Some(latency) = report["latency_us"].as_object() {
        let times = ["p50", "p99", "p99.9", "max"].map(|name| latency[name].as_u64().unwrap());
        assert!(times.is_sorted(), "{report}");
    }
    report
}

/// Checks that there is neither a file in this directory nor a process that uses it.
#[track_caller]
fn assert_nothing_left(dir: &Path) {
    assert_eq!(processes(dir), Vec::<String>::new());
    let names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.is_empty(), "{names:?}");
}

/// Returns the command lines that contain this directory.
fn processes(dir: &Path) -> Vec<String> {
    let dir = dir.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = processes.filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(dir)).collect()
}

#[test]
fn registrations_are_counted_and_unregistered() {
    let report = bench(&["register", "--clients", "3", "--pipeline", "8", "--members", "300", "--duration", "60s"]);
    assert_eq!(report["operations"], 300);
    assert_eq!(report["nodes"], 2);
    assert!(report["server_cpu_us"].as_f64().is_some(), "{report}");
}

#[test]
fn updates() {
    bench(&["update", "--clients", "2", "--pipeline", "4", "--members", "20"]);
}

#[test]
fn heartbeats() {
    let report = bench(&["heartbeat", "--clients", "20", "--connections", "4"]);
    assert_eq!((report["clients"].as_f64(), report["connections"].as_f64()), (Some(20.0), Some(4.0)));
    bench(&["heartbeat", "--clients", "5", "--rate", "50"]);
}

#[test]
fn every_change_arrives() {
    let report = bench(&["propagate", "--rate", "200", "--members", "50", "--clients", "2"]);
    // One change every 5 ms for half a second.
    assert_eq!((report["operations"].as_u64(), report["missing"].as_f64()), (Some(100), Some(0.0)));
}

#[test]
fn every_change_to_every_watcher() {
    let report = bench(&["watch", "--watchers", "30", "--shared", "7", "--rate", "20"]);
    assert_eq!(report["connections"].as_f64(), Some(5.0));
    assert_eq!(report["operations"].as_u64(), Some(30 * 10), "{report}");
}

#[test]
fn idle_watchers() {
    let report = bench(&["watch", "--idle", "40", "--shared", "20"]);
    assert_eq!(report["operations"].as_u64(), Some(80));
    assert!(report["own_connection_kb"].as_f64().unwrap() > 0.0, "{report}");
}

#[test]
fn a_node_joins() {
    let report = bench(&["join", "--members", "3000", "--per-client", "250"]);
    assert_eq!((report["operations"].as_u64(), report["sessions"].as_f64()), (Some(3000), Some(12.0)));
    assert!(report["resident_mb"].as_f64().unwrap() > 1.0, "{report}");
}

#[test]
fn over_http() {
    let report = bench(&["http-register", "--clients", "3", "--pipeline", "4", "--members", "60", "--duration", "60s"]);
    assert_eq!((&report["operations"], report["sessions"].as_f64()), (&60.into(), Some(3.0)));
    let report = bench(&["http-register", "--clients", "4", "--sessions", "1", "--members", "60", "--duration", "60s"]);
    assert_eq!((&report["operations"], report["sessions"].as_f64()), (&60.into(), Some(1.0)));
    bench(&["http-lookup", "--clients", "3", "--pipeline", "2", "--services", "10", "--members", "3"]);
}

#[test]
fn every_change_to_every_watcher_over_http() {
    let report = bench(&["http-watch", "--watchers", "30", "--rate", "20"]);
    assert_eq!((report["operations"].as_u64(), report["watchers"].as_f64()), (Some(30 * 10), Some(30.0)), "{report}");
}

#[test]
fn keys_over_http() {
    let report = bench(&["http-kv", "--clients", "3", "--value", "10"]);
    assert_eq!((report["clients"].as_f64(), report["value_bytes"].as_f64()), (Some(3.0), Some(10.0)));
}

#[test]
fn instances_over_the_consul_api() {
    for catalog in [&[][..], &["--catalog"]] {
        let load = ["consul-register", "--clients", "3", "--services", "4", "--members", "60", "--duration", "60s"];
        let report = bench(&[&load[..], catalog].concat());
        assert_eq!((&report["operations"], report["clients"].as_f64()), (&60.into(), Some(3.0)));
    }
    let report = bench(&["consul-lookup", "--clients", "3", "--services", "5", "--members", "4"]);
    assert_eq!(report["members"].as_f64(), Some(4.0));
}

/// All queries wait for the same service. A change that follows too closely is one with the next.
#[test]
fn blocking_queries_of_the_consul_api_are_woken() {
    let report = bench(&["consul-wait", "--watchers", "30", "--rate", "5", "--duration", "1s"]);
    let number = |key: &str| report[key].as_f64().unwrap();
    assert_eq!((number("changes"), number("operations") + number("missing")), (5.0, 150.0), "{report}");
}

#[test]
fn members_are_checked() {
    let report = bench(&["checks", "--members", "50", "--interval", "1s", "--duration", "3s"]);
    assert_eq!((report["members"].as_f64(), report["interval_s"].as_f64()), (Some(50.0), Some(1.0)), "{report}");
    assert!(report["server_cores"].as_f64().is_some(), "{report}");
}

#[test]
fn transactions_and_locks() {
    let report = bench(&["txn", "--clients", "3", "--keys", "20", "--value", "10"]);
    assert_eq!((report["clients"].as_f64(), report["value_bytes"].as_f64()), (Some(3.0), Some(10.0)));
    let report = bench(&["lock", "--contenders", "3"]);
    assert_eq!((&report["benchmark"], report["contenders"].as_f64()), (&"lock".into(), Some(3.0)));
    let report = bench(&["lock", "--own", "--contenders", "2"]);
    assert_eq!(report["benchmark"], "lock --own");
}

#[test]
fn changes_of_keys_to_every_watcher() {
    let report = bench(&["key-watch", "--watchers", "30", "--shared", "7", "--rate", "20"]);
    let number = |key: &str| report[key].as_f64().unwrap();
    assert_eq!((number("connections"), number("writes")), (5.0, 10.0), "{report}");
    // On a busy machine, events can arrive too late to be counted.
    assert_eq!(number("operations") + number("missing"), 30.0 * 10.0, "{report}");
}

#[test]
fn leases_are_kept_alive() {
    // One keep-alive each, after a third of the ttl.
    let report = bench(&["lease", "--leases", "10", "--connections", "3", "--ttl", "30s", "--duration", "11s"]);
    assert_eq!((report["operations"].as_u64(), report["leases"].as_f64()), (Some(10), Some(10.0)), "{report}");
}

#[test]
fn existing_nodes_are_left_unchanged() {
    let node = TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0"])).ready();
    for arguments in [
        &["register", "--clients", "2", "--members", "100"][..],
        &["http-register", "--clients", "2", "--members", "100"],
        &["http-lookup", "--clients", "2", "--services", "5"],
        &["consul-register", "--clients", "2", "--members", "30"],
        &["consul-register", "--clients", "2", "--members", "30", "--catalog"],
        &["consul-lookup", "--clients", "2", "--services", "5"],
        &["consul-wait", "--watchers", "3"],
        &["checks", "--members", "5", "--interval", "1s"],
    ] {
        let mut all = arguments.to_vec();
        all.extend(["--addr", &node.clients]);
        let report = bench(&all);
        assert_eq!((report["nodes"].as_u64(), report.get("server_cpu_us")), (Some(1), None));
        assert_eq!(query(&node, &["members"])["members"].as_array().unwrap().len(), 1, "only the node itself is left");
    }
    let error = failure(&convoke(&["bench", "join", "--addr", &node.clients]).output().unwrap(), 2);
    assert!(error.contains("leave out --addr"), "{error}");
}

/// Over TLS, with a token, at a node that `convoke init` configured.
#[test]
fn a_secured_node_takes_load_with_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let security = dir.path().join("security");
    let file = |name: &str| security.join(name).to_str().unwrap().to_owned();
    let written = convoke(&["init", security.to_str().unwrap(), "--nodes", "n1"]).output().unwrap();
    assert!(written.status.success());
    let data = dir.path().join("data");
    let config = file("nodes/n1/convoke.toml");
    let start = ["start", "--config", &config, "--client-port", "0", "--peer-port", "0", "--data-dir"];
    let node = TestNode::spawn(convoke(&start).arg(&data));
    let (ca, token) = (file("ca.pem"), file("operator.token"));
    let address = format!("https://{}", node.clients);
    let shown = ["--addr", &address, "--ca", &ca, "--token-file", &token];
    until("the log is ready", || {
        let put = convoke(&["kv", "put", "ready", "x"]).args(shown).output().unwrap();
        put.status.success()
    });
    for arguments in [
        &["register", "--clients", "2", "--members", "100"][..],
        &["heartbeat", "--clients", "4", "--connections", "2"],
        &["log", "--clients", "2"],
        &["http-register", "--clients", "2", "--members", "100"],
    ] {
        bench(&[arguments, &shown].concat());
        let denied = convoke(&["bench"]).args(arguments).args(&shown[..4]).output().unwrap();
        let stderr = String::from_utf8_lossy(&denied.stderr).into_owned();
        assert!(denied.status.code() == Some(5) && stderr.contains("needs a token"), "{arguments:?}: {stderr}");
    }
}

/// An unreachable node is reported immediately, and a silent one while the command waits for it. Neither is an error of
/// the load.
#[test]
fn an_unreachable_node_is_exit_code_3() {
    let unreachable_address = free_address();
    for kind in ["register", "heartbeat", "propagate", "watch", "log", "txn", "lock", "http-lookup"] {
        let error = failure(&convoke(&["bench", kind, "--addr", &unreachable_address]).output().unwrap(), 3);
        assert!(
            error.starts_with(&format!("cannot reach a node at {unreachable_address} (connection refused)")),
            "{kind}: {error}"
        );
    }
    let silent_listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent_listener.local_addr().unwrap().to_string();
    let output = convoke(&["bench", "register", "--addr", &address]).output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert!(printed.starts_with(&format!("convoke: waiting for an answer from {address}, at most 5 s\n")), "{printed}");
    assert!(printed.contains(&format!("cannot reach a node at {address} (no answer within 5.0 s)")), "{printed}");
}

#[test]
fn an_interrupted_benchmark_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = convoke(&["bench", "register", "--nodes", "2", "--duration", "1h", "--members", "1000000000"]);
    let mut bench = Process::spawn(command.env("TMPDIR", dir.path()));
    until("its nodes run", || processes(dir.path()).len() == 2);
    bench.interrupt();
    assert_eq!(bench.wait().code(), Some(1));
    assert_eq!(bench.stderr(), "convoke: SIGINT: stopped before there was a result");
    assert_nothing_left(dir.path());
}

/// Its directory remains, but none of its nodes keeps running.
#[test]
fn a_killed_benchmark_ends_its_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = convoke(&["bench", "register", "--nodes", "2", "--duration", "1h", "--members", "1000000000"]);
    let mut bench = Process::spawn(command.env("TMPDIR", dir.path()));
    until("its nodes run", || processes(dir.path()).len() == 2);
    bench.kill();
    until("its nodes are gone", || processes(dir.path()).is_empty());
}
