//! A network in memory and in virtual time: real nodes, real frames, links with one millisecond of latency.

use convoke_core::node::{ConnId, DialId, Effect, LinkId, Notice, SeedFailure, Start};
use convoke_core::version::NodeId;
use convoke_core::{Config, Node, Output, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const LATENCY: Duration = Duration::from_millis(1);

enum Arrival {
    Connected { dial: DialId, dialer: usize, target: Option<usize> },
    Frame { link: LinkId, frame: Vec<u8> },
    Closed { link: LinkId },
}

/// Output of a node for the server around it.
#[derive(Debug)]
pub(crate) enum NodeOutput {
    Notice { conn: ConnId, notice: Notice },
    Close { conn: ConnId },
    CloseAll { node: usize },
}

pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) now: Time,
    pub(crate) outputs: Vec<NodeOutput>,
    /// Pairs of nodes that cannot reach each other.
    pub(crate) cut: BTreeSet<(usize, usize)>,
    /// The node at each end of each link; the other end of link i is i ^ 1.
    ends: Vec<usize>,
    arrivals: BTreeMap<(Time, u64), Arrival>,
    sequence: u64,
}

pub(crate) fn client_address(index: usize) -> String {
    format!("node-{index}:7700")
}

pub(crate) fn node_at(address: &str) -> Option<usize> {
    address.strip_prefix("node-")?.split(':').next()?.parse().ok()
}

impl Cluster {
    /// Creates nodes that have each other as seeds, and waits until they are serving.
    pub(crate) fn new(size: usize) -> Cluster {
        let mut cluster = Cluster {
            nodes: Vec::new(),
            now: Time::from_secs(1),
            outputs: Vec::new(),
            cut: BTreeSet::new(),
            ends: Vec::new(),
            arrivals: BTreeMap::new(),
            sequence: 0,
        };
        for index in 0..size {
            let mut config = Config::new(NodeId::new(&format!("node-{index}")).expect("a valid id"));
            config.peer_address = format!("node-{index}:7701");
            config.client_address = client_address(index);
            config.seeds = (0..index).map(|seed| format!("node-{seed}:7701")).collect();
            config.random_seed = index as u64;
            let start = Start { nonce: index as u64 + 1, ..Start::default() };
            cluster.nodes.push(Node::new(config, start, cluster.now).expect("a valid configuration"));
            cluster.with(index, Node::begin);
        }
        cluster.run_for(Duration::from_secs(6));
        assert!(cluster.nodes.iter().all(Node::is_serving));
        cluster
    }

    /// Calls a node as its shell would, and performs its effects.
    pub(crate) fn with<R>(&mut self, index: usize, call: impl FnOnce(&mut Node, Time, &mut Output) -> R) -> R {
        let mut out = Output::default();
        let result = call(&mut self.nodes[index], self.now, &mut out);
        self.nodes[index].flush(self.now, &mut out);
        for effect in out.effects {
            self.perform(index, effect);
        }
        result
    }

    fn perform(&mut self, from: usize, effect: Effect) {
        match effect {
            Effect::Dial { dial, address, .. } => {
                let target = node_at(&address).filter(|to| *to < self.nodes.len() && !self.severed(from, *to));
                self.later(Arrival::Connected { dial, dialer: from, target });
            }
            Effect::Send { link, frame } => {
                if !self.severed(from, self.ends[link.0 as usize ^ 1]) {
                    self.later(Arrival::Frame { link: LinkId(link.0 ^ 1), frame: frame.to_vec() });
                }
            }
            Effect::CloseLink { link } => self.later(Arrival::Closed { link: LinkId(link.0 ^ 1) }),
            Effect::Notify { conn, notice } => self.outputs.push(NodeOutput::Notice { conn, notice }),
            Effect::CloseClient { conn } => self.outputs.push(NodeOutput::Close { conn }),
            Effect::CloseAllClients => self.outputs.push(NodeOutput::CloseAll { node: from }),
            Effect::Persist { .. }
            | Effect::Archive { .. }
            | Effect::Readable { .. }
            | Effect::Checks { .. }
            | Effect::CheckReported(_) => {}
            Effect::Restart { .. } | Effect::Stop { .. } => panic!("no node of a test restarts: {effect:?}"),
        }
    }

    fn severed(&self, a: usize, b: usize) -> bool {
        self.cut.contains(&(a.min(b), a.max(b)))
    }

    fn later(&mut self, arrival: Arrival) {
        self.sequence += 1;
        self.arrivals.insert((self.now + LATENCY, self.sequence), arrival);
    }

    pub(crate) fn run_for(&mut self, duration: Duration) {
        self.run_until(self.now + duration);
    }

    pub(crate) fn run_until(&mut self, end: Time) {
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
            Arrival::Connected { dial, dialer, target: Some(target) } => {
                let link = self.ends.len() as u64;
                self.ends.extend([dialer, target]);
                self.with(target, |node, now, out| node.accepted(now, LinkId(link + 1), out));
                self.with(dialer, |node, now, out| node.dialled(now, dial, LinkId(link), out));
            }
            Arrival::Connected { dial, dialer, target: None } => {
                self.with(dialer, |node, now, out| node.dial_failed(now, dial, SeedFailure::Refused, out));
            }
            Arrival::Frame { link, frame } => {
                self.with(self.ends[link.0 as usize], |node, now, out| node.received(now, link, &frame, out));
            }
            Arrival::Closed { link } => {
                self.with(self.ends[link.0 as usize], |node, now, out| node.closed(now, link, out));
            }
        }
    }
}
