//! The meaning of a seed: size, timers, limits, workload, faults and phases.

use crate::faults::{Fault, Faults};
use crate::mutants::AnyMutant;
use crate::network::{MINUTE, Micros, SECOND};
use crate::themes::Theme;
use crate::world::{Setup, Topology, World};
use convoke_core::filter::Filter;
use convoke_core::member::Space;
use convoke_core::{Limits, Timers};
use std::time::Duration;

/// A period of faults, then one without.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    pub chaos: Micros,
    /// Stay without faults until all dead members have left.
    pub long_peace: bool,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub setup: Setup,
    pub clients: usize,
    pub http_clients: usize,
    pub members: usize,
    pub watchers: usize,
    pub names: bool,
    pub rounds: Vec<Round>,
    pub faults: Faults,
    pub kind: Kind,
    /// The theme of a round, if it is not purely random.
    pub theme: Option<&'static Theme>,
}

/// How a seed is interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// More than an hour with all fault kinds.
    Full,
    /// A few minutes with all fault kinds.
    Brief,
    /// A few minutes of one theme.
    Focused,
}

impl Kind {
    pub fn plan(self, seed: u64) -> Plan {
        match self {
            Kind::Full => Plan::full(seed),
            Kind::Brief => Plan::brief(seed),
            Kind::Focused => Plan::focused(seed),
        }
    }

    /// Returns its command-line option.
    pub fn option(self) -> &'static str {
        match self {
            Kind::Full => "",
            Kind::Brief => " --brief",
            Kind::Focused => " --focused",
        }
    }
}

impl Plan {
    /// More than an hour of simulated time on average.
    pub fn full(seed: u64) -> Plan {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed_0f91_a45e_ed00);
        let large = rng.u32(..50) == 0;
        let nodes = if large { 50 } else { *[1, 2, 3, 3, 3, 4, 5, 5, 6, 7, 9].get(rng.usize(..11)).unwrap_or(&3) };
        let scaled = rng.bool();
        let timers = if scaled { scaled_timers(&mut rng) } else { Timers::default() };
        let setup = setup(&mut rng, seed, nodes, timers);
        let count = if large { 1 } else { rng.usize(1..=3) };
        let total = if large { 3 * MINUTE } else { rng.u64(53 * MINUTE..71 * MINUTE) };
        let rounds = (0..count).map(|_| Round { chaos: total / count as u64, long_peace: !large && rng.u32(..3) == 0 });
        let rounds = rounds.collect();
        let faults = Faults {
            fault_interval: rng.u64(15 * SECOND..50 * SECOND),
            operation_interval: rng.u64(SECOND / 2..3 * SECOND / 2),
            ..swarm(&mut rng)
        };
        let clients = if large { 30 } else { rng.usize(5..=24) };
        Plan {
            setup,
            clients,
            http_clients: http_clients(seed),
            members: rng.usize(1..=5),
            watchers: rng.usize(1..=5),
            names: rng.u32(..4) > 0,
            rounds,
            faults,
            kind: Kind::Full,
            theme: None,
        }
    }

    /// A few minutes with all fault kinds at once: for mutants and debug builds.
    pub fn brief(seed: u64) -> Plan {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0xb41e_f000_5eed_b41e);
        let nodes = rng.usize(2..=5);
        let setup = setup(&mut rng, seed, nodes, brief_timers());
        let rounds = (0..2).map(|_| Round { chaos: rng.u64(2 * MINUTE..4 * MINUTE), long_peace: rng.bool() }).collect();
        let faults = Faults {
            fault_interval: rng.u64(2 * SECOND..8 * SECOND),
            operation_interval: rng.u64(SECOND / 8..SECOND / 2),
            ..swarm(&mut rng)
        };
        Plan {
            setup,
            clients: rng.usize(4..=12),
            http_clients: http_clients(seed),
            members: rng.usize(1..=4),
            watchers: rng.usize(2..=5),
            names: rng.u32(..4) > 0,
            rounds,
            faults,
            kind: Kind::Brief,
            theme: None,
        }
    }

    pub fn with_mutant(mut self, mutant: Option<AnyMutant>) -> Plan {
        self.setup = self.setup.with_mutant(mutant);
        self
    }

    /// The same run with other wall clocks.
    pub fn with_clocks(mut self, wall_seed: u64) -> Plan {
        self.setup.wall_seed = wall_seed;
        self
    }

    /// Builds the world before anything starts.
    pub fn world(&self) -> World {
        let mut world = World::new(self.setup.clone());
        world.faults = self.faults.clone();
        for host in 0..world.hosts.len() {
            world.hosts[host].has_disk = world.rng.u32(..4) > 0;
            if self.names {
                for name in 0..world.rng.u32(..3) {
                    let location = format!("first-n{host}");
                    world.hosts[host].names.insert(format!("own-{host}-{name}"), location);
                }
            }
            let delay = world.rng.u64(..8 * SECOND);
            world.schedule_action(delay, crate::faults::Action::Start { host });
        }
        world.populate(self.clients, self.members);
        world.populate_http(self.http_clients);
        for index in 0..self.watchers {
            let space = if index % 4 == 3 { Space::Name } else { Space::Member };
            let filter = match world.rng.u32(..5) {
                _ if space == Space::Name => Filter::all(),
                0 => Filter::service("s1"),
                1 => Filter::parse("status == up").expect("a valid filter"),
                2 => Filter::parse("exists meta.k1 and not drained").expect("a valid filter"),
                _ => Filter::all(),
            };
            let pace = world.rng.u64(1_000..SECOND);
            let batch = world.rng.usize(1..64);
            world.add_watcher(space, filter, pace, batch);
        }
        world
    }
}

