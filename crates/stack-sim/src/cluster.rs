//! The nodes and their faults.

use crate::disk::{DiskFault, DiskImage};
use crate::drive::machine_name;
use crate::faults::Fault;
use crate::links::{LinkFault, Links, set_latency};
use crate::members;
use crate::node::name;
use crate::operator::Order;
use crate::record::micros;
use crate::restores::Stage;
use crate::world::Shared;
use convoke_log::machine::Machine;
use convoke_replica::{LogHandle, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use turmoil::Sim;

/// Maximum number of active faults.
const ACTIVE_MAX: usize = 3;
/// How often replicas are compared.
const LOOK: Duration = Duration::from_secs(1);
/// Faults of runs with many membership changes. The group changes while replicas crash, fall behind and receive
/// snapshots, which is where stale memberships would show.
const CHURN: &[Fault] = &[
    Fault::Replace,
    Fault::Grow,
    Fault::Shrink,
    Fault::Replace,
    Fault::Grow,
    Fault::Shrink,
    Fault::Transfer,
    Fault::CrashLeader,
    Fault::Crash,
    Fault::LongOutage,
    Fault::IsolateLeader,
    Fault::Split,
];
/// Longer than a run.
const UNTIL_HEALED: Duration = Duration::from_secs(100_000);
const USUAL_LATENCY: Duration = Duration::from_millis(30);

pub(crate) struct Cluster<'a> {
    sim: Sim<'a>,
    shared: Arc<Shared>,
    random: fastrand::Rng,
    links: Links,
    /// Active faults: when to undo them, and how.
    active: Vec<(Duration, Undo)>,
    /// Nodes that are down, and when they start again.
    down: BTreeMap<usize, Duration>,
    members: BTreeSet<usize>,
    spare: Option<usize>,
    order: Option<Order>,
    orders: UnboundedSender<Order>,
    next_fault: Duration,
    next_look: Duration,
    /// State hashes by index, as observed on the replicas.
    hashes: BTreeMap<u64, u128>,
    /// Snapshots that each node was observed to install since it started.
    installed: Vec<u64>,
    /// Faults that each disk was observed to cause.
    faults_met: Vec<u64>,
    /// Applied index of each node at the last check of the leases of members.
    member_looks: Vec<u64>,
}

/// How a fault ends.
#[derive(Debug)]
enum Undo {
    Links(LinkFault),
    Latency(Vec<(String, String)>),
    DiskLatency(usize),
    DiskRoom(usize),
}

impl<'a> Cluster<'a> {
    pub(crate) fn new(sim: Sim<'a>, shared: Arc<Shared>, orders: UnboundedSender<Order>) -> Self {
        let nodes = shared.plan.nodes();
        Cluster {
            sim,
            random: fastrand::Rng::with_seed(shared.plan.seed ^ 0xfa17_5000),
            links: Links::default(),
            active: Vec::new(),
            down: BTreeMap::new(),
            members: (0..shared.plan.founders).collect(),
            spare: Some(shared.plan.founders),
            order: None,
            orders,
            next_fault: Duration::ZERO,
            next_look: Duration::ZERO,
            hashes: BTreeMap::new(),
            installed: vec![0; nodes],
            faults_met: vec![0; nodes],
            member_looks: vec![0; nodes],
            shared,
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.sim.elapsed()
    }

    fn nodes(&self) -> std::ops::Range<usize> {
        0..self.shared.plan.nodes()
    }

    fn now(&self) -> u64 {
        micros(self.elapsed())
    }

    /// Advances time and performs the due actions.
    pub(crate) fn step(&mut self) -> Result<(), String> {
        let now = self.elapsed();
        for (_, undo) in self.active.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
            self.undo(undo);
        }
        let due: Vec<usize> = self.down.iter().filter(|(_, at)| **at <= now).map(|(place, _)| *place).collect();
        for place in due {
            self.start(place);
        }
        self.watch_failures()?;
        self.watch_order();
        self.watch_members()?;
        if now >= self.next_look {
            self.next_look = now + LOOK;
            self.look()?;
        }
        self.sim.step().map(drop).map_err(|error| format!("hosts run: {error}"))
    }

