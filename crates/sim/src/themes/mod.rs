//! Themes: short plans in which the faults belong together.
//!
//! Random faults alone seldom produce a member that is unregistered behind a split, collected, and registered again
//! just before the split heals. Each theme plays one family of such sequences with random details, on two to four
//! nodes.

mod collection;
mod pausing;
mod relaying;
mod returning;

use crate::faults::{Fault, Faults};
use crate::network::{Micros, SECOND, Site};
use crate::plan::{Kind, Plan, Round, brief_timers, http_clients};
use crate::world::{Setup, Topology, World, micros};
use convoke_core::{Limits, Timers};
use std::ops::RangeInclusive;
use std::time::Duration;

/// One family of fault sequences.
#[derive(Debug)]
pub struct Theme {
    pub name: &'static str,
    nodes: RangeInclusive<usize>,
    timers: fn() -> Timers,
    /// Few writes per delta chunk, so that exchanges take several steps.
    small_chunks: bool,
    /// Additional random faults; repeating a kind makes it more frequent.
    faults: &'static [Fault],
    fault_interval: RangeInclusive<Micros>,
    check_period: Micros,
    chaos: RangeInclusive<Micros>,
    rounds: usize,
    /// Plays from now to about the given time.
    pub(crate) play: fn(&mut World, Micros),
}

/// Themes alternate from seed to seed, so that a few seeds cover all of them.
pub const ALL: &[Theme] = &[
    Theme {
        name: "clients: replaced, duplicated, cut off, late messages",
        nodes: 2..=3,
        timers: brief_timers,
        small_chunks: false,
        faults: &[
            Fault::ClientCrash,
            Fault::ClientMove,
            Fault::ClientPause,
            Fault::ClientPartition,
            Fault::ClientPartition,
            Fault::LostAnswer,
            Fault::DuplicateClient,
            Fault::ReplacedProcess,
            Fault::ReplacedProcess,
        ],
        fault_interval: SECOND..=3 * SECOND,
        check_period: 5 * SECOND,
        chaos: 60 * SECOND..=120 * SECOND,
        rounds: 2,
        play: World::run_to,
    },
    Theme {
        name: "collection: tombstones collected during a long split",
        nodes: 3..=4,
        timers: lasting_timers,
        small_chunks: false,
        faults: &[Fault::ClientCrash, Fault::ClientMove, Fault::WatcherReconnect],
        fault_interval: 5 * SECOND..=15 * SECOND,
        check_period: 10 * SECOND,
        chaos: 20 * SECOND..=30 * SECOND,
        rounds: 3,
        play: collection::play,
    },
    Theme {
        name: "shared id: one id on both sides of a split, ended on one side",
        nodes: 4..=4,
        timers: lasting_timers,
        small_chunks: false,
        faults: &[],
        fault_interval: 20 * SECOND..=40 * SECOND,
        check_period: 10 * SECOND,
        chaos: 20 * SECOND..=30 * SECOND,
        rounds: 6,
        play: collection::one_id_on_both_sides,
    },
    Theme {
        name: "relaying: two nodes that reach each other through a third only",
        nodes: 3..=3,
        timers: brief_timers,
        small_chunks: true,
        faults: &[Fault::ClientMove, Fault::ConnectionReset],
        fault_interval: 3 * SECOND..=8 * SECOND,
        check_period: SECOND,
        chaos: 60 * SECOND..=90 * SECOND,
        rounds: 2,
        play: relaying::play,
    },
    Theme {
        name: "returning: an owner is lost and returns, while others restart",
        nodes: 3..=4,
        timers: brief_timers,
        small_chunks: false,
        faults: &[Fault::ClientCrash, Fault::WatcherReconnect],
        fault_interval: 5 * SECOND..=15 * SECOND,
        check_period: 5 * SECOND,
        chaos: 100 * SECOND..=150 * SECOND,
        rounds: 2,
        play: returning::play,
    },
    Theme {
        name: "churn: nodes and their clients die together",
        nodes: 3..=4,
        timers: lasting_timers,
        small_chunks: false,
        faults: &[Fault::ClientCrash],
        fault_interval: 10 * SECOND..=40 * SECOND,
        check_period: 10 * SECOND,
        chaos: 100 * SECOND..=150 * SECOND,
        rounds: 2,
        play: returning::churn,
    },
    Theme {
        name: "pausing: pauses for moments, or for longer than any horizon",
        nodes: 2..=3,
        timers: brief_timers,
        small_chunks: false,
        faults: &[],
        fault_interval: 20 * SECOND..=40 * SECOND,
        check_period: 5 * SECOND,
        chaos: 100 * SECOND..=150 * SECOND,
        rounds: 2,
        play: pausing::play,
    },
    Theme {
        name: "congested: links with growing delay",
        nodes: 2..=3,
        timers: brief_timers,
        small_chunks: false,
        faults: &[Fault::Congestion, Fault::Congestion, Fault::ClientCrash, Fault::ClientMove],
        fault_interval: 10 * SECOND..=20 * SECOND,
        check_period: 5 * SECOND,
        chaos: 80 * SECOND..=120 * SECOND,
        rounds: 2,
        play: World::run_to,
    },
    Theme {
        name: "links: one-way, half-open, slow",
        nodes: 2..=4,
        timers: brief_timers,
        small_chunks: true,
        faults: &[
            Fault::OneWayPartition,
            Fault::PartialPartition,
            Fault::ConnectionReset,
            Fault::DelaySpike,
            Fault::Pause,
            Fault::PowerCut,
            Fault::SlowNode,
            Fault::WatcherReconnect,
        ],
        fault_interval: SECOND..=4 * SECOND,
        check_period: 10 * SECOND,
        chaos: 60 * SECOND..=120 * SECOND,
        rounds: 2,
        play: World::run_to,
    },
];

