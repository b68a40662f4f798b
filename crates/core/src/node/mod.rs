//! A node: one struct that holds all state, receives calls and returns effects.
//!
//! Every public method takes the current time and an [`Output`] to fill. Each file here is one concern; none of them
//! waits, sleeps or reads a clock.

mod agentless;
mod alone;
mod api;
mod attach;
mod changes;
mod checks;
mod contents;
mod counters;
mod draining;
mod exchange;
mod expiry;
mod explain;
mod frame_numbers;
mod frames;
#[cfg(test)]
mod fuzz;
mod guard;
mod handshake;
mod health;
mod identity;
mod judge;
mod links;
mod liveness;
mod names;
mod operation;
mod pings;
mod published;
mod queries;
mod readiness;
mod reattach;
mod rebalance;
mod replication;
mod requests;
mod revocations;
mod search;
mod start_stop;
mod streams;
mod topology;

pub use api::*;
pub use checks::{CheckReport, PANIC_MEMBERS_MIN, ReportDelivery, is_mass_failure};
pub use counters::Counters;
pub use explain::{Departure, EvidenceView, Explanation, InferredView, MaintenanceView, SessionView};
pub use frame_numbers::ExcessiveNumber;
pub use operation::{ClientOperation, OperationResult};
pub use queries::{LoneInference, NameView, PeerView, Registration, ServiceView, Sizes, SlotView};
pub use replication::{Replicated, Unreplicated};
pub use search::Coverage;

pub use crate::peer::dial_order;

use crate::config::{Config, ConfigError};
use crate::error::Rejection;
use crate::map::CausalMap;
use crate::member::{ClientProcess, Record};
use crate::mutant::{Mutation, seam};
use crate::peer::Peers;
use crate::sessions::Sessions;
use crate::time::{Clock, Duration, Time};
use crate::timers::{Timer, Timers};
use crate::version::{Incarnation, NodeId, OriginId};
use crate::watch::Watchers;
use convoke_base::RevocationSet;
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Lateness below this is ordinary scheduling.
const LATE_MIN: Duration = Duration::from_millis(200);

/// Start parameters that are not configuration.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Incarnation number of the last start, from disk; 0 if there is none.
    pub persisted: u64,
    /// Random, different for every incarnation.
    pub nonce: u64,
    /// How often this process already started a new incarnation because of a collision.
    pub collisions: u32,
    /// State of the previous incarnation, if it was in this process: see [`Effect::Restart`].
    pub inherited: InheritedState,
    /// Agentless members that earlier incarnations stored (AG4).
    pub archive: Archive,
    /// UNIX ms, for display only.
    pub wall_ms: u64,
    /// Fill [`Output::changes`].
    pub publish: bool,
    pub mutation: Mutation,
}

#[derive(Debug)]
pub struct Node {
    config: Config,
    me: OriginId,
    /// Id of this node as a member.
    member_id: SmolStr,
    /// Represents the node itself where records name a client.
    self_client: Arc<ClientProcess>,
    clock: Clock,
    /// How long this node was paused since its last complete exchange (N5).
    paused_for: Duration,
    /// When it last resumed from a pause that cost it its links.
    resumed_at: Time,
    /// Time since which it has not been late by so much that peers may have closed their links.
    running_since: Time,
    wall_ms: u64,
    /// Number that the client gave to the request that is executed now, 0 if it has none (C10).
    request: u64,
    phase: Phase,
    map: CausalMap,
    sessions: Sessions,
    peers: Peers,
    watchers: Watchers,
    timers: Timers,
    random: fastrand::Rng,
    /// [`Start::collisions`].
    collisions: u32,
    /// Own liveness counter (L2).
    liveness_counter: u64,
    /// Names registered by the application, kept to be claimed again if an older incarnation of this node had them.
    own_names: BTreeMap<SmolStr, SmolStr>,
    /// Id of the log that this node holds a replica of; empty for none.
    log: SmolStr,
    /// Names of older incarnations have been processed (N2).
    names_settled: bool,
    /// Own writes up to which others may have written this node off and it has not restated them (D10).
    restated_at: u64,
    /// This process has completed an exchange with another node, or there is none to reach (N7).
    joined: bool,
    /// [`InheritedState::tombstones`], until they are restated.
    inherited_tombstones: Vec<Arc<Record>>,
    /// Nodes that know writes of this incarnation that it does not know (P10).
    witnesses: BTreeSet<NodeId>,
    guard: guard::Guard,
    /// Agentless members from disk, until this node serves (AG4).
    archive: Archive,
    /// What others report about the id of this node (N9).
    identity: identity::Identity,
    /// While it is starting: the registries it has received (N3).
    received: readiness::Received,
    rebalancing: rebalance::Rebalancing,
    /// Links over which an exchange is due as soon as there may be one (D7).
    to_ask: BTreeSet<LinkId>,
    searches: search::Searches,
    /// Revoked credentials (P11).
    revocations: RevocationSet,
    /// The next push requests a receipt (C12).
    receipt_wanted: bool,
    /// The number of the last unregistration that this node wrote (C13).
    last_unregistration: u64,
    counters: Counters,
    publish: bool,
    mutation: Mutation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting {
        /// Time since which no serving node could be reached.
        since: Time,
        /// A serving node has been reached: there is a registry to receive.
        met: bool,
    },
    Serving {
        since: Time,
        /// Before this time, no member is reported as absent (N3).
        absence_from: Time,
    },
    Stopping {
        deadline: Time,
    },
    /// Stop or Restart has been emitted; the node does nothing any more.
    Over,
}

