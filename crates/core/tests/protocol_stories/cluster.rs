//! A few nodes in virtual time. Frames pass through one queue, in order, with a fixed delay.

use convoke_core::error::Rejection;
use convoke_core::member::{Member, MemberSpec};
use convoke_core::node::dial_order;
use convoke_core::node::{
    Attach, AttachMember, Attached, ConnId, DialId, Effect, LinkId, Notice, PeerState, RegistryEvent, SeedFailure,
    Start, StopReason,
};
use convoke_core::version::NodeId;
use convoke_core::{Config, Node, Output, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Delay until an end of file is detected.
pub const EOF_DELAY: Duration = Duration::from_millis(3);

pub fn ms(ms: u64) -> Time {
    Time::from_micros(ms * 1000)
}

/// A recorded event that a test may check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A frame of this type was sent.
    Sent(u8),
    Dialled(String),
    DialFailed,
    Connected,
    Event(RegistryEvent),
    Notice(ConnId, Notice),
    Stopped(StopReason),
}

/// Types of messages on the wire.
pub const PING: u8 = 3;
pub const CHUNK_ABORT: u8 = 8;
pub const HEALTH_QUERY: u8 = 9;

/// A name that leads to all hosts.
pub const EVERY_HOST: &str = "every-host:7000";

#[derive(Debug)]
enum Delivery {
    Frame { to: usize, link: LinkId, bytes: Vec<u8> },
    Closed { to: usize, link: LinkId },
    Connect { from: usize, dial: DialId, address: String, turn: u32 },
}

#[derive(Debug)]
struct Host {
    config: Config,
    node: Option<Node>,
    persisted: u64,
    incarnations: u64,
}

#[derive(Debug)]
pub struct Cluster {
    pub now: Time,
    pub delay: Duration,
    hosts: Vec<Host>,
    /// Both ends of every connection.
    wires: BTreeMap<(usize, LinkId), (usize, LinkId)>,
    queue: BTreeMap<(Time, u64), Delivery>,
    sequence: u64,
    /// Pairs of hosts that cannot reach each other.
    cuts: BTreeSet<(usize, usize)>,
    pub log: Vec<(Time, usize, Seen)>,
    /// Bytes of frames sent from one host to another.
    pub sent_bytes: BTreeMap<(usize, usize), u64>,
}

impl Cluster {
    /// Creates hosts that are not started yet. Each has those before it as seeds, so that the first one starts alone.
    pub fn new(names: &[&str]) -> Self {
        let hosts = names.iter().enumerate().map(|(at, name)| {
            let mut config = Config::new(NodeId::new(name).unwrap());
            config.peer_address = format!("{name}:7000");
            config.client_address = format!("{name}:7001");
            config.seeds = names[..at].iter().map(|name| format!("{name}:7000")).collect();
            config.retry_jitter = 0.0;
            config.random_seed = at as u64;
            Host { config, node: None, persisted: 0, incarnations: 0 }
        });
        Cluster {
            now: Time::ZERO,
            delay: Duration::from_millis(1),
            hosts: hosts.collect(),
            wires: BTreeMap::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            cuts: BTreeSet::new(),
            log: Vec::new(),
            sent_bytes: BTreeMap::new(),
        }
    }

    /// Starts all hosts one after the other, and waits until everything is settled.
    pub fn settled(names: &[&str]) -> Self {
        let mut cluster = Cluster::new(names);
        for (at, name) in names.iter().enumerate() {
            cluster.start(at);
            cluster.run(Duration::from_secs(1));
            assert!(cluster.node(at).is_serving(), "{name} is not serving");
        }
        cluster.run(Duration::from_secs(3));
        cluster.assert_agreed();
        cluster
    }

    pub fn config(&mut self, at: usize) -> &mut Config {
        &mut self.hosts[at].config
    }

    pub fn start(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        assert!(host.node.is_none(), "the host is running");
        host.incarnations += 1;
        let nonce = host.incarnations * 1000 + at as u64;
        let start = Start { persisted: host.persisted, nonce, wall_ms: 1, ..Start::default() };
        host.node = Some(Node::new(host.config.clone(), start, self.now).unwrap());
        self.call(at, Node::begin);
    }

    /// The process dies; its peers detect the end of file shortly after.
    pub fn crash(&mut self, at: usize) {
        self.hosts[at].node = None;
        let ends: Vec<_> = self.wires.iter().filter(|((host, _), _)| *host == at).map(|(a, b)| (*a, *b)).collect();
        for (own, (to, link)) in ends {
            self.wires.remove(&own);
            self.deliver(EOF_DELAY, Delivery::Closed { to, link });
        }
    }

    /// Two hosts can no longer reach each other. Connections stay open, but frames do not arrive.
    pub fn cut(&mut self, a: usize, b: usize) {
        self.cuts.extend([(a, b), (b, a)]);
    }

