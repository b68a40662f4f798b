//! A returned owner counts as reachable only once its newer writes are applied (L3).

use super::{Found, Invariant, notice_time, report};
use crate::network::{Micros, SECOND};
use crate::world::World;
use convoke_core::member::{Member, Status};
use convoke_core::node::StreamEvent;
use convoke_core::version::{OriginId, Version};
use std::collections::{BTreeMap, VecDeque};

const NAME: &str = "returned_owners_current";
/// Resolution of the recorded write counts over time.
const GRAIN: Micros = SECOND;

#[derive(Debug, Default)]
pub struct ReturnedOwnersCurrent {
    checks: u64,
    /// Per process of a host: its number of writes over time.
    written: BTreeMap<(usize, u64), VecDeque<(Micros, u64)>>,
    /// Per watcher: members that left its view because their owner was silent.
    inferred: BTreeMap<usize, BTreeMap<String, Version>>,
}

impl Invariant for ReturnedOwnersCurrent {
    fn name(&self) -> &'static str {
        NAME
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn after_input(&mut self, world: &World, host: usize, _found: &mut Found) {
        let held = &world.hosts[host];
        let Some(node) = &held.node else { return };
        let count = node.counters().local_writes;
        let samples = self.written.entry((host, held.boot)).or_default();
        if samples.back().is_none_or(|(at, before)| count > *before && world.now >= at + GRAIN) {
            samples.push_back((world.now, count));
        }
        let old = world.now.saturating_sub(notice_time(world));
        while samples.get(1).is_some_and(|(at, _)| *at <= old) {
            samples.pop_front();
        }
    }

    fn host_stopped(&mut self, world: &World, host: usize) {
        self.written.remove(&(host, world.hosts[host].boot));
    }

    fn watched(&mut self, _world: &World, watcher: usize) {
        self.inferred.remove(&watcher);
    }

    fn stream_event(&mut self, world: &World, watcher: usize, event: &StreamEvent, found: &mut Found) {
        let reader = &world.watchers[watcher];
        if !reader.observer {
            return;
        }
        let member = match event {
            StreamEvent::Unregistered { id, version } => {
                if version.inferred == Some(Status::Left) {
                    self.inferred.entry(watcher).or_default().insert(id.clone(), *version);
                }
                return;
            }
            // The same write as before: only the owner's reachability has changed.
            StreamEvent::StatusChanged(member) => {
                let same = reader.view.get(member.id()).is_some_and(|held| held.rank() == member.rank());
                same.then_some(member)
            }
            StreamEvent::Registered(member) => {
                let before = self.inferred.get_mut(&watcher).and_then(|ids| ids.remove(member.id()));
                let same = before.is_some_and(|before| Version { inferred: None, ..before } == member.version());
                same.then_some(member)
            }
            _ => None,
        };
        let Some(member) = member.filter(|member| member.status() == Status::Up) else { return };
        self.checks += 1;
        if let Some(newer) = self.replaced_long_ago(world, member) {
            let host = reader.at.map_or(usize::MAX, |(host, ..)| host);
            report(
                found,
                NAME,
                world,
                format!("n{host} shows {member:?} of a returned owner, which has written {newer}"),
            );
        }
    }
}

impl ReturnedOwnersCurrent {
    /// Returns the write with which the owner itself replaced this record long ago.
    fn replaced_long_ago(&self, world: &World, member: &Member) -> Option<String> {
        let rank = member.rank();
        let origin = OriginId { node: rank.node.clone(), incarnation: rank.incarnation };
        let runs = |host: &crate::host::Host| host.node.as_ref().is_some_and(|node| *node.origin() == origin);
        let owner = world.hosts.iter().position(runs)?;
        let slot = world.hosts[owner].node.as_ref()?.slot(member.id())?;
        let old = world.now.saturating_sub(notice_time(world));
        let (_, written) =
            *self.written.get(&(owner, world.hosts[owner].boot))?.front().filter(|(at, _)| *at <= old)?;
        (slot.origin == origin && slot.n > rank.n && slot.n <= written).then(|| format!("{slot:?}"))
    }
}
