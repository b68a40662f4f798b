//! Nodes that are killed, as seen by clients and other nodes.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{Process, measured, until};
use serde_json::Value;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::fleet::Fleet;
use support::seen::Seen;
use support::{patient_plan, plan};

const CLIENTS: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_clients_lose_their_node_and_no_member_is_down() {
    let dir = tempfile::tempdir().unwrap();
    // The clients stay at their node until it is lost.
    let plan = plan(dir.path()).environment("CONVOKE_REBALANCE", "false");
    let mut cluster = plan.start(3).unwrap();
    let fleet = Fleet::start("web", CLIENTS, cluster.clients(2)).await;
    // On a busy machine some clients may have connected to other nodes already.
    assert!(fleet.at("n3") > CLIENTS / 2, "{}", fleet.at("n3"));
    let watchers = [0, 1].map(|index| Seen::at(&cluster, index, "service == \"web\""));
    watchers.iter().for_each(|seen| seen.all_up(CLIENTS));
    let killed = Instant::now();
    cluster.kill(2);
    fleet.all_elsewhere("n3").await;
    let took = killed.elapsed().as_secs_f64();
    measured(&format!("{CLIENTS} clients were on other nodes after {took:.1} s"));
    for seen in &watchers {
        let moved = |member: &Value| member["owner"]["node"] != "n3";
        until("all have moved", || seen.view().values().filter(|member| moved(member)).count() == CLIENTS);
    }
    // Longer than the members of a dead node may stay unclaimed.
    tokio::time::sleep(Duration::from_secs(7)).await;
    watchers.iter().for_each(Seen::assert_undisturbed);
    fleet.assert_none_lost();
}

/// the members are down at every node, one node is responsible for them, and finally they expire.
#[test]
fn a_node_and_its_client_die_together() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path()).environment("CONVOKE_TIMERS_RECONNECT_TIMEOUT", "4s");
    let mut cluster = plan.start(3).unwrap();
    let watchers = [0, 1].map(|index| Seen::at(&cluster, index, "service == \"web\""));
    let mut web = support::registered(cluster.clients(2), "web-1");
    let _other = support::registered(cluster.clients(0), "web-2");
    watchers.iter().for_each(|seen| seen.all_up(2));
    cluster.kill(2);
    web.kill();
    for seen in &watchers {
        seen.event("status", "web-1");
        seen.event("unregister", "web-1");
        let about_the_dead = |event: &&Value| event.to_string().contains("web-1");
        let events: Vec<Value> = seen.events().iter().filter(about_the_dead).cloned().collect();
        let kinds: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["register", "status", "unregister"], "each once, in this order");
        assert_eq!(events[1]["member"]["status"], "down");
        assert!(
            !seen.events().iter().any(|event| event["id"] == "web-2"
                || event["member"]["status"] == "down" && event["member"]["id"] == "web-2")
        );
    }
    // The member of its client, and the one of the node itself.
    let taken_over =
        |index: usize| support::http::metric(cluster.clients(index), "convoke_registry_members_expired_total");
    let mut takeovers = [taken_over(0), taken_over(1)];
    takeovers.sort_by(f64::total_cmp);
    assert_eq!(takeovers, [0.0, 2.0], "exactly one node is responsible");
}

/// R-28, N1, N2: a restarted node id gets a new incarnation, even if the disk with the number was lost.
#[test]
fn a_restarted_node_gets_a_new_incarnation() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = patient_plan(dir.path()).start(3).unwrap();
    let seen = Seen::at(&cluster, 0, "service == \"web\"");
    let _web = support::registered(&cluster.all_clients(), "web-1");
    seen.all_up(1);
    for lost_disk in [false, false, true] {
        let before = cluster.ask(2, &["status"]).unwrap()["incarnation"].as_u64().unwrap();
        cluster.kill(2);
        if lost_disk {
            std::fs::remove_dir_all(cluster.data_dir(2)).unwrap();
        }
        cluster.restart(2).unwrap();
        cluster.wait_meshed();
        assert_eq!(cluster.ask(2, &["status"]).unwrap()["incarnation"].as_u64(), Some(before + 1), "{lost_disk}");
        assert_eq!(cluster.ask(2, &["member", "web-1"]).unwrap()["status"], "up");
        // The other nodes accept its new writes although its counters start at 0.
        let id = format!("web-{}", before + 1);
        let mut other = support::registered(cluster.clients(2), &id);
        seen.event("register", &id);
        other.terminate();
        other.wait();
        seen.event("unregister", &id);
    }
    let down = |event: &Value| event["member"]["status"] == "down";
    assert!(!seen.events().iter().any(down), "{:?}", seen.events());
}

/// R-41, measured with the nodes' own event times. Asserts that no timeout was involved.
#[test]
fn a_crash_is_detected_without_a_timeout() {
    const ROUNDS: usize = 20;
    let dir = tempfile::tempdir().unwrap();
    let plan = patient_plan(dir.path()).arguments(["--log-format", "json"]);
    let mut cluster = plan.start(2).unwrap();
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let killed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        cluster.kill(1);
        let mut lost = Vec::new();
        until("the other one notices", || {
            lost = lost_times(&cluster.node(0).process);
            lost.len() == round + 1
        });
        took.push((lost[round] - killed.as_secs_f64()) * 1_000.0);
        cluster.restart(1).unwrap();
        cluster.wait_meshed();
    }
    took.sort_by(f64::total_cmp);
    let (median, worst) = (took[ROUNDS / 2], took[ROUNDS - 1]);
    measured(&format!("a crash was detected after {median:.1} ms (median of {ROUNDS}), {worst:.1} ms (worst)"));
    // Far below the ping timeout of 1 s: the end of the connection was detected.
    assert!(took[ROUNDS / 2] < 500.0, "{took:?}");
}

/// Returns when the node logged the loss of n2, in UNIX seconds.
fn lost_times(node: &Process) -> Vec<f64> {
    let lost = |line: &&str| line.contains("peer lost peer=n2");
    let at = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        seconds(line["timestamp"].as_str().unwrap())
    };
    node.stderr().lines().filter(lost).map(at).collect()
}

/// Parses `2026-01-02T03:04:05.678901Z`.
fn seconds(timestamp: &str) -> f64 {
    let number = |range: std::ops::Range<usize>| timestamp[range].parse::<i64>().unwrap();
    // Days from civil: months count from March, so that the leap day is the last day of a year.
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    let whole = days * 86_400 + number(11..13) * 3_600 + number(14..16) * 60 + number(17..19);
    let fraction: f64 = timestamp[19..].trim_end_matches('Z').parse().unwrap();
    whole as f64 + fraction
}
