//! Shared parts of the scenarios: cuts by pairs, clients bound to a host, short checks.

use crate::faults::Action;
use crate::host::HostState;
use crate::invariants::Violation;
use crate::network::{Cut, Micros, SECOND, Site};
use crate::watcher::{Return, Watcher};
use crate::world::{Crash, World};
use convoke_core::filter::Filter;
use convoke_core::member::{MetadataUpdate, Space, Status};
use convoke_core::node::{PeerState, SessionId};
use convoke_session::MemberSpec;
use std::collections::BTreeMap;

pub(super) type ScenarioResult = Result<(), Violation>;

/// How often a lasting condition is checked.
const STEP: Micros = SECOND / 5;

/// All hosts cut from each other, to be joined pair by pair.
#[derive(Debug, Default)]
pub(super) struct Scattered(BTreeMap<(usize, usize), [u64; 2]>);

impl Scattered {
    pub(super) fn join(&mut self, world: &mut World, one: usize, other: usize) {
        if let Some(cuts) = self.0.remove(&(one.min(other), one.max(other))) {
            world.rejoin(cuts);
        }
    }

    pub(super) fn part(&mut self, world: &mut World, one: usize, other: usize) {
        let cuts = world.partition(&[one], &[other]);
        self.0.insert((one.min(other), one.max(other)), cuts);
    }
}

/// Position of a client's stream at some moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) host: usize,
    pub(super) conn: u64,
    pub(super) session: SessionId,
}

impl World {
    /// Starts all nodes and waits until they are serving.
    pub(super) fn begin(&mut self) -> ScenarioResult {
        self.start_all();
        self.run_until(World::all_serving, 30 * SECOND)?;
        self.run_until(World::linked, 30 * SECOND)
    }

    /// All nodes of one region are linked to each other.
    pub(super) fn linked(&self) -> bool {
        self.running_hosts().into_iter().all(|host| {
            let peers = self.node(host).peers();
            peers.iter().all(|peer| peer.state == PeerState::Up || peer.region != self.hosts[host].config.region)
        })
    }

    /// Waits until every node shows all of these as up.
    pub(super) fn up(&mut self, ids: &[&str]) -> ScenarioResult {
        self.run_until(|w| ids.iter().all(|id| w.shown_everywhere(id, Status::Up)), 10 * SECOND)
    }

    /// Many scenarios derive variants from the seed.
    pub(super) fn even_seed(&self) -> bool {
        self.setup.seed.is_multiple_of(2)
    }

    /// Requires that a condition holds for a while, without a break.
    pub(super) fn throughout(&mut self, time: Micros, what: &str, holds: impl Fn(&World) -> bool) -> ScenarioResult {
        let end = self.now + time;
        loop {
            self.finish()?;
            self.require(holds(self), what)?;
            if self.now >= end {
                return Ok(());
            }
            self.run_to((self.now + STEP).min(end));
        }
    }

    /// Advances the time; fails if an invariant is violated.
    pub(super) fn pass(&mut self, time: Micros) -> ScenarioResult {
        self.run_to(self.now + time);
        self.finish()
    }

    pub(super) fn rejoin(&mut self, cuts: impl IntoIterator<Item = u64>) {
        for cut in cuts {
            self.heal(cut);
        }
    }

    pub(super) fn scatter(&mut self) -> Scattered {
        let mut scattered = Scattered::default();
        for one in 0..self.hosts.len() {
            for other in one + 1..self.hosts.len() {
                scattered.part(self, one, other);
            }
        }
        scattered
    }

    /// Limits a client to these hosts. No host is excused by that.
    pub(super) fn keep_to(&mut self, client: usize, hosts: &[usize]) -> [u64; 2] {
        let reached: u128 = hosts.iter().map(|host| Site::Host(*host).bit()).sum();
        self.cut_client(client, u128::from(u64::MAX) & !reached)
    }

    /// Cuts a client off from all hosts.
    pub(super) fn unplug(&mut self, client: usize) -> [u64; 2] {
        self.cut_client(client, u128::from(u64::MAX))
    }

    fn cut_client(&mut self, client: usize, hosts: u128) -> [u64; 2] {
        let client = Site::Client(client).bit();
        [self.cut_only_clients(client, hosts), self.cut_only_clients(hosts, client)]
    }

    pub(super) fn cut_only_clients(&mut self, from: u128, to: u128) -> u64 {
        let id = self.network.number();
        self.network.cuts.push(Cut { id, since: self.now, from, to, clients_only: true });
        self.update_reach();
        id
    }

