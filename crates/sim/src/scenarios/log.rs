//! A record of every stream event, and when it was delivered.

use super::support::ScenarioResult;
use crate::invariants::{Found, Invariant, Violation};
use crate::network::Micros;
use crate::world::World;
use convoke_core::member::{NODE_ID_PREFIX, Status};
use convoke_core::node::{DegradedReason, StreamEvent};
use std::cell::RefCell;
use std::rc::Rc;

/// One event of one stream. Each node has a complete stream: the checker's own.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) at: Micros,
    pub(super) host: usize,
    pub(super) watcher: usize,
    pub(super) event: StreamEvent,
}

impl Seen {
    /// Returns the member it is about, and the status it shows.
    pub(super) fn shown(&self) -> Option<(&str, Status)> {
        match &self.event {
            StreamEvent::Snapshot(member)
            | StreamEvent::Registered(member)
            | StreamEvent::Updated(member)
            | StreamEvent::StatusChanged(member)
            | StreamEvent::OwnerChanged(member) => Some((member.id(), member.status())),
            StreamEvent::Unregistered { id, .. } => Some((id, Status::Left)),
            StreamEvent::CaughtUp | StreamEvent::Reset(_) | StreamEvent::Mark(_) => None,
        }
    }
}

#[derive(Debug, Default)]
struct Entries {
    seen: Vec<Seen>,
    /// Host, and the last trace line of a process that ended.
    ended: Vec<(usize, String)>,
    degraded: Vec<(Micros, usize, DegradedReason)>,
}

/// All stream events since the log was started or cleared, how processes ended, and which hosts were degraded.
#[derive(Clone, Debug, Default)]
pub(super) struct Log(Rc<RefCell<Entries>>);

impl Log {
    pub(super) fn on(world: &mut World) -> Log {
        let log = Log::default();
        world.invariants.push(Box::new(log.clone()));
        log
    }

    pub(super) fn clear(&self) {
        self.0.borrow_mut().seen.clear();
    }

    /// Returns the events of one member.
    pub(super) fn of(&self, id: &str) -> Vec<Seen> {
        let about = |seen: &&Seen| seen.shown().is_some_and(|(shown, _)| shown == id);
        self.0.borrow().seen.iter().filter(about).cloned().collect()
    }

    /// Returns the events of one watcher.
    pub(super) fn by(&self, watcher: usize) -> Vec<StreamEvent> {
        let entries = self.0.borrow();
        entries.seen.iter().filter(|seen| seen.watcher == watcher).map(|seen| seen.event.clone()).collect()
    }

    /// The first event that showed a client's member with this status, anywhere.
    pub(super) fn first(&self, status: Status) -> Option<Seen> {
        let found =
            |seen: &&Seen| seen.shown().is_some_and(|(id, shown)| shown == status && !id.starts_with(NODE_ID_PREFIX));
        self.0.borrow().seen.iter().find(found).cloned()
    }

    /// Requires that no member of a client was ever shown with this status.
    pub(super) fn never(&self, world: &World, status: Status) -> ScenarioResult {
        match self.first(status) {
            Some(seen) => {
                let message = format!("watcher {} at n{} got {:?}", seen.watcher, seen.host, seen.event);
                Err(Violation::new(crate::invariants::SCENARIO, seen.at, message))
            }
            None => world.finish(),
        }
    }

    /// Requires that no node ever showed the member as `up`.
    pub(super) fn never_up(&self, world: &World, id: &str) -> ScenarioResult {
        self.never_as(world, id, |status| status == Status::Up)
    }

    /// Requires that no node ever showed the member.
    pub(super) fn never_shown(&self, world: &World, id: &str) -> ScenarioResult {
        self.never_as(world, id, |status| status != Status::Left)
    }

    fn never_as(&self, world: &World, id: &str, wrong: impl Fn(Status) -> bool) -> ScenarioResult {
        match self.of(id).into_iter().find(|seen| seen.shown().is_some_and(|(_, status)| wrong(status))) {
            Some(seen) => Err(Violation::new(
                crate::invariants::SCENARIO,
                seen.at,
                format!("n{} shows {id} again: {:?}", seen.host, seen.event),
            )),
            None => world.finish(),
        }
    }

    /// Returns how the last process on a host ended.
    pub(super) fn end_of(&self, host: usize) -> Option<String> {
        self.0.borrow().ended.iter().rev().find(|(at, _)| *at == host).map(|(_, last_line)| last_line.clone())
    }

    /// Returns when a host first reported this degraded reason.
    pub(super) fn degraded(&self, host: usize, reason: DegradedReason) -> Option<Micros> {
        self.0.borrow().degraded.iter().find(|(_, at, why)| *at == host && *why == reason).map(|(at, ..)| *at)
    }
}

impl Invariant for Log {
    fn name(&self) -> &'static str {
        "log"
    }
    fn checks(&self) -> u64 {
        0
    }

    fn stream_event(&mut self, world: &World, watcher: usize, event: &StreamEvent, _found: &mut Found) {
        let host = world.watchers[watcher].at.map_or(usize::MAX, |(host, ..)| host);
        let seen = Seen { at: world.now, host, watcher, event: event.clone() };
        self.0.borrow_mut().seen.push(seen);
    }

    fn after_input(&mut self, world: &World, host: usize, _found: &mut Found) {
        let Some(node) = &world.hosts[host].node else { return };
        for reason in node.degraded() {
            self.0.borrow_mut().degraded.push((world.now, host, reason));
        }
    }

    fn host_stopped(&mut self, world: &World, host: usize) {
        let last_line = world.trace.last_lines().pop().unwrap_or_default();
        self.0.borrow_mut().ended.push((host, last_line));
    }
}
