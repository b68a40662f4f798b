//! `convoke drain` with an end, and with `--wait`, at real processes (C21).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::{Client, MemberSpec, Update};
use convoke_testkit::{ProcessCluster, until};
use serde_json::Value;
use std::process::Output;
use support::fleet::Fleet;
use support::patient_plan;

fn drain(cluster: &ProcessCluster, index: usize, arguments: &[&str]) -> Output {
    let address = cluster.clients(index).to_owned();
    let command = ["drain", "--json", "--addr", address.as_str()].into_iter().chain(arguments.iter().copied());
    cluster.command(index, command).output().unwrap()
}

fn answer(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn drained(cluster: &ProcessCluster, index: usize, id: &str) -> bool {
    cluster.ask(index, &["member", id]).is_ok_and(|member| member["drained"] == true)
}

/// The node that took the command is killed; the drain of a member without a client ends at the node that owns it then.
#[test]
fn a_drain_ends_although_the_node_that_took_the_command_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = patient_plan(dir.path()).start_at_once(3).unwrap();
    cluster.ask(0, &["service", "register", "--id", "db-1", "--service", "db"]).unwrap();
    for index in 0..3 {
        until("all nodes have the member", || cluster.ask(index, &["member", "db-1"]).is_ok());
    }
    answer(&drain(&cluster, 2, &["db-1", "--for", "8s", "--reason", "new disk"]));
    until("it is drained", || drained(&cluster, 0, "db-1"));
    let member = cluster.ask(0, &["member", "db-1"]).unwrap();
    assert_eq!(member["maintenance"]["reason"], "new disk", "{member}");
    let explained = cluster.ask(0, &["explain", "db-1"]).unwrap();
    assert!(explained["maintenance"]["remaining_ms"].as_u64().unwrap() <= 8_000, "{explained}");
    cluster.kill(2);
    until("it is undrained", || !drained(&cluster, 0, "db-1") && !drained(&cluster, 1, "db-1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_waits_for_reported_connections() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = patient_plan(dir.path()).start(1).unwrap();
    let client = Client::builder().seeds([cluster.clients(0)]).build().unwrap();
    let spec = |id: &str| MemberSpec::new(id, "web");
    let _silent = client.register(spec("silent")).await.unwrap();
    let busy = client.register(spec("busy").metadata("connections", "12")).await.unwrap();

    // Without a report, the grace decides.
    let output = drain(&cluster, 0, &["silent", "--wait", "--grace", "1s"]);
    assert_eq!(answer(&output)["connections"], Value::Null);
    let output = drain(&cluster, 0, &["busy", "--wait", "--grace", "1s"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("member \"busy\" has 12 connections after 1s"), "{stderr}");
    assert!(drained(&cluster, 0, "busy"), "it stays drained");
    busy.update(Update::merge().set("connections", "0")).await.unwrap();
    let output = drain(&cluster, 0, &["busy", "--wait", "--grace", "60s"]);
    assert_eq!(answer(&output)["connections"], 0);
    assert_eq!(drain(&cluster, 0, &["unknown", "--wait"]).status.code(), Some(4));
    assert_eq!(drain(&cluster, 0, &["busy", "--grace", "1s"]).status.code(), Some(2), "--grace needs --wait");
}

/// The sessions of a drained node move to the others. A single node cannot give them to anybody.
#[tokio::test(flavor = "multi_thread")]
async fn drain_waits_until_the_sessions_of_a_node_have_moved() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = patient_plan(dir.path()).start(1).unwrap();
    let fleet = Fleet::start("web", 20, cluster.clients(0)).await;
    let output = drain(&cluster, 0, &["--node", "--wait", "--grace", "3s"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("node \"n1\" has 20 sessions after 3s"), "{stderr}");
    let added = cluster.add().unwrap();
    until("the new node is linked", || cluster.state(0, added).is_ok_and(|state| state == "up"));
    // Asked at the other node, too.
    let output = drain(&cluster, added, &["--node", "n1", "--wait", "--grace", "60s"]);
    assert_eq!(answer(&output)["connections"], 0);
    fleet.all_elsewhere("n1").await;
    fleet.assert_none_lost();
}
