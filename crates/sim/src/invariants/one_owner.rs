//! One owner after quiescence, and one responsible node for the members of a silent owner (D3, L4).

use super::{Found, Invariant, notice_time, report, serving};
use crate::network::{Micros, SECOND};
use crate::world::World;
use convoke_core::version::{Dot, NodeId, OriginId};
use std::collections::{BTreeMap, BTreeSet};

const NAME: &str = "one_owner";
/// Nodes that expired a member had a path to each other for this time before the noticing of a loss.
const BEFORE: Micros = 20 * SECOND;

#[derive(Debug, Default)]
pub struct OneOwner {
    checks: u64,
    /// The records of lost origins that were expired since the last check, and the hosts that did it.
    expired: BTreeMap<Dot, BTreeSet<usize>>,
    /// Per start of a host: its count of expired members, and its last write about one.
    counted: BTreeMap<(usize, u64), (u64, u64)>,
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
        let count = node.counters().members_expired;
        let (counted, last) = self.counted.entry((host, held.boot)).or_default();
        if count <= *counted {
            return;
        }
        *counted = count;
        let new: Vec<(Dot, u64)> = node.own_inferences().into_iter().filter(|(_, n)| n > last).collect();
        *last = new.iter().map(|(_, n)| *n).fold(*last, u64::max);
        for (record, _) in new {
            self.expired.entry(record).or_default().insert(host);
        }
    }

    /// No record of a lost origin is expired by two nodes that could reach each other.
    fn periodically(&mut self, world: &World, found: &mut Found) {
        let opening = world.now.saturating_sub(notice_time(world) + BEFORE);
        // The next node repeats the writes that a node made just before it was lost.
        let joined = |one: &usize, other: &usize| world.reach.joined(*one, *other, opening, world.now);
        for (record, hosts) in std::mem::take(&mut self.expired) {
            self.checks += 1;
            if hosts.len() > 1 && hosts.iter().all(|one| hosts.iter().all(|other| joined(one, other))) {
                report(found, NAME, world, format!("the hosts {hosts:?} all expired {record:?}"));
            }
        }
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
