//! A crowd of clients that loses its node at once, or is sent elsewhere by it.
//! `CROWD=10000 cargo test --release -p convoke --test crowd -- --nocapture --test-threads 1` is the whole of it; without the
//! variable it is a smaller one.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_proto::v1::ListRequest;
use convoke_proto::v1::registry_client::RegistryClient;
use convoke_testkit::ProcessCluster;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::fleet::Fleet;
use support::seen::Seen;
use support::{binary, plan};

const CLIENTS: usize = 500;
/// How long lookups are measured while nothing happens; the whole crowd takes about as long to come back.
const QUIET: Duration = Duration::from_secs(3);
const QUIET_WHOLE: Duration = Duration::from_secs(10);

/// The whole crowd meets the timers that nodes have by default, 20 s until somebody is down; the smaller one short ones.
/// Also how long it takes until somebody is down.
fn cluster(dir: &Path, whole: bool) -> (ProcessCluster, Duration) {
    match whole {
        true => (ProcessCluster::plan(binary(), dir).start(3).unwrap(), Duration::from_secs(20)),
        false => {
            let plan = plan(dir)
                .environment("CONVOKE_TIMERS_HEARTBEAT_INTERVAL", "2s")
                .environment("CONVOKE_TIMERS_HEARTBEAT_TIMEOUT", "10s");
            (plan.start(3).unwrap(), Duration::from_secs(10))
        }
    }
}

/// How the node of the crowd ends.
enum End {
    Killed,
    Told,
}

#[test]
fn a_crowd_loses_its_node_and_nobody_is_down() {
    run(End::Killed);
}

#[test]
fn a_crowd_is_sent_elsewhere_and_nobody_is_down() {
    run(End::Told);
}

fn run(end: End) {
    // Ten thousand clients have machines of their own. Here they share one with the nodes, and come after them.
    let low = || assert!(rustix::process::nice(10).is_ok());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().on_thread_start(low).build().unwrap();
    runtime.block_on(lose_a_node(end));
}

async fn lose_a_node(end: End) {
    let whole = std::env::var("CROWD").ok().map(|count| count.parse().unwrap());
    let count = whole.unwrap_or(CLIENTS);
    let dir = tempfile::tempdir().unwrap();
    let (mut cluster, timeout) = cluster(dir.path(), whole.is_some());
    let began = Instant::now();
    let fleet = Fleet::start("web", count, cluster.clients(2)).await;
    println!("{count} clients attached to one node within {:.1} s", began.elapsed().as_secs_f64());
    // On a busy machine some may have gone elsewhere already.
    assert!(fleet.at("n3") > count / 2, "{}", fleet.at("n3"));
    let seen = Seen::at(&cluster, 0, "service == \"web\"");
    seen.all_up(count);

    let quiet = Lookups::start(cluster.clients(0));
    tokio::time::sleep(if whole.is_some() { QUIET_WHOLE } else { QUIET }).await;
    let quiet = quiet.stop();
    let stormy = Lookups::start(cluster.clients(0));
    let ended = Instant::now();
    match end {
        End::Killed => cluster.kill(2),
        End::Told => {
            let (status, stderr) = tokio::task::block_in_place(|| cluster.stop(2));
            assert!(status.success(), "{stderr}");
            println!("it stopped after {:.1} s", ended.elapsed().as_secs_f64());
        }
    }
    fleet.all_elsewhere("n3").await;
    let back = ended.elapsed();
    let stormy = stormy.stop();
    println!("all {count} were back after {:.1} s", back.as_secs_f64());
    for (name, quiet, stormy) in [("p50", quiet[0], stormy[0]), ("p99", quiet[1], stormy[1])] {
        let times = stormy.as_secs_f64() / quiet.as_secs_f64();
        println!("lookups at a surviving node, {name}: quiet {quiet:.2?}, meanwhile {stormy:.2?}, {times:.1} times");
    }
    // Beyond the heartbeat timeout: whoever was missed would be down by now.
    tokio::time::sleep((timeout + Duration::from_secs(1)).saturating_sub(ended.elapsed())).await;
    seen.nothing_bad();
    seen.all_up(count);
    fleet.none_lost();
}

/// Somebody who looks a service up every few milliseconds, from a thread of his own.
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

    /// The median and the 99th percentile.
    fn stop(self) -> [Duration; 2] {
        self.stop.store(true, Ordering::Relaxed);
        let mut took = self.thread.join().unwrap();
        took.sort();
        [50, 99].map(|part| took[took.len() * part / 100])
    }
}