    pub fn heal(&mut self) {
        self.cuts.clear();
    }

    /// Breaks the connections between two hosts; both detect it, and may connect again.
    pub fn reset(&mut self, a: usize, b: usize) {
        let ends: Vec<_> = self.wires.iter().filter(|((x, _), (y, _))| *x == a && *y == b).collect();
        let ends: Vec<_> = ends.into_iter().flat_map(|(x, y)| [*x, *y]).collect();
        for (to, link) in ends {
            self.wires.remove(&(to, link));
            self.deliver(EOF_DELAY, Delivery::Closed { to, link });
        }
    }

    /// The next start finds nothing on disk.
    pub fn lose_disk(&mut self, at: usize) {
        self.hosts[at].persisted = 0;
    }

    /// A host's end of its connection to another.
    pub fn link(&self, at: usize, to: usize) -> LinkId {
        let own = self.wires.iter().find(|((host, _), (other, _))| *host == at && *other == to);
        own.map(|((_, link), _)| *link).expect("the hosts are connected")
    }

    pub fn is_running(&self, at: usize) -> bool {
        self.hosts[at].node.is_some()
    }

    #[track_caller]
    pub fn node(&self, at: usize) -> &Node {
        self.hosts[at].node.as_ref().expect("the host is running")
    }

    /// Calls a node and performs its effects.
    #[track_caller]
    pub fn call<T>(&mut self, at: usize, call: impl FnOnce(&mut Node, Time, &mut Output) -> T) -> T {
        let mut out = Output::default();
        let now = self.now;
        let node = self.hosts[at].node.as_mut().expect("the host is running");
        node.set_wall_clock(now.as_micros() / 1000);
        let result = call(node, now, &mut out);
        node.flush(now, &mut out);
        self.follow(at, out);
        result
    }

    pub fn run(&mut self, duration: Duration) {
        self.run_until(self.now + duration);
    }

    /// Runs everything that is due up to and including this time.
    pub fn run_until(&mut self, end: Time) {
        loop {
            let wakes =
                self.hosts.iter().enumerate().filter_map(|(at, host)| Some((host.node.as_ref()?.next_wake(), at)));
            let wake = wakes.min().unwrap_or((Time::MAX, 0));
            let next = self.queue.first_key_value().map_or(Time::MAX, |((at, _), _)| *at);
            if wake.0.min(next) > end {
                break;
            }
            self.now = self.now.max(wake.0.min(next));
            if next <= wake.0 {
                let (_, delivery) = self.queue.pop_first().expect("the queue is not empty");
                self.receive(delivery);
            } else {
                self.call(wake.1, Node::wake);
            }
        }
        self.now = end;
    }

    fn deliver(&mut self, after: Duration, delivery: Delivery) {
        self.sequence += 1;
        self.queue.insert((self.now + after, self.sequence), delivery);
    }

