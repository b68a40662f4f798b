//! The world: hosts, clients and watchers on a virtual network in virtual time.
//!
//! # Scripting it
//!
//! ```ignore
//! let mut world = World::new(Setup { nodes: 3, ..Setup::default() });
//! world.start_all();
//! world.run_until(|w| w.all_serving(), 30 * SECOND)?;
//! let client = world.add_client("c1", &["m1", "m2"]);     // living, with members; world.connect(client, host) to place it
//! world.run_until(|w| w.shown_everywhere("m1", Status::Up), 10 * SECOND)?;
//! let cut = world.partition(&[0], &[1, 2]);               // also one_way(from, to); heal(cut), heal_all()
//! world.crash(0, Crash::Silent); world.start(0);          // crash, power cut, restart; pause(host, micros); stop(host)
//! world.advance(20 * SECOND);
//! world.settle()?;                                        // heals, waits for convergence, runs all final checks
//! world.finish()?;                                        // Err(Violation) if anything was violated on the way
//! ```
//!
//! `world.node(i)` is the real core; `world.status(i, id)` what it shows; `world.stream_log(watcher)` what a recording
//! watcher saw. Every step runs the invariants of `invariants/`.

use crate::agentless::Agentless;
use crate::client::Client;
use crate::faults::{Action, Faults};
use crate::host::Host;
use crate::http::{Http, HttpEvent};
use crate::invariants::{self, Invariant, Violation};
use crate::network::{Micros, Network, SECOND, Site};
use crate::reach::Reach;
use crate::stats::Stats;
use crate::trace::Trace;
use crate::truth::Truth;
use crate::watcher::Watcher;
use convoke_core::version::NodeId;
use convoke_core::{Config, Limits, Mutation, Output, Timers};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// How nodes find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Every node has every other node as a seed.
    Full,
    /// Each node has its predecessor as a seed.
    Line,
    /// Each node has the first one as a seed.
    Star,
    /// Each node has all nodes before it as seeds.
    OneSided,
}

/// Parameters of a world.
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
    /// Nodes move sessions towards an even spread (N10).
    pub rebalance: bool,
    /// How often the coarse checks run.
    pub check_period: Micros,
    pub mutation: Mutation,
    /// Of HTTP sessions.
    pub http_mutation: convoke_http_session::Mutation,
    /// Of the SDK.
    pub sdk_mutation: convoke_session::Mutation,
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
            rebalance: false,
            check_period: CHECK_PERIOD,
            mutation: Mutation::none(),
            http_mutation: convoke_http_session::Mutation::none(),
            sdk_mutation: convoke_session::Mutation::none(),
        }
    }
}

/// How a host stops without warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process dies; the kernel closes its connections.
    Process,
    /// The power goes off; peers get no end of stream.
    Silent,
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Deliver { conn: u64, side: usize },
    Wake { host: usize, boot: u64 },
    Resume { host: usize, boot: u64 },
    Continue { host: usize, boot: u64 },
    DialArrives { from: Site, process: u64, dial: u64, to: usize },
    DialRejected { from: Site, process: u64, dial: u64 },
    DialTimeout { host: usize, boot: u64, dial: u64 },
    ClientWake { client: usize, process: u64 },
    Read { watcher: usize, generation: u64 },
    Http(HttpEvent),
    Check,
    Action(Box<Action>),
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

/// Default interval of the coarse checks.
const CHECK_PERIOD: Micros = 30 * SECOND;

#[derive(Debug)]
pub struct World {
    pub now: Micros,
    pub setup: Setup,
    pub rng: fastrand::Rng,
    pub(crate) wall_rng: fastrand::Rng,
    pub hosts: Vec<Host>,
    pub network: Network,
    pub reach: Reach,
    pub clients: Vec<Client>,
    pub http: Http,
    pub agentless: Agentless,
    pub watchers: Vec<Watcher>,
    pub truth: Truth,
    pub trace: Trace,
    pub stats: Stats,
    pub faults: Faults,
    pub violation: Option<Violation>,
    /// A scenario sent frames in the name of a node, so that nodes may reject what correct nodes send (P10).
    pub(crate) forged: bool,
    pub(crate) invariants: Vec<Box<dyn Invariant>>,
    heap: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
    pub(crate) out: Output,
}

impl World {
    pub fn new(setup: Setup) -> Self {
        let mut world = World {
            now: 0,
            rng: fastrand::Rng::with_seed(setup.seed),
            wall_rng: fastrand::Rng::with_seed(setup.wall_seed ^ 0x77a1_1c10_c4f0_0d5e),
            http: Http::new(setup.seed, setup.http_mutation),
            agentless: Agentless::new(setup.seed),
            setup,
            hosts: Vec::new(),
            network: Network::default(),
            reach: Reach::default(),
            clients: Vec::new(),
            watchers: Vec::new(),
            truth: Truth::default(),
            trace: Trace::default(),
            stats: Stats::default(),
            faults: Faults::default(),
            violation: None,
            forged: false,
            invariants: invariants::all(),
            heap: BinaryHeap::new(),
            sequence: 0,
            out: Output::default(),
        };
        for host in 0..world.setup.nodes {
            let seeds = world.seeds_of(host);
            world.add_host(&format!("n{host}"), seeds);
        }
        world.schedule(world.setup.check_period, Event::Check);
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
        config.rebalance = self.setup.rebalance;
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
            Event::DialArrives { from, process, dial, to } => self.dial_arrives(from, process, dial, to),
            Event::DialRejected { from, process, dial } => match from {
                Site::Host(host) => self.dial_failed(host, process, dial),
                Site::Client(client) => self.client_rejected(client, process, dial),
            },
            Event::DialTimeout { host, boot, dial } => self.dial_failed(host, boot, dial),
            Event::ClientWake { client, process } => self.client_wake(client, process),
            Event::Read { watcher, generation } => {
                if self.watchers[watcher].generation == generation {
                    self.watchers[watcher].reading = false;
                    self.read(watcher);
                }
            }
            Event::Http(event) => self.http_event(event),
            Event::Check => {
                self.schedule(self.now + self.setup.check_period, Event::Check);
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
}

pub fn micros(duration: Duration) -> Micros {
    duration.as_micros() as Micros
}
