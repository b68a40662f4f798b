//! A member of a live client never disappears temporarily: a change of owner is not a removal (L3, D8).

use super::no_false_down::steady_holder;
use super::{Found, Invariant, notice_time, report, serving};
use crate::network::{Micros, SECOND};
use crate::world::{World, micros};
use convoke_core::member::Status;
use convoke_core::node::StreamEvent;

const NAME: &str = "never_vanishes";
/// Long enough for every node to receive a change.
const RECENT: Micros = 30 * SECOND;

#[derive(Debug, Default)]
pub struct NeverVanishes {
    checks: u64,
}

impl Invariant for NeverVanishes {
    fn name(&self) -> &'static str {
        NAME
    }
    fn checks(&self) -> u64 {
        self.checks
    }

    fn stream_event(&mut self, world: &World, watcher: usize, event: &StreamEvent, found: &mut Found) {
        let reader = &world.watchers[watcher];
        let Some((host, ..)) = reader.at.filter(|_| reader.observer) else { return };
        match event {
            StreamEvent::Unregistered { id, .. } => {
                let Some(client) = unforgettable(world, host, id) else { return };
                if super::is_late_removal(world, host, client, event) {
                    return;
                }
                self.checks += 1;
                report(found, NAME, world, format!("n{host} dropped {id} of the living c{client}: {event:?}"));
            }
            StreamEvent::CaughtUp => self.fresh(world, watcher, host, found),
            _ => {}
        }
    }

    /// Also checks members that were never shown: a serving node must hold the members of the nodes that it reaches.
    fn periodically(&mut self, world: &World, found: &mut Found) {
        for (host, node) in serving(world) {
            let held = &world.hosts[host];
            // A paused node receives nothing.
            let awake = held.calm_after_pause(world.now, SECOND) > RECENT;
            if !awake || held.serving_at.is_none_or(|at| world.now - at <= RECENT) {
                continue;
            }
            let recently = world.now.saturating_sub(RECENT);
            for (id, claimed) in &world.truth.ids {
                if claimed.wanted_by.is_empty() {
                    continue;
                }
                let Some(client) = unforgettable(world, host, id) else { continue };
                let owner = world.clients[client].attached_to();
                if !owner.is_some_and(|owner| world.reach.joined(owner, host, recently, world.now)) {
                    continue;
                }
                self.checks += 1;
                if node.member(id).is_none() {
                    report(found, NAME, world, format!("n{host} does not show {id}: {:?}", node.slot(id)));
                }
            }
        }
    }
}

impl NeverVanishes {
    /// A node that has just begun to serve holds everything that the other nodes held before it started (N3).
    fn fresh(&mut self, world: &World, watcher: usize, host: usize, found: &mut Found) {
        let held = &world.hosts[host];
        let window = notice_time(world);
        let others: Vec<usize> = serving(world).map(|(other, _)| other).filter(|other| *other != host).collect();
        let is_seed = |other: &usize| held.config.seeds.contains(&world.hosts[*other].config.peer_address);
        let running = world.now - held.started_at;
        // Writes during the transfer of the registry arrive after it.
        let before = window + running;
        let opening = world.now.saturating_sub(before);
        let joined = |one: usize, other: usize| world.reach.joined(one, other, opening, world.now);
        // A paused node cannot be reached.
        let awake = others.iter().all(|other| world.hosts[*other].calm_after_pause(world.now, SECOND) > running);
        let connected = awake && others.iter().all(|one| others.iter().all(|other| joined(*one, *other)));
        // Nodes that cannot be reached during the start do not count (N3). A mark suffices here: it covers the time of
        // the start only, in which the host belongs to no path.
        let reaching = held.fault_period.calm_for(world.now) >= running && held.duplicate.is_none();
        let just_serving = held.serving_at.is_some_and(|at| world.now - at <= SECOND);
        if !just_serving || !reaching || !connected || !others.iter().any(is_seed) {
            return;
        }
        for id in world.truth.ids.keys() {
            let known = others.iter().all(|other| world.status(*other, id) == Some(Status::Up));
            let held_by = |owner: usize, _, _| others.contains(&owner);
            if !known || steady_holder(world, id, before, held_by).is_none() {
                continue;
            }
            self.checks += 1;
            if !world.watchers[watcher].view.contains_key(id) {
                report(found, NAME, world, format!("n{host} is serving and does not know {id}"));
            }
        }
    }
}

/// Returns the live client of a member that no node may drop: no other client had the id recently, the client was not
/// silent for long, and this host was never without a path from the client's node for as long as the expiry of a lost
/// origin takes.
fn unforgettable(world: &World, host: usize, id: &str) -> Option<usize> {
    let timers = &world.setup.timers;
    let reconnect = micros(timers.reconnect_timeout);
    let claimed = world.truth.get(id)?;
    let index = claimed.sole_holder(super::settled_since(world))?;
    let client = &world.clients[index];
    client.members.get(id)?.acknowledged?;
    if client.shares_id {
        return None;
    }
    let opening = world.now.saturating_sub(2 * reconnect);
    // Nodes that can reach each other again may take this long to link and to exchange.
    let contact = world.contact_time();
    // A break may go on while the client moves to another node.
    let blind_at = |observer: usize| {
        let recent = client.history.iter().filter(|(_, _, until)| *until > opening);
        let breaks = recent.map(|(owner, from, until)| {
            world.reach.longest_break((*owner, observer), (*from).max(opening), (*until).min(world.now), contact)
        });
        breaks.sum::<Micros>()
    };
    // A node that started since then inherits the silence that the others have measured (L2). One that was paused, so that its
    // links ended (L5), receives what the first node has removed that it reaches (docs/consistency.md).
    let resumed = world.hosts[host].calm_after_pause(world.now, micros(timers.heartbeat_timeout)) <= contact;
    let inherits = resumed || world.hosts[host].serving_at.is_none_or(|at| at > opening);
    let others = serving(world).map(|(other, _)| other).filter(|_| inherits);
    let blind = others.map(blind_at).fold(blind_at(host), Micros::max);
    // Another node that lost the owner for longer than it keeps tombstones has written the member off. Then every node
    // drops it as soon as the owner is silent there, and not after `reconnect_timeout` (D10).
    let kept = micros(timers.tombstone_timeout) + reconnect;
    let long_ago = world.now.saturating_sub(2 * kept);
    let lost_for_long = |(other, _): (usize, &convoke_core::Node)| {
        let stays = client.history.iter().filter(|(_, _, until)| *until > long_ago);
        let break_of = |owner: usize, from: Micros, until: Micros| {
            world.reach.longest_break((owner, other), from.max(long_ago), until.min(world.now), contact)
        };
        stays.map(|(owner, from, until)| break_of(*owner, *from, *until)).any(|lost| lost > kept)
    };
    // The last evidence of the owner is as old as `ping_timeout` when the break begins, so the rest of the admission
    // window is enough for silence (L2).
    let written_off = blind > micros(timers.heartbeat_timeout) && serving(world).any(lost_for_long);
    // The member was known here, with a live owner, before the longest break began.
    let settled = |at: Micros| world.now.saturating_sub(at) > blind + RECENT;
    let silent = world.now.saturating_sub(client.last_echo);
    let steady = client.steady(world.now).is_some_and(settled) && silent < reconnect / 2;
    // A node that was paused for longer starts a new incarnation (N5).
    let paused = world.hosts[host].calm_after_pause(world.now, micros(timers.dead_peer_timeout) / 2);
    let known = steady && settled(claimed.wanted_at) && !written_off;
    let fine = known && blind < reconnect * 3 / 4 && paused > reconnect;
    fine.then_some(index)
}
