//! Processes of the built binary.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part; in a test a panic is the message")]

pub mod collector;
pub mod fleet;
pub mod http;
pub mod http_session;
pub mod lab;
pub mod seen;
pub mod three;

use convoke_testkit::{NamespaceNetwork, Process, ProcessCluster, ProcessClusterPlan, TestNode, run, skip};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Timers that are short enough for tests that wait for them and long enough for a busy machine.
const TIMERS: &[(&str, &str)] = &[
    ("HEARTBEAT_INTERVAL", "500ms"),
    ("HEARTBEAT_TIMEOUT", "6s"),
    ("RECONNECT_TIMEOUT", "20s"),
    ("DEAD_PEER_TIMEOUT", "60s"),
    ("TOMBSTONE_TIMEOUT", "300s"),
    ("PEER_RETRY_INTERVAL", "200ms"),
    ("PING_INTERVAL", "100ms"),
    ("PING_TIMEOUT", "1s"),
    ("HANDOVER_TIMEOUT", "20s"),
];

pub fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_convoke"))
}

/// Returns a command of the binary without the environment variables of the test.
pub fn convoke(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CONVOKE_") {
            command.env_remove(name);
        }
    }
    command.args(arguments);
    command
}

/// Returns the command of a node with free ports and short timers.
pub fn start(data_dir: &Path, arguments: &[&str]) -> Command {
    start_on(data_dir, ["0", "0"], arguments)
}

/// Like `start`, with a given client port.
pub fn start_at(data_dir: &Path, client_port: &str, arguments: &[&str]) -> Command {
    start_on(data_dir, [client_port, "0"], arguments)
}

/// Like `start`, with given client and peer ports.
pub fn start_on(data_dir: &Path, [client_port, peer_port]: [&str; 2], arguments: &[&str]) -> Command {
    let mut command =
        convoke(&["start", "--client-port", client_port, "--peer-port", peer_port, "--dns-port", "0", "--data-dir"]);
    command.arg(data_dir).args(arguments);
    for (name, value) in TIMERS {
        command.env(format!("CONVOKE_TIMERS_{name}"), value);
    }
    command
}

/// Returns the plan of nodes with short timers and fixed ports.
pub fn plan(dir: &Path) -> ProcessClusterPlan {
    let plan = ProcessCluster::plan(binary(), dir);
    TIMERS.iter().fold(plan, |plan, (name, value)| plan.environment(format!("CONVOKE_TIMERS_{name}"), *value))
}

/// Like `plan`, with long timeouts, for tests in which no client may be reported down on a busy machine.
pub fn patient_plan(dir: &Path) -> ProcessClusterPlan {
    plan(dir)
        .environment("CONVOKE_TIMERS_HEARTBEAT_TIMEOUT", "40s")
        .environment("CONVOKE_TIMERS_DEAD_PEER_TIMEOUT", "120s")
}

/// Returns the path of the library of the package `faketime`, which fakes the time of a program.
pub fn faketime() -> Option<PathBuf> {
    let directories = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    directories.map(|path| path.join("faketime/libfaketime.so.1")).find(|path| path.exists())
}

/// Creates a network with this many hosts. Where that is impossible, the test reports it and does nothing.
pub fn network(test: &str, hosts: usize) -> Option<NamespaceNetwork> {
    NamespaceNetwork::create(hosts).map_err(|why| skip(test, why)).ok()
}

/// Starts connected nodes `n1`, `n2`, …, each with its own directory in `dir`.
pub fn cluster(dir: &Path, count: usize) -> Vec<TestNode> {
    let mut nodes: Vec<TestNode> = Vec::new();
    for number in 1..=count {
        let id = format!("n{number}");
        let mut arguments = vec!["--id", &id];
        if let Some(first) = nodes.first() {
            arguments.extend(["--join", &first.peers]);
        }
        let node = TestNode::spawn(&mut start(&dir.join(&id), &arguments)).ready();
        nodes.push(node);
    }
    for node in &nodes {
        convoke_testkit::until("every node knows every other", || {
            states(node).iter().filter(|(_, state)| state == "up").count() == count
        });
    }
    nodes
}

