//! A split outlasts the tombstones of members that were unregistered at its beginning (D4, D8, C1, N5).

use crate::client::ProcessState;
use crate::faults::Fault;
use crate::invariants::serving;
use crate::network::{Micros, SECOND, Site, Spike};
use crate::truth::Claimed;
use crate::world::{Crash, World, micros};
use convoke_core::Node;
use convoke_core::node::PeerState;

/// One side collects tombstones that the other side has not received, or has registered the same ids meanwhile. Both
/// sides meet before either has inferred and collected the rest. Then operations pause: the next one might hide the
/// effect.
pub(super) fn play(world: &mut World, _until: Micros) {
    world.busy(10 * SECOND, SECOND / 4);
    let host = world.any_host();
    if world.rng.u32(..3) == 0 { pause_until_collected(world, host) } else { return_after_a_burst(world, host) }
}

fn return_after_a_burst(world: &mut World, host: usize) {
    // As after some attempts: the collected record had a claim that a new client has yet to reach.
    let closing = world.rng.usize(..world.clients.len());
    let attempts = world.rng.u64(..5);
    world.raise_claim(closing, attempts);
    world.client_move(closing, None);
    world.busy(3 * SECOND, SECOND / 3);
    let cuts = world.split(&[host]);
    let (begun, window) = (world.now, world.inference_after());
    let former: Vec<String> = world.clients[closing].members.keys().cloned().collect();
    world.client_close(closing);
    // In some cases even the inferences about the other side are collected. Writes made meanwhile are not.
    let long = world.rng.u32(..3) == 0;
    let apart = if long { 2 * SECOND } else { world.rng.u64(SECOND / 10..SECOND / 2) };
    let burst = world.duration(2 * SECOND, if long { 4 * SECOND } else { window });
    world.busy(burst, apart);
    let healed = begun + tombstones(world) + world.rng.u64(..window) + if long { window } else { 0 };
    rest_until(world, healed - 5 * SECOND, if long { STILL } else { REST });
    restart_closed(world, closing, &former);
    world.busy(healed.saturating_sub(world.now), apart);
    if long {
        die_at_the_last_moment(world);
    }
    world.heal_cuts(cuts);
    world.advance(4 * SECOND);
}

/// A node and its clients die together. Soon after, nodes that still wait for them meet nodes that have collected
/// them.
fn die_at_the_last_moment(world: &mut World) {
    let host = world.any_host();
    for client in 0..world.clients.len() {
        if world.clients[client].attached_to() == Some(host) {
            world.client_crash(client, true);
            world.faults.count(Fault::ClientCrash);
        }
    }
    world.crash(host, Crash::Silent);
    world.faults.count(Fault::PowerCut);
    let pause = world.rng.u64(..2 * SECOND);
    world.advance(pause);
}

/// A closed client starts again and registers its former members, with claims that start over.
fn restart_closed(world: &mut World, client: usize, former: &[String]) {
    if world.clients[client].process != ProcessState::Stopped {
        return;
    }
    world.client_operation(client);
    world.advance(SECOND);
    for id in former {
        let free = world.truth.get(id).is_none_or(Claimed::unwanted);
        if free && !world.clients[client].members.contains_key(id) {
            let spec = world.spec(id);
            world.client_register(client, spec, false);
        }
    }
}

