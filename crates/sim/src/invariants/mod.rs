//! The invariants, one file each. Every invariant cites the rules it checks and counts its checks.

mod clocks_irrelevant;
mod context_truthful;
mod converges_in_time;
mod down_and_left_arrive;
mod http_no_false_down;
mod http_sessions_converge;
mod inferences_have_a_basis;
mod never_vanishes;
mod no_false_down;
mod no_lost_registration;
mod no_resurrection;
mod one_owner;
mod published;
mod queues_bounded;
mod returned_owners_current;
mod streams;
mod up_peers_active;

pub use clocks_irrelevant::compare as compare_clocks;
pub use converges_in_time::{CONVERGENCE_MAX, CONVERGENCE_P99, converged};
pub use published::Published;

use crate::host::HostState;
use crate::network::{Micros, SECOND};
use crate::world::{Topology, World, micros};
use convoke_core::member::Member;
use convoke_core::node::StreamEvent;
use std::fmt;

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    pub at: Micros,
    pub message: String,
}

impl Violation {
    pub fn new(invariant: &'static str, at: Micros, message: String) -> Self {
        Violation { invariant, at, message }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at{}: {}", self.invariant, crate::trace::stamp(self.at), self.message)
    }
}

impl std::error::Error for Violation {}

/// Where an invariant stores its finding; the first violation ends the run.
pub type Found = Option<Violation>;

/// One property of the whole system, checked incrementally.
pub trait Invariant: fmt::Debug {
    fn name(&self) -> &'static str;
    /// Rules of docs/protocol.md that it checks.
    fn rule(&self) -> &'static str;
    /// Number of checks made so far.
    fn checks(&self) -> u64;
    /// A node has handled an input, and the checker's view of it is up to date.
    fn after_input(&mut self, _world: &World, _host: usize, _found: &mut Found) {}
    /// An event is about to be applied to a watcher's view.
    fn stream_event(&mut self, _world: &World, _watcher: usize, _event: &StreamEvent, _found: &mut Found) {}
    /// A watcher has read all available events.
    fn drained(&mut self, _world: &World, _watcher: usize, _found: &mut Found) {}
    /// A watcher has connected.
    fn watched(&mut self, _world: &World, _watcher: usize) {}
    /// A node process has ended.
    fn host_stopped(&mut self, _world: &World, _host: usize) {}
    /// Called every half simulated minute.
    fn periodically(&mut self, _world: &World, _found: &mut Found) {}
    /// Everything is healed, converged and quiescent.
    fn at_quiescence(&mut self, _world: &World, _found: &mut Found) {}
}

pub fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::<no_resurrection::NoResurrection>::default(),
        Box::<no_lost_registration::NoLostRegistration>::default(),
        Box::<no_false_down::NoFalseDown>::default(),
        Box::<down_and_left_arrive::DownAndLeftArrive>::default(),
        Box::<one_owner::OneOwner>::default(),
        Box::<never_vanishes::NeverVanishes>::default(),
        Box::<returned_owners_current::ReturnedOwnersCurrent>::default(),
        Box::<streams::Streams>::default(),
        Box::<up_peers_active::UpPeersActive>::default(),
        Box::<queues_bounded::QueuesBounded>::default(),
        Box::<context_truthful::ContextTruthful>::default(),
        Box::<inferences_have_a_basis::InferencesHaveABasis>::default(),
        Box::<converges_in_time::ConvergesInTime>::default(),
        Box::<published::PublishedIsShown>::default(),
        Box::<http_no_false_down::HttpNoFalseDown>::default(),
        Box::<http_sessions_converge::HttpSessionsConverge>::default(),
    ]
}

/// Reports a violation unless there is one already.
fn report(found: &mut Found, invariant: &'static str, world: &World, message: String) {
    found.get_or_insert_with(|| Violation::new(invariant, world.now, message));
}

/// Hosts whose node runs and serves, with it.
pub(crate) fn serving(world: &World) -> impl Iterator<Item = (usize, &convoke_core::Node)> {
    world.hosts.iter().enumerate().filter(|(_, h)| !h.is_second).filter_map(|(i, h)| Some((i, h.serving()?)))
}

/// Time for detection and propagation: the admission window, once more for the guard, and slack.
pub(crate) fn notice_time(world: &World) -> Micros {
    let timers = &world.setup.timers;
    micros(timers.admission_window()) + micros(timers.heartbeat_timeout) + 5 * SECOND
}

/// Releases by other clients before this time have expired, and their tombstones are collected.
pub(crate) fn settled_since(world: &World) -> Micros {
    world.now.saturating_sub(world.linger() + micros(world.setup.timers.tombstone_timeout))
}

/// Whether no fault affected a host for so long that it has no excuse. A host that could not find the others counts as
/// a cluster of its own.
pub(crate) fn undisturbed(world: &World, host: usize, window: Micros) -> bool {
    let held = &world.hosts[host];
    held.running()
        && held.ready_at.is_some_and(|at| world.now - at > window)
        && held.trouble.calm_for(world.now) > window
        && held.calm_after_pause(world.now, 3 * SECOND) > window
        && held.twin.is_none()
        && !(held.alone && world.hosts.len() > 1)
}

/// Whether a removal belongs to an earlier registration and arrived late. Either the node is catching up, or it was
/// cut off and holds records of an earlier process of the client that had higher claims.
pub(crate) fn is_late_removal(world: &World, host: usize, client: usize, event: &StreamEvent) -> bool {
    let StreamEvent::Unregistered { id, version } = event else { return false };
    let given_up = world.truth.get(id).is_some_and(|claimed| claimed.freed_at > 0);
    let client = &world.clients[client];
    let acknowledged = client.members.get(id).and_then(|holding| holding.acknowledged);
    given_up
        && acknowledged.is_some_and(|now| {
            let earlier = version.claim > now.claim && version.claim <= client.past_claim;
            let behind = !no_false_down::observer_is_calm(world, host) || !findable(world, notice_time(world));
            earlier || (behind && (version.claim, version.seq) < (now.claim, now.seq))
        })
}

/// Whether a member shows the record of an earlier process of its client that outranks the current one. A client that
/// restarts on one side of a split cannot know the last claim of its earlier process on the other side. The owner
/// claims the member again as soon as it receives that record (C4); until then other nodes show it. Documented in
/// `docs/known-violations.md`.
pub(crate) fn is_of_an_earlier_process(world: &World, client: usize, member: &Member) -> bool {
    let client = &world.clients[client];
    let acknowledged = client.members.get(member.id()).and_then(|holding| holding.acknowledged);
    let shown = member.version();
    acknowledged.is_some_and(|now| (shown.claim, shown.seq) > (now.claim, now.seq) && shown.claim <= client.past_claim)
}

/// Whether every host can find every other one. In a line, an unreachable host separates its two sides when they
/// restart. In a star, the first host separates all. A replacement knows the first host only. Otherwise the seeds
/// suffice.
pub(crate) fn findable(world: &World, window: Micros) -> bool {
    let reachable = |host: &crate::host::Host| {
        host.running()
            && world.now.saturating_sub(host.started_at) > window
            && host.trouble.calm_for(world.now) > window
            && host.calm_after_pause(world.now, 3 * SECOND) > window
    };
    let mut hosts = world.hosts.iter().filter(|host| host.state != HostState::Gone);
    let replaced = world.hosts.iter().skip(world.setup.nodes).any(|host| !host.is_second);
    let by_the_first = replaced || world.setup.topology == Topology::Star;
    (world.setup.topology != Topology::Line || hosts.all(reachable)) && (!by_the_first || reachable(&world.hosts[0]))
}
