//! Bytes on the wire: per change and when idle, in full meshes of 3, 10, 50 and 200 nodes.
//!
//! Whole clusters in virtual time with links of about a millisecond; frames are counted, framing and TCP come on top.
//! A change is one metadata update of a small member.

#![allow(clippy::disallowed_macros, reason = "a benchmark prints its figures")]

mod support;

use convoke_core::member::MetadataUpdate;
use convoke_core::node::{ConnId, SessionId};
use convoke_core::time::Duration;
use support::Ids;
use support::cluster::{Cluster, Traffic};

/// Nodes, virtual seconds of each measurement.
const SIZES: [(usize, u64); 4] = [(3, 60), (10, 60), (50, 10), (200, 3)];
/// Changes per second in the whole cluster: few enough that each reaches all nodes before the next one, and many.
const RATES: [u64; 2] = [10, 100];

fn main() {
    println!("nodes   idle B/s per node   changes/s   pushed per change   exchanged per change   total per node");
    for (size, seconds) in SIZES {
        if support::measuring() || size <= 10 {
            measure(size, seconds);
        }
    }
}

fn measure(size: usize, seconds: u64) {
    let mut load = Load::new(size);
    let idle = load.run(seconds, 0).total() / seconds / size as u64;
    for rate in RATES {
        let traffic = load.run(seconds, rate);
        let changes = seconds * rate;
        println!(
            "{size:>5} {idle:>19} {rate:>11} {:>19} {:>22} {:>16}",
            traffic.pushes / changes,
            traffic.exchanges / changes,
            (traffic.pushes + traffic.exchanges) / changes / size as u64,
        );
    }
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
            let attached = cluster.with(index, |node, now, out| node.attach(now, ConnId(0), &request, out));
            sessions.push(attached.expect("a valid attach").session);
        }
        let mut load = Load { cluster, sessions, writes: 0, random: fastrand::Rng::with_seed(5) };
        load.settle();
        load
    }

    /// Runs until all nodes agree and every ping that reported a difference has been answered.
    fn settle(&mut self) {
        while !self.cluster.agrees() {
            self.second(0);
        }
        self.second(0);
        self.second(0);
    }

    /// Returns the traffic while `rate` changes were made each second.
    fn run(&mut self, seconds: u64, rate: u64) -> Traffic {
        self.cluster.traffic = Traffic::default();
        for _ in 0..seconds {
            self.second(rate);
        }
        // The follow-up traffic of the last changes counts for them.
        let mut traffic = self.cluster.traffic;
        self.settle();
        traffic.exchanges = self.cluster.traffic.exchanges;
        traffic.pushes = self.cluster.traffic.pushes;
        traffic
    }

    fn second(&mut self, rate: u64) {
        for (index, session) in self.sessions.iter().enumerate() {
            let beat = self.cluster.with(index, |node, now, out| node.heartbeat(now, *session, out));
            beat.expect("the session exists");
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