    /// Injects a fault if one is due.
    pub(crate) fn inject_due(&mut self) -> Result<(), String> {
        if self.elapsed() < self.next_fault {
            return Ok(());
        }
        let mean = self.shared.plan.between_faults.as_secs_f64();
        let pause = -mean * (1.0 - self.random.f64()).ln();
        self.next_fault = self.elapsed() + Duration::from_secs_f64(pause.clamp(0.05, 4.0 * mean));
        if self.active.len() + self.down.len() >= ACTIVE_MAX {
            return Ok(());
        }
        let kinds = if self.shared.plan.churn && self.random.u8(0..4) > 0 { CHURN } else { Fault::ALL };
        let fault = kinds[self.random.usize(..kinds.len())];
        self.inject(fault);
        Ok(())
    }

    fn some_node(&mut self) -> usize {
        self.random.usize(self.nodes())
    }

    fn seconds(&mut self, from: f64, to: f64) -> Duration {
        Duration::from_secs_f64(from + self.random.f64() * (to - from))
    }

    fn inject(&mut self, fault: Fault) {
        let node = self.some_node();
        let leader = self.leader();
        match fault {
            Fault::Isolate => self.cut(fault, node, Direction::Both),
            Fault::IsolateLeader => leader.into_iter().for_each(|leader| self.cut(fault, leader, Direction::Both)),
            Fault::OneWayOut => self.cut(fault, node, Direction::Out),
            Fault::OneWayIn => self.cut(fault, node, Direction::In),
            Fault::Split => self.split(),
            Fault::CutPair => {
                let other = (node + 1 + self.random.usize(..self.nodes().len() - 1)) % self.nodes().len();
                let pair = vec![(name(node), name(other)), (name(other), name(node))];
                self.on_links(fault, &format!("n{node} and n{other}"), LinkFault::Cut(pair), 0.3, 10.0);
            }
            Fault::Hold => {
                let pairs = self.others(node).map(|other| (name(node), name(other))).collect();
                self.on_links(fault, &name(node), LinkFault::Held(pairs), 0.2, 6.0);
            }
            Fault::Slow => self.slow(node),
            Fault::Crash => self.crash(fault, node, 0.1, 8.0),
            Fault::CrashLeader => leader.into_iter().for_each(|leader| self.crash(fault, leader, 0.1, 8.0)),
            Fault::LongOutage => self.crash(fault, node, 20.0, 60.0),
            Fault::CrashAll => {
                self.record_fault(fault, "");
                for place in self.nodes() {
                    let away = self.seconds(0.1, 3.0);
                    self.stop(place, away);
                }
            }
            Fault::SyncFails => self.shared.disks[node].set_fault(Some(DiskFault::Sync)),
            Fault::DiskFull => {
                self.shared.disks[node].set_fault(Some(DiskFault::Full));
                self.later(0.5, 8.0, Undo::DiskRoom(node));
            }
            Fault::DiskSlow => {
                let latency = self.seconds(0.05, 1.2);
                self.shared.disks[node].set_latency(Some(latency));
                self.record_fault(fault, &format!("n{node}, {latency:?}"));
                self.later(0.5, 8.0, Undo::DiskLatency(node));
            }
            Fault::ClockJumps => {
                let by = self.seconds(0.1, 20.0);
                if let Some(jump) = &self.shared.node(node).jump
                    && jump.send(by).is_ok()
                {
                    self.record_fault(fault, &format!("n{node} by {by:?}"));
                    self.shared.recorder.lock().jumps.push(self.now());
                }
            }
            Fault::ClientCut => {
                let pairs = self.to_clients(node).flat_map(|(a, b)| [(a.clone(), b.clone()), (b, a)]).collect();
                self.on_links(fault, &name(node), LinkFault::Cut(pairs), 0.3, 8.0);
            }
            Fault::ClientLate => {
                let pairs = self.to_clients(node).collect();
                self.on_links(fault, &name(node), LinkFault::Held(pairs), 0.2, 6.0);
            }
            Fault::Transfer | Fault::Replace | Fault::Grow | Fault::Shrink => self.give_order(fault),
            // Consequences of other faults, actions of clients, or the end of a run.
            Fault::UnsyncedLost
            | Fault::Rollback
            | Fault::Restore
            | Fault::SnapshotInstalled
            | Fault::Abandoned
            | Fault::OutcomeUnknown
            | Fault::ClientRestarts
            | Fault::WaiterLeaves
            | Fault::LockLost
            | Fault::MemberGone
            | Fault::RegistryLate
            | Fault::RegistryIncomplete
            | Fault::RegistryUnreliable => {}
        }
    }

