//! Nodes that are paused (SIGSTOP) and resumed (SIGCONT): no end of file informs the others.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::{Client, MemberSpec, Registration, Update};
use convoke_testkit::{Process, measured, until};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::fleet::Fleet;
use support::plan;
use support::seen::Seen;
use tokio::task::JoinSet;

const CLIENTS: usize = 20;

/// R-14, L5: a pause longer than the heartbeat timeout. The clients move, and the resumed node reports no member as
/// down.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_pause_makes_no_member_down() {
    let dir = tempfile::tempdir().unwrap();
    // The clients stay at their node until it is paused.
    let plan = plan(dir.path()).environment("CONVOKE_REBALANCE", "false");
    let cluster = plan.start(3).unwrap();
    let of_paused_node = Fleet::start("a", CLIENTS, cluster.clients(0)).await;
    let of_running_node = Fleet::start("b", CLIENTS, cluster.clients(1)).await;
    let watchers = [0, 1, 2].map(|index| Seen::at(&cluster, index, "service == \"web\""));
    watchers.iter().for_each(|seen| seen.all_up(2 * CLIENTS));
    cluster.pause(0);
    of_paused_node.all_elsewhere("n1").await;
    // The duration of the fault: the heartbeat timeout is 6 s.
    tokio::time::sleep(Duration::from_secs(8)).await;
    cluster.resume(0);
    cluster.wait_meshed();
    for index in 0..3 {
        until("every node shows all of them as up", || {
            let services = cluster.ask(index, &["services"]).unwrap_or_default();
            let services = services["services"].as_array().map(Vec::as_slice).unwrap_or_default();
            services.iter().any(|service| service["service"] == "web" && service["up"] == 2 * CLIENTS)
        });
    }
    watchers.iter().for_each(Seen::assert_undisturbed);
    of_paused_node.assert_none_lost();
    of_running_node.assert_none_lost();
}

/// A peer that accepts and never reads costs the others a bounded queue and catches up when it reads again.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_reads_nothing_costs_bounded_memory() {
    const WARM_UP: usize = 5;
    const ROUNDS: usize = 35;
    const VALUES: usize = 12;
    const BYTES: usize = 4_096;
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path())
        // No link is lost for slowness while this test blocks it.
        .environment("CONVOKE_TIMERS_PING_TIMEOUT", "60s")
        .environment("CONVOKE_TIMERS_DEAD_PEER_TIMEOUT", "200s")
        .environment("CONVOKE_TIMERS_HEARTBEAT_TIMEOUT", "60s")
        .environment("CONVOKE_TIMERS_TOMBSTONE_TIMEOUT", "600s")
        .environment("CONVOKE_LIMITS_METADATA_BYTES", "64KiB");
    let cluster = plan.start(3).unwrap();
    let client = Client::builder().seeds([cluster.clients(0)]).build().unwrap();
    let mut members = Vec::new();
    for number in 0..CLIENTS * 4 {
        members.push(Arc::new(client.register(MemberSpec::new(format!("m-{number}"), "web")).await.unwrap()));
    }
    let round = async |round: usize| {
        let value = format!("{round:04}").repeat(BYTES / 4);
        let change =
            (0..VALUES).fold(Update::merge(), |change, number| change.set(format!("v{number}"), value.as_str()));
        let update = async |member: Arc<Registration>, change| member.update(change).await;
        let updates: JoinSet<_> = members.iter().map(|member| update(member.clone(), change.clone())).collect();
        updates.join_all().await.into_iter().for_each(|updated| drop(updated.unwrap()));
    };
    // Warm-up, until the allocator's memory is stable.
    for number in 0..WARM_UP {
        round(number).await;
    }
    cluster.pause(2);
    let before = resident_kib(cluster.node(0).process.id());
    for number in WARM_UP..ROUNDS {
        round(number).await;
    }
    let grown = resident_kib(cluster.node(0).process.id()).saturating_sub(before);
    let written = (ROUNDS - WARM_UP) * members.len() * VALUES * BYTES / 1024;
    println!("wrote {written} KiB past a peer that reads nothing: n1 grew by {grown} KiB");
    let suspended = support::http::metric(cluster.clients(0), "convoke_registry_pushes_suspended_total");
    assert!(suspended > 0.0, "it wrote more than the system buffers");
    // The queue for the peer is limited to 16 MiB; the rest is variation of the allocator.
    assert!(grown < written / 2, "{grown} KiB of {written} KiB");
    let last = format!("{:04}", ROUNDS - 1);
    let has_last = |index: usize| {
        // A node that was paused for long rejects clients until it has caught up.
        let member = cluster.ask(index, &["member", "m-0"]).unwrap_or_default();
        member["metadata"]["v0"].as_str().is_some_and(|value| value.starts_with(&last))
    };
    assert!(has_last(0));
    until("the other peer is not delayed", || has_last(1));
    cluster.resume(2);
    until("it catches up", || has_last(2));
}

fn resident_kib(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A watch of keys over HTTP.
fn watch_keys(address: &str, query: &str) -> Process {
    let (host, port) = address.rsplit_once(':').unwrap();
    let request = format!("GET /api/v1/kv-watch?{query} HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n");
    let script = format!("exec 3<>/dev/tcp/{host}/{port}; printf '{request}' >&3; exec cat <&3");
    let process = Process::spawn(Command::new("bash").args(["-c", &script]));
    process.line("the start of the watch", |line| line == "event: progress");
    process
}

/// H7: a replica that loses the leader and the majority ends its watches, unless they accept stale state.
#[test]
fn a_replica_that_loses_the_leader_ends_its_watches() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = plan(dir.path()).start_at_once(3).unwrap();
    let put = |value: &str| {
        let mut command = cluster.command(0, ["kv", "put", "k", value, "--timeout", "30s", "--addr"]);
        command.arg(cluster.all_clients()).output().unwrap().status.success()
    };
    until("the log accepts writes", || put("first"));
    let status = cluster.ask(0, &["log", "status"]).unwrap();
    let leader = (0..3).find(|index| status["leader"] == cluster.id(*index)).unwrap();
    let (follower, third) = ((leader + 1) % 3, (leader + 2) % 3);
    let [ended, stale] = ["prefix=", "prefix=&stale"].map(|query| watch_keys(cluster.clients(follower), query));
    let began = Instant::now();
    cluster.pause(leader);
    cluster.pause(third);
    ended.line("the end of the watch", |line| line.starts_with("data: ") && line.contains("NO_QUORUM"));
    measured(&format!("watch at a replica without a leader: ended after {:.1} s", began.elapsed().as_secs_f64()));
    assert!(!stale.stdout().contains("event: end"), "{}", stale.stdout());
    cluster.resume(leader);
    cluster.resume(third);
    until("the log accepts writes again", || put("second"));
    stale.line("the change", |line| line == "event: put");
    assert!(!ended.stdout().contains("event: put"), "{}", ended.stdout());
}
