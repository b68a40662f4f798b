//! Networks that are cut: every node a host of its own, packets lost without a word.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{Process, ProcessCluster, until};
use serde_json::Value;
use std::time::{Duration, Instant};
use support::seen::Seen;
use support::{network, plan};

const FILTER: &str = "service == \"web\"";
/// Longer than the heartbeat timeout of these nodes.
const LONG: Duration = Duration::from_secs(9);

/// Three nodes, each with one client on its own host, and somebody who watches at each.
struct Stage {
    _clients: Vec<Process>,
    seen: Vec<Seen>,
    cluster: ProcessCluster,
    _dir: tempfile::TempDir,
}

impl Stage {
    fn set(test: &str) -> Option<Stage> {
        let network = network(test, 3)?;
        let dir = tempfile::tempdir().unwrap();
        let cluster = plan(dir.path()).on(network).start_at_once(3).unwrap();
        let clients = (0..3).map(|index| register(&cluster, index, &format!("web-{}", index + 1))).collect();
        let seen: Vec<Seen> = (0..3).map(|index| Seen::at(&cluster, index, FILTER)).collect();
        seen.iter().for_each(|seen| seen.all_up(3));
        Some(Stage { _clients: clients, seen, cluster, _dir: dir })
    }

    fn state(&self, at: usize, of: usize) -> String {
        self.cluster.state(at, of).unwrap()
    }

    /// Ids of members shown as up at a node.
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

    /// Heals the network and waits until all nodes show the same; prints how long that took.
    fn heal(&self, what: &str) {
        self.cluster.network().heal();
        let healed = Instant::now();
        until("all nodes show the same", || self.equal());
        println!("{what}: equal {:.1} s after the network was healed", healed.elapsed().as_secs_f64());
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
    let Some(stage) = Stage::set("two_nodes_cut_from_each_other_converge_through_the_third") else { return };
    stage.cluster.network().cut(0, 1);
    until("both notice", || stage.state(0, 1) != "up" && stage.state(1, 0) != "up");
    let _fourth = register(&stage.cluster, 0, "web-4");
    let _fifth = register(&stage.cluster, 1, "web-5");
    stage.seen.iter().for_each(|seen| seen.all_up(5));
    // Neither takes the other for dead: the third hears both.
    std::thread::sleep(LONG);
    stage.seen.iter().for_each(Seen::nothing_bad);
    stage.heal("A-B cut");
    stage.seen.iter().for_each(Seen::nothing_bad);
}

/// both sides serve, and nobody flaps on the side that could always see him.
#[test]
fn a_split_heals_without_a_flap() {
    let Some(stage) = Stage::set("a_split_heals_without_a_flap") else { return };
    stage.cluster.network().split(&[0]);
    until("one side shows the other as down", || stage.up(0) == ["web-1"] && stage.up(1) == ["web-2", "web-3"]);
    // Both sides take registrations.
    let _fourth = register(&stage.cluster, 0, "web-4");
    let _fifth = register(&stage.cluster, 2, "web-5");
    until("their own side sees them", || {
        stage.up(0).contains(&"web-4".into()) && stage.up(1).contains(&"web-5".into())
    });
    stage.heal("split");
    stage.seen.iter().for_each(|seen| seen.all_up(5));
    for (index, own) in
        [(0, ["web-1", "web-4"].as_slice()), (1, &["web-2", "web-3", "web-5"]), (2, &["web-2", "web-3", "web-5"])]
    {
        for event in stage.seen[index].events() {
            let about_own = own.iter().any(|id| event["member"]["id"] == *id || event["id"] == *id);
            let bad = event["member"]["status"] == "down" || event["event"] == "unregister";
            assert!(!(about_own && bad), "n{} saw {event}", index + 1);
        }
    }
}

/// one direction is enough to lose a link; the third node hears both.
#[test]
fn a_one_way_cut_is_noticed_and_takes_nobody_down() {
    let Some(stage) = Stage::set("a_one_way_cut_is_noticed_and_takes_nobody_down") else { return };
    stage.cluster.network().cut_one_way(0, 1);
    until("both notice", || stage.state(0, 1) != "up" && stage.state(1, 0) != "up");
    let _fourth = register(&stage.cluster, 0, "web-4");
    stage.seen.iter().for_each(|seen| seen.all_up(4));
    std::thread::sleep(LONG);
    stage.seen.iter().for_each(Seen::nothing_bad);
    stage.heal("one-way cut");
    stage.seen.iter().for_each(Seen::nothing_bad);
}

/// Everyone loses everyone, for longer than anybody waits, and all return: no operator is needed.
#[test]
fn everyone_lost_and_everyone_back() {
    let Some(stage) = Stage::set("everyone_lost_and_everyone_back") else { return };
    (0..3).for_each(|host| stage.cluster.network().split(&[host]));
    let alone = |at: usize| stage.up(at) == [format!("web-{}", at + 1)];
    until("everyone is alone", || (0..3).all(alone));
    // Down long enough to be gone on the other sides, were it not for the return.
    std::thread::sleep(LONG);
    stage.heal("everyone lost");
    for (index, seen) in stage.seen.iter().enumerate() {
        seen.all_up(3);
        let own = format!("web-{}", index + 1);
        let flapped = |event: &Value| event["member"]["id"] == own && event["member"]["status"] == "down";
        assert!(!seen.events().iter().any(flapped), "a node never doubts its own clients");
    }
}

/// A client whose way to its node is cut, not the node's to others: it goes elsewhere, and nobody sees a `down`.
#[test]
fn a_client_cut_from_its_node_goes_elsewhere() {
    let Some(network) = network("a_client_cut_from_its_node_goes_elsewhere", 3) else { return };
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
    seen.nothing_bad();
    drop(client);
}