impl Node {
    pub fn new(config: Config, start: Start, now: Time) -> Result<Node, ConfigError> {
        config.validate()?;
        let clock = Clock { now, lost: Duration::ZERO };
        let mut nonce = start.nonce;
        seam!(start, NonceIgnored => nonce = 0);
        let incarnation = Incarnation { number: start.persisted + 1, nonce };
        let me = OriginId { node: config.node.clone(), incarnation };
        let mut map = CausalMap::new(me.clone(), &config.limits, config.hash_seed, clock, start.mutation);
        let member_id = SmolStr::new(queries::node_member_id(&config.node));
        let self_client = map.interner.client(&member_id, start.nonce, "");
        Ok(Node {
            peers: Peers::new(&config.seeds, start.inherited.peers),
            inherited_tombstones: start.inherited.tombstones,
            joined: start.inherited.joined,
            random: fastrand::Rng::with_seed(config.random_seed ^ start.nonce),
            config,
            me,
            member_id,
            self_client,
            clock,
            paused_for: Duration::ZERO,
            resumed_at: now,
            running_since: now,
            wall_ms: start.wall_ms,
            request: 0,
            phase: Phase::Starting { since: now, met: false },
            map,
            sessions: Sessions::default(),
            watchers: Watchers::default(),
            timers: Timers::default(),
            collisions: start.collisions,
            liveness_counter: 0,
            own_names: BTreeMap::new(),
            log: SmolStr::default(),
            names_settled: false,
            restated_at: 0,
            witnesses: BTreeSet::new(),
            guard: guard::Guard::default(),
            archive: start.archive,
            identity: identity::Identity::default(),
            received: readiness::Received::default(),
            rebalancing: rebalance::Rebalancing::default(),
            to_ask: BTreeSet::new(),
            searches: search::Searches::default(),
            revocations: RevocationSet::default(),
            receipt_wanted: false,
            last_unregistration: 0,
            counters: Counters::default(),
            publish: start.publish,
            mutation: start.mutation,
        })
    }

    /// Time at which `wake` must be called.
    pub fn next_wake(&self) -> Time {
        if self.phase == Phase::Over { Time::MAX } else { self.timers.next().unwrap_or(Time::MAX) }
    }

    /// Sets the UNIX time in milliseconds, with which records are dated. It decides nothing.
    pub fn set_wall_clock(&mut self, wall_ms: u64) {
        self.wall_ms = wall_ms;
    }

    /// Handles every timer that is due.
    pub fn wake(&mut self, now: Time, out: &mut Output) {
        self.observe(now, out);
        while self.phase != Phase::Over {
            let Some(timer) = self.timers.due(now) else { break };
            match timer {
                Timer::Tick => self.tick(out),
                Timer::Session(id) => self.check_session(id, out),
                Timer::Link(link) => self.check_link(link, out),
                Timer::RetryPeer(node) => self.retry_peer(&node, out),
                Timer::RetrySeed(seed) => self.retry_seed(seed, out),
                Timer::HealthQuery(node) => self.query_health(&node, out),
                Timer::HealthDecide(node, query) => self.decide_health(&node, query, out),
                Timer::Collect => self.collect(out),
            }
        }
    }

