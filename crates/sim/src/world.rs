//! The world: hosts, clients and subscribers on a virtual network in virtual time.
//!
//! # Scripting it
//!
//! ```ignore
//! let mut world = World::new(Setup { nodes: 3, ..Setup::default() });
//! world.start_all();
//! world.run_until(|w| w.all_ready(), 30 * SECOND)?;
//! let client = world.add_client("c1", &["m1", "m2"]);     // living, with members; world.connect(client, host) to place it
//! world.run_until(|w| w.shown_everywhere("m1", Status::Up), 10 * SECOND)?;
//! let cut = world.partition(&[0], &[1, 2]);               // also one_way(from, to); heal(cut), heal_all()
//! world.crash(0, Crash::Silent); world.start(0);          // crash, power cut, restart; pause(host, micros); stop(host)
//! world.advance(20 * SECOND);
//! world.settle()?;                                        // heals, waits for convergence, runs all final checks
//! world.finish()?;                                        // Err(Violation) if anything was violated on the way
//! ```
//!
//! `world.node(i)` is the real core; `world.status(i, id)` what it shows; `world.stream_log(subscriber)` what a recording
//! subscriber saw. Every step runs the invariants of `invariants/`.

use crate::client::{Client, ClientMessage};
use crate::faults::{Action, Faults};
use crate::host::{Host, HostState, Input};
use crate::invariants::{self, Invariant, Violation};
use crate::network::{Connection, Cut, End, Item, Kind, Micros, Network, Parcel, Place, SECOND};
use crate::stats::Stats;
use crate::subscriber::Subscriber;
use crate::trace::{Fold, Line, Trace};
use crate::truth::Truth;
use convoke_core::member::Status;
use convoke_core::node::{ConnId, DialId, Effect, Event as NodeEvent, LinkId, Start, StopReason};
use convoke_core::version::NodeId;
use convoke_core::{Config, Limits, Mutation, Node, Output, Timers};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// How nodes learn of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Everybody is told everybody.
    Full,
    /// Each is told its predecessor.
    Line,
    /// Each is told the first.
    Star,
    /// Each is told all before it.
    OneSided,
}

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    pub seed: u64,
    /// Decides wall clocks only.
    pub wall_seed: u64,
    pub nodes: usize,
    pub regions: usize,
    pub topology: Topology,
    pub timers: Timers,
    pub limits: Limits,
    pub mutation: Mutation,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            seed: 1,
            wall_seed: 1,
            nodes: 3,
            regions: 1,
            topology: Topology::Full,
            timers: Timers::default(),
            limits: Limits::default(),
            mutation: Mutation::none(),
        }
    }
}

