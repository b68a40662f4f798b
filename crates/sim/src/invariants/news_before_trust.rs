//! An owner that was silent is believed again together with its news, not before (L3).

use super::{Found, Invariant, notice_time, report};
use crate::network::{Micros, SECOND};
use crate::world::World;
use convoke_core::member::{Member, Status};
use convoke_core::node::StreamEvent;
use convoke_core::version::{OriginId, Version};
use std::collections::{BTreeMap, VecDeque};

const NAME: &str = "news_before_trust";
/// How finely it is remembered when a node had written how much.
const GRAIN: Micros = SECOND;

#[derive(Debug, Default)]
pub struct NewsBeforeTrust {
    checks: u64,
    /// Per run of a host: how much it had written when.
    written: BTreeMap<(usize, u64), VecDeque<(Micros, u64)>>,
    /// Per watcher: what left its view because its owner was silent.
    inferred: BTreeMap<usize, BTreeMap<String, Version>>,
}

impl Invariant for NewsBeforeTrust {
    fn name(&self) -> &'static str {
        NAME
    }
    fn rule(&self) -> &'static str {
        "L3"
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
            // The same write as before: nothing but the judgement of its owner has changed.
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
        if let Some(news) = self.old_news(world, member) {
            let host = reader.at.map_or(usize::MAX, |(host, ..)| host);
            report(found, NAME, world, format!("n{host} believes its returned owner {member:?}, which says {news}"));
        }
    }
}

impl NewsBeforeTrust {
    /// What the owner itself has long replaced this record with.
    fn old_news(&self, world: &World, member: &Member) -> Option<String> {
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