    /// Crashes the leader; it stays down until [`heal`](Self::heal). Returns false if no leader is visible.
    pub(crate) fn crash_leader(&mut self) -> bool {
        let Some(leader) = self.leader() else { return false };
        self.record_fault(Fault::CrashLeader, &name(leader));
        self.stop(leader, UNTIL_HEALED);
        true
    }

    /// Cuts the leader off from all other nodes, but not from the clients, until [`heal`](Self::heal). Returns false if no
    /// leader is visible.
    pub(crate) fn isolate_leader(&mut self) -> bool {
        let Some(leader) = self.leader() else { return false };
        let pairs = self.others(leader).flat_map(|other| [(name(leader), name(other)), (name(other), name(leader))]);
        let links = LinkFault::Cut(pairs.collect());
        self.record_fault(Fault::IsolateLeader, &name(leader));
        self.links.begin(&self.sim, &links);
        self.active.push((self.elapsed() + UNTIL_HEALED, Undo::Links(links)));
        true
    }

    /// Returns a follower that can be replaced by the spare node, with an image of its disk and its last index.
    pub(crate) fn image_of_a_follower(&mut self) -> Option<(usize, DiskImage, u64)> {
        self.spare?;
        let leader = self.leader()?;
        let followers: Vec<usize> = self.members.iter().copied().filter(|place| *place != leader).collect();
        let place = *followers.get(self.random.usize(..followers.len().max(1)))?;
        // Entries that are stored but not applied yet are in the image, too.
        let last = self.shared.handle(place)?.status().last;
        Some((place, self.shared.disks[place].image(), last))
    }

    pub(crate) fn applied(&self, place: usize) -> Option<u64> {
        Some(self.shared.handle(place)?.status().applied)
    }

    /// Returns whether all other replicas have evidence that a replica acknowledged a committed index (M6).
    pub(crate) fn is_known_to_have(&self, place: usize, index: u64) -> bool {
        let Some(replica) = self.shared.handle(place).and_then(|handle| handle.status().replica) else { return false };
        let others = self.members.iter().filter(|other| **other != place);
        others.into_iter().all(|other| {
            let evidence = self.shared.handle(*other).and_then(|handle| handle.evidence_of(replica));
            evidence.is_some_and(|known| known >= index)
        })
    }

    /// Stops a node and replaces its disk by an earlier image of it.
    pub(crate) fn roll_back(&mut self, place: usize, image: DiskImage) {
        self.record_fault(Fault::Rollback, &name(place));
        self.turn_off(place, UNTIL_HEALED);
        self.shared.disks[place].roll_back(image);
    }

    /// Runs a program on a machine of its own.
    pub(crate) fn run(&mut self, machine: &str, program: impl Future<Output = turmoil::Result> + 'static) {
        self.sim.client(machine, program);
    }

    /// Stops all nodes and replaces their disks by empty ones.
    pub(crate) fn lose_all(&mut self) {
        self.record_fault(Fault::Restore, "");
        for place in self.nodes() {
            self.turn_off(place, UNTIL_HEALED);
            self.shared.disks[place].wipe();
        }
        self.members.clear();
        self.spare = None;
    }

    /// Starts the node with a restored log as the only member of the group.
    pub(crate) fn start_restored(&mut self, place: usize) {
        // The new log has the same indexes, and its entries differ.
        self.hashes.clear();
        self.members.insert(place);
        self.start(place);
    }

