//! While a node runs, the rank it holds for an id never goes down (D3, D4).

use super::{Found, Invariant, report};
use crate::network::Micros;
use crate::world::{World, micros};
use convoke_core::member::Status;
use convoke_core::version::OriginId;
use std::collections::BTreeMap;

const NAME: &str = "versions_never_regress";

/// Hosts checked each time.
const SAMPLE: usize = 4;

type Key = (bool, String);
type Rank = (u64, u64, OriginId, u64);

/// The live slots of a host at one moment.
#[derive(Debug)]
struct Look {
    boot: u64,
    at: Micros,
    slots: BTreeMap<Key, Rank>,
}

#[derive(Debug, Default)]
pub struct VersionsNeverRegress {
    checks: u64,
    turn: usize,
    /// The last such observation of each host.
    held: BTreeMap<usize, Look>,
}

impl Invariant for VersionsNeverRegress {
    fn name(&self) -> &'static str {
        NAME
    }
    fn rule(&self) -> &'static str {
        "D3, D4"
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn stream_event(
        &mut self,
        world: &World,
        watcher: usize,
        event: &convoke_core::node::StreamEvent,
        found: &mut Found,
    ) {
        use convoke_core::node::StreamEvent as E;
        let reader = &world.watchers[watcher];
        if !reader.observer {
            return;
        }
        let (E::Updated(member) | E::StatusChanged(member) | E::OwnerChanged(member)) = event else { return };
        self.checks += 1;
        if reader.view.get(member.id()).is_some_and(|held| member.rank() < held.rank()) {
            report(found, NAME, world, format!("{:?} replaced {:?}", member, reader.view.get(member.id())));
        }
    }

    fn periodically(&mut self, world: &World, found: &mut Found) {
        for _ in 0..world.hosts.len().min(SAMPLE) {
            self.turn = (self.turn + 1) % world.hosts.len();
            self.look(world, self.turn, found);
        }
    }

    fn host_stopped(&mut self, _world: &World, host: usize) {
        self.held.remove(&host);
    }
}

impl VersionsNeverRegress {
    fn look(&mut self, world: &World, host: usize, found: &mut Found) {
        let held = &world.hosts[host];
        let Some(node) = &held.node else { return };
        let slots: BTreeMap<Key, Rank> = node
            .slots()
            .into_iter()
            // Names are dropped with their node (D10) and may start again.
            .filter(|slot| !slot.name && slot.stated != Status::Left && slot.shown != Status::Left)
            .map(|s| ((s.name, s.id), (s.claim, s.seq, s.origin, s.n)))
            .collect();
        let before = self.held.get(&host).filter(|look| look.boot == held.boot);
        // A slot that was live at a recent check cannot have been collected since, unless by another node, long ago (D8).
        let recent = |look: &Look| world.now - look.at < micros(world.setup.timers.tombstone_timeout) / 2;
        let merged = |look: &Look| held.full_merge_at.is_some_and(|at| at >= look.at);
        if let Some(look) = before.filter(|look| recent(look) && !merged(look)) {
            for (key, rank) in &slots {
                self.checks += 1;
                if let Some(old) = look.slots.get(key).filter(|old| *old > rank) {
                    report(found, NAME, world, format!("n{host} held {old:?} for {}, and holds {rank:?} now", key.1));
                }
            }
        }
        self.held.insert(host, Look { boot: held.boot, at: world.now, slots });
    }
}
