//! Network partitions: every node is a separate host, and packets are dropped silently.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
#![allow(clippy::disallowed_methods, reason = "the tests sleep while a fault lasts")]

mod support;

use convoke_testkit::{Process, ProcessCluster, measured, until};
use serde_json::Value;
use std::time::{Duration, Instant};
use support::seen::Seen;
use support::{network, plan};

const FILTER: &str = "service == \"web\"";
/// Longer than the heartbeat timeout of these nodes.
const LONG: Duration = Duration::from_secs(9);

/// Three nodes, each with one client and one watcher on its own host.
struct Setup {
    _clients: Vec<Process>,
    seen: Vec<Seen>,
    cluster: ProcessCluster,
    _dir: tempfile::TempDir,
}

impl Setup {
    fn set(test: &str) -> Option<Setup> {
        let network = network(test, 3)?;
        let dir = tempfile::tempdir().unwrap();
        let cluster = plan(dir.path()).on(network).start_at_once(3).unwrap();
        let clients = (0..3).map(|index| register(&cluster, index, &format!("web-{}", index + 1))).collect();
        let seen: Vec<Seen> = (0..3).map(|index| Seen::at(&cluster, index, FILTER)).collect();
        seen.iter().for_each(|seen| seen.all_up(3));
        Some(Setup { _clients: clients, seen, cluster, _dir: dir })
    }

    fn state(&self, at: usize, of: usize) -> String {
        self.cluster.state(at, of).unwrap()
    }

    /// Returns the ids of members shown as up at a node.
    fn up(&self, at: usize) -> Vec<String> {
        let answer = self.cluster.ask(at, &["members", &format!("{FILTER} and status == \"up\"")]).unwrap();
        let id = |member: &Value| member["id"].as_str().unwrap().to_owned();
        answer["members"].as_array().unwrap().iter().map(id).collect()
    }

    fn equal(&self) -> bool {
        let members = |at: usize| self.cluster.ask(at, &["members", FILTER]).unwrap()["members"].clone();
        let first = members(0);
        first.as_array().unwrap().iter().all(|member| member["status"] == "up") && (1..3).all(|at| members(at) == first)
    }

    /// Heals the network and waits until all nodes show the same members.
    fn heal(&self, what: &str) {
        self.cluster.network().heal();
        let healed = Instant::now();
        until("all nodes show the same", || self.equal());
        let took = healed.elapsed().as_secs_f64();
        measured(&format!("{what}: equal {took:.1} s after the network was healed"));
        self.cluster.wait_meshed();
    }
}

fn register(cluster: &ProcessCluster, index: usize, id: &str) -> Process {
    let arguments = ["register", "--timeout", "30s", "--id", id, "--service", "web", "--addr", cluster.clients(index)];
    let process = Process::spawn(&mut cluster.command(index, arguments));
    process.line("is registered", |line| line.contains("is registered"));
    process
}

///
#[test]
fn two_nodes_cut_from_each_other_converge_through_the_third() {
    let Some(setup) = Setup::set("two_nodes_cut_from_each_other_converge_through_the_third") else { return };
    setup.cluster.network().cut(0, 1);
    until("both notice", || setup.state(0, 1) != "up" && setup.state(1, 0) != "up");
    let _fourth = register(&setup.cluster, 0, "web-4");
    let _fifth = register(&setup.cluster, 1, "web-5");
    setup.seen.iter().for_each(|seen| seen.all_up(5));
    // Neither node considers the other dead, because the third one receives from both.
    std::thread::sleep(LONG);
    setup.seen.iter().for_each(Seen::assert_undisturbed);
    setup.heal("partition between two nodes");
    setup.seen.iter().for_each(Seen::assert_undisturbed);
}

/// both sides serve clients, and no member flaps on the side that its client could always reach.
#[test]
fn a_split_heals_without_a_flap() {
    let Some(setup) = Setup::set("a_split_heals_without_a_flap") else { return };
    setup.cluster.network().split(&[0]);
    until("one side shows the other as down", || setup.up(0) == ["web-1"] && setup.up(1) == ["web-2", "web-3"]);
    // Both sides accept registrations.
    let _fourth = register(&setup.cluster, 0, "web-4");
    let _fifth = register(&setup.cluster, 2, "web-5");
    until("their own side sees them", || {
        setup.up(0).contains(&"web-4".into()) && setup.up(1).contains(&"web-5".into())
    });
    setup.heal("split");
    setup.seen.iter().for_each(|seen| seen.all_up(5));
    for (index, own) in
        [(0, ["web-1", "web-4"].as_slice()), (1, &["web-2", "web-3", "web-5"]), (2, &["web-2", "web-3", "web-5"])]
    {
        for event in setup.seen[index].events() {
            let about_own = own.iter().any(|id| event["member"]["id"] == *id || event["id"] == *id);
            let bad = event["member"]["status"] == "down" || event["event"] == "unregister";
            assert!(!(about_own && bad), "n{} saw {event}", index + 1);
        }
    }
}

/// the loss of one direction is enough to lose a link; the third node receives from both.
#[test]
fn a_one_way_partition_is_detected_and_makes_no_member_down() {
    let Some(setup) = Setup::set("a_one_way_partition_is_detected_and_makes_no_member_down") else { return };
    setup.cluster.network().cut_one_way(0, 1);
    until("both notice", || setup.state(0, 1) != "up" && setup.state(1, 0) != "up");
    let _fourth = register(&setup.cluster, 0, "web-4");
    setup.seen.iter().for_each(|seen| seen.all_up(4));
    std::thread::sleep(LONG);
    setup.seen.iter().for_each(Seen::assert_undisturbed);
    setup.heal("one-way partition");
    setup.seen.iter().for_each(Seen::assert_undisturbed);
}

/// All nodes lose each other for longer than any timeout and return without an operator.
#[test]
fn nodes_that_all_lost_each_other_return() {
    let Some(setup) = Setup::set("nodes_that_all_lost_each_other_return") else { return };
    (0..3).for_each(|host| setup.cluster.network().split(&[host]));
    let alone = |at: usize| setup.up(at) == [format!("web-{}", at + 1)];
    until("every node is alone", || (0..3).all(alone));
    // Long enough for the members to expire on the other sides if they did not return.
    std::thread::sleep(LONG);
    setup.heal("total partition");
    for (index, seen) in setup.seen.iter().enumerate() {
        seen.all_up(3);
        let own = format!("web-{}", index + 1);
        let flapped = |event: &Value| event["member"]["id"] == own && event["member"]["status"] == "down";
        assert!(!seen.events().iter().any(flapped), "a node never reports its own clients as down");
    }
}

/// A client that loses the path to its node, which other nodes still reach, connects to another node without a `down`.
#[test]
fn a_client_that_loses_the_path_to_its_node_uses_another() {
    let Some(network) = network("a_client_that_loses_the_path_to_its_node_uses_another", 3) else { return };
    let dir = tempfile::tempdir().unwrap();
    let cluster = plan(dir.path()).on(network).start(2).unwrap();
    let seen = Seen::at(&cluster, 1, FILTER);
    let network = cluster.network();
    let mut command = network.command(2, support::binary());
    command.args(["register", "--id", "web-1", "--service", "web", "--addr", cluster.clients(0)]);
    let client = Process::spawn(&mut command);
    seen.all_up(1);
    network.cut(2, 0);
    until("it is at the other node", || seen.view()["web-1"]["owner"]["node"] == "n2");
    std::thread::sleep(LONG);
    seen.assert_undisturbed();
    drop(client);
}
