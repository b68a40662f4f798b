//! Sessions of SDK clients spread over three nodes after a restart (R-33, N10).
//!
//! `CLIENTS=3000 cargo test --release -p convoke --test rebalancing -- --nocapture` runs the full test with the default
//! timers and prints the spread over time. Without the variable the number of clients is smaller.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{ProcessCluster, measured};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};
use support::fleet::Fleet;
use support::seen::Seen;
use support::{binary, patient_plan};

const CLIENTS: usize = 60;
/// How long the spread may take, and how long nothing may move afterwards.
const PATIENCE: Duration = Duration::from_secs(90);
const REST: Duration = Duration::from_secs(10);
const WHOLE_PATIENCE: Duration = Duration::from_secs(600);
const WHOLE_REST: Duration = Duration::from_secs(30);

fn cluster(dir: &Path, whole: bool) -> ProcessCluster {
    let plan = if whole { ProcessCluster::plan(binary(), dir) } else { patient_plan(dir) };
    plan.start(3).unwrap()
}

/// The sessions of each node, as the first one shows them.
fn spread(cluster: &ProcessCluster) -> Vec<u64> {
    let nodes = cluster.ask(0, &["nodes"]).unwrap();
    nodes["nodes"].as_array().unwrap().iter().map(|node| node["sessions"].as_u64().unwrap()).collect()
}

/// Sessions that the first node has asked to move, and those that came back.
fn asked(cluster: &ProcessCluster, index: usize) -> u64 {
    let text = support::http::request(cluster.clients(index), "GET", "/metrics", "").1;
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value("convoke_registry_sessions_rebalanced_total ").unwrap_or(0)
}

struct Progress {
    began: Instant,
    last: Vec<u64>,
}

impl Progress {
    /// Prints the spread if it has changed.
    fn show(&mut self, cluster: &ProcessCluster) -> Vec<u64> {
        let now = spread(cluster);
        if now != self.last {
            measured(&format!("{:6.1} s: {now:?}", self.began.elapsed().as_secs_f64()));
            self.last.clone_from(&now);
        }
        now
    }
}

/// Waits until no node is above its share by more than the slack, and requires that nothing moves after that.
async fn comes_to_rest(cluster: &ProcessCluster, total: usize, whole: bool) {
    let (patience, rest) = if whole { (WHOLE_PATIENCE, WHOLE_REST) } else { (PATIENCE, REST) };
    // `convoke watch` has a session, too.
    let total = total as u64 + 1;
    let share = total.div_ceil(3);
    let highest = share + (share / 10).max(2);
    let even = |spread: &[u64]| {
        spread.len() == 3 && spread.iter().sum::<u64>() == total && spread.iter().all(|held| *held <= highest)
    };
    let mut progress = Progress { began: Instant::now(), last: Vec::new() };
    while !even(&progress.show(cluster)) {
        assert!(progress.began.elapsed() < patience, "not even after {patience:?}: {:?}", progress.last);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    measured(&format!("even after {:.1} s", progress.began.elapsed().as_secs_f64()));
    // A node that is above its share by less than the slack may still be on its way down.
    tokio::time::sleep(rest).await;
    let before: Vec<u64> = (0..3).map(|index| asked(cluster, index)).collect();
    tokio::time::sleep(rest).await;
    let after: Vec<u64> = (0..3).map(|index| asked(cluster, index)).collect();
    assert_eq!(before, after, "sessions still move: {:?}", progress.show(cluster));
    measured(&format!("at rest: {:?}, asked to move so far: {after:?}", progress.show(cluster)));
}

#[test]
fn sessions_spread_over_three_nodes_and_no_member_is_down() {
    // The clients share the machine with the nodes and get a lower priority.
    let low = || assert!(rustix::process::nice(10).is_ok());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().on_thread_start(low).build().unwrap();
    runtime.block_on(async {
        let whole = std::env::var("CLIENTS").ok().map(|count| count.parse().unwrap());
        let (count, whole) = (whole.unwrap_or(CLIENTS), whole.is_some());
        let dir = tempfile::tempdir().unwrap();
        let mut cluster = cluster(dir.path(), whole);
        let fleet = Fleet::start("web", count, cluster.clients(0)).await;
        let seen = Seen::at(&cluster, 0, "service == \"web\"");
        seen.all_up(count);
        measured(&format!("{count} clients attached to one node"));
        comes_to_rest(&cluster, count, whole).await;

        let (status, stderr) = tokio::task::block_in_place(|| cluster.stop(2));
        assert!(status.success(), "{stderr}");
        cluster.restart(2).unwrap();
        measured("a node was restarted");
        comes_to_rest(&cluster, count, whole).await;
        seen.assert_undisturbed();
        seen.all_up(count);
        fleet.assert_none_lost();
    });
}

/// With `rebalance = false` nothing moves.
#[tokio::test(flavor = "multi_thread")]
async fn rebalancing_can_be_switched_off() {
    let dir = tempfile::tempdir().unwrap();
    let plan = patient_plan(dir.path()).environment("CONVOKE_REBALANCE", "false");
    let cluster = plan.start(3).unwrap();
    let fleet = Fleet::start("web", 20, cluster.clients(0)).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((spread(&cluster)[0], asked(&cluster, 0)), (20, 0));
    assert_eq!(fleet.at("n1"), 20);
    let nodes: Value = cluster.ask(0, &["nodes"]).unwrap();
    assert!(nodes["nodes"].as_array().unwrap().iter().all(|node| node["drained"] == false));
}
