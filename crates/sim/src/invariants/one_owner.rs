//! One owner after quiescence, and one responsible node for the members of a silent owner (D3, L4).

use super::{Found, Invariant, notice_time, report, serving};
use crate::network::{Micros, SECOND};
use crate::world::World;
use convoke_core::node::StreamEvent;
use convoke_core::version::{NodeId, OriginId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const NAME: &str = "one_owner";
/// Expiries within this time are compared.
const WINDOW: Micros = 10 * SECOND;

#[derive(Debug, Default)]
pub struct OneOwner {
    checks: u64,
    /// Recent expiries of a lost origin's members: when, where, how many.
    takeovers: VecDeque<(Micros, usize, u64)>,
    counted: BTreeMap<(usize, u64), u64>,
    /// Members that were recently inferred to have left, on any node.
    inferred: VecDeque<(Micros, String)>,
}

impl Invariant for OneOwner {
    fn name(&self) -> &'static str {
        NAME
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn after_input(&mut self, world: &World, host: usize, _found: &mut Found) {
        let held = &world.hosts[host];
        let Some(node) = &held.node else { return };
        let now = node.counters().members_expired;
        let before = self.counted.entry((host, held.boot)).or_default();
        if now > *before {
            self.takeovers.push_back((world.now, host, now - *before));
            *before = now;
        }
    }

    fn stream_event(&mut self, world: &World, watcher: usize, event: &StreamEvent, _found: &mut Found) {
        if let StreamEvent::Unregistered { id, .. } = event
            && world.watchers[watcher].observer
        {
            self.inferred.push_back((world.now, id.clone()));
        }
    }

    /// No member of a lost origin is expired by two nodes that could reach each other.
    fn periodically(&mut self, world: &World, found: &mut Found) {
        let opening = world.now.saturating_sub(notice_time(world) + 2 * WINDOW);
        let hosts: BTreeSet<usize> = self.takeovers.iter().map(|(_, host, _)| *host).collect();
        // The next node repeats the writes that a node made just before it was lost.
        let joined = |one: usize| hosts.iter().all(|other| world.reach.joined(one, *other, opening, world.now));
        if hosts.iter().all(|host| joined(*host)) {
            let takeovers: u64 = self.takeovers.iter().map(|(_, _, count)| count).sum();
            let members: BTreeSet<&String> = self.inferred.iter().map(|(_, id)| id).collect();
            self.checks += u64::from(takeovers > 0);
            // One node may do it twice, for an owner that was lost twice.
            if takeovers > members.len() as u64 && hosts.len() > 1 {
                let by: Vec<_> = self.takeovers.iter().map(|(_, host, count)| (host, count)).collect();
                report(found, NAME, world, format!("{takeovers} takeovers of {} members: {by:?}", members.len()));
            }
        }
        self.takeovers.clear();
        self.inferred.retain(|(at, _)| world.now - at < WINDOW);
    }

    fn at_quiescence(&mut self, world: &World, found: &mut Found) {
        for (index, client) in world.clients.iter().enumerate() {
            let Some(home) = client.attached_to() else { continue };
            for id in client.members.keys() {
                for (host, node) in serving(world) {
                    self.checks += 1;
                    let Some(member) = node.member(id) else { continue };
                    if member.owner().node != world.hosts[home].id.as_str() {
                        report(
                            found,
                            NAME,
                            world,
                            format!("c{index} is attached to n{home}, but n{host} shows {member:?}"),
                        );
                    }
                }
            }
        }
        self.responsible(world, found);
    }
}

impl OneOwner {
    fn responsible(&mut self, world: &World, found: &mut Found) {
        let origins: BTreeSet<OriginId> = serving(world)
            .flat_map(|(_, node)| node.context().iter().map(|(o, _)| o.clone()).collect::<Vec<_>>())
            .collect();
        for origin in origins {
            let knows = |node: &convoke_core::Node| node.context().get(&origin) > 0;
            let mut asked = serving(world).filter(|(_, node)| knows(node)).peekable();
            if asked.peek().is_none() || serving(world).any(|(_, node)| node.admits(&origin)) {
                continue;
            }
            self.checks += 1;
            let answers: BTreeSet<_> = asked.map(|(_, node)| node.responsible_for(&origin)).collect();
            // A node that stopped a moment ago may not have been detected yet.
            let there = |id: &NodeId| {
                let recently = |at: Micros| world.now.saturating_sub(at) < notice_time(world);
                world.hosts.iter().any(|h| h.id == *id && (h.serving().is_some() || h.stopped_at.is_some_and(recently)))
            };
            let fine = answers.len() == 1 && answers.iter().all(|answer| answer.as_ref().is_some_and(there));
            if !fine {
                report(found, NAME, world, format!("responsible for {origin}: {answers:?}"));
            }
        }
    }
}
