//! `convoke cluster`: local clusters with fault injection (docs/demo-and-clusters.md).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{Process, until};
use serde_json::{Value, json};
use support::http::request;
use support::lab::World;

/// Short timers for tests that wait for them.
const QUICK: &[&str] = &[
    "--set",
    "timers.ping_interval=100ms",
    "--set",
    "timers.ping_timeout=1s",
    "--set",
    "timers.peer_retry_interval=200ms",
];

#[track_caller]
fn create(world: &World, name: &str, nodes: &str) -> Value {
    let mut arguments = vec!["create", name, "--nodes", nodes];
    arguments.extend(QUICK);
    world.json(&arguments)
}

fn post(world: &World, path: &str, body: &Value) -> (u16, String) {
    let (address, body) = (format!("127.0.0.1:{}", world.port), body.to_string());
    let length = body.len();
    let text = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    let answer = String::from_utf8(support::http::raw(&address, text.as_bytes())).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn health(world: &World, arguments: &[&str]) -> (bool, Value) {
    let mut all = vec!["health", "--json"];
    all.extend(arguments);
    let output = world.run(&all);
    (output.status.success(), serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}")))
}

#[test]
fn create_partition_health_heal_delete() {
    let world = World::new();
    let created = create(&world, "local", "3");
    assert_eq!(created["nodes"].as_array().unwrap().len(), 3, "{created}");
    let (healthy, report) = health(&world, &["--wait", "30s"]);
    assert!(healthy, "{report}");
    assert_eq!(report["members"], 3, "the nodes themselves");

    // A change that only one side of the partition receives.
    world.json(&["fault", "partition", "n1"]);
    let n1 = created["nodes"][0]["address"].as_str().unwrap();
    let member = support::register(n1, "web-1", &[]);
    member.line("registered", |line| line.contains("web-1"));
    until("the partition is detected and views differ", || {
        let (healthy, report) = health(&world, &[]);
        let problems = report["problems"].to_string();
        !healthy && report["equal"] == false && problems.contains("n2 sees n1 as") && problems.contains("n1 sees n3 as")
    });
    let (_, report) = health(&world, &[]);
    assert_eq!(report["differences"]["web-1"]["n2"], Value::Null, "{report}");
    assert_eq!(world.json(&["info"])["faults"].as_array().unwrap().len(), 4);

    world.json(&["fault", "heal"]);
    let (healthy, report) = health(&world, &["--wait", "30s"]);
    assert!(healthy && report["members"] == 4, "{report}");
    drop(member);
    assert_eq!(world.json(&["delete"]), json!({ "deleted": ["local"] }));
    world.nothing_left();
}

/// The first node that starts again reaches no other node, so it is not ready yet; the cluster is complete afterwards.
#[test]
fn a_dead_cluster_is_started_again() {
    let world = World::new();
    create(&world, "dead", "3");
    for command in ["kill", "restart"] {
        for node in ["n1", "n2", "n3"] {
            world.json(&["fault", command, node]);
        }
    }
    let (healthy, report) = health(&world, &["--wait", "60s"]);
    assert!(healthy, "{report}");
    world.json(&["delete", "dead"]);
    world.nothing_left();
}

/// The log of a local cluster survives the loss of its first node, and a removed node leaves the group.
#[test]
fn the_log_has_three_voters() {
    let world = World::new();
    let created = create(&world, "log", "4");
    let address = |node: usize| created["nodes"][node]["address"].as_str().unwrap().to_owned();
    let voters = |node: usize| {
        let printed = support::output(&["log", "status", "--json", "--timeout", "30s", "--addr", &address(node)]);
        let status = serde_json::from_str::<Value>(&printed).unwrap();
        let mut voters: Vec<String> = serde_json::from_value(status["voters"].clone()).unwrap();
        voters.sort();
        voters
    };
    assert_eq!(voters(0), ["n1", "n2", "n3"]);
    world.json(&["fault", "kill", "n1"]);
    let put = ["kv", "put", "k", "v", "--timeout", "60s", "--addr", &address(1)];
    assert_eq!(support::output(&put), "revision 1\n");
    world.json(&["fault", "restart", "n1"]);
    world.json(&["remove", "n3"]);
    until("n4 votes in its place", || voters(1) == ["n1", "n2", "n4"]);
    world.json(&["delete", "log"]);
    world.nothing_left();
}

/// If one node holds the only replica, the log moves to another node before the removal. If that is impossible, the
/// node stays unless the removal is forced.
#[test]
fn the_log_survives_the_removal_of_its_only_replica() {
    let world = World::new();
    let created = create(&world, "pair", "2");
    let address = |node: usize| created["nodes"][node]["address"].as_str().unwrap().to_owned();
    let at = |arguments: &[&str], address: &str| {
        support::output(&[arguments, &["--timeout", "60s", "--addr", address]].concat())
    };
    at(&["kv", "put", "k", "kept"], &address(0));
    world.json(&["remove", "n1"]);
    assert_eq!(at(&["kv", "get", "k", "--raw"], &address(1)), "kept");

    let added = world.json(&["add"]);
    world.json(&["fault", "kill", "n2"]);
    world.json(&["fault", "pause", "n3"]);
    let (exit, printed) = world.rejected(&["remove", "n2"]);
    let unreachable_address =
        "the voters of the log of pair are unknown (no answer from n2, n3), and n2 may be the only one";
    assert!(exit == 5 && printed.contains(unreachable_address), "{printed}");
    world.json(&["fault", "resume", "n3"]);
    let (exit, printed) = world.rejected(&["remove", "n2"]);
    assert!(
        exit == 5
            && printed.contains("n2 is the only voter of the log of pair")
            && printed.contains("n2 is not running"),
        "{printed}"
    );
    let left = world.json(&["remove", "n2", "--force"]);
    assert_eq!(left, json!({ "removed": "n2" }), "{added}");
    world.json(&["delete", "pair"]);
    world.nothing_left();
}

/// If the successor cannot take over, the removed node still leaves the group, where its vote would be missing.
#[test]
fn a_removed_node_loses_its_vote_even_without_a_successor() {
    let world = World::new();
    let created = create(&world, "four", "4");
    let n1 = created["nodes"][0]["address"].as_str().unwrap();
    let at_n1 = |arguments: &[&str]| support::output(&[arguments, &["--timeout", "60s", "--addr", n1]].concat());
    // It still holds a replica and is rejected as a new one.
    at_n1(&["log", "remove", "n3"]);
    world.json(&["remove", "n2"]);
    let status: Value = serde_json::from_str(&at_n1(&["log", "status", "--json"])).unwrap();
    let mut voters: Vec<String> = serde_json::from_value(status["voters"].clone()).unwrap();
    voters.sort();
    assert_eq!(voters, ["n1", "n4"], "n3 is skipped");
    assert_eq!(at_n1(&["kv", "put", "k", "v"]), "revision 1\n");
    world.json(&["delete", "four"]);
    world.nothing_left();
}

#[test]
fn faults_are_injected_and_nodes_are_added_and_removed() {
    let world = World::new();
    create(&world, "lab", "3");
    assert!(health(&world, &["--wait", "30s"]).0);
    let reports = |what: &str| {
        until(what, || {
            let (healthy, report) = health(&world, &[]);
            !healthy && report["problems"].to_string().contains(what)
        });
    };
    world.json(&["fault", "pause", "n2"]);
    reports("n2 is paused");
    reports("n1 sees n2 as");
    world.json(&["fault", "resume", "n2"]);
    assert!(health(&world, &["--wait", "30s"]).0);

    world.json(&["fault", "kill", "n3"]);
    reports("n3 is dead");
    let (exit, printed) = world.rejected(&["fault", "pause", "n3"]);
    assert_eq!((exit, printed.as_str()), (5, "convoke: n3 is not running: start it with restart"));
    world.json(&["fault", "restart", "n3"]);
    assert!(health(&world, &["--wait", "30s"]).0);

    // Only messages from n1 to n2 are lost: n2 detects it first.
    world.json(&["fault", "one-way", "n1", "n2"]);
    reports("n2 sees n1 as");
    world.json(&["fault", "heal", "n1", "n2"]);
    world.json(&["fault", "blackhole", "n1"]);
    reports("n3 sees n1 as");
    world.json(&["fault", "heal"]);
    let delayed = world.json(&["fault", "delay", "50ms"]);
    assert_eq!(delayed["faults"].as_array().unwrap().len(), 6, "{delayed}");
    world.json(&["fault", "drop"]);
    assert!(health(&world, &["--wait", "30s"]).0, "a slow cluster is healthy");

    let added = world.json(&["add", "lab", "--region", "eu"]);
    assert_eq!((&added["id"], &added["region"]), (&json!("n4"), &json!("eu")));
    assert!(health(&world, &["--wait", "30s"]).0);
    world.json(&["remove", "n4"]);
    world.json(&["remove", "n3"]);
    assert!(health(&world, &["--wait", "30s"]).0, "a removed node is not missing");
    world.json(&["delete", "lab"]);
    world.nothing_left();
}

#[test]
fn several_clusters_and_prometheus_targets() {
    let world = World::new();
    let one = create(&world, "one", "1");
    let two = world.json(&["create", "two", "--nodes", "2", "--region", "eu,us"]);
    assert_ne!(one["nodes"][0]["address"], two["nodes"][0]["address"]);
    assert_eq!(two["nodes"][1]["region"], "us");
    let manager = format!("127.0.0.1:{}", world.port);
    let targets = |name: &str| {
        let raw =
            format!("GET /clusters/{name}/sd/prometheus HTTP/1.1\r\nhost: {manager}\r\nconnection: close\r\n\r\n");
        let answer = String::from_utf8(support::http::raw(&manager, raw.as_bytes())).unwrap();
        serde_json::from_str::<Value>(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let found = targets("two");
    assert_eq!(found[1]["labels"], json!({ "cluster": "two", "node": "n2", "region": "us" }));
    let target = found[0]["targets"][0].as_str().unwrap();
    assert!(support::http::metric(target, "convoke_ready") > 0.0, "a target is scraped at /metrics");

    let (exit, printed) = world.rejected(&["info"]);
    assert_eq!((exit, printed.as_str()), (2, "convoke: several clusters exist: name one of one, two"));
    assert_eq!(world.json(&["list"])["clusters"].as_array().unwrap().len(), 2);
    world.json(&["delete", "one"]);
    assert_eq!(world.json(&["list"])["clusters"][0]["name"], "two", "the other one stays");
    world.json(&["delete", "--all"]);
    world.nothing_left();
}

#[test]
fn clients_are_added_and_removed() {
    let world = World::new();
    create(&world, "clients", "2");
    let info = world.json(&["clients", "6", "--service", "orders"]);
    assert_eq!(info["clients"], json!({ "orders": 6 }));
    world.json(&["clients", "1"]);
    let (healthy, report) = health(&world, &["--wait", "30s"]);
    assert!(healthy && report["members"] == 9, "{report}");
    let nodes: std::collections::BTreeSet<String> = {
        let address = info["nodes"][0]["address"].as_str().unwrap();
        let members = support::output(&["members", "service == \"orders\"", "--json", "--addr", address]);
        let members: Value = serde_json::from_str(&members).unwrap();
        members["members"].as_array().unwrap().iter().map(|member| member["owner"]["node"].to_string()).collect()
    };
    assert_eq!(nodes.len(), 2, "they are spread over the nodes");
    let info = world.json(&["clients", "2", "--service", "orders"]);
    assert_eq!(info["clients"], json!({ "orders": 2, "web": 1 }));
    let (healthy, report) = health(&world, &["--wait", "30s"]);
    assert!(healthy && report["members"] == 5, "unregistrations arrive immediately: {report}");
    assert_eq!(world.json(&["clients", "0"])["clients"], json!({ "orders": 2 }));
    let (exit, printed) = world.rejected(&["clients", "2000"]);
    assert_eq!((exit, printed.as_str()), (2, "convoke: 2002 clients: a cluster has at most 1000"));
    let (exit, printed) = world.rejected(&["clients", "1", "--service", ""]);
    assert!(exit == 2 && printed.contains("service"), "{exit} {printed}");
    world.json(&["delete"]);
    world.nothing_left();
}

#[test]
fn invalid_input_is_rejected_and_the_manager_keeps_running() {
    let world = World::new();
    let rejected = |arguments: &[&str]| world.rejected(arguments);
    let none = "convoke: no clusters: create one with `convoke cluster create`";
    assert_eq!(rejected(&["info"]), (4, none.to_owned()));
    assert_eq!(rejected(&["delete", "x"]), (4, none.to_owned()));
    assert!(rejected(&["create", "../x"]).1.contains("is not a valid cluster name"));
    assert_eq!(rejected(&["create", "x", "--set", "data_dir=/tmp/x"]).0, 2);
    let (exit, printed) = rejected(&["create", "x", "--nodes", "33"]);
    assert_eq!((exit, printed.as_str()), (2, "convoke: 33 nodes: use 1 to 32"));
    let (exit, printed) = rejected(&["create", "x", "--set", "timers.ping_timeout=yes"]);
    assert!(exit == 1 && printed.contains("timers.ping_timeout"), "{exit} {printed}");
    world.nothing_left();

    create(&world, "a", "1");
    assert_eq!(rejected(&["create", "a"]).0, 5);
    let (exit, printed) = rejected(&["info", "b"]);
    assert_eq!((exit, printed.as_str()), (4, "convoke: no cluster \"b\": use one of a"));
    let (exit, printed) = rejected(&["fault", "kill", "n9"]);
    assert_eq!((exit, printed.as_str()), (4, "convoke: cluster a has no node \"n9\": there are n1"));
    assert!(rejected(&["fault", "partition", "n1"]).1.contains("all nodes are in one group"));
    assert!(rejected(&["fault", "one-way", "n1", "n1"]).1.contains("from itself"));
    assert!(rejected(&["remove", "n1"]).1.contains("is the last node"));
    assert_eq!(rejected(&["fault", "delay", "2m"]).0, 2);
    assert_eq!(rejected(&["fault", "restart", "n1"]).0, 5);

    // The HTTP interface itself.
    let manager = format!("127.0.0.1:{}", world.port);
    assert_eq!(post(&world, "/clusters", &json!({ "name": "b", "color": 1 })).0, 400);
    assert_eq!(post(&world, "/clusters/a/faults", &json!({ "fault": "flood" })).0, 400);
    assert_eq!(request(&manager, "GET", "/nothing", "").0, 403, "host: x is not this machine");
    let evil = format!(
        "POST /clusters HTTP/1.1\r\nhost: {manager}\r\norigin: http://evil.example\r\nconnection: close\r\n\r\n"
    );
    let answer = String::from_utf8(support::http::raw(&manager, evil.as_bytes())).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    support::http::raw(&manager, b"\x00\xffnonsense\r\n\r\n");
    assert_eq!(world.json(&["list"])["clusters"][0]["name"], "a");
    world.json(&["delete"]);
    world.nothing_left();
}

#[test]
fn a_port_of_another_service_is_reported() {
    let world = World::new();
    let node = support::start(world.dir.path(), &["--id", "other"]);
    let mut node = node;
    let node = convoke_testkit::TestNode::spawn(&mut node).ready();
    let port = node.clients.rsplit_once(':').unwrap().1;
    for arguments in [vec!["list"], vec!["create"], vec!["delete"]] {
        let mut command = world.command(&["cluster", "--port", port]);
        let output = command.args(&arguments).output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{printed}");
        assert!(printed.contains("another service than a cluster manager"), "{printed}");
    }
}

#[test]
fn a_killed_manager_ends_its_nodes_and_the_next_command_cleans_up() {
    let world = World::new();
    let mut serve = world.spawn(&mut world.cluster(&["serve"]));
    serve.line("the manager", |line| line.contains("cluster manager"));
    create(&world, "a", "2");
    // A paused node ends as well.
    world.json(&["fault", "pause", "n2"]);
    serve.kill();
    drop(serve);
    assert_eq!(world.json(&["list"])["clusters"], json!([]));
    world.nothing_left();
}

#[test]
fn an_interrupted_manager_ends_its_clusters() {
    let world = World::new();
    let mut serve: Process = world.spawn(&mut world.cluster(&["serve"]));
    serve.line("the manager", |line| line.contains("cluster manager"));
    create(&world, "a", "2");
    world.json(&["delete"]);
    assert_eq!(world.json(&["list"])["clusters"], json!([]), "no clusters remain");
    create(&world, "b", "1");
    serve.interrupt();
    assert!(serve.wait().success(), "{}", serve.stderr());
    drop(serve);
    world.nothing_left();
}