    /// Starts the other nodes and lets the operator add one of them.
    pub(crate) fn add_another(&mut self, place: usize) {
        let new = (place + 1) % self.nodes().len();
        self.spare = Some(new);
        for other in self.down.keys().copied().collect::<Vec<_>>() {
            self.start(other);
        }
        self.send_order(Order::Grow { new });
    }

    /// Returns the log of the members.
    pub(crate) fn log(&self) -> Option<u128> {
        self.members.first().and_then(|place| self.shared.handle(*place))?.log().ok()
    }

    /// Starts a node that was stopped, after a moment.
    pub(crate) fn start_again(&mut self, place: usize) {
        self.down.insert(place, self.elapsed() + Duration::from_millis(500));
    }

    /// Returns whether the leader has purged its log beyond an index.
    pub(crate) fn has_purged(&self, index: u64) -> bool {
        let leader = self.leader().and_then(|leader| self.shared.handle(leader));
        leader.is_some_and(|leader| leader.status().purged > index)
    }

    pub(crate) fn is_excluded(&self, place: usize) -> bool {
        self.shared.handle(place).is_some_and(|handle| handle.status().excluded)
    }

    /// Describes the replicas for the report of a violation.
    pub(crate) fn describe(&self) -> String {
        let describe = |(place, handle): (usize, LogHandle)| {
            let status = handle.status();
            let (role, last, commit) = (status.role.as_str(), status.last, status.commit);
            format!("n{place} {role}, last {last}, commit {commit}, epoch {:?}", status.group.epoch)
        };
        self.handles().into_iter().map(describe).collect::<Vec<_>>().join("; ")
    }

    /// Lets the operator replace a node by the spare one.
    pub(crate) fn replace(&mut self, old: usize) {
        let Some(new) = self.spare else { return };
        self.send_order(Order::Replace { old, new });
    }

    fn record_fault(&self, fault: Fault, what: &str) {
        self.shared.recorder.fault(self.now(), fault, &format!("{}: {what}", fault.name()));
    }

    fn later(&mut self, from: f64, to: f64, undo: Undo) {
        let at = self.elapsed() + self.seconds(from, to);
        self.active.push((at, undo));
    }

    fn others(&self, node: usize) -> impl Iterator<Item = usize> + use<> {
        self.nodes().filter(move |other| *other != node)
    }

    fn to_clients(&self, node: usize) -> impl Iterator<Item = (String, String)> + use<> {
        (0..2).map(move |machine| (machine_name(machine), name(node)))
    }

    fn on_links(&mut self, fault: Fault, what: &str, links: LinkFault, from: f64, to: f64) {
        self.record_fault(fault, what);
        self.links.begin(&self.sim, &links);
        self.later(from, to, Undo::Links(links));
    }

    fn cut(&mut self, fault: Fault, node: usize, direction: Direction) {
        let (out, into) = (direction != Direction::In, direction != Direction::Out);
        let mut pairs = Vec::new();
        for other in self.others(node) {
            pairs.extend(out.then(|| (name(node), name(other))));
            pairs.extend(into.then(|| (name(other), name(node))));
        }
        self.on_links(fault, &name(node), LinkFault::Cut(pairs), 0.3, 12.0);
    }

    fn split(&mut self) {
        let (mut one, mut other): (Vec<usize>, Vec<usize>) = self.nodes().partition(|_| self.random.bool());
        if one.is_empty() {
            std::mem::swap(&mut one, &mut other);
        }
        let pairs = one.iter().flat_map(|a| other.iter().flat_map(|b| [(name(*a), name(*b)), (name(*b), name(*a))]));
        let pairs: Vec<_> = pairs.collect();
        if !pairs.is_empty() {
            self.on_links(Fault::Split, &format!("{one:?} from {other:?}"), LinkFault::Cut(pairs), 0.5, 12.0);
        }
    }

