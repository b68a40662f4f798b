//! Bytes on the wire: per change and when idle, in full meshes of 3, 10, 50 and 200 nodes.
//!
//! Whole clusters in virtual time with links of about a millisecond; frames are counted, framing and TCP come on top.
//! A change is one metadata update of a small member.

mod support;

use convoke_core::member::MetadataUpdate;
use convoke_core::node::{ConnId, SessionId};
use convoke_core::time::Duration;
use support::cluster::{Cluster, Traffic};
use support::{Ids, WALL_MS};

/// Nodes, virtual seconds of each measurement.
const SIZES: [(usize, u64); 4] = [(3, 60), (10, 60), (50, 20), (200, 5)];
/// A steady load on the whole cluster.
const WRITES_PER_SECOND: u64 = 100;

fn main() {
    println!("                idle  one change per second     100 changes per second");
    println!("nodes   B/s per node   pushes   exchanges        pushes   exchanges   B per change and node");
    for (size, seconds) in SIZES {
        if support::scale(size) == size || size <= 10 {
            measure(size, seconds);
        }
    }
}

fn measure(size: usize, seconds: u64) {
    let mut load = Load::new(size);
    let idle = load.run(seconds, 0);
    let rare = load.run(seconds, 1);
    let busy = load.run(seconds, WRITES_PER_SECOND);
    let per_change = |bytes: u64, rate: u64| bytes / (seconds * rate);
    let busy_each = per_change(busy.pushes + busy.exchanges, WRITES_PER_SECOND) / size as u64;
    println!(
        "{size:>5} {:>14} {:>8} {:>11} {:>13} {:>11} {:>13}",
        idle.total() / seconds / size as u64,
        per_change(rare.pushes, 1),
        per_change(rare.exchanges, 1),
        per_change(busy.pushes, WRITES_PER_SECOND),
        per_change(busy.exchanges, WRITES_PER_SECOND),
        busy_each,
    );
}

/// A cluster with one client per node, each with a few members.
struct Load {
    cluster: Cluster,
    sessions: Vec<SessionId>,
    writes: u64,
    random: fastrand::Rng,
}

const PER_NODE: usize = 10;

impl Load {
    fn new(size: usize) -> Load {
        let mut cluster = Cluster::new(size);
        while !cluster.agrees() {
            cluster.run_for_millis(100);
        }
        let mut sessions = Vec::new();
        for index in 0..size {
            let request = support::attach(Ids::Short, index, PER_NODE);
            let attached = cluster.with(index, |node, now, out| node.attach(now, WALL_MS, ConnId(0), &request, out));
            sessions.push(attached.expect("a valid attach").session);
        }
        let mut load = Load { cluster, sessions, writes: 0, random: fastrand::Rng::with_seed(5) };
        load.settle();
        load
    }

    /// Until all nodes agree and every ping that still said otherwise has been answered.
    fn settle(&mut self) {
        while !self.cluster.agrees() {
            self.second(0);
        }
        self.second(0);
        self.second(0);
    }

    /// What crossed the wire while `rate` changes were made each second.
    fn run(&mut self, seconds: u64, rate: u64) -> Traffic {
        self.cluster.traffic = Traffic::default();
        for _ in 0..seconds {
            self.second(rate);
        }
        // What the last changes still cause belongs to them.
        let mut traffic = self.cluster.traffic;
        self.settle();
        traffic.exchanges = self.cluster.traffic.exchanges;
        traffic.pushes = self.cluster.traffic.pushes;
        traffic
    }

    fn second(&mut self, rate: u64) {
        for (index, session) in self.sessions.iter().enumerate() {
            let beat = self.cluster.with(index, |node, now, out| node.heartbeat(now, *session, out));
            beat.expect("the session lives");
        }
        let end = self.cluster.now + Duration::from_secs(1);
        let mut moments: Vec<u64> = (0..rate).map(|_| self.random.u64(..1_000_000)).collect();
        moments.sort_unstable();
        let start = self.cluster.now;
        for moment in moments {
            self.cluster.run_until(start + Duration::from_micros(moment));
            self.write();
        }
        self.cluster.run_until(end);
    }

    fn write(&mut self) {
        self.writes += 1;
        let (index, writes) = (self.random.usize(..self.sessions.len()), self.writes);
        let id = support::id(Ids::Short, index * PER_NODE + self.random.usize(..PER_NODE));
        let change = MetadataUpdate::set("shard", format!("{:04}", writes % 10_000));
        let session = self.sessions[index];
        let written =
            self.cluster.with(index, |node, now, out| node.update(now, session, writes, &id, &change, None, out));
        written.expect("the member belongs to the session");
    }
}
