//! The context covers no write whose record is missing (D4).

use super::{Found, Invariant, report, serving};
use crate::network::Micros;
use crate::world::{World, micros};
use convoke_core::Node;
use convoke_core::member::Status;
use convoke_core::node::SlotView;
use convoke_core::version::OriginId;
use std::collections::BTreeMap;

const NAME: &str = "context_truthful";
/// Number of writes kept per key and origin; only the latest few can be missing anywhere.
const REMEMBERED: usize = 4;
/// Hosts checked each time.
const SAMPLE: usize = 4;

type Key = (bool, String);

#[derive(Clone, Debug)]
struct Write {
    origin: usize,
    n: u64,
    claim: u64,
    seq: u64,
    live: bool,
    at: Micros,
}

#[derive(Debug, Default)]
pub struct ContextTruthful {
    checks: u64,
    turn: usize,
    /// All origins that ever wrote, numbered; in the order of the numbers.
    numbers: BTreeMap<OriginId, usize>,
    origins: Vec<OriginId>,
    /// Writes observed at their origin, oldest first.
    writes: BTreeMap<Key, Vec<Write>>,
    /// Per process of a host: own writes counted at the last check, and its time.
    looked: BTreeMap<(usize, u64), (u64, Micros)>,
}

impl Invariant for ContextTruthful {
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
        let (before, at) = self.looked.entry((host, held.boot)).or_default();
        // Checking every write would take most of the time of a run.
        let pause = micros(world.setup.timers.heartbeat_timeout) / 8;
        if count == *before || world.now < *at + pause {
            return;
        }
        (*before, *at) = (count, world.now);
        let own = node.origin();
        let number = match self.numbers.get(own) {
            Some(number) => *number,
            None => {
                self.numbers.insert(own.clone(), self.origins.len());
                self.origins.push(own.clone());
                self.origins.len() - 1
            }
        };
        for slot in node.slots() {
            if slot.origin == *own {
                self.record(number, slot, world.now);
            }
        }
    }

    fn periodically(&mut self, world: &World, found: &mut Found) {
        self.prune(world);
        for _ in 0..world.hosts.len().min(SAMPLE) {
            self.turn = (self.turn + 1) % world.hosts.len();
            if let Some(node) = &world.hosts[self.turn].node {
                self.verify(world, self.turn, node, false, found);
            }
        }
    }

    fn at_quiescence(&mut self, world: &World, found: &mut Found) {
        for (host, held) in world.hosts.iter().enumerate() {
            if let Some(node) = &held.node {
                self.verify(world, host, node, true, found);
            }
        }
    }
}

impl ContextTruthful {
    fn record(&mut self, origin: usize, slot: SlotView, at: Micros) {
        let writes = self.writes.entry((slot.name, slot.id)).or_default();
        let own: Vec<usize> = (0..writes.len()).filter(|index| writes[*index].origin == origin).collect();
        if own.last().is_some_and(|last| writes[*last].n >= slot.n) {
            return;
        }
        if own.len() >= REMEMBERED {
            writes.remove(own[0]);
        }
        let live = slot.stated != Status::Left;
        writes.push(Write { origin, n: slot.n, claim: slot.claim, seq: slot.seq, live, at });
    }

    /// Drops writes of members that were unregistered long ago: they prove nothing any more.
    fn prune(&mut self, world: &World) {
        let old = 2 * micros(world.setup.timers.tombstone_timeout);
        self.writes.retain(|_, writes| {
            writes.iter().any(|write| world.now - write.at < old) || writes.last().is_some_and(|write| write.live)
        });
    }

    fn verify(&mut self, world: &World, host: usize, node: &Node, still: bool, found: &mut Found) {
        // Older writes may have been collected and their slot created again (D8).
        let timers = &world.setup.timers;
        let remembered = |name: bool| {
            // The write that superseded a name may have been dropped with its node (D10).
            let kept = if name { timers.dead_peer_timeout } else { timers.tombstone_timeout };
            micros(kept) * 9 / 10
        };
        let context = node.context();
        let covered: Vec<u64> = self.origins.iter().map(|origin| context.get(origin)).collect();
        let runs =
            |origin: &OriginId| world.hosts.iter().any(|h| h.node.as_ref().is_some_and(|n| n.origin() == origin));
        let running: Vec<bool> = self.origins.iter().map(runs).collect();
        let slots = node.slots();
        for (key, writes) in &self.writes {
            let slot = slots.binary_search_by(|slot| (slot.name, slot.id.as_str()).cmp(&(key.0, key.1.as_str())));
            let slot = slot.ok().map(|index| &slots[index]);
            for write in writes {
                // Names of a retired node are dropped. The node restates them when it returns (D10).
                if write.n > covered[write.origin] || (key.0 && !(still && running[write.origin])) {
                    continue;
                }
                self.checks += 1;
                let origin = &self.origins[write.origin];
                let held = slot.map(|slot| (slot.claim, slot.seq, &slot.origin, slot.n));
                match held {
                    Some(held) if held < (write.claim, write.seq, origin, write.n) => {
                        if world.now - write.at < remembered(key.0) {
                            let message = format!(
                                "the context of n{host} covers {origin}:{}, but it holds {slot:?}, not {write:?}",
                                write.n
                            );
                            report(found, NAME, world, message);
                        }
                    }
                    Some(_) => {}
                    None => {
                        if running[write.origin] && self.must_be_held(world, key, writes, write) {
                            let message = format!(
                                "the context of n{host} covers {origin}:{}, but it holds nothing for {}",
                                write.n, key.1
                            );
                            report(found, NAME, world, message);
                        }
                    }
                }
            }
        }
    }

    /// Whether a write must be held everywhere: it is the member's highest, and its writer runs, holds it and is
    /// trusted by all.
    fn must_be_held(&self, world: &World, key: &Key, writes: &[Write], write: &Write) -> bool {
        let rank = |write: &Write| (write.claim, write.seq, self.origins[write.origin].clone(), write.n);
        let origin = &self.origins[write.origin];
        if key.0 || !write.live || writes.iter().any(|other| rank(other) > rank(write)) {
            return false;
        }
        let long = micros(world.setup.timers.reconnect_timeout) / 2;
        let owner = world.hosts.iter().find(|host| host.node.as_ref().is_some_and(|node| node.origin() == origin));
        let calm = owner.is_some_and(|host| {
            // A newer write that was not observed yet may be a registration after this one was collected.
            let this = |slot: SlotView| slot.origin == *origin && slot.n == write.n;
            let holds = host.node.as_ref().and_then(|node| node.slot(&key.1)).is_some_and(this);
            let paused = host.calm_after_pause(world.now, long);
            // Only the writer can restate records that were collected while it was unreachable, and it cannot while
            // paused (D10).
            holds && host.faulty_for(world.now) < long && paused > long
        });
        calm && serving(world).all(|(_, node)| node.admits(origin))
    }
}