    fn slow(&mut self, node: usize) {
        let latency = self.seconds(0.1, 1.0);
        let pairs: Vec<_> = self.others(node).map(|other| (name(node), name(other))).collect();
        self.record_fault(Fault::Slow, &format!("n{node}, up to {latency:?}"));
        set_latency(&self.sim, &pairs, latency);
        self.later(0.5, 10.0, Undo::Latency(pairs));
    }

    fn crash(&mut self, fault: Fault, node: usize, from: f64, to: f64) {
        if self.down.contains_key(&node) {
            return;
        }
        self.record_fault(fault, &name(node));
        let away = self.seconds(from, to);
        self.stop(node, away);
    }

    /// Cuts the power: first of the disk, so that no write of the dying process reaches it.
    fn stop(&mut self, place: usize, away: Duration) {
        if self.shared.disks[place].power_cut(&mut self.random) {
            self.record_fault(Fault::UnsyncedLost, &name(place));
        }
        self.turn_off(place, away);
    }

    fn turn_off(&mut self, place: usize, away: Duration) {
        self.count_installed(place);
        self.installed[place] = 0;
        let mut node = self.shared.node(place);
        let gone = std::mem::take(&mut *node);
        drop(node);
        self.sim.crash(name(place));
        drop(gone);
        self.down.insert(place, self.elapsed() + away);
    }

    fn start(&mut self, place: usize) {
        self.down.remove(&place);
        self.shared.recorder.note(self.now(), &format!("n{place} starts"));
        self.sim.bounce(name(place));
    }

    fn undo(&mut self, undo: Undo) {
        self.shared.recorder.note(self.now(), &format!("undone: {undo:?}"));
        match undo {
            Undo::Links(fault) => self.links.end(&self.sim, &fault),
            Undo::Latency(pairs) => set_latency(&self.sim, &pairs, USUAL_LATENCY),
            Undo::DiskLatency(place) => self.shared.disks[place].set_latency(None),
            Undo::DiskRoom(place) => self.shared.disks[place].set_fault(None),
        }
    }

    /// Ends all faults and starts all nodes.
    pub(crate) fn heal(&mut self) {
        for (_, undo) in std::mem::take(&mut self.active) {
            self.undo(undo);
        }
        for disk in &self.shared.disks {
            disk.set_fault(None);
        }
        for place in self.down.keys().copied().collect::<Vec<_>>() {
            self.start(place);
        }
        self.shared.recorder.note(self.now(), "all faults have ended");
    }

    /// A replica stops only because of its disk; then its node is restarted.
    fn watch_failures(&mut self) -> Result<(), String> {
        for place in self.nodes() {
            let Some(why) = self.shared.node(place).failed.take() else { continue };
            let faults_met = self.shared.disks[place].faults_met();
            if faults_met == self.faults_met[place] {
                return Err(format!("replicas stop only because of their disks: n{place}: {why}"));
            }
            self.faults_met[place] = faults_met;
            let fault = if why.contains("fsync failed") { Fault::SyncFails } else { Fault::DiskFull };
            self.record_fault(fault, &format!("n{place}: {why}"));
            let away = self.seconds(0.2, 4.0);
            self.stop(place, away);
        }
        Ok(())
    }

    fn give_order(&mut self, fault: Fault) {
        if self.order.is_some() {
            return;
        }
        let members: Vec<usize> = self.members.iter().copied().collect();
        let member = members[self.random.usize(..members.len())];
        let order = match (fault, self.spare) {
            (Fault::Transfer, _) => Order::Transfer { to: member },
            (Fault::Replace, Some(new)) => Order::Replace { old: member, new },
            (Fault::Grow, Some(new)) => Order::Grow { new },
            (Fault::Shrink, None) => Order::Shrink { old: member },
            _ => return,
        };
        self.send_order(order);
    }

    fn send_order(&mut self, order: Order) {
        self.shared.recorder.note(self.now(), &format!("order of the operator: {order:?}"));
        self.order = Some(order);
        self.shared.recorder.lock().orders_left += 1;
        let _ = self.orders.send(order);
    }

