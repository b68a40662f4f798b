//! Watchers whose machine vanished without a word: the node notices within a minute and frees their places.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{Process, until};
use support::{network, plan};

#[test]
fn watchers_behind_a_cut_network_are_noticed_within_a_minute() {
    let Some(network) = network("watchers_behind_a_cut_network_are_noticed_within_a_minute", 2) else { return };
    let dir = tempfile::tempdir().unwrap();
    let cluster = plan(dir.path()).on(network).start(2).unwrap();
    let watchers = || cluster.ask(0, &["status"]).unwrap()["counts"]["watchers"].as_u64().unwrap();
    let (host, port) = cluster.clients(0).rsplit_once(':').unwrap();
    let request = "GET /api/v1/watch HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n";
    let script = format!("exec 3<>/dev/tcp/{host}/{port}; printf '{request}' >&3; cat <&3");
    let http = Process::spawn(cluster.network().command(1, "bash").args(["-c", &script]));
    http.line("caught-up", |line| line.contains("caught-up"));
    let grpc = Process::spawn(&mut cluster.command(1, ["watch", "--json", "--addr", cluster.clients(0)]));
    grpc.line("caught-up", |line| line.contains("caught-up"));
    until("both are counted", || watchers() == 2);
    // Packets are dropped silently: no end of the connection arrives.
    cluster.network().cut(0, 1);
    until("the places of both are free", || watchers() == 0);
}
