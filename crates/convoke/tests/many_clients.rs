//! Many clients that lose their node at once or are handed over by it.
//!
//! `CLIENTS=10000 cargo test --release -p convoke --test many_clients -- --nocapture --test-threads 1` runs the full test.
//! Without the variable the number of clients is smaller.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_proto::v1::ListRequest;
use convoke_proto::v1::registry_client::RegistryClient;
use convoke_testkit::{ProcessCluster, measured};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::fleet::Fleet;
use support::seen::Seen;
use support::{binary, plan};

const CLIENTS: usize = 500;
/// Duration of the measurement of lookups without load; the full number of clients needs about as long to reconnect.
const QUIET: Duration = Duration::from_secs(3);
const QUIET_WHOLE: Duration = Duration::from_secs(10);
/// Lookups may take this much longer during the reconnects. The goal is a factor of 5 for the 99th percentile on an idle
/// machine (docs/performance.md); a machine that runs other tests needs more.
const LOOKUPS_FACTOR_MAX: u32 = 20;
const LOOKUPS_VARIATION: Duration = Duration::from_millis(50);

/// The full test uses the default timers of nodes (20 s to `down`), the smaller one short timers.
/// Also returns the time after which a member is down.
fn cluster(dir: &Path, whole: bool) -> (ProcessCluster, Duration) {
    match whole {
        true => (ProcessCluster::plan(binary(), dir).start(3).unwrap(), Duration::from_secs(20)),
        false => {
            // The clients stay at their node until it ends.
            let plan = plan(dir)
                .environment("CONVOKE_REBALANCE", "false")
                .environment("CONVOKE_TIMERS_HEARTBEAT_INTERVAL", "2s")
                .environment("CONVOKE_TIMERS_HEARTBEAT_TIMEOUT", "10s");
            (plan.start(3).unwrap(), Duration::from_secs(10))
        }
    }
}

/// How the node of the clients ends.
enum End {
    Killed,
    Stopped,
}

#[test]
fn many_clients_lose_their_node_and_no_member_is_down() {
    run(End::Killed);
}

#[test]
fn many_clients_are_handed_over_and_no_member_is_down() {
    run(End::Stopped);
}

fn run(end: End) {
    // In production the clients run on other machines. Here they share one with the nodes and get a lower priority.
    let low = || assert!(rustix::process::nice(10).is_ok());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().on_thread_start(low).build().unwrap();
    runtime.block_on(lose_a_node(end));
}

async fn lose_a_node(end: End) {
    let whole = std::env::var("CLIENTS").ok().map(|count| count.parse().unwrap());
    let count = whole.unwrap_or(CLIENTS);
    let dir = tempfile::tempdir().unwrap();
    let (mut cluster, timeout) = cluster(dir.path(), whole.is_some());
    let began = Instant::now();
    let fleet = Fleet::start("web", count, cluster.clients(2)).await;
    measured(&format!("{count} clients attached to one node within {:.1} s", began.elapsed().as_secs_f64()));
    // On a busy machine some clients may have connected to other nodes already.
    assert!(fleet.at("n3") > count / 2, "{}", fleet.at("n3"));
    let seen = Seen::at(&cluster, 0, "service == \"web\"");
    seen.all_up(count);

    let quiet = Lookups::start(cluster.clients(0));
    tokio::time::sleep(if whole.is_some() { QUIET_WHOLE } else { QUIET }).await;
    let quiet = quiet.stop();
    let busy = Lookups::start(cluster.clients(0));
    let ended = Instant::now();
    match end {
        End::Killed => cluster.kill(2),
        End::Stopped => {
            let (status, stderr) = tokio::task::block_in_place(|| cluster.stop(2));
            assert!(status.success(), "{stderr}");
            measured(&format!("it stopped after {:.1} s", ended.elapsed().as_secs_f64()));
        }
    }
    fleet.all_elsewhere("n3").await;
    let back = ended.elapsed();
    let busy = busy.stop();
    measured(&format!("all {count} were back after {:.1} s", back.as_secs_f64()));
    assert!(back < timeout, "{back:.1?}: a member whose client is not back by then is down");
    for (name, quiet, busy) in [("p50", quiet[0], busy[0]), ("p99", quiet[1], busy[1])] {
        let times = busy.as_secs_f64() / quiet.as_secs_f64();
        println!(
            "lookups at a surviving node, {name}: before {quiet:.2?}, during the reconnects {busy:.2?}, {times:.1} times"
        );
        assert!(
            busy <= LOOKUPS_FACTOR_MAX * quiet + LOOKUPS_VARIATION,
            "{name}: {quiet:.2?} before, {busy:.2?} during"
        );
    }
    // After the heartbeat timeout, a member that was not re-attached would be down.
    tokio::time::sleep((timeout + Duration::from_secs(1)).saturating_sub(ended.elapsed())).await;
    seen.assert_undisturbed();
    seen.all_up(count);
    fleet.assert_none_lost();
}

/// Looks a service up every few milliseconds on a separate thread.
struct Lookups {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<Duration>>,
}

impl Lookups {
    fn start(address: &str) -> Lookups {
        let (stop, address) = (Arc::new(AtomicBool::new(false)), address.to_owned());
        let stopped = stop.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
                let mut client = RegistryClient::new(endpoint.connect().await.unwrap());
                let request = ListRequest { filter: "service == \"web\"".to_owned(), limit: 10, ..Default::default() };
                let mut took = Vec::new();
                while !stopped.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    client.list(request.clone()).await.unwrap();
                    took.push(began.elapsed());
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                took
            })
        });
        Lookups { stop, thread }
    }

    /// Returns the median and the 99th percentile.
    fn stop(self) -> [Duration; 2] {
        self.stop.store(true, Ordering::Relaxed);
        let mut took = self.thread.join().unwrap();
        took.sort();
        [50, 99].map(|part| took[took.len() * part / 100])
    }
}
