//! Nodes that form a cluster with `--join` alone.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::until;
use support::patient_plan;
use support::seen::Seen;

#[test]
fn three_nodes_by_join_alone() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = patient_plan(dir.path()).start(3).unwrap();
    let _web = support::registered(cluster.clients(2), "web-1");
    for index in 0..3 {
        until("every node knows the member", || cluster.ask(index, &["member", "web-1"]).is_ok());
    }
}

/// All three start at once with the same list, which includes their own address.
#[test]
fn three_at_once_with_the_same_list() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = patient_plan(dir.path()).start_at_once(3).unwrap();
    let seen = Seen::at(&cluster, 0, "service == \"convoke\"");
    seen.all_up(3);
    // One node becomes ready first; the other two wait for it.
    let alone = |index: &usize| cluster.node(*index).process.stderr().contains("node ready first=true");
    assert_eq!((0..3).filter(alone).count(), 1);
}