/// How a host stops without warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process dies; the kernel closes its connections.
    Process,
    /// The power goes; nobody is told.
    Silent,
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Deliver { conn: u64, side: usize },
    Wake { host: usize, boot: u64 },
    Resume { host: usize, boot: u64 },
    Continue { host: usize, boot: u64 },
    DialArrives { from: Place, run: u64, dial: u64, to: usize },
    DialRefused { from: Place, run: u64, dial: u64 },
    DialTimeout { host: usize, boot: u64, dial: u64 },
    ClientTimer { client: usize, generation: u64, timer: ClientTimer },
    Read { subscriber: usize, generation: u64 },
    Check,
    Action(Box<Action>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientTimer {
    Retry,
    Connect,
    Attach,
    Heartbeat,
}

#[derive(Debug)]
struct Scheduled {
    at: Micros,
    sequence: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// How long a connection attempt may take.
const DIAL_TIMEOUT: Micros = 3 * SECOND;
/// How often the coarse checks run.
const CHECK_PERIOD: Micros = 30 * SECOND;

#[derive(Debug)]
pub struct World {
    pub now: Micros,
    pub setup: Setup,
    pub rng: fastrand::Rng,
    pub(crate) wall_rng: fastrand::Rng,
    pub hosts: Vec<Host>,
    pub network: Network,
    pub clients: Vec<Client>,
    pub subscribers: Vec<Subscriber>,
    pub truth: Truth,
    pub trace: Trace,
    pub stats: Stats,
    pub faults: Faults,
    pub violation: Option<Violation>,
    pub(crate) invariants: Vec<Box<dyn Invariant>>,
    heap: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
    out: Output,
}

impl World {
    pub fn new(setup: Setup) -> Self {
        let mut world = World {
            now: 0,
            rng: fastrand::Rng::with_seed(setup.seed),
            wall_rng: fastrand::Rng::with_seed(setup.wall_seed ^ 0x77a1_1c10_c4f0_0d5e),
            setup,
            hosts: Vec::new(),
            network: Network::default(),
            clients: Vec::new(),
            subscribers: Vec::new(),
            truth: Truth::default(),
            trace: Trace::default(),
            stats: Stats::default(),
            faults: Faults::default(),
            violation: None,
            invariants: invariants::all(),
            heap: BinaryHeap::new(),
            sequence: 0,
            out: Output::default(),
        };
        for host in 0..world.setup.nodes {
            let seeds = world.seeds_of(host);
            world.add_host(&format!("n{host}"), seeds);
        }
        world.schedule(CHECK_PERIOD, Event::Check);
        world
    }

    /// Adds a machine; its node is started with [`World::start`].
    pub fn add_host(&mut self, name: &str, seeds: Vec<String>) -> usize {
        let index = self.hosts.len();
        let mut config = Config::new(NodeId::new(name).expect("names of simulated nodes are valid"));
        let region = index % self.setup.regions.max(1);
        config.region = format!("r{region}");
        config.peer_address = format!("h{index}:7000");
        config.client_address = format!("h{index}:7001");
        config.seeds = seeds;
        config.timers = self.setup.timers.clone();
        config.limits = self.setup.limits.clone();
        config.hash_seed = self.rng.u64(..);
        config.random_seed = self.rng.u64(..);
        config.validate().expect("plans make valid configurations");
        let mut host = Host::new(config, region);
        host.clock_base = self.rng.u64(..1_000_000 * SECOND);
        host.wall_offset = self.wall_rng.i64(-10_000_000..10_000_000);
        self.hosts.push(host);
        index
    }

    fn seeds_of(&self, host: usize) -> Vec<String> {
        let address = |index: usize| format!("h{index}:7000");
        match self.setup.topology {
            Topology::Full => (0..self.setup.nodes).filter(|i| *i != host).map(address).collect(),
            Topology::Line => host.checked_sub(1).map(address).into_iter().collect(),
            Topology::Star if host == 0 => Vec::new(),
            Topology::Star => vec![address(0)],
            Topology::OneSided => (0..host).map(address).collect(),
        }
    }

    pub(crate) fn schedule(&mut self, at: Micros, event: Event) {
        self.sequence += 1;
        self.heap.push(Reverse(Scheduled { at: at.max(self.now), sequence: self.sequence, event }));
    }

    pub(crate) fn schedule_action(&mut self, delay: Micros, action: Action) {
        self.schedule(self.now + delay, Event::Action(Box::new(action)));
    }

    /// Processes everything up to `until`, or up to the first violation.
    pub fn run_to(&mut self, until: Micros) {
        while self.violation.is_none() {
            match self.heap.peek() {
                Some(Reverse(next)) if next.at <= until => {}
                _ => break,
            }
            let Some(Reverse(next)) = self.heap.pop() else { break };
            self.now = next.at;
            self.handle(next.event);
        }
        if self.violation.is_none() {
            self.now = self.now.max(until);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Deliver { conn, side } => self.deliver(conn, side),
            Event::Wake { host, boot } => self.wake(host, boot),
            Event::Resume { host, boot } => {
                if self.hosts[host].boot == boot {
                    self.resume(host);
                }
            }
            Event::Continue { host, boot } => {
                if self.hosts[host].boot == boot {
                    self.drain_inbox(host);
                }
            }
            Event::DialArrives { from, run, dial, to } => self.dial_arrives(from, run, dial, to),
            Event::DialRefused { from, run, dial } => match from {
                Place::Host(host) => self.dial_failed(host, run, dial),
                Place::Client(client) => self.client_refused(client, run),
            },
            Event::DialTimeout { host, boot, dial } => self.dial_failed(host, boot, dial),
            Event::ClientTimer { client, generation, timer } => {
                if self.clients[client].generation == generation {
                    self.client_timer(client, timer);
                }
            }
            Event::Read { subscriber, generation } => {
                if self.subscribers[subscriber].generation == generation {
                    self.subscribers[subscriber].reading = false;
                    self.read(subscriber);
                }
            }
            Event::Check => {
                self.schedule(self.now + CHECK_PERIOD, Event::Check);
                self.check(|invariant, world, found| invariant.periodically(world, found));
            }
            Event::Action(action) => self.act(*action),
        }
    }

    /// Runs a hook of every invariant.
    pub(crate) fn check(&mut self, mut hook: impl FnMut(&mut dyn Invariant, &World, &mut Option<Violation>)) {
        let mut invariants = std::mem::take(&mut self.invariants);
        let mut found = None;
        for invariant in &mut invariants {
            hook(invariant.as_mut(), self, &mut found);
            if found.is_some() {
                break;
            }
        }
        self.invariants = invariants;
        if let Some(violation) = found {
            self.violate(violation);
        }
    }

    pub(crate) fn violate(&mut self, violation: Violation) {
        if self.violation.is_none() {
            self.trace.text(self.now, format!("VIOLATION of {}: {}", violation.invariant, violation.message));
            self.violation = Some(violation);
        }
    }

    pub(crate) fn note(&mut self, text: String) {
        self.trace.text(self.now, text);
    }

    // ---- hosts ----

    /// Starts a new run of the node on a host.
    pub fn start(&mut self, host: usize) {
        let now = self.now;
        let nonce = self.rng.u64(1..);
        let mutation = self.setup.mutation;
        let held = &mut self.hosts[host];
        if held.state != HostState::Down {
            return;
        }
        held.boot += 1;
        held.state = HostState::Running;
        held.dark = false;
        held.stopping = false;
        held.started_at = now;
        held.ready_at = None;
        held.stopped_at = None;
        held.trouble.touch(now);
        held.wake_at = None;
        held.wake_missed = false;
        held.busy_until = now;
        let persisted = if held.has_disk { held.persisted } else { 0 };
        let start = Start { persisted, nonce, wall_ms: held.wall_ms(now), mutation };
        let node = Node::new(held.config.clone(), start, held.time(now)).expect("the configuration was validated");
        held.node = Some(node);
        for (conn, side) in std::mem::take(&mut held.silenced) {
            self.push(conn, side, Item::EndOfStream);
        }
        self.note(format!("n{host} starts, run {}, persisted {persisted}", self.hosts[host].boot));
        self.with_node(host, |node, time, out| node.begin(time, out));
    }

    pub fn start_all(&mut self) {
        for host in 0..self.hosts.len() {
            self.start(host);
        }
    }

    pub fn crash(&mut self, host: usize, crash: Crash) {
        if !self.hosts[host].running() {
            return;
        }
        self.note(format!("n{host} crashes ({crash:?})"));
        self.take_down(host, crash);
    }

    fn take_down(&mut self, host: usize, crash: Crash) {
        let now = self.now;
        self.check(|invariant, world, _| invariant.host_stopped(world, host));
        self.forget_unregistrations(host);
        let held = &mut self.hosts[host];
        held.state = HostState::Down;
        held.node = None;
        held.boot += 1;
        held.inbox.clear();
        held.dials.clear();
        held.slow = 0;
        held.dark = crash == Crash::Silent;
        held.stopped_at = Some(now);
        held.trouble.touch(now);
        if held.paused_until.take().is_some() {
            held.last_pause = (now, now - held.paused_since);
        }
        for (conn, side) in self.network.at(Place::Host(host), None) {
            self.close_end(conn, side, crash == Crash::Silent);
            if crash == Crash::Silent {
                self.hosts[host].silenced.push((conn, side));
            }
        }
        self.detach_subscribers(host);
    }

    /// What only this node knew of as unregistered may be shown by others until they infer it.
    fn forget_unregistrations(&mut self, host: usize) {
        let run = (host, self.hosts[host].boot);
        let (now, hosts) = (self.now, &self.hosts);
        for (id, claimed) in self.truth.ids.iter_mut().filter(|(_, claimed)| claimed.known_by == Some(run)) {
            let knows = |other: &Host| {
                let slot = other.node.as_ref().filter(|_| other.running()).and_then(|node| node.slot(id));
                slot.is_some_and(|slot| slot.stated == Status::Left)
            };
            let other = (0..hosts.len()).find(|other| *other != host && knows(&hosts[*other]));
            claimed.known_by = other.map(|other| (other, hosts[other].boot));
            if other.is_none() {
                claimed.silent_since = now;
            }
        }
    }

    /// Since when nothing has been done to any node.
    pub fn calm_since(&self) -> Micros {
        let now = self.now;
        let calm = |host: &Host| match host.state {
            HostState::Gone => host.stopped_at.unwrap_or(0),
            _ => now.saturating_sub(host.trouble.calm_for(now).min(host.calm_after_pause(now, SECOND))),
        };
        self.hosts.iter().map(calm).max().unwrap_or(0)
    }

    /// SIGSTOP for a while; the clock runs on.
    pub fn pause(&mut self, host: usize, duration: Micros) {
        if !self.hosts[host].running() || self.hosts[host].paused() {
            return;
        }
        self.note(format!("n{host} is paused for {} ms", duration / 1000));
        let until = self.now + duration;
        let held = &mut self.hosts[host];
        held.paused_until = Some(until);
        held.paused_since = self.now;
        let boot = held.boot;
        self.schedule(until, Event::Resume { host, boot });
    }

    pub(crate) fn resume(&mut self, host: usize) {
        let now = self.now;
        let held = &mut self.hosts[host];
        if held.paused_until.take().is_none() {
            return;
        }
        held.last_pause = (now, now - held.paused_since);
        let missed = std::mem::take(&mut held.wake_missed);
        self.note(format!("n{host} goes on"));
        // A real event loop may see its timer or its sockets first.
        if missed && self.rng.bool() {
            self.hosts[host].inbox.push_front(Input::Wake);
        } else if missed {
            self.hosts[host].inbox.push_back(Input::Wake);
        }
        self.drain_inbox(host);
        for subscriber in 0..self.subscribers.len() {
            if self.subscribers[subscriber].at.is_some_and(|(at, ..)| at == host) {
                self.schedule_read(subscriber);
            }
        }
    }

    /// SIGTERM: a graceful stop (N6).
    pub fn stop(&mut self, host: usize) {
        if self.hosts[host].running() && !self.hosts[host].stopping {
            self.note(format!("n{host} is told to stop"));
            self.hosts[host].stopping = true;
            self.hosts[host].trouble.touch(self.now);
            self.input(host, Input::Stop);
        }
    }

    fn wake(&mut self, host: usize, boot: u64) {
        if self.hosts[host].boot != boot || self.hosts[host].wake_at != Some(self.now) {
            return;
        }
        self.hosts[host].wake_at = None;
        if self.hosts[host].paused() {
            self.hosts[host].wake_missed = true;
            return;
        }
        let due = self.hosts[host].node.as_ref().map(Node::next_wake);
        let time = self.hosts[host].time(self.now);
        if due.is_some_and(|due| due > time) {
            self.schedule_wake(host);
        } else {
            self.input(host, Input::Wake);
        }
    }

    fn schedule_wake(&mut self, host: usize) {
        let held = &mut self.hosts[host];
        let Some(node) = &held.node else { return };
        let due = node.next_wake();
        if due == convoke_core::Time::MAX {
            return;
        }
        let at = held.virtual_time(due).max(self.now);
        if held.wake_at.is_none_or(|scheduled| at < scheduled) {
            held.wake_at = Some(at);
            let boot = held.boot;
            self.schedule(at, Event::Wake { host, boot });
        }
    }

    /// Something arrives at a host: it is handled at once, or waits while the host is paused or busy.
    pub(crate) fn input(&mut self, host: usize, input: Input) {
        let held = &mut self.hosts[host];
        if held.node.is_none() {
            return;
        }
        if held.paused() || held.busy_until > self.now || !held.inbox.is_empty() {
            held.inbox.push_back(input);
        } else {
            self.process(host, input);
        }
    }

    fn drain_inbox(&mut self, host: usize) {
        while self.violation.is_none() {
            let held = &mut self.hosts[host];
            if held.paused() || held.busy_until > self.now {
                return;
            }
            let Some(input) = held.inbox.pop_front() else { return };
            self.process(host, input);
        }
    }

    fn process(&mut self, host: usize, input: Input) {
        self.trace_input(host, &input);
        let now = self.now;
        let slow = self.hosts[host].slow;
        match input {
            Input::Wake => self.with_node(host, |node, time, out| node.wake(time, out)),
            Input::Accepted { conn, side } => {
                if self.end_open(conn, side) {
                    self.with_node(host, |node, time, out| node.accepted(time, link(conn, side), out));
                }
            }
            Input::Dialed { dial, conn, side } => {
                self.with_node(host, |node, time, out| node.dialed(time, DialId(dial), link(conn, side), out));
            }
            Input::DialFailed { dial } => {
                self.with_node(host, |node, time, out| node.dial_failed(time, DialId(dial), out));
            }
            Input::Frame { conn, side, frame } => {
                if self.end_open(conn, side) {
                    self.with_node(host, |node, time, out| node.received(time, link(conn, side), &frame, out));
                }
            }
            Input::Closed { conn, side } => {
                if self.end_open(conn, side) {
                    self.close_end(conn, side, false);
                    self.with_node(host, |node, time, out| node.closed(time, link(conn, side), out));
                }
            }
            Input::Client { conn, message } => {
                if self.end_open(conn, 1) {
                    self.serve(host, conn, *message);
                }
            }
            Input::ClientGone { conn } => {
                if self.end_open(conn, 1) {
                    self.close_end(conn, 1, false);
                    self.with_node(host, |node, time, out| node.disconnected(time, ConnId(conn), out));
                }
            }
            Input::Stop => self.with_node(host, |node, time, out| node.stop(time, out)),
        }
        if slow > 0 && self.hosts[host].running() {
            let held = &mut self.hosts[host];
            held.busy_until = now + slow;
            let boot = held.boot;
            self.schedule(now + slow, Event::Continue { host, boot });
        }
    }

    fn trace_input(&mut self, host: usize, input: &Input) {
        let at = self.now;
        let who = host as u64;
        match input {
            Input::Wake => {
                self.trace.event(at, 1, who, 0);
                self.trace.line(at, Line::Wake { host });
            }
            Input::Frame { conn, side, frame } => {
                let mut hash = Fold::default();
                hash.bytes(frame);
                self.trace.event(at, 2, who, hash.0);
                let from = self.network.connections.get(conn).map_or(usize::MAX, |connection| {
                    match connection.ends[1 - side].place {
                        Place::Host(from) | Place::Client(from) => from,
                    }
                });
                let kind = frame.first().copied().unwrap_or(0);
                self.trace.line(at, Line::Frame { from, to: host, bytes: frame.len(), kind });
            }
            Input::Client { conn, message } => {
                self.trace.event(at, 3, who, *conn);
                if matches!(**message, ClientMessage::Heartbeat { .. }) {
                    self.trace.line(at, Line::Heartbeat { host, conn: *conn });
                    return;
                }
                let text = crate::session::describe(message);
                self.note(format!("n{host} receives {text} on connection {conn}"));
            }
            other => {
                self.trace.event(at, 4, who, 0);
                self.note(format!("n{host} input {other:?}"));
            }
        }
    }

    /// Calls the node, flushes it and carries out what it wants.
    pub fn with_node<T: Default>(
        &mut self,
        host: usize,
        call: impl FnOnce(&mut Node, convoke_core::Time, &mut Output) -> T,
    ) -> T {
        let time = self.hosts[host].time(self.now);
        let Some(node) = self.hosts[host].node.as_mut() else { return T::default() };
        let mut out = std::mem::take(&mut self.out);
        let result = call(node, time, &mut out);
        node.flush(time, &mut out);
        let boot = self.hosts[host].boot;
        for event in std::mem::take(&mut out.events) {
            self.node_event(host, event);
        }
        for effect in std::mem::take(&mut out.effects) {
            // A restart or stop among them ends this run: what follows is nobody's.
            if self.hosts[host].boot == boot {
                self.carry_out(host, effect);
            }
        }
        self.out = out;
        if self.hosts[host].node.is_some() {
            self.schedule_wake(host);
            self.read_observer(host);
            self.check(|invariant, world, found| invariant.after_input(world, host, found));
        }
        result
    }

    fn node_event(&mut self, host: usize, event: NodeEvent) {
        self.note(format!("n{host} says {event:?}"));
        match event {
            NodeEvent::Ready { .. } => {
                self.hosts[host].ready_at = Some(self.now);
                let boot = self.hosts[host].boot;
                let delay = self.rng.u64(..SECOND / 10);
                self.schedule_action(delay, Action::Ready { host, boot });
            }
            NodeEvent::FullMerge { .. } => self.hosts[host].full_merge_at = Some(self.now),
            NodeEvent::NameLost { name, .. } => {
                self.hosts[host].names.remove(&name);
            }
            _ => {}
        }
    }

    fn carry_out(&mut self, host: usize, effect: Effect) {
        match effect {
            Effect::Dial { dial, address } => self.dial(host, dial.0, &address),
            Effect::Send { link, frame } => self.push(link.0 / 2, (link.0 % 2) as usize, Item::Frame(frame)),
            Effect::CloseLink { link } => self.close_end(link.0 / 2, (link.0 % 2) as usize, false),
            Effect::Notify { conn, notice } => self.notify(host, conn.0, notice),
            Effect::CloseClient { conn } => self.close_end(conn.0, 1, false),
            Effect::CloseAllClients => {
                self.note(format!("n{host} closes all clients"));
                for (conn, side) in self.network.at(Place::Host(host), Some(Kind::Client)) {
                    self.close_end(conn, side, false);
                }
                // Streams of subscribers are streams of clients.
                self.detach_subscribers(host);
            }
            Effect::Readable { subscriber } => {
                let boot = self.hosts[host].boot;
                let found = self.subscribers.iter().position(|s| s.at == Some((host, boot, subscriber)));
                if let Some(index) = found.filter(|index| !self.subscribers[*index].observer) {
                    self.schedule_read(index);
                }
            }
            Effect::Persist { incarnation } => self.hosts[host].persisted = incarnation,
            Effect::Restart { reason, incarnation } => {
                self.note(format!("n{host} restarts itself: {reason:?}, incarnation {incarnation}"));
                self.take_down(host, Crash::Process);
                let has_disk = std::mem::replace(&mut self.hosts[host].has_disk, true);
                let persisted = self.hosts[host].persisted.max(incarnation.saturating_sub(1));
                self.hosts[host].persisted = persisted;
                self.start(host);
                self.hosts[host].has_disk = has_disk;
            }
            Effect::Stop { reason } => {
                self.note(format!("n{host} stops: {reason:?}"));
                let expected = match reason {
                    StopReason::Graceful => self.hosts[host].stopping,
                    StopReason::IdentityConflict => self.hosts[host].twin.is_some(),
                };
                if !expected {
                    self.violate(Violation::new("no_panic", self.now, format!("n{host} stopped: {reason:?}")));
                }
                self.take_down(host, Crash::Process);
            }
        }
    }

    // ---- connections ----

    fn dial(&mut self, host: usize, dial: u64, address: &str) {
        let boot = self.hosts[host].boot;
        self.hosts[host].dials.insert(dial, None);
        self.schedule(self.now + DIAL_TIMEOUT, Event::DialTimeout { host, boot, dial });
        let target = address.strip_prefix('h').and_then(|rest| rest.split_once(':')).and_then(|(n, _)| n.parse().ok());
        let Some(to) = target.filter(|to| *to < self.hosts.len()) else { return };
        let latency = self.latency(Place::Host(host), Place::Host(to));
        self.schedule(self.now + latency, Event::DialArrives { from: Place::Host(host), run: boot, dial, to });
    }

    fn dial_arrives(&mut self, from: Place, run: u64, dial: u64, to: usize) {
        let target = Place::Host(to);
        if !self.run_is_current(from, run) || self.network.severed(from, target) {
            return;
        }
        if !self.hosts[to].running() {
            if !self.hosts[to].dark {
                let latency = self.latency(target, from);
                self.schedule(self.now + latency, Event::DialRefused { from, run, dial });
            }
            return;
        }
        let kind = if matches!(from, Place::Host(_)) { Kind::Peer } else { Kind::Client };
        let dialer = End { place: from, run, open: true, ended: false };
        let acceptor = End { place: target, run: self.hosts[to].boot, open: true, ended: false };
        let conn = self.network.connect(kind, dialer, acceptor, dial);
        match from {
            Place::Host(host) => {
                self.hosts[host].dials.insert(dial, Some(conn));
                self.input(to, Input::Accepted { conn, side: 1 });
            }
            Place::Client(client) => self.client_connection(client, conn),
        }
        self.push(conn, 1, Item::Established);
    }

    fn dial_failed(&mut self, host: usize, boot: u64, dial: u64) {
        if self.hosts[host].boot != boot {
            return;
        }
        let Some(conn) = self.hosts[host].dials.remove(&dial) else { return };
        if let Some(conn) = conn {
            self.close_end(conn, 0, false);
        }
        self.input(host, Input::DialFailed { dial });
    }

    pub(crate) fn run_is_current(&self, place: Place, run: u64) -> bool {
        match place {
            Place::Host(host) => self.hosts[host].boot == run,
            Place::Client(client) => self.clients[client].process == run,
        }
    }

    pub(crate) fn latency(&mut self, from: Place, to: Place) -> Micros {
        let region = |place: Place| match place {
            Place::Host(host) => self.hosts[host].region,
            Place::Client(client) => self.clients[client].region,
        };
        let base = if region(from) == region(to) { 300 } else { 15_000 };
        base + self.rng.u64(..base) + self.network.spike(from, to)
    }

    pub(crate) fn end_open(&self, conn: u64, side: usize) -> bool {
        self.network.connections.get(&conn).is_some_and(|connection| connection.ends[side].open)
    }

    /// Puts something into a pipe, behind everything that is already in it.
    pub(crate) fn push(&mut self, conn: u64, side: usize, item: Item) {
        let Some(connection) = self.network.connections.get(&conn) else { return };
        if !connection.ends[side].open && !matches!(item, Item::EndOfStream) {
            return;
        }
        let (from, to) = (connection.ends[side].place, connection.ends[1 - side].place);
        let extra = if side == 0 { connection.extra } else { 0 };
        let at = self.now + self.latency(from, to) + extra;
        let Some(connection) = self.network.connections.get_mut(&conn) else { return };
        let pipe = &mut connection.pipes[side];
        pipe.last_at = pipe.last_at.max(at);
        let at = pipe.last_at;
        pipe.queue.push_back(Parcel { at, item });
        if !pipe.scheduled && pipe.stalled.is_none() {
            pipe.scheduled = true;
            self.schedule(at, Event::Deliver { conn, side });
        }
    }

    fn deliver(&mut self, conn: u64, side: usize) {
        let now = self.now;
        let Some(connection) = self.network.connections.get(&conn) else { return };
        let (from, to) = (connection.ends[side].place, connection.ends[1 - side].place);
        let blocked = self.network.blocked(from, to);
        let Some(connection) = self.network.connections.get_mut(&conn) else { return };
        let pipe = &mut connection.pipes[side];
        pipe.scheduled = false;
        let Some(front) = pipe.queue.front() else { return };
        if blocked {
            pipe.stalled.get_or_insert(now);
            return;
        }
        if front.at > now {
            pipe.scheduled = true;
            let at = front.at;
            self.schedule(at, Event::Deliver { conn, side });
            return;
        }
        let Some(parcel) = pipe.queue.pop_front() else { return };
        if let Some(next) = pipe.queue.front() {
            pipe.scheduled = true;
            let at = next.at;
            self.schedule(at, Event::Deliver { conn, side });
        }
        self.arrive(conn, 1 - side, parcel.item);
    }

    fn arrive(&mut self, conn: u64, side: usize, item: Item) {
        let Some(connection) = self.network.connections.get_mut(&conn) else { return };
        let end = connection.ends[side];
        let dial = connection.dial;
        if !end.open || end.ended {
            return;
        }
        if matches!(item, Item::EndOfStream) {
            self.end_of_stream(conn, side, end.place);
            return;
        }
        match (end.place, item) {
            (Place::Host(host), Item::Established) => {
                if self.hosts[host].dials.remove(&dial).is_some() {
                    self.input(host, Input::Dialed { dial, conn, side });
                }
            }
            (Place::Host(host), Item::Frame(frame)) => self.input(host, Input::Frame { conn, side, frame }),
            (Place::Host(host), Item::ToNode(message)) => self.input(host, Input::Client { conn, message }),
            (Place::Client(client), Item::Established) => self.client_established(client, conn),
            (Place::Client(client), Item::ToClient(message)) => self.client_message(client, conn, *message),
            (place, item) => unreachable!("{item:?} cannot arrive at {place:?}"),
        }
    }

    /// A host notices it when it comes to it, behind everything that arrived before; a client at once.
    fn end_of_stream(&mut self, conn: u64, side: usize, place: Place) {
        let Some(connection) = self.network.connections.get_mut(&conn) else { return };
        connection.ends[side].ended = true;
        let (kind, dial) = (connection.kind, connection.dial);
        match (place, kind) {
            (Place::Host(host), Kind::Peer) => {
                if self.hosts[host].dials.get(&dial) == Some(&Some(conn)) && side == 0 {
                    self.hosts[host].dials.remove(&dial);
                    self.close_end(conn, side, false);
                    self.input(host, Input::DialFailed { dial });
                } else {
                    self.input(host, Input::Closed { conn, side });
                }
            }
            (Place::Host(host), Kind::Client) => self.input(host, Input::ClientGone { conn }),
            (Place::Client(client), _) => {
                self.close_end(conn, side, false);
                self.client_closed(client, conn);
            }
        }
    }

    /// One end lets go. Unless the power is gone, the other end learns it after everything that was sent before.
    pub(crate) fn close_end(&mut self, conn: u64, side: usize, silent: bool) {
        let Some(connection) = self.network.connections.get_mut(&conn) else { return };
        if !connection.ends[side].open {
            return;
        }
        connection.ends[side].open = false;
        if !connection.ends[1 - side].open {
            self.network.connections.remove(&conn);
        } else if !silent {
            self.push(conn, side, Item::EndOfStream);
        }
    }

    /// Both ends see the connection break; what was under way is lost.
    pub fn reset(&mut self, conn: u64) {
        let Some(connection) = self.network.connections.get_mut(&conn) else { return };
        let ends = connection.ends;
        for pipe in &mut connection.pipes {
            pipe.queue.clear();
        }
        for (side, end) in ends.iter().enumerate() {
            if end.open && !end.ended {
                self.end_of_stream(conn, side, end.place);
            }
        }
    }

    // ---- cuts ----

    /// Blocks everything from one set of places to another, one way. Returns the cut's number.
    pub fn cut(&mut self, from: u128, to: u128) -> u64 {
        let id = self.network.number();
        self.network.cuts.push(Cut { id, from, to, clients_only: false });
        let (now, touched) = (self.now, from | to);
        for (index, host) in self.hosts.iter_mut().enumerate() {
            if Place::Host(index).bit() & touched != 0 {
                host.trouble.begin(now);
            }
        }
        id
    }

    /// Heals a cut: what was held back flows again, unless its sender gave up long ago.
    pub fn heal(&mut self, id: u64) {
        let now = self.now;
        let mut touched = 0;
        self.network.cuts.retain(|cut| {
            if cut.id == id && !cut.clients_only {
                touched |= cut.from | cut.to;
            }
            cut.id != id
        });
        for (index, host) in self.hosts.iter_mut().enumerate() {
            if Place::Host(index).bit() & touched != 0 {
                host.trouble.end(now);
            }
        }
        self.flow_again();
    }

    fn flow_again(&mut self) {
        let now = self.now;
        let patience = self.orphan_patience();
        let stalled: Vec<(u64, usize)> = self
            .network
            .connections
            .iter()
            .flat_map(|(id, connection)| (0..2).map(move |side| (*id, side, connection)))
            .filter(|(_, side, c)| {
                c.pipes[*side].stalled.is_some() && !self.network.blocked(c.ends[*side].place, c.ends[1 - *side].place)
            })
            .map(|(id, side, _)| (id, side))
            .collect();
        for (conn, side) in stalled {
            let delay = self.rng.u64(..SECOND);
            let Some(connection) = self.network.connections.get_mut(&conn) else { continue };
            let closed = !connection.ends[side].open;
            let pipe = &mut connection.pipes[side];
            let since = pipe.stalled.take().unwrap_or(now);
            if closed && now - since > patience {
                pipe.queue.clear();
                pipe.queue.push_back(Parcel { at: now, item: Item::EndOfStream });
            }
            let at = now + delay;
            for parcel in &mut pipe.queue {
                parcel.at = parcel.at.max(at);
            }
            pipe.last_at = pipe.last_at.max(at);
            pipe.scheduled = true;
            self.schedule(at, Event::Deliver { conn, side });
        }
    }

    /// How long the network keeps trying to deliver what its sender no longer waits for.
    pub(crate) fn orphan_patience(&self) -> Micros {
        micros(self.setup.timers.heartbeat_timeout).min(30 * SECOND)
    }

    pub(crate) fn connections_between(&self, one: usize, other: usize) -> Vec<u64> {
        let pair = [Place::Host(one), Place::Host(other)];
        let joins = |c: &Connection| pair.contains(&c.ends[0].place) && pair.contains(&c.ends[1].place);
        self.network.connections.iter().filter(|(_, c)| joins(c)).map(|(id, _)| *id).collect()
    }
}

pub fn micros(duration: Duration) -> Micros {
    duration.as_micros() as Micros
}

fn link(conn: u64, side: usize) -> LinkId {
    LinkId(conn * 2 + side as u64)
}