    /// A membership change is complete: a node that left the group gets a new disk and becomes the spare.
    fn watch_order(&mut self) {
        let Some(order) = self.order else { return };
        {
            let mut record = self.shared.recorder.lock();
            if record.orders_left > 0 {
                return;
            }
            record.removed.clear();
        }
        self.order = None;
        let (gone, come) = match order {
            Order::Transfer { .. } => (None, None),
            Order::Replace { old, new } => (Some(old), Some(new)),
            Order::Grow { new } => (None, Some(new)),
            Order::Shrink { old } => (Some(old), None),
        };
        if let Some(new) = come {
            self.members.insert(new);
            self.spare = None;
        }
        if let Some(old) = gone {
            self.members.remove(&old);
            self.spare = Some(old);
            self.turn_off(old, Duration::from_secs(1));
            self.shared.disks[old].wipe();
        }
    }

    fn handles(&self) -> Vec<(usize, LogHandle)> {
        self.nodes().filter_map(|place| Some((place, self.shared.handle(place)?))).collect()
    }

    /// Returns the leading node, as far as it is visible from outside.
    pub(crate) fn leader(&self) -> Option<usize> {
        let leading = self.handles().into_iter().filter_map(|(place, handle)| {
            let status = handle.status();
            (status.role == Role::Leader).then_some((status.group.epoch, place))
        });
        leading.max().map(|(_, place)| place)
    }

    /// Checks the leases of members in every new state of a replica.
    fn watch_members(&mut self) -> Result<(), String> {
        let mut record = self.shared.recorder.lock();
        // A restored log has the same indexes.
        if record.restoring.stage >= Stage::Lost {
            return Ok(());
        }
        for place in 0..self.shared.plan.nodes() {
            let Some(machine) = self.shared.handle(place).and_then(|handle| handle.local().ok()) else { continue };
            let index = machine.applied().index;
            if std::mem::replace(&mut self.member_looks[place], index) != index {
                members::check(&mut record, &self.shared.registry(), &machine, micros(self.sim.elapsed()))?;
            }
        }
        Ok(())
    }

    fn count_installed(&mut self, place: usize) {
        let Some(handle) = self.shared.handle(place) else { return };
        let installed = handle.counters().snapshots_installed;
        for _ in self.installed[place]..installed {
            self.record_fault(Fault::SnapshotInstalled, &name(place));
        }
        self.installed[place] = installed;
    }

    /// Checks that replicas at the same applied index have the same state.
    fn look(&mut self) -> Result<(), String> {
        let mut line = String::new();
        for (place, handle) in self.handles() {
            self.count_installed(place);
            let Ok(machine) = handle.local() else { continue };
            let (index, hash) = (machine.applied().index, machine.state_hash());
            line.push_str(&format!(" n{place}:{index}"));
            if *self.hashes.entry(index).or_insert(hash) != hash {
                return Err(format!(
                    "replicas agree: n{place} has another state than an earlier replica at index {index}"
                ));
            }
            *self.shared.recorder.lock().stats.checks.entry("equal states at equal indexes").or_default() += 1;
        }
        self.shared.recorder.note(self.now(), &format!("applied{line}, leader {:?}", self.leader()));
        Ok(())
    }

    /// Applied index and state hash of each member.
    fn states(&self) -> Vec<(usize, Option<(u64, u128)>)> {
        let state = |place: usize| {
            let machine = self.shared.handle(place)?.local().ok()?;
            Some((machine.applied().index, machine.state_hash()))
        };
        self.members.iter().map(|place| (*place, state(*place))).collect()
    }

    pub(crate) fn agree(&self) -> bool {
        let states = self.states();
        states.iter().all(|(_, state)| state.is_some() && *state == states[0].1)
    }

    pub(crate) fn differences(&self) -> String {
        format!("index and state hash of each: {:?}", self.states())
    }

    /// The state of a member, for the checks at the end.
    pub(crate) fn machine(&self) -> Option<Arc<Machine>> {
        self.members.first().and_then(|place| self.shared.handle(*place))?.local().ok()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Both,
    Out,
    In,
}
