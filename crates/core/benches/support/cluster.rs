//! A network in memory and in virtual time: real nodes, real frames, in-order links with about one millisecond of
//! latency.

use super::{config, start};
use bytes::Bytes;
use convoke_core::node::{DialId, Effect, LinkId, SeedFailure, Start};
use convoke_core::time::Duration;
use convoke_core::{Config, Node, Output, Time};
use std::collections::BTreeMap;

/// A frame in flight, recorded by the tap.
pub struct Tapped {
    pub from: usize,
    pub to: usize,
    pub bytes: Bytes,
}

/// Bytes of frames by purpose, without framing, TCP and IP.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    pub pings: u64,
    pub pushes: u64,
    /// Wants, chunks and their acknowledgements.
    pub exchanges: u64,
    pub exchange_count: u64,
    pub rest: u64,
}

impl Traffic {
    pub fn total(&self) -> u64 {
        self.pings + self.pushes + self.exchanges + self.rest
    }

    /// The first byte of a frame is the kind of its message.
    fn count(&mut self, frame: &[u8]) {
        let bytes = frame.len() as u64;
        match frame[0] {
            3 => self.pings += bytes,
            4 => self.pushes += bytes,
            kind @ 5..=8 => {
                self.exchanges += bytes;
                self.exchange_count += u64::from(kind == 5);
            }
            _ => self.rest += bytes,
        }
    }
}

enum Arrival {
    Connected { dial: DialId, dialer: usize, target: usize },
    Frame { link: LinkId, frame: Bytes },
    Closed { link: LinkId },
}

pub struct Cluster {
    pub nodes: Vec<Node>,
    pub now: Time,
    pub traffic: Traffic,
    /// Collects every frame sent while it is set.
    pub tap: Option<Vec<Tapped>>,
    /// This node's dials fail: it has to be dialled.
    pub cannot_dial: Option<usize>,
    /// The node at each end of each link; the other end of link i is i ^ 1.
    ends: Vec<usize>,
    latencies: Vec<Duration>,
    /// Latencies of new links, in microseconds.
    pub latency: std::ops::Range<u64>,
    arrivals: BTreeMap<(Time, u64), Arrival>,
    sequence: u64,
    random: fastrand::Rng,
    out: Output,
}

/// Node 0 starts the cluster; all others have its address as a seed.
pub fn config_of(index: usize) -> Config {
    let mut config = config(&format!("node-{index:03}"));
    if index > 0 {
        config.seeds.push(config_of(0).peer_address);
    }
    // Spreads the ping times of the nodes.
    config.random_seed = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    config
}

fn index_at(address: &str) -> Option<usize> {
    address.strip_prefix("node-")?.split(':').next()?.parse().ok()
}

pub fn start_of(index: usize) -> Start {
    start(0x0123_4567_89ab_cdef ^ index as u64)
}

impl Cluster {
    pub fn new(size: usize) -> Cluster {
        let mut cluster = Cluster {
            nodes: Vec::new(),
            now: Time::from_secs(1),
            traffic: Traffic::default(),
            tap: None,
            cannot_dial: None,
            ends: Vec::new(),
            latencies: Vec::new(),
            latency: 500..1_500,
            arrivals: BTreeMap::new(),
            sequence: 0,
            random: fastrand::Rng::with_seed(7),
            out: Output::default(),
        };
        for _ in 0..size {
            cluster.add_node();
        }
        cluster
    }

    /// Adds one more node, which starts to join at once.
    pub fn add_node(&mut self) {
        let index = self.nodes.len();
        let node = Node::new(config_of(index), start_of(index), self.now).expect("the configuration is valid");
        self.nodes.push(node);
        self.with(index, Node::begin);
    }

    /// Calls a node as its shell would, and performs its effects.
    pub fn with<R>(&mut self, index: usize, call: impl FnOnce(&mut Node, Time, &mut Output) -> R) -> R {
        let mut out = std::mem::take(&mut self.out);
        let result = call(&mut self.nodes[index], self.now, &mut out);
        self.nodes[index].flush(self.now, &mut out);
        for effect in out.effects.drain(..) {
            self.perform(index, effect);
        }
        out.events.clear();
        self.out = out;
        result
    }