    /// Records the time, and how much of it the node was paused (L5, N5). First in every call. False if the node was
    /// paused so long that its clients were dropped: their messages are as old as the pause.
    fn observe(&mut self, now: Time, out: &mut Output) -> bool {
        if self.phase == Phase::Over {
            return false;
        }
        let expected = self.timers.next().unwrap_or(now).max(self.clock.now);
        let late = now.since(expected);
        self.clock.now = now.max(self.clock.now);
        if late <= LATE_MIN {
            return true;
        }
        if late >= self.config.timers.ping_interval {
            self.running_since = now;
        }
        out.events.push(RegistryEvent::Late { by: late });
        self.subtract_lateness(late);
        let timers = &self.config.timers;
        let deeply = late >= timers.heartbeat_timeout;
        if deeply {
            // After running for this long, the node judges by what it receives: no lateness is left to subtract.
            let recovered = expected.since(self.resumed_at) >= timers.admission_window();
            self.paused_for = if recovered { late } else { self.paused_for + late };
            self.resumed_at = now;
        }
        seam!(self, LongPauseTolerated => self.paused_for = Duration::ZERO);
        if self.paused_for >= timers.dead_peer_timeout {
            self.restart(RestartReason::PausedTooLong, out);
            return false;
        }
        seam!(self, PausedNodeReadsBufferedMessages => return true);
        if deeply {
            self.drop_clients(out);
            self.drop_links(out);
            return false;
        }
        true
    }

    /// The clock on which silence is measured stops while this node is late (L5).
    fn subtract_lateness(&mut self, late: Duration) {
        seam!(self, PauseNotSubtracted => return);
        self.clock.lost += late;
    }

    /// Checks a client's message: not executed if it was waiting while the node was paused (L5). The session may be held
    /// elsewhere by now, so the rejection does not say that it has ended.
    fn observe_client(&mut self, now: Time, out: &mut Output) -> Result<(), Rejection> {
        let was_running = self.observe(now, out);
        self.count_rejection(if was_running { Ok(()) } else { Err(attach::was_paused()) })
    }

    /// Runs everything periodic.
    fn tick(&mut self, out: &mut Output) {
        self.timers.set(self.clock.now + self.config.timers.ping_interval, Timer::Tick);
        self.liveness_counter += 1;
        self.judge_origins(out);
        self.expire_silent_origins(out);
        self.check_received(out);
        self.check_readiness(out);
        self.check_stopping(out);
        self.check_identity(out);
        if self.phase == Phase::Over {
            return;
        }
        self.repair_topology(out);
        self.ping_all(out);
        self.request_due_exchanges(out);
        self.settle_names_in_time(out);
        self.adopt_agentless(out);
        self.end_drains(out);
        self.rebalance(out);
        let alone = self.is_alone();
        self.watchers.tick(self.clock.now, &self.map, self.config.timers.mark_interval, alone, out);
    }

    fn collect(&mut self, out: &mut Output) {
        let collected = self.map.collect(self.clock, self.tombstone_timeout());
        let agentless = self.collect_agentless(out);
        let collected: Vec<_> = collected.into_iter().chain(agentless).collect();
        self.counters.tombstones_collected += collected.len() as u64;
        self.watchers.collected(&collected, self.config.limits.watcher_queue, self.mutation, out);
        self.schedule_collection();
    }

    fn tombstone_timeout(&self) -> Duration {
        let timeout = self.config.timers.tombstone_timeout;
        seam!(self, TombstonesCollectedEarly => return timeout / 10);
        timeout
    }

    /// Keeps one timer for the oldest tombstone. Checked with the tick: collection is not urgent.
    fn schedule_collection(&mut self) {
        let interval = self.config.timers.heartbeat_interval;
        let due = self.map.next_collection(self.clock, self.tombstone_timeout());
        let at = due.unwrap_or(Time::ZERO).max(self.clock.now + interval);
        self.timers.set(at.min(self.clock.now + interval * 12), Timer::Collect);
    }
}
