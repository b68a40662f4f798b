//! Nodes that are killed, and what everybody else sees of it.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{Process, until};
use serde_json::Value;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::fleet::Fleet;
use support::seen::Seen;
use support::{patient_plan, plan};

const CLIENTS: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_clients_lose_their_node_and_nobody_is_down() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = plan(dir.path()).start(3).unwrap();
    let fleet = Fleet::start("web", CLIENTS, cluster.clients(2)).await;
    // On a busy machine some may have gone elsewhere already.
    assert!(fleet.at("n3") > CLIENTS / 2, "{}", fleet.at("n3"));
    let witnesses = [0, 1].map(|index| Seen::at(&cluster, index, "service == \"web\""));
    witnesses.iter().for_each(|seen| seen.all_up(CLIENTS));
    let killed = Instant::now();
    cluster.kill(2);
    fleet.all_elsewhere("n3").await;
    println!("{CLIENTS} clients were on other nodes after {:.1} s", killed.elapsed().as_secs_f64());
    for seen in &witnesses {
        let moved = |member: &Value| member["owner"]["node"] != "n3";
        until("all have moved", || seen.view().values().filter(|member| moved(member)).count() == CLIENTS);
    }
    // Longer than a member of a dead node may go unclaimed.
    tokio::time::sleep(Duration::from_secs(7)).await;
    witnesses.iter().for_each(Seen::nothing_bad);
    fleet.none_lost();
}

/// down everywhere, one node is responsible, and in the end they are gone.
#[test]
fn a_node_and_its_client_die_together() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path()).environment("CONVOKE_TIMERS_RECONNECT_TIMEOUT", "4s");
    let mut cluster = plan.start(3).unwrap();
    let witnesses = [0, 1].map(|index| Seen::at(&cluster, index, "service == \"web\""));
    let mut web = support::registered(cluster.clients(2), "web-1");
    let _other = support::registered(cluster.clients(0), "web-2");
    witnesses.iter().for_each(|seen| seen.all_up(2));
    cluster.kill(2);
    web.kill();
    for seen in &witnesses {
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
    // Its client's member, and the one that stands for the node itself.
    let taken_over =
        |index: usize| support::http::metric(cluster.clients(index), "convoke_registry_members_expired_total");
    let mut takeovers = [taken_over(0), taken_over(1)];
    takeovers.sort_by(f64::total_cmp);
    assert_eq!(takeovers, [0.0, 2.0], "exactly one node is responsible");
}

/// R-28, N1, N2: the same id is another run, also when the disk was lost and with it the number of runs.
#[test]
fn a_node_comes_back_with_its_name() {
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
        // What it writes now is taken by the others, although its counters start anew.
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

/// From the nodes' own event times; prints the figures, and asserts their order of magnitude only.
#[test]
fn a_crash_is_noticed_at_once() {
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
    println!(
        "a crash was noticed after {:.1} ms (median of {ROUNDS}), {:.1} ms (worst)",
        took[ROUNDS / 2],
        took[ROUNDS - 1]
    );
    // Far below the ping timeout of 1 s: it was the end of the connection that told.
    assert!(took[ROUNDS / 2] < 500.0, "{took:?}");
}

/// When the node wrote that it lost n2, in UNIX seconds.
fn lost_times(node: &Process) -> Vec<f64> {
    let lost = |line: &&str| line.contains("peer n2 is lost");
    let at = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        seconds(line["timestamp"].as_str().unwrap())
    };
    node.stderr().lines().filter(lost).map(at).collect()
}

/// From `2026-01-02T03:04:05.678901Z`.
fn seconds(timestamp: &str) -> f64 {
    let number = |range: std::ops::Range<usize>| timestamp[range].parse::<i64>().unwrap();
    // Days from civil: months count from March, so that the leap day is the last of a year.
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    let whole = days * 86_400 + number(11..13) * 3_600 + number(14..16) * 60 + number(17..19);
    let fraction: f64 = timestamp[19..].trim_end_matches('Z').parse().unwrap();
    whole as f64 + fraction
}
