//! One change: as a push, as an exchange, and as a full merge.
//!
//! Two nodes agree except for one change. The full merge is the node's own full merge (D8): a request is replayed that
//! was recorded before the sender collected a tombstone, so the sender has to send everything. The receiver already
//! has all but one of the members, as it does in every round of full-sync gossip.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a benchmark measures the core and prints its figures"
)]

mod support;

use bytes::Bytes;
use convoke_core::member::MetadataUpdate;
use convoke_core::node::{Effect, LinkId, SessionId};
use convoke_core::time::Duration;
use convoke_core::{Node, Output, Time};
use mimalloc::MiMalloc;
use std::time::Instant;
use support::Ids;
use support::cluster::Cluster;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const MEMBERS: [usize; 4] = [10, 100, 1_000, 10_000];
const SESSIONS: usize = 5;
const REPEATS: usize = 20;
/// In a full mesh of five, a node with a change sends it to four peers.
const PEERS: u32 = 4;
const WANT: u8 = 5;

/// Of two nodes that differ, the one with the lower id sends the request.
const RECEIVER: usize = 0;
const SENDER: usize = 1;

fn main() {
    println!("One change, sent to the {PEERS} peers  of a cluster of 5     bytes   sender CPU   receivers' CPU");
    for members in MEMBERS {
        let mut story = TwoNodes::new(members);
        for (name, way) in [("push", Way::Push), ("exchange", Way::Exchange), ("full merge", Way::FullMerge)] {
            let costs = (0..REPEATS).map(|_| story.change(way));
            let cost = costs.min_by_key(|cost| cost.sender + cost.receiver).expect("at least one repeat");
            let (sender, receivers) = (cost.sender * PEERS, cost.receiver * PEERS);
            let bytes = cost.bytes * u64::from(PEERS);
            println!("{members:>6} members  {name:<10} {bytes:>27} {sender:>12.1?} {receivers:>16.1?}");
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Push,
    Exchange,
    FullMerge,
}

/// Cost of one peer.
struct Cost {
    bytes: u64,
    sender: Duration,
    receiver: Duration,
}

struct TwoNodes {
    nodes: [Node; 2],
    links: [LinkId; 2],
    sessions: Vec<SessionId>,
    /// A request of the receiver from before the sender's floor.
    old_want: Bytes,
    now: Time,
    seq: u64,
}

impl TwoNodes {
    /// Both nodes have the members, and the sender has collected a tombstone.
    fn new(members: usize) -> TwoNodes {
        let mut cluster = Cluster::new(2);
        while !cluster.agrees() {
            cluster.run_for_millis(1);
        }
        let (links, now) = (cluster.link_between(RECEIVER, SENDER), cluster.now);
        let sessions = support::populate(&mut cluster.nodes[SENDER], now, Ids::Short, members, members / SESSIONS);
        let nodes = <[Node; 2]>::try_from(cluster.nodes).expect("two nodes");
        let mut story = TwoNodes { nodes, links, sessions, old_want: Bytes::new(), now, seq: 0 };
        story.old_want = story.await_want();
        story.deliver(vec![(SENDER, story.old_want.clone())]);
        story.seq += 1;
        let (last, session) = (support::id(Ids::Short, members - 1), story.sessions[SESSIONS - 1]);
        let unregistered = story.nodes[SENDER].unregister(story.now, session, story.seq, &last, &mut Output::default());
        unregistered.expect("the member is registered");
        while story.nodes[SENDER].counters().tombstones_collected == 0 {
            let want = story.step();
            story.deliver(want.into_iter().map(|want| (SENDER, want)).collect());
        }
        story
    }

    /// Changes member 0 and delivers the change in the given way.
    fn change(&mut self, way: Way) -> Cost {
        self.seq += 1;
        let change = MetadataUpdate::set("shard", format!("{:04}", self.seq % 10_000));
        let (id, session) = (support::id(Ids::Short, 0), self.sessions[0]);
        let changed =
            self.nodes[SENDER].update(self.now, session, self.seq, &id, &change, None, &mut Output::default());
        changed.expect("the member belongs to the session");
        let merges = self.nodes[RECEIVER].counters().full_merges;
        let cost = match way {
            Way::Push => self.push(),
            Way::Exchange => {
                let want = self.await_want();
                self.deliver(vec![(SENDER, want)])
            }
            Way::FullMerge => self.deliver(vec![(SENDER, self.old_want.clone())]),
        };
        assert_eq!(self.nodes[RECEIVER].context_hash(), self.nodes[SENDER].context_hash(), "the change has arrived");
        assert_eq!(self.nodes[RECEIVER].counters().full_merges - merges, u64::from(way == Way::FullMerge));
        cost
    }

    fn push(&mut self) -> Cost {
        let mut out = Output::default();
        let start = Instant::now();
        self.nodes[SENDER].flush(self.now, &mut out);
        let sender = start.elapsed();
        let frames = frames(&mut out).map(|frame| (RECEIVER, frame)).collect();
        let cost = self.deliver(frames);
        Cost { sender: cost.sender + sender, ..cost }
    }

    /// Advances until the receiver detects, by a ping, that it misses something.
    fn await_want(&mut self) -> Bytes {
        loop {
            if let Some(want) = self.step() {
                return want;
            }
        }
    }

    /// Advances to the next wake-up of a node. Nothing is pushed; a request of the receiver is returned instead of
    /// delivered.
    fn step(&mut self) -> Option<Bytes> {
        let index = usize::from(self.nodes[1].next_wake() < self.nodes[0].next_wake());
        self.now = self.nodes[index].next_wake().max(self.now);
        let mut out = Output::default();
        for session in &self.sessions {
            self.nodes[SENDER].heartbeat(self.now, *session, &mut out).expect("the session exists");
        }
        self.nodes[index].wake(self.now, &mut out);
        let mut want = None;
        for frame in frames(&mut out).collect::<Vec<_>>() {
            self.nodes[1 - index].received(self.now, self.links[1 - index], &frame, &mut out);
            want = want.or(frames(&mut out).find(|frame| frame[0] == WANT));
        }
        want
    }

    /// Delivers frames in both directions until none is left.
    fn deliver(&mut self, mut waiting: Vec<(usize, Bytes)>) -> Cost {
        let mut cost = Cost { bytes: 0, sender: Duration::ZERO, receiver: Duration::ZERO };
        let mut out = Output::default();
        while !waiting.is_empty() {
            for (to, frame) in std::mem::take(&mut waiting) {
                cost.bytes += frame.len() as u64;
                let start = Instant::now();
                self.nodes[to].received(self.now, self.links[to], &frame, &mut out);
                let time = if to == SENDER { &mut cost.sender } else { &mut cost.receiver };
                *time += start.elapsed();
                waiting.extend(frames(&mut out).map(|frame| (1 - to, frame)));
            }
        }
        cost
    }
}

fn frames(out: &mut Output) -> impl Iterator<Item = Bytes> {
    out.events.clear();
    out.effects.drain(..).filter_map(|effect| match effect {
        Effect::Send { frame, .. } => Some(frame),
        _ => None,
    })
}