    fn receive(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Frame { to, link, bytes } => {
                if self.wires.contains_key(&(to, link)) && self.is_running(to) {
                    self.call(to, |node, now, out| node.received(now, link, &bytes, out));
                }
            }
            Delivery::Closed { to, link } => {
                self.wires.remove(&(to, link));
                if self.is_running(to) {
                    self.call(to, |node, now, out| node.closed(now, link, out));
                }
            }
            Delivery::Connect { from, dial, address, turn } => self.connect(from, dial, &address, turn),
        }
    }

    fn connect(&mut self, from: usize, dial: DialId, address: &str, turn: u32) {
        if !self.is_running(from) {
            return;
        }
        // As a resolver does, a name puts the host itself first.
        let leads_to = |at: &usize| address == EVERY_HOST || self.hosts[*at].config.peer_address == *address;
        let found: Vec<usize> =
            std::iter::once(from).chain((0..self.hosts.len()).filter(|at| *at != from)).filter(leads_to).collect();
        let count = found.len();
        let accepts = |to: &usize| self.hosts[*to].node.is_some() && !self.cuts.contains(&(from, *to));
        let to = dial_order(found, turn).into_iter().find(accepts);
        self.call(from, |node, _, _| node.resolved(dial, count));
        let Some(to) = to else {
            self.log.push((self.now, from, Seen::DialFailed));
            self.call(from, |node, now, out| node.dial_failed(now, dial, SeedFailure::Refused, out));
            return;
        };
        self.sequence += 2;
        let [here, there] = [LinkId(self.sequence), LinkId(self.sequence - 1)];
        self.wires.insert((from, here), (to, there));
        self.wires.insert((to, there), (from, here));
        self.log.push((self.now, from, Seen::Connected));
        self.call(to, |node, now, out| node.accepted(now, there, out));
        self.call(from, |node, now, out| node.dialled(now, dial, here, out));
    }

    fn follow(&mut self, at: usize, out: Output) {
        for event in out.events {
            self.log.push((self.now, at, Seen::Event(event)));
        }
        for effect in out.effects {
            match effect {
                Effect::Dial { dial, address, turn } => {
                    self.log.push((self.now, at, Seen::Dialled(address.clone())));
                    self.deliver(Duration::ZERO, Delivery::Connect { from: at, dial, address, turn });
                }
                Effect::Send { link, frame } => {
                    self.log.push((self.now, at, Seen::Sent(frame[0])));
                    let limit = self.hosts[at].config.limits.frame_bytes;
                    assert!(frame.len() <= limit, "a frame of {} bytes, at most {limit} are allowed", frame.len());
                    let other = self.wires.get(&(at, link)).copied();
                    if let Some((to, link)) = other.filter(|(to, _)| !self.cuts.contains(&(at, *to))) {
                        *self.sent_bytes.entry((at, to)).or_default() += frame.len() as u64;
                        self.deliver(self.delay, Delivery::Frame { to, link, bytes: frame.to_vec() });
                    }
                }
                Effect::CloseLink { link } => {
                    let other = self.wires.remove(&(at, link));
                    if let Some((to, link)) = other.filter(|(to, _)| !self.cuts.contains(&(at, *to))) {
                        self.deliver(self.delay, Delivery::Closed { to, link });
                    }
                }
                Effect::Notify { conn, notice } => self.log.push((self.now, at, Seen::Notice(conn, notice))),
                Effect::Persist { incarnation } => self.hosts[at].persisted = incarnation,
                Effect::Archive { .. } => {}
                Effect::Stop { reason } => {
                    self.log.push((self.now, at, Seen::Stopped(reason)));
                    self.crash_after_sending(at);
                }
                Effect::Restart { .. } => panic!("no test makes a node restart itself"),
                Effect::CloseClient { .. }
                | Effect::CloseAllClients
                | Effect::Readable { .. }
                | Effect::Checks { .. }
                | Effect::CheckReported(_) => {}
            }
        }
    }

    /// The process ends cleanly: its sent frames still arrive.
    fn crash_after_sending(&mut self, at: usize) {
        self.hosts[at].node = None;
        let ends: Vec<_> = self.wires.iter().filter(|((host, _), _)| *host == at).map(|(a, b)| (*a, *b)).collect();
        for (own, (to, link)) in ends {
            self.wires.remove(&own);
            self.deliver(self.delay, Delivery::Closed { to, link });
        }
    }

    /// Times at which a host recorded an event, in order.
    pub fn times(&self, at: usize, what: impl Fn(&Seen) -> bool) -> Vec<Time> {
        self.log.iter().filter(|(_, host, seen)| *host == at && what(seen)).map(|(time, _, _)| *time).collect()
    }

    pub fn events(&self, at: usize) -> impl Iterator<Item = &RegistryEvent> {
        self.log.iter().filter_map(move |(_, host, seen)| match seen {
            Seen::Event(event) if *host == at => Some(event),
            _ => None,
        })
    }

    pub fn notices(&self, at: usize, conn: ConnId) -> Vec<Notice> {
        let notices = self.log.iter().filter_map(|(_, host, seen)| match seen {
            Seen::Notice(to, notice) if *host == at && *to == conn => Some(notice.clone()),
            _ => None,
        });
        notices.collect()
    }

    /// Returns a node's link state of another node.
    #[track_caller]
    pub fn peer_state(&self, at: usize, name: &str) -> PeerState {
        let peer = self.node(at).peers().into_iter().find(|peer| peer.node.as_str() == name);
        peer.unwrap_or_else(|| panic!("{name} is unknown")).state
    }

    /// Checks that all running nodes have the same slots and the same context.
    #[track_caller]
    pub fn assert_agreed(&self) {
        let running: Vec<&Node> = self.hosts.iter().filter_map(|host| host.node.as_ref()).collect();
        for node in &running[1..] {
            assert_eq!(node.context(), running[0].context(), "{:?} and {:?}", node.origin(), running[0].origin());
            assert_eq!(node.slots(), running[0].slots(), "{:?} and {:?}", node.origin(), running[0].origin());
        }
    }

    pub fn attach(&mut self, at: usize, conn: u64, request: &Attach) -> Result<Attached, Rejection> {
        self.call(at, |node, now, out| node.attach(now, ConnId(conn), request, out))
    }

    /// The member as a node shows it.
    #[track_caller]
    pub fn member(&self, at: usize, id: &str) -> Member {
        self.node(at).member(id).unwrap_or_else(|| panic!("{id} is not shown at {:?}", self.node(at).origin()))
    }
}

/// An attach of process 1 of a client.
pub fn attach(client: &str, claim: u64, ids: &[&str]) -> Attach {
    let member = |id: &&str| AttachMember { spec: MemberSpec::new(*id, "orders"), takeover: false };
    Attach {
        client: client.to_owned(),
        nonce: 1,
        claim,
        members: ids.iter().map(member).collect(),
        ..Attach::default()
    }
}
