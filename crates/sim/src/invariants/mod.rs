//! The invariants, one file each. Every invariant names the rules it checks in its first line and counts its checks.

mod agentless_kept;
mod alone_asserts_nothing;
mod clocks_irrelevant;
mod contents_agree;
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
mod one_checker;
mod one_owner;
mod published;
mod queues_bounded;
mod returned_owners_current;
mod streams;
mod up_peers_active;

pub use clocks_irrelevant::compare as compare_clocks;
pub use converges_in_time::{CONVERGENCE_MAX, CONVERGENCE_P99, converged};
pub use published::Published;

use crate::network::{Micros, SECOND};
use crate::plan::Kind;
use crate::world::{World, micros};
use convoke_core::member::Member;
use convoke_core::node::StreamEvent;
use convoke_core::version::Version;
use std::collections::BTreeSet;
use std::fmt;

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    pub at: Micros,
    pub message: String,
}

impl Violation {
    /// Panics if the invariant is not one of [`names`].
    pub fn new(invariant: &'static str, at: Micros, message: String) -> Self {
        assert!(invariant == SCENARIO || names().contains(&invariant), "{invariant} is not in the list of invariants");
        Violation { invariant, at, message }
    }
}

/// The check of a scenario, which is no invariant.
pub const SCENARIO: &str = "scenario";
/// Answers to requests of the SDK, checked where the node gives them (`serving.rs`).
pub const ANSWERS: &str = "answers";
/// Answers to requests over HTTP (`http`).
pub const HTTP_ANSWERS: &str = "http_answers";
/// Peers detect a crash in time (`machine.rs`).
pub const CRASHES_DETECTED: &str = "crashes_detected";
/// Runs with other wall clocks decide the same (`drive.rs`).
pub const CLOCKS_IRRELEVANT: &str = "clocks_irrelevant";
/// No part of a run panics, and no node stops without a reason (`drive.rs`, `inputs.rs`).
pub const NO_PANIC: &str = "no_panic";

/// The names of all invariants: those of [`all`], and those that are checked elsewhere.
pub fn names() -> BTreeSet<&'static str> {
    let elsewhere = [ANSWERS, HTTP_ANSWERS, CRASHES_DETECTED, CLOCKS_IRRELEVANT, NO_PANIC];
    all().iter().map(|invariant| invariant.name()).chain(elsewhere).collect()
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
        Box::<contents_agree::ContentsAgree>::default(),
        Box::<inferences_have_a_basis::InferencesHaveABasis>::default(),
        Box::<converges_in_time::ConvergesInTime>::default(),
        Box::<published::PublishedIsShown>::default(),
        Box::<alone_asserts_nothing::AloneAssertsNothing>::default(),
        Box::<http_no_false_down::HttpNoFalseDown>::default(),
        Box::<http_sessions_converge::HttpSessionsConverge>::default(),
        Box::<agentless_kept::AgentlessKept>::default(),
        Box::<one_checker::OneChecker>::default(),
    ]
}

/// Minimum number of checks of an invariant in a hundred seeds. A run with fewer checks proves little about it.
pub fn least_checks(invariant: &str, kind: Kind) -> u64 {
    match (invariant, kind) {
        // Every run checks it once, at its end.
        (NO_PANIC, _) => 0,
        // One in twenty full seeds runs a second time.
        (CLOCKS_IRRELEVANT, Kind::Full) => 1,
        (CLOCKS_IRRELEVANT, Kind::Brief | Kind::Focused) => 0,
        // Only some new seeds have agentless members.
        ("agentless_kept" | "one_checker", _) => 0,
        // Once in each round of faults, and per crash.
        ("converges_in_time" | CRASHES_DETECTED, _) => 100,
        ("returned_owners_current" | "http_sessions_converge", _) => 500,
        _ => 1_000,
    }
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

/// Whether a removal belongs to an earlier registration and arrived late. Either the node is catching up, or the tombstone
/// of an earlier process of the client arrives from the other side of a partition and outranks the current record. Its
/// owner claims the member again as soon as it receives the tombstone (C9, docs/consistency.md).
pub(crate) fn is_late_removal(world: &World, host: usize, client: usize, event: &StreamEvent) -> bool {
    let StreamEvent::Unregistered { id, version } = event else { return false };
    let given_up = world.truth.get(id).is_some_and(|claimed| claimed.freed_at > 0);
    let client = &world.clients[client];
    let acknowledged = client.members.get(id).and_then(|holding| holding.acknowledged);
    let opening = world.now.saturating_sub(notice_time(world));
    let joined = |owner: usize| world.reach.joined(owner, host, opening, world.now);
    given_up
        && acknowledged.is_some_and(|now| {
            let outranks = (version.claim, version.seq) >= (now.claim, now.seq);
            let earlier = outranks && version.claim <= client.past_claim && client.attached_to() != Some(host);
            // Peers send a node that was paused what they have, and some of them have not received the latest writes either.
            let paused = world.hosts[host].last_pause.0 > opening;
            let behind = paused || client.attached_to().is_none_or(|owner| !joined(owner));
            earlier || (behind && (version.claim, version.seq) < (now.claim, now.seq))
        })
}

/// Whether another node than the client's shows the record of an earlier process of the client that outranks the current
/// one. A client that restarts on one side of a split cannot know the last claim of its earlier process on the other
/// side. The owner claims the member again as soon as it receives that record (C9); until then other nodes show it.
/// `docs/consistency.md` states the bound.
pub(crate) fn is_of_an_earlier_process(world: &World, host: usize, client: usize, member: &Member) -> bool {
    let client = &world.clients[client];
    let acknowledged = client.members.get(member.id()).and_then(|holding| holding.acknowledged);
    let shown = member.version();
    let outranks = |now: Version| {
        (shown.claim, shown.seq) >= (now.claim, now.seq) && shown.tag != now.tag && shown.claim <= client.past_claim
    };
    client.attached_to() != Some(host) && acknowledged.is_some_and(outranks)
}
