//! Watcher streams: gapless, ordered per member, exact after catching up and after resuming (W1–W6).

use super::{Found, Invariant, report};
use crate::network::{Micros, SECOND};
use crate::watcher::{Return, Watcher};
use crate::world::{World, micros};
use convoke_core::Node;
use convoke_core::member::{Member, Space, Status};
use convoke_core::node::StreamEvent;
use std::collections::BTreeMap;

const NAME: &str = "streams";

/// Claim and sequence at which a member left a view, and when.
type Removed = BTreeMap<String, ((u64, u64), Micros)>;

#[derive(Debug, Default)]
pub struct Streams {
    checks: u64,
    /// Per watcher: the last state of each member that is no longer in view, and when it was removed.
    removed: BTreeMap<usize, Removed>,
    /// Number of times a watcher had nothing to read; only some of these are compared in full.
    drained: u64,
}

impl Invariant for Streams {
    fn name(&self) -> &'static str {
        NAME
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn stream_event(&mut self, world: &World, watcher: usize, event: &StreamEvent, found: &mut Found) {
        self.checks += 1;
        let reader = &world.watchers[watcher];
        let resuming = !reader.complete && reader.returned != Return::Fresh;
        let removed = self.removed.entry(watcher).or_default();
        let problem = match event {
            StreamEvent::Snapshot(m) => behind(reader, m)
                .or_else(|| if reader.returned == Return::Known { None } else { came_back(world, reader, removed, m) }),
            // A resuming watcher gets the state of everything that may have changed, known to it or not.
            StreamEvent::Registered(m) if resuming && reader.view.contains_key(m.id()) => behind(reader, m),
            StreamEvent::Registered(m) if reader.view.contains_key(m.id()) => Some("is registered twice".to_owned()),
            StreamEvent::Registered(m) => came_back(world, reader, removed, m),
            StreamEvent::Updated(m) | StreamEvent::StatusChanged(m) | StreamEvent::OwnerChanged(m) => {
                if reader.view.contains_key(m.id()) {
                    behind(reader, m)
                } else {
                    Some("changes but is not in the view".to_owned())
                }
            }
            StreamEvent::Unregistered { id, version } => match reader.view.get(id) {
                Some(held) => {
                    // While resuming, absence may only mean that this node never received the member.
                    if reader.complete {
                        removed.insert(id.clone(), ((version.claim, version.seq), world.now));
                    }
                    let lower = (version.claim, version.seq) < (held.version().claim, held.version().seq);
                    (lower && reader.space == Space::Member)
                        .then(|| format!("leaves at {version} after {}", held.version()))
                }
                None if resuming => None,
                None => Some("leaves but is not in the view".to_owned()),
            },
            StreamEvent::Reset(_) => {
                removed.clear();
                None
            }
            StreamEvent::CaughtUp | StreamEvent::Mark(_) => None,
        };
        let hidden = match event {
            StreamEvent::Snapshot(m)
            | StreamEvent::Registered(m)
            | StreamEvent::Updated(m)
            | StreamEvent::StatusChanged(m)
            | StreamEvent::OwnerChanged(m) => m.status() == Status::Left,
            _ => false,
        };
        if let Some(problem) = problem.or_else(|| hidden.then(|| "is shown although it has left".to_owned())) {
            report(found, NAME, world, format!("watcher {watcher} at {:?}: {event:?} {problem}", reader.at));
        }
    }

    fn watched(&mut self, world: &World, watcher: usize) {
        // A lagging node may send older states to a watcher that resumes with versions only, or with nothing.
        if matches!(world.watchers[watcher].returned, Return::Fresh | Return::Known) {
            self.removed.remove(&watcher);
        }
    }

    fn drained(&mut self, world: &World, watcher: usize, found: &mut Found) {
        self.drained += 1;
        if self.drained.is_multiple_of(16) {
            self.exact(world, watcher, found);
        }
    }

    fn at_quiescence(&mut self, world: &World, found: &mut Found) {
        for watcher in 0..world.watchers.len() {
            let reader = &world.watchers[watcher];
            if reader.drained && !reader.reading {
                self.exact(world, watcher, found);
            }
        }
    }
}