    /// Adds a client that stays at one node while the cuts last.
    pub(super) fn add_client_fixed(&mut self, id: &str, members: &[&str], host: usize) -> usize {
        let client = self.add_client_at(id, members, host);
        self.keep_to(client, &[host]);
        client
    }

    /// Adds a client that takes its members over from their owners.
    pub(super) fn add_taker_at(&mut self, id: &str, members: &[&str], host: usize) -> usize {
        let client = self.add_client_at(id, members, host);
        for holding in self.clients[client].members.values_mut() {
            holding.takeover = true;
        }
        client
    }

    /// Moves to another node, after a short pause.
    pub(super) fn go(&mut self, client: usize, host: usize) {
        self.client_move(client, Some(host));
    }

    pub(super) fn at(&self, client: usize, host: usize) -> bool {
        self.clients[client].attached_to() == Some(host)
    }

    pub(super) fn stream_of(&self, client: usize) -> Stream {
        let c = &self.clients[client];
        let (Some(host), Some(conn), Some(session)) = (c.attached_to(), c.conn(), self.session_of(client)) else {
            panic!("c{client} is not attached: {:?}", c.link);
        };
        Stream { host, conn, session }
    }

    pub(super) fn holds(&self, client: usize, id: &str) -> bool {
        self.clients[client].members.contains_key(id)
    }

    /// Sets one metadata value of a member.
    pub(super) fn set(&mut self, client: usize, id: &str, value: &impl ToString) {
        self.client_update(client, id, &MetadataUpdate::set("v", value.to_string()), false);
    }

    pub(super) fn value(&self, host: usize, id: &str) -> Option<String> {
        self.member(host, id)?.metadata().get("v").map(str::to_owned)
    }

    pub(super) fn register(&mut self, client: usize, id: &str) {
        self.client_register(client, MemberSpec::new(id, "s"), false);
    }

    /// Whether every running node shows this host as the member's owner.
    pub(super) fn owned_by(&self, id: &str, host: usize) -> bool {
        let owner = self.hosts[host].id.as_str();
        let at = |observer: usize| self.member(observer, id).is_some_and(|member| member.owner().node == owner);
        self.running_hosts().into_iter().all(at)
    }

    /// Claim, seq and writer of what a node holds under an id.
    pub(super) fn rank(&self, host: usize, id: &str) -> Option<(u64, u64, String)> {
        let slot = self.hosts[host].node.as_ref()?.slot(id)?;
        Some((slot.claim, slot.seq, slot.origin.to_string()))
    }

    pub(super) fn claim(&self, host: usize, id: &str) -> Option<u64> {
        self.rank(host, id).map(|(claim, ..)| claim)
    }

    /// Returns the location of a name at a node.
    pub(super) fn location(&self, host: usize, name: &str) -> Option<String> {
        self.hosts[host].node.as_ref()?.name(name).map(|view| view.location)
    }

    pub(super) fn named_everywhere(&self, name: &str, location: &str) -> bool {
        self.running_hosts().into_iter().all(|host| self.location(host, name).as_deref() == Some(location))
    }

    pub(super) fn peer_state(&self, host: usize, peer: usize) -> Option<PeerState> {
        let id = &self.hosts[peer].id;
        self.hosts[host].node.as_ref()?.peers().into_iter().find(|view| view.node == *id).map(|view| view.state)
    }

    /// Whether a node holds nothing under this id, not even a tombstone.
    pub(super) fn forgotten(&self, host: usize, id: &str) -> bool {
        self.hosts[host].node.as_ref().is_none_or(|node| node.slot(id).is_none())
    }

    /// Stops a host permanently.
    pub(super) fn lose(&mut self, host: usize, crash: Crash) {
        self.crash(host, crash);
        self.hosts[host].state = HostState::Gone;
    }

    /// Adds and starts another machine that has the first host as its seed.
    pub(super) fn join_host(&mut self, name: &str) -> usize {
        let host = self.add_host(name, vec!["h0:7000".to_owned()]);
        self.start(host);
        host
    }

    /// Adds a fast watcher of all members, connected to one node.
    pub(super) fn watch_at(&mut self, host: usize) -> usize {
        let watcher = self.watchers.len();
        let mutation = self.setup.sdk_mutation;
        let watcher_of_services = Watcher::new(Space::Member, Filter::service("s"), SECOND / 1000, 64);
        self.watchers.push(Watcher { mutation, ..watcher_of_services });
        if !self.watcher_connect(watcher, host, Return::Fresh) {
            self.schedule_action(SECOND, Action::Reconnect { watcher });
        }
        watcher
    }

    pub(super) fn caught_up(&self, watcher: usize) -> bool {
        self.watchers[watcher].complete && !self.watchers[watcher].sdk.token().is_empty()
    }
}