    fn perform(&mut self, from: usize, effect: Effect) {
        match effect {
            Effect::Dial { dial, address, .. } => {
                let target = index_at(&address).expect("only nodes of the cluster are dialled");
                self.later(Duration::from_millis(1), Arrival::Connected { dial, dialer: from, target });
            }
            Effect::Send { link, frame } => {
                self.traffic.count(&frame);
                let to = self.ends[link.0 as usize ^ 1];
                if let Some(tap) = &mut self.tap {
                    tap.push(Tapped { from, to, bytes: frame.clone() });
                }
                let latency = self.latencies[link.0 as usize / 2];
                self.later(latency, Arrival::Frame { link: LinkId(link.0 ^ 1), frame });
            }
            Effect::CloseLink { link } => {
                let latency = self.latencies[link.0 as usize / 2];
                self.later(latency, Arrival::Closed { link: LinkId(link.0 ^ 1) });
            }
            Effect::Persist { .. } | Effect::Readable { .. } | Effect::Notify { .. } => {}
            other => panic!("unexpected effect in a healthy cluster: {other:?}"),
        }
    }

    fn later(&mut self, delay: Duration, arrival: Arrival) {
        self.sequence += 1;
        self.arrivals.insert((self.now + delay, self.sequence), arrival);
    }

    pub fn run_for_millis(&mut self, millis: u64) {
        self.run_until(self.now + Duration::from_millis(millis));
    }

    /// Advances from one event to the next.
    pub fn run_until(&mut self, end: Time) {
        loop {
            let wake = self.nodes.iter().map(Node::next_wake).min().unwrap_or(Time::MAX);
            let arrival = self.arrivals.first_key_value().map_or(Time::MAX, |((at, _), _)| *at);
            let next = wake.min(arrival);
            if next > end {
                break;
            }
            self.now = next.max(self.now);
            if wake <= arrival {
                for index in 0..self.nodes.len() {
                    if self.nodes[index].next_wake() <= self.now {
                        self.with(index, Node::wake);
                    }
                }
            } else if let Some((_, arrival)) = self.arrivals.pop_first() {
                self.arrive(arrival);
            }
        }
        self.now = end;
    }

    fn arrive(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Connected { dial, dialer, .. } if self.cannot_dial == Some(dialer) => {
                self.with(dialer, |node, now, out| node.dial_failed(now, dial, SeedFailure::Refused, out));
            }
            Arrival::Connected { dial, dialer, target } => {
                let link = self.ends.len() as u64;
                self.ends.extend([dialer, target]);
                // Constant per link, so that frames stay in order.
                self.latencies.push(Duration::from_micros(self.random.u64(self.latency.clone())));
                self.with(target, |node, now, out| node.accepted(now, LinkId(link + 1), out));
                self.with(dialer, |node, now, out| node.dialled(now, dial, LinkId(link), out));
            }
            Arrival::Frame { link, frame } => {
                self.with(self.ends[link.0 as usize], |node, now, out| node.received(now, link, &frame, out));
            }
            Arrival::Closed { link } => {
                self.with(self.ends[link.0 as usize], |node, now, out| node.closed(now, link, out));
            }
        }
    }

    /// Cuts the link between two nodes; they will dial again.
    pub fn cut(&mut self, a: usize, b: usize) {
        for link in self.link_between(a, b) {
            self.later(Duration::ZERO, Arrival::Closed { link });
        }
        self.run_until(self.now);
    }

    /// The ends, at `a` and at `b`, of the newest link between two nodes.
    pub fn link_between(&self, a: usize, b: usize) -> [LinkId; 2] {
        let found = (0..self.ends.len()).rev().find(|link| self.ends[*link] == a && self.ends[*link ^ 1] == b);
        let link = found.expect("the nodes are linked") as u64;
        [LinkId(link), LinkId(link ^ 1)]
    }

    /// Whether every node is serving and all contexts are equal.
    pub fn agrees(&self) -> bool {
        let hash = self.nodes[0].context_hash();
        self.nodes.iter().all(|node| node.is_serving() && node.context_hash() == hash)
    }
}