impl Streams {
    /// Checks that the view equals the node's members.
    fn exact(&mut self, world: &World, watcher: usize, found: &mut Found) {
        let reader = &world.watchers[watcher];
        let Some((host, ..)) = reader.at else { return };
        let Some(node) = world.hosts[host].node.as_ref().filter(|_| reader.complete) else { return };
        self.checks += 1;
        if let Some(problem) = mismatch(reader, node) {
            report(found, NAME, world, format!("watcher {watcher} at n{host} ({:?}): {problem}", reader.returned));
        }
    }
}

/// Compares the application's view with the stream's events.
fn application_mismatch(reader: &Watcher) -> Option<String> {
    let seen = &reader.application.view;
    if reader.observer || !reader.complete {
        return None;
    }
    let differs = |held: &&Member| {
        seen.get(held.id()).is_none_or(|shown| {
            shown.version != held.version().to_string()
                || shown.status.as_str() != held.status().as_str()
                || shown.metadata != held.metadata().to_map()
        })
    };
    let odd = reader.view.values().find(differs).map(|held| format!("differs in the application from {held:?}"));
    odd.or_else(|| (seen.len() != reader.view.len()).then(|| format!("has {:?} in the application", seen.keys())))
}

fn mismatch(reader: &Watcher, node: &Node) -> Option<String> {
    if let Some(problem) = application_mismatch(reader) {
        return Some(problem);
    }
    if reader.space == Space::Name {
        return names_mismatch(reader, node);
    }
    let (mut cursor, mut seen) = (None, 0);
    loop {
        let (members, next) = node.members(&reader.filter, cursor, 1000);
        for member in members {
            seen += 1;
            let held = reader.view.get(member.id());
            if held.is_none_or(|held| {
                held.version() != member.version()
                    || held.status() != member.status()
                    || held.metadata() != member.metadata()
            }) {
                return Some(format!("has {held:?} instead of {member:?}"));
            }
        }
        cursor = next;
        if cursor.is_none() {
            break;
        }
    }
    (seen != reader.view.len()).then(|| {
        let extra =
            reader.view.values().find(|held| node.member(held.id()).is_none_or(|m| m.version() != held.version()));
        format!("has {} members instead of {seen}, such as {extra:?}", reader.view.len())
    })
}

fn names_mismatch(reader: &Watcher, node: &Node) -> Option<String> {
    let names: Vec<String> =
        node.slots().into_iter().filter(|slot| slot.name && slot.shown != Status::Left).map(|slot| slot.id).collect();
    for name in &names {
        let (held, shown) = (reader.view.get(name), node.name(name));
        if held.map(|h| (h.version(), h.address().to_owned()))
            != shown.as_ref().map(|s| (s.version, s.location.clone()))
        {
            return Some(format!("has {held:?} instead of {shown:?}"));
        }
    }
    (names.len() != reader.view.len()).then(|| format!("has names {:?} instead of {names:?}", reader.view.keys()))
}

/// Checks that the ranks of one member never decrease.
fn behind(reader: &Watcher, member: &Member) -> Option<String> {
    let held = reader.view.get(member.id())?;
    // A watcher that resumes with versions gets the states of this node, even if they are older.
    let by_version = !reader.complete && matches!(reader.returned, Return::Known | Return::TokenAndKnown);
    let back = !by_version && member.rank() < held.rank();
    back.then(|| format!("is older than {held:?}"))
}

fn came_back(world: &World, reader: &Watcher, removed: &Removed, member: &Member) -> Option<String> {
    let (left_at, when) = removed.get(member.id())?;
    // Once the tombstone is collected, here or at the source of a full merge, claims start again.
    let (host, ..) = reader.at?;
    let merged = world.hosts[host].full_merge_at.is_some_and(|at| at + SECOND >= *when);
    let here = reader.connected_at <= *when && reader.space == Space::Member;
    let remembered = here && !merged && world.now - when < micros(world.setup.timers.tombstone_timeout) / 2;
    let back = remembered && (member.version().claim, member.version().seq) < *left_at;
    back.then(|| format!("returns below {left_at:?}"))
}
