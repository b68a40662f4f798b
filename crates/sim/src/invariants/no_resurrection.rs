//! No unregistered member comes back (D4, D8, C3).

use super::{Found, Invariant, notice_time, report, serving};
use crate::host::Host;
use crate::network::{Micros, SECOND};
use crate::truth::Claimed;
use crate::world::{World, micros};
use convoke_core::Node;
use convoke_core::member::{Member, Status};
use convoke_core::node::StreamEvent;
use convoke_core::version::OriginId;
use std::collections::BTreeMap;

const NAME: &str = "no_resurrection";

#[derive(Debug, Default)]
pub struct NoResurrection {
    checks: u64,
    /// Members whose unregistration was acknowledged and that every node has shown as left since the given time.
    gone: BTreeMap<String, Micros>,
    /// Per observer: members it saw unregistered, when, and with which claim.
    unregistered: BTreeMap<usize, BTreeMap<String, (Micros, u64)>>,
}

impl NoResurrection {
    fn look(&mut self, world: &World, strict: bool, found: &mut Found) {
        let all_up = world
            .hosts
            .iter()
            .filter(|h| !h.is_second)
            .all(|h| h.serving().is_some() || h.state == crate::host::HostState::Gone);
        let calm = serving(world).map(|(host, _)| world.settled_since(host)).max().unwrap_or(0);
        for (id, claimed) in &world.truth.ids {
            if !must_be_absent(world, claimed, calm) {
                self.gone.remove(id);
                continue;
            }
            // If it comes back nevertheless, the stream reports it.
            if !strict && self.gone.contains_key(id) {
                continue;
            }
            let showing = serving(world).find_map(|(host, node)| Some((host, node.member(id)?)));
            match showing {
                Some((_, member))
                    if member.status() == Status::Down
                        && lost_with_owner(world, &member, claimed)
                        && !is_repeated(world, claimed) => {}
                Some((host, member)) if strict => {
                    self.checks += 1;
                    report(found, NAME, world, format!("{id} was unregistered, but n{host} shows {member:?}"));
                }
                Some(_) => {}
                None => {
                    self.checks += 1;
                    if all_up && same_tombstone_everywhere(world, id) {
                        self.gone.insert(id.clone(), world.now);
                    }
                }
            }
        }
    }
}

impl NoResurrection {
    /// A node without contact for longer than any horizon shows an owner's members as silent, or not at all (L3, N5).
    fn outdated(&mut self, world: &World, watcher: usize, member: &Member, found: &mut Found) {
        let reader = &world.watchers[watcher];
        let Some((host, ..)) = reader.at.filter(|_| reader.observer && member.status() == Status::Up) else { return };
        self.checks += 1;
        let horizon = micros(world.setup.timers.dead_peer_timeout) + 2 * notice_time(world);
        let unwanted = |claimed: &Claimed| {
            claimed.unwanted() && world.now - claimed.freed_at > horizon && !lost_with_owner(world, member, claimed)
        };
        if world.truth.get(member.id()).is_some_and(unwanted) {
            report(found, NAME, world, format!("n{host} shows {member:?}, which no client has wanted for a long time"));
        }
    }

    /// A member that a node saw unregistered is not shown again while no client wants it.
    fn contradicted(&mut self, world: &World, watcher: usize, member: &Member, found: &mut Found) {
        let Some((unregistered, claim)) = self.unregistered.get_mut(&watcher).and_then(|ids| ids.remove(member.id()))
        else {
            return;
        };
        if member.status() != Status::Up {
            return;
        }
        self.checks += 1;
        // Another client, another process of the same client, or an unknown earlier one may have claimed more. Its
        // record at a node that was away outranks the tombstone (C1) until it expires there (C6).
        let shown = member.version().claim;
        let another = |client: &usize| world.clients[*client].shares_id || shown <= world.clients[*client].past_claim;
        let outranked = |claimed: &Claimed| claimed.contested() || claimed.ever.iter().any(another);
        // The observer saw an earlier registration end; the end of this one was lost with the only node that had
        // received it.
        let forgotten = shown > claim && !has_tombstone_above(world, member.id(), shown);
        // Once the tombstone is collected, records that rank below it may arrive as well.
        let remembered = world.now - unregistered < micros(world.setup.timers.tombstone_timeout) * 9 / 10;
        let since = |claimed: &Claimed| {
            claimed.unwanted()
                && claimed.freed_at < unregistered
                && long_ago(world, unregistered)
                && !(outranked(claimed) && (shown > claim || !remembered))
                && !forgotten
        };
        if world.truth.get(member.id()).is_some_and(since) {
            let ago = (world.now - unregistered) / SECOND;
            report(found, NAME, world, format!("{member:?} is up {ago} s after it was shown as unregistered"));
        }
    }