/// Starts nodes with these ids and regions at once with the same list, so that they form one log.
pub fn founders(dir: &Path, nodes: &[(&str, &str)]) -> Vec<TestNode> {
    let peers: Vec<String> = nodes.iter().map(|_| convoke_testkit::free_address()).collect();
    let join = peers.join(",");
    let spawn = |((id, region), peers): (&(&str, &str), &String)| {
        let port = peers.rsplit_once(':').unwrap().1;
        let arguments = ["--id", id, "--region", region, "--join", &join];
        TestNode::spawn(&mut start_on(&dir.join(id), ["0", port], &arguments))
    };
    let started: Vec<TestNode> = nodes.iter().zip(&peers).map(spawn).collect();
    let started: Vec<TestNode> = started.into_iter().map(TestNode::ready).collect();
    for node in &started {
        convoke_testkit::until("every node knows every other, and the leader", || {
            let status = query(node, &["log", "status"]);
            let known = states(node).iter().filter(|(_, state)| state == "up").count();
            known == nodes.len()
                && status["available"] == true
                && status["voters"].as_array().map(Vec::len) == Some(nodes.len())
        });
    }
    started
}

/// Runs a command, which must succeed, and returns its output.
#[track_caller]
pub fn output(arguments: &[&str]) -> String {
    let output = run(binary(), arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command at a node and returns its JSON output.
#[track_caller]
pub fn query(node: &TestNode, arguments: &[&str]) -> Value {
    let mut all = arguments.to_vec();
    all.extend(["--json", "--timeout", "30s", "--addr", &node.clients]);
    serde_json::from_str(&output(&all)).unwrap()
}

/// Returns the status of a member at a node; `None` if there is no such member.
pub fn member_status(node: &TestNode, id: &str) -> Option<String> {
    let output = run(binary(), ["member", id, "--json", "--timeout", "30s", "--addr", &node.clients]);
    match output.status.code() {
        Some(0) => {
            Some(serde_json::from_slice::<Value>(&output.stdout).unwrap()["status"].as_str().unwrap().to_owned())
        }
        Some(4) => None,
        _ => panic!("{output:?}"),
    }
}

/// Returns the ids and states of nodes as one node sees them.
pub fn states(node: &TestNode) -> Vec<(String, String)> {
    let nodes = query(node, &["nodes"]);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    nodes["nodes"].as_array().unwrap().iter().map(|node| (text(&node["id"]), text(&node["state"]))).collect()
}

pub fn state(node: &TestNode, id: &str) -> String {
    states(node).into_iter().find(|(found, _)| found == id).map_or_else(String::new, |(_, state)| state)
}

/// Starts a watch and waits until it has caught up.
pub fn watch(addresses: &str, filter: &str) -> Process {
    let watch = Process::spawn(&mut convoke(&["watch", filter, "--json", "--timeout", "30s", "--addr", addresses]));
    watch.line("caught-up", |line| line.contains("caught-up"));
    watch
}

pub fn register(addresses: &str, id: &str, arguments: &[&str]) -> Process {
    let mut all = vec!["register", "--timeout", "30s", "--addr", addresses, "--id", id, "--service", "web"];
    all.extend(arguments);
    Process::spawn(&mut convoke(&all))
}

/// Starts a registration and waits until it is complete.
pub fn registered(addresses: &str, id: &str) -> Process {
    let process = register(addresses, id, &[]);
    process.line("is registered", |line| line.contains("is registered"));
    process
}

#[track_caller]
pub fn fails(arguments: &[&str], code: i32) -> String {
    failure(&convoke(arguments).output().unwrap(), code)
}

/// Checks for one sentence on stderr, no stdout and this exit code. Returns the sentence.
#[track_caller]
pub fn failure(output: &Output, code: i32) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let sentence = stderr.strip_prefix("convoke: ").unwrap_or_else(|| panic!("{stderr:?}")).trim_end();
    assert!(!sentence.contains('\n'), "{sentence:?}");
    sentence.to_owned()
}