fn setup(rng: &mut fastrand::Rng, seed: u64, nodes: usize, timers: Timers) -> Setup {
    let topologies = [Topology::Full, Topology::Full, Topology::OneSided, Topology::Line, Topology::Star];
    Setup {
        seed,
        wall_seed: seed,
        nodes,
        regions: if nodes >= 3 { rng.usize(1..=3) } else { 1 },
        topology: topologies[rng.usize(..topologies.len())],
        timers,
        limits: limits(rng),
        // Not drawn: it changes no other part of the plan.
        rebalance: seed.is_multiple_of(2),
        ..Setup::default()
    }
}

/// All horizons pass within two minutes.
pub(crate) fn brief_timers() -> Timers {
    let second = Duration::from_secs;
    Timers {
        heartbeat_interval: second(1),
        heartbeat_timeout: second(4),
        reconnect_timeout: second(10),
        dead_peer_timeout: second(25),
        tombstone_timeout: second(60),
        forget_timeout: second(120),
        peer_retry_interval: second(2),
        ping_interval: Duration::from_millis(500),
        ping_timeout: Duration::from_millis(1500),
        lone_start_wait: second(3),
        handover_timeout: second(5),
        mark_interval: second(1),
        ..Timers::default()
    }
}

/// Long timers are shortened so that more horizons pass in an hour. Short timers stay long enough to limit the
/// traffic.
fn scaled_timers(rng: &mut fastrand::Rng) -> Timers {
    let short = rng.u32(1..=2);
    let long = rng.u32(4..=10);
    let default = Timers::default();
    let timers = Timers {
        heartbeat_interval: default.heartbeat_interval / short,
        heartbeat_timeout: default.heartbeat_timeout / short,
        reconnect_timeout: default.reconnect_timeout / long,
        tombstone_timeout: default.tombstone_timeout / long,
        dead_peer_timeout: default.dead_peer_timeout / long,
        ..default
    };
    Timers { forget_timeout: timers.retirement() * 2, ..timers }
}

/// Some runs use small limits, so that chunks, windows and queues fill up.
fn limits(rng: &mut fastrand::Rng) -> Limits {
    let mut limits = Limits::default();
    if rng.bool() {
        limits.chunk_bytes = rng.usize(300..2000);
        limits.chunk_window = rng.usize(1..=2);
    }
    if rng.bool() {
        limits.push_backlog = rng.usize(4..64);
    }
    if rng.bool() {
        limits.watcher_queue = rng.usize(8..64);
    }
    limits
}

/// Selects the faults of a seed: some bugs only show in the absence of other faults.
fn swarm(rng: &mut fastrand::Rng) -> Faults {
    let all = rng.u32(..3) == 0;
    let mut enabled: Vec<Fault> = Fault::everyday().filter(|_| all || rng.u32(..3) > 0).collect();
    if enabled.len() < 5 {
        enabled = Fault::everyday().collect();
    }
    Faults {
        enabled,
        late_messages: rng.u32(..3) > 0,
        late_one_in: 40,
        duplicates: rng.bool(),
        contested_ids: rng.u32(..3) > 0,
        shared_ids: 4,
        shared_one_in: 8,
        ..Faults::default()
    }
}

/// One in three plans has clients over HTTP. The number is drawn apart from the rest of the plan. The constant is chosen so that
/// the seeds of `tests/seeds.rs` keep their meaning: they have none.
pub(crate) fn http_clients(seed: u64) -> usize {
    let mut rng = fastrand::Rng::with_seed(seed ^ HTTP_SALT);
    if rng.u32(..3) == 0 { rng.usize(1..=4) } else { 0 }
}

const HTTP_SALT: u64 = 0x4774_0000_001c_00d4;