/// Both sides hold the same id and it ends on one side. They meet when some nodes have collected that end and some
/// have not.
pub(super) fn one_id_on_both_sides(world: &mut World, _until: Micros) {
    world.busy(10 * SECOND, SECOND / 4);
    let host = world.any_host();
    let mut cuts = world.split(&[host]).to_vec();
    world.busy(6 * SECOND, SECOND / 3);
    let Some((here, there)) = one_on_each_side(world, host) else { return world.heal_cuts(cuts) };
    let id = format!("torn-{}", world.rng.u32(..3));
    if [here, there].iter().any(|client| world.clients[*client].members.contains_key(&id)) {
        return world.heal_cuts(cuts);
    }
    let meeting_briefly = world.rng.u32(..3) == 0;
    let interval = world.faults.operation_interval;
    if meeting_briefly {
        world.faults.operation_interval = STILL;
        give_up_names(world, host);
    }
    // As after many attempts: the claim that ends is mostly the higher one.
    let attempts = world.rng.u64(..20);
    world.raise_claim(here, attempts);
    world.client_move(here, None);
    world.advance(4 * SECOND);
    for client in [here, there] {
        // A random operation may have unregistered it meanwhile.
        if !world.clients[client].members.contains_key(&id) {
            let spec = world.spec(&id);
            world.client_register(client, spec, true);
        }
    }
    world.advance(SECOND);
    // A node that receives it late also collects it late, and reaches the others through a third node.
    let at = world.clients[here].attached_to();
    let pause = world.rng.u64(2 * SECOND..4 * SECOND);
    let (met, late) = match at.filter(|_| !meeting_briefly && world.rng.bool()) {
        Some(at) => die_together(world, here, at, host, &id, pause),
        None => {
            let late = another(world, &[Some(host), at]);
            world.pause(late.unwrap_or(host), pause);
            world.client_unregister(here, &id);
            if meeting_briefly {
                cuts = meet_briefly(world, host, &id, cuts);
            }
            // A short contact makes them send the tombstone again; then all of them collect it a little later.
            let longer = if meeting_briefly { 10 * SECOND } else { 2 * SECOND };
            (world.now + tombstones(world) + world.rng.u64(..longer), late)
        }
    };
    rest_until(world, met - 3 * SECOND / 2, if meeting_briefly { STILL } else { REST });
    let apart = late.map(|late| world.partition(&[late], &[host]));
    world.heal_cuts(cuts);
    world.advance(6 * SECOND);
    world.heal_cuts(apart.into_iter().flatten());
    world.faults.operation_interval = interval;
}

/// A host whose names are retired, or that continues to write, never meets others with state that they have collected: it
/// restates everything (D10).
fn give_up_names(world: &mut World, host: usize) {
    for name in world.hosts[host].names.keys().cloned().collect::<Vec<String>>() {
        world.unregister_name(host, &name);
    }
}

/// Returns a running host that is none of these.
fn another(world: &World, than: &[Option<usize>]) -> Option<usize> {
    world.running_hosts().into_iter().find(|host| !than.contains(&Some(*host)))
}

/// The two sides meet over slow links. They are separated once one has received the other's registration but not yet
/// answered.
fn meet_briefly(world: &mut World, host: usize, member: &str, mut cuts: Vec<u64>) -> Vec<u64> {
    let Some(slot) = world.hosts[host].node.as_ref().and_then(|node| node.slot(member)) else { return cuts };
    let held = world.network.cuts.iter().filter(|cut| cuts.contains(&cut.id));
    let sides: Vec<(u128, u128)> = held.map(|cut| (cut.from, cut.to)).collect();
    let (id, extra) = (world.network.number(), world.rng.u64(SECOND / 10..SECOND / 2));
    world.network.spikes.push(Spike { id, places: Site::Host(host).bit(), extra });
    let others: Vec<usize> = world.running_hosts().into_iter().filter(|other| *other != host).collect();
    for _ in 0..4 {
        world.heal_cuts(cuts);
        let here = |w: &World| others.iter().any(|other| sees(w, host, *other));
        let there = |w: &World| others.iter().any(|other| sees(w, *other, host));
        step_until(world, |w| here(w) || there(w));
        // The acceptor of a connection is the first to send its state.
        let first = here(world);
        if first {
            let covers = |node: &Node| node.context().get(&slot.origin) >= slot.n;
            step_until(world, |w| serving(w).any(|(other, node)| other != host && covers(node)));
        }
        cuts = sides.iter().map(|(from, to)| world.cut(*from, *to)).collect();
        if first {
            break;
        }
        world.advance(6 * SECOND);
    }
    world.network.spikes.retain(|spike| spike.id != id);
    cuts
}