    /// A node does not execute a request that its client abandoned long ago (L5).
    fn executed(&mut self, world: &World, watcher: usize, event: &StreamEvent, found: &mut Found) {
        let StreamEvent::Registered(member) = event else { return };
        let reader = &world.watchers[watcher];
        let Some((host, ..)) = reader.at.filter(|_| reader.observer && reader.complete) else { return };
        let rank = member.rank();
        let origin = OriginId { node: rank.node.clone(), incarnation: rank.incarnation };
        if world.hosts[host].node.as_ref().is_none_or(|node| *node.origin() != origin) {
            return;
        }
        self.checks += 1;
        let given_up = |claimed: &Claimed| claimed.unwanted() && long_ago(world, claimed.freed_at);
        if world.truth.get(member.id()).is_some_and(given_up) {
            report(found, NAME, world, format!("n{host} registers {member:?}, which no client wants any more"));
        }
    }
}

impl Invariant for NoResurrection {
    fn name(&self) -> &'static str {
        NAME
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn stream_event(&mut self, world: &World, watcher: usize, event: &StreamEvent, found: &mut Found) {
        if let StreamEvent::Unregistered { id, version } = event {
            if world.watchers[watcher].observer && version.inferred.is_none() {
                self.unregistered.entry(watcher).or_default().insert(id.clone(), (world.now, version.claim));
            }
            return;
        }
        let (StreamEvent::Registered(member) | StreamEvent::Snapshot(member)) = event else { return };
        self.outdated(world, watcher, member, found);
        self.contradicted(world, watcher, member, found);
        self.executed(world, watcher, event, found);
        let Some(gone_at) = self.gone.get(member.id()).copied().filter(|_| world.watchers[watcher].observer) else {
            return;
        };
        self.checks += 1;
        // A client that wanted it since then may have been observed, even if it released it again.
        let still = |claimed: &Claimed| claimed.unwanted() && claimed.wanted_at.max(claimed.silent_since) < gone_at;
        if world.truth.get(member.id()).is_some_and(still) {
            report(found, NAME, world, format!("{} was gone everywhere, and is back: {member:?}", member.id()));
        } else {
            self.gone.remove(member.id());
        }
    }

    fn watched(&mut self, _world: &World, watcher: usize) {
        self.unregistered.remove(&watcher);
    }

    fn periodically(&mut self, world: &World, found: &mut Found) {
        self.look(world, false, found);
    }

    fn at_quiescence(&mut self, world: &World, found: &mut Found) {
        self.look(world, true, found);
    }
}

/// Whether some node holds a tombstone of this claim or of a later one.
fn has_tombstone_above(world: &World, id: &str, claim: u64) -> bool {
    let ended = |node: &Node| node.slot(id).is_some_and(|slot| slot.stated == Status::Left && slot.claim >= claim);
    world.hosts.iter().filter_map(|held| held.node.as_ref()).any(ended)
}

/// Whether the end of a registration was lost with its owner, the only node that had received it. It expires as after
/// a crash.
fn lost_with_owner(world: &World, member: &Member, claimed: &Claimed) -> bool {
    let owner = member.owner().node;
    // The answer may have been in flight.
    let since = |held: &Host| held.id.as_str() == owner && held.started_at + SECOND >= claimed.freed_at;
    !has_tombstone_above(world, member.id(), member.version().claim) && world.hosts.iter().any(since)
}

/// Whether the client that unregistered it is attached and repeats the unregistration, because at most one node was
/// lost since (C13).
fn is_repeated(world: &World, claimed: &Claimed) -> bool {
    let Some((client, process)) = claimed.ended_by else { return false };
    let client = &world.clients[client];
    let ended = |host: &&Host| !host.running() || host.started_at + SECOND >= claimed.freed_at;
    client.process_number == process
        && client.session.is_some()
        && client.attached_to().is_some()
        && world.hosts.iter().filter(ended).count() <= 1
}

/// A node that lags may hold the tombstone of an earlier registration and may not have received the later one.
fn same_tombstone_everywhere(world: &World, id: &str) -> bool {
    let tombstone =
        |node: &Node| node.slot(id).filter(|slot| slot.stated == Status::Left).map(|slot| (slot.claim, slot.seq));
    let mut tombstones = serving(world).map(|(_, node)| tombstone(node));
    let Some(Some(first)) = tombstones.next() else { return false };
    tombstones.all(|tombstone| tombstone == Some(first))
}

/// Whether no client wants the member and no timeout for it is running. Timeouts start again at a host that begins or
/// ceases to reach another one.
fn must_be_absent(world: &World, claimed: &Claimed, calm: Micros) -> bool {
    let waited = claimed.silent_since == 0 || world.now > claimed.silent_since.max(calm) + world.linger();
    claimed.unwanted() && waited
}

/// Whether no message that was sent then can still be in flight.
fn long_ago(world: &World, then: Micros) -> bool {
    world.now - then > world.orphan_patience() + micros(world.setup.timers.heartbeat_timeout) + 2 * SECOND
}
