//! A member of a live client never disappears temporarily: a change of owner is not a removal (L3, D8).

use super::no_false_down::steady_holder;
use super::{Found, Invariant, notice_time, report, serving, undisturbed};
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
    fn rule(&self) -> &'static str {
        "L3, L4, D8, N2, N6"
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
            StreamEvent::OwnerChanged(_) => self.checks += 1,
            StreamEvent::CaughtUp => self.fresh(world, watcher, host, found),
            _ => {}
        }
    }

    /// Also checks members that were never shown: a serving node must hold members that are older than its last fault.
    fn periodically(&mut self, world: &World, found: &mut Found) {
        for (host, node) in serving(world) {
            if !undisturbed(world, host, RECENT) {
                continue;
            }
            for (id, claimed) in &world.truth.ids {
                if claimed.wanted_by.is_empty() {
                    continue;
                }
                let Some(client) = unforgettable(world, host, id) else { continue };
                let mut used = world.clients[client].history.iter().rev().take(3);
                if !used.all(|(host, ..)| undisturbed(world, *host, RECENT)) {
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
    /// A node that has just become ready holds everything that the other nodes held before it started (N3).
    fn fresh(&mut self, world: &World, watcher: usize, host: usize, found: &mut Found) {
        let held = &world.hosts[host];
        let window = notice_time(world);
        let others: Vec<usize> = serving(world).map(|(other, _)| other).filter(|other| *other != host).collect();
        let is_seed = |other: &usize| held.config.seeds.contains(&world.hosts[*other].config.peer_address);
        let calm = others.iter().all(|other| undisturbed(world, *other, window)) && others.iter().any(is_seed);
        let running = world.now - held.started_at;
        // Nodes that cannot be reached during the start do not count (N3).
        let reaching = held.trouble.calm_for(world.now) >= running && held.twin.is_none();
        if held.ready_at.is_none_or(|at| world.now - at > SECOND) || !reaching || !calm {
            return;
        }
        // Writes during the transfer of the registry arrive after it.
        let before = window + running;
        for id in world.truth.ids.keys() {
            let known = others.iter().all(|other| world.status(*other, id) == Some(Status::Up));
            if !known || steady_holder(world, id, before, |host, _, _| undisturbed(world, host, before)).is_none() {
                continue;
            }
            self.checks += 1;
            if !world.watchers[watcher].view.contains_key(id) {
                report(found, NAME, world, format!("n{host} is ready and does not know {id}"));
            }
        }
    }
}

/// Returns the live client of a member that no node may drop: no other client had the id recently, the client was not
/// silent for long, and no fault affected this host or the client's hosts for as long as the expiry of a lost origin
/// takes.
fn unforgettable(world: &World, host: usize, id: &str) -> Option<usize> {
    let reconnect = micros(world.setup.timers.reconnect_timeout);
    let claimed = world.truth.get(id)?;
    let index = claimed.sole_holder(super::settled_since(world))?;
    let client = &world.clients[index];
    client.members.get(id)?.acknowledged?;
    if client.shares_id {
        return None;
    }
    // The member was known here, with a live owner, before the current fault period began.
    let held = &world.hosts[host];
    let blind = held.trouble.lasting(world.now) + held.last_pause.1 + RECENT;
    let settled = |at: Micros| world.now.saturating_sub(at) > blind;
    let silent = world.now.saturating_sub(client.last_echo);
    let steady = client.steady(world.now).is_some_and(settled) && silent < reconnect / 2;
    let calm = |host: usize| {
        let held = &world.hosts[host];
        let pause = held.calm_after_pause(world.now, reconnect / 2);
        held.trouble.lasting(world.now) < reconnect * 3 / 4 && pause > reconnect && held.twin.is_none()
    };
    let mut used = client.history.iter().rev().take(3);
    let fine = steady && settled(claimed.wanted_at) && calm(host) && used.all(|(host, ..)| calm(*host));
    (fine && super::findable(world, reconnect)).then_some(index)
}