/// Whether one host has a link to another.
fn sees(world: &World, one: usize, other: usize) -> bool {
    let up =
        |node: &Node| node.peers().iter().any(|peer| peer.node == world.hosts[other].id && peer.state == PeerState::Up);
    world.hosts[one].node.as_ref().is_some_and(up)
}

/// Ends a claim together with its client and its node. A record without a live owner is left, then an inference, then
/// nothing. Returns when to meet: in half of the cases when the inference is collected, otherwise any time before.
/// Also returns the node that received the inference late.
fn die_together(
    world: &mut World,
    client: usize,
    host: usize,
    apart: usize,
    member: &str,
    pause: Micros,
) -> (Micros, Option<usize>) {
    world.client_crash(client, true);
    world.faults.count(Fault::ClientCrash);
    world.crash(host, Crash::Silent);
    world.faults.count(Fault::PowerCut);
    let (lost, inferred) = (world.now, world.inference_after());
    if world.rng.bool() {
        return (lost + world.rng.u64(3 * SECOND..inferred + tombstones(world)), None);
    }
    rest_until(world, lost + inferred - SECOND, REST);
    let infers = |node: &Node| node.slot(member).is_some_and(|slot| slot.inferred);
    step_until(world, |w| serving(w).any(|(other, node)| other != apart && infers(node)));
    // The inference is in flight to the others; a node that reads it late dates it late.
    let first = serving(world).find(|(other, node)| *other != apart && infers(node)).map(|(other, _)| other);
    let late = another(world, &[Some(apart), first]);
    if let Some(late) = late {
        world.pause(late, pause);
    }
    (world.now + tombstones(world) + world.rng.u64(..2 * SECOND), late)
}

/// Advances in small steps until a condition holds, for at most ten seconds.
fn step_until(world: &mut World, happened: impl Fn(&World) -> bool) {
    let end = world.now + 10 * SECOND;
    while !happened(world) && world.now < end && world.violation.is_none() {
        world.advance(SECOND / 2000);
    }
}

/// Returns a client that is attached to another host than this one, and one that is attached to it.
fn one_on_each_side(world: &mut World, host: usize) -> Option<(usize, usize)> {
    let attached = |client: &usize| {
        let client = &world.clients[*client];
        client.attached_to().filter(|_| !client.observes && !client.closing)
    };
    let clients = 0..world.clients.len();
    let here: Vec<usize> = clients.clone().filter(|c| attached(c).is_some_and(|at| at != host)).collect();
    let there: Vec<usize> = clients.filter(|c| attached(c) == Some(host)).collect();
    Some((world.rng.choice(here)?, world.rng.choice(there)?))
}

/// Pauses a node until all others have collected the tombstones from the beginning of the pause.
fn pause_until_collected(world: &mut World, host: usize) {
    let pause = tombstones(world) + world.inference_after() + world.rng.u64(..20 * SECOND);
    world.busy(2 * SECOND, SECOND / 5);
    world.pause(host, pause);
    world.faults.count(Fault::LongPause);
    let resumed = world.now + pause;
    world.busy(10 * SECOND, SECOND / 5);
    rest_until(world, resumed, REST);
}

fn tombstones(world: &World) -> Micros {
    micros(world.setup.timers.tombstone_timeout)
}

/// Interval between operations while few are wanted.
const REST: Micros = 10 * SECOND;
/// Interval between operations while none are wanted.
const STILL: Micros = 1000 * SECOND;

/// Runs with few operations, so that the current state stays as it is.
fn rest_until(world: &mut World, time: Micros, apart: Micros) {
    let interval = std::mem::replace(&mut world.faults.operation_interval, apart);
    let enabled = std::mem::take(&mut world.faults.enabled);
    world.run_to(time.max(world.now));
    world.faults.operation_interval = interval;
    world.faults.enabled = enabled;
}