/// Timers that leave room for other events between the loss of an owner and the inference about its members.
fn lasting_timers() -> Timers {
    Timers {
        reconnect_timeout: Duration::from_secs(30),
        dead_peer_timeout: Duration::from_secs(40),
        tombstone_timeout: Duration::from_secs(80),
        forget_timeout: Duration::from_secs(180),
        lone_start_wait: Duration::from_secs(6),
        ..brief_timers()
    }
}

impl Plan {
    /// Builds a plan of a few minutes with one theme: for mutants, and for sequences that random faults seldom
    /// produce.
    pub fn focused(seed: u64) -> Plan {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0xf0c5_ed00_5eed_f0c5);
        let count = ALL.len() as u64;
        // Shifted in each round, so that taking every fourth seed covers all themes too.
        let theme = &ALL[((seed + seed / count) % count) as usize];
        let mut limits = Limits::default();
        if theme.small_chunks || rng.u32(..4) == 0 {
            limits.chunk_bytes = rng.usize(150..400);
            limits.chunk_window = 1;
        }
        if rng.u32(..3) == 0 {
            limits.watcher_queue = rng.usize(8..32);
        }
        let topologies = [Topology::Full, Topology::Full, Topology::OneSided, Topology::Star];
        let setup = Setup {
            seed,
            wall_seed: seed,
            nodes: rng.usize(theme.nodes.clone()),
            topology: topologies[rng.usize(..topologies.len())],
            timers: (theme.timers)(),
            limits,
            check_period: theme.check_period,
            ..Setup::default()
        };
        let rounds =
            (0..theme.rounds).map(|_| Round { chaos: rng.u64(theme.chaos.clone()), long_peace: rng.bool() }).collect();
        let faults = Faults {
            enabled: theme.faults.to_vec(),
            fault_interval: rng.u64(theme.fault_interval.clone()),
            operation_interval: rng.u64(SECOND / 4..SECOND),
            late_messages: rng.bool(),
            late_one_in: rng.u32(5..20),
            duplicates: rng.bool(),
            contested_ids: rng.u32(..3) > 0,
            shared_ids: rng.u64(2..8),
            shared_one_in: rng.u32(2..6),
            ..Faults::default()
        };
        Plan {
            setup,
            clients: rng.usize(3..=7),
            http_clients: http_clients(seed),
            members: rng.usize(1..=4),
            watchers: rng.usize(1..=3),
            names: rng.bool(),
            rounds,
            faults,
            kind: Kind::Focused,
            theme: Some(theme),
        }
    }
}

impl World {
    /// Runs operations one after the other for a while, with about this interval.
    fn busy(&mut self, time: Micros, apart: Micros) {
        let end = self.now + time;
        while self.now < end && self.violation.is_none() {
            self.operate();
            let pause = self.rng.u64(..2 * apart);
            self.advance(pause);
        }
    }

    /// Cuts some hosts off from the others, with half of the clients on their side.
    fn split(&mut self, apart: &[usize]) -> [u64; 2] {
        let (mut one, mut other) = (0, 0);
        for host in 0..self.hosts.len() {
            let bit = Site::Host(host).bit();
            if apart.contains(&host) { one |= bit } else { other |= bit }
        }
        for client in 0..self.clients.len() {
            let bit = Site::Client(client).bit();
            if self.rng.bool() { one |= bit } else { other |= bit }
        }
        self.note(format!("{apart:?} and some clients are split off"));
        self.faults.count(Fault::LongPartition);
        [self.cut(one, other), self.cut(other, one)]
    }

    fn heal_cuts(&mut self, cuts: impl IntoIterator<Item = u64>) {
        for cut in cuts {
            self.heal(cut);
        }
    }

    /// Returns a running host; the first if none runs.
    fn any_host(&mut self) -> usize {
        let running = self.running_hosts();
        self.rng.choice(running).unwrap_or(0)
    }

    /// Time from losing an owner to the inference about its members.
    fn inference_after(&self) -> Micros {
        let timers = &self.setup.timers;
        micros(timers.admission_window()) + micros(timers.reconnect_timeout)
    }
}
