//! A split outlasts the tombstones of what was unregistered at its beginning (D4, D8, C1, N5).

use crate::client::Process;
use crate::faults::Fault;
use crate::invariants::serving;
use crate::network::{Micros, Place, SECOND, Spike};
use crate::truth::Claimed;
use crate::world::{Crash, World, micros};
use convoke_core::Node;
use convoke_core::node::PeerState;

/// One side forgets what the other has not heard was unregistered, or has registered itself meanwhile, and both return
/// before either has inferred and forgotten the rest. Then there is peace: the next operation might hide what this did.
pub(super) fn play(world: &mut World, _until: Micros) {
    world.busy(10 * SECOND, SECOND / 4);
    let host = world.any_host();
    if world.rng.u32(..3) == 0 { sleep_through(world, host) } else { return_after_a_burst(world, host) }
}

fn return_after_a_burst(world: &mut World, host: usize) {
    // As after some attempts: what is forgotten had a claim that a newcomer has yet to reach.
    let closing = world.rng.usize(..world.clients.len());
    let attempts = world.rng.u64(..5);
    world.raise_claim(closing, attempts);
    world.client_move(closing, None);
    world.busy(3 * SECOND, SECOND / 3);
    let cuts = world.split(&[host]);
    let (begun, window) = (world.now, world.inference_after());
    let former: Vec<String> = world.clients[closing].members.keys().cloned().collect();
    world.client_close(closing);
    // In some cases even what one side inferred of the other is forgotten. What is written meanwhile was not.
    let long = world.rng.u32(..3) == 0;
    let apart = if long { 2 * SECOND } else { world.rng.u64(SECOND / 10..SECOND / 2) };
    let burst = world.duration(2 * SECOND, if long { 4 * SECOND } else { window });
    world.busy(burst, apart);
    let healed = begun + tombstones(world) + world.rng.u64(..window) + if long { window } else { 0 };
    rest_until(world, healed - 5 * SECOND, if long { STILL } else { REST });
    begin_anew(world, closing, &former);
    world.busy(healed.saturating_sub(world.now), apart);
    if long {
        die_at_the_last_moment(world);
    }
    world.heal_cuts(cuts);
    world.advance(4 * SECOND);
}

/// A node and its clients die together, and soon after those who miss them meet those who have forgotten them.
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

/// A client that closed is run again and wants what it had, with claims that start over.
fn begin_anew(world: &mut World, client: usize, former: &[String]) {
    if world.clients[client].process != Process::Stopped {
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

/// Both sides have the same id, on one of them it ends, and they meet when some have forgotten that and some have not.
pub(super) fn torn(world: &mut World, _until: Micros) {
    world.busy(10 * SECOND, SECOND / 4);
    let host = world.any_host();
    let mut cuts = world.split(&[host]).to_vec();
    world.busy(6 * SECOND, SECOND / 3);
    let Some((here, there)) = one_on_each_side(world, host) else { return world.heal_cuts(cuts) };
    let id = format!("torn-{}", world.rng.u32(..3));
    if [here, there].iter().any(|client| world.clients[*client].members.contains_key(&id)) {
        return world.heal_cuts(cuts);
    }
    let brushing = world.rng.u32(..3) == 0;
    let interval = world.faults.operation_interval;
    if brushing {
        world.faults.operation_interval = STILL;
        give_up_names(world, host);
    }
    // As after many attempts: the claim that ends is mostly the higher one.
    let attempts = world.rng.u64(..20);
    world.raise_claim(here, attempts);
    world.client_move(here, None);
    world.advance(4 * SECOND);
    for client in [here, there] {
        // Unless the dice have thrown it meanwhile.
        if !world.clients[client].members.contains_key(&id) {
            let spec = world.spec(&id);
            world.client_register(client, spec, true);
        }
    }
    world.advance(SECOND);
    // Who hears of it late forgets it late, and is met through the others.
    let at = world.clients[here].attached_to();
    let pause = world.rng.u64(2 * SECOND..4 * SECOND);
    let (met, late) = match at.filter(|_| !brushing && world.rng.bool()) {
        Some(at) => die_together(world, here, at, host, &id, pause),
        None => {
            let late = another(world, &[Some(host), at]);
            world.pause(late.unwrap_or(host), pause);
            world.client_unregister(here, &id);
            if brushing {
                cuts = brush(world, host, &id, cuts);
            }
            // A brush makes them say the end again: then all of them have forgotten it a little later.
            let longer = if brushing { 10 * SECOND } else { 2 * SECOND };
            (world.now + tombstones(world) + world.rng.u64(..longer), late)
        }
    };
    rest_until(world, met - 3 * SECOND / 2, if brushing { STILL } else { REST });
    let apart = late.map(|late| world.partition(&[late], &[host]));
    world.heal_cuts(cuts);
    world.advance(6 * SECOND);
    world.heal_cuts(apart.into_iter().flatten());
    world.faults.operation_interval = interval;
}

/// A host whose names are given up, or that goes on writing, is never met with what others knew of it and have forgotten: it
/// states everything again (D10).
fn give_up_names(world: &mut World, host: usize) {
    for name in world.hosts[host].names.keys().cloned().collect::<Vec<String>>() {
        world.unregister_name(host, &name);
    }
}

/// A host that runs and is none of these.
fn another(world: &World, than: &[Option<usize>]) -> Option<usize> {
    world.running_hosts().into_iter().find(|host| !than.contains(&Some(*host)))
}

/// The two sides meet, over slow links, and are parted when one has heard what the other registered and not yet answered.
fn brush(world: &mut World, host: usize, member: &str, mut cuts: Vec<u64>) -> Vec<u64> {
    let Some(slot) = world.hosts[host].node.as_ref().and_then(|node| node.slot(member)) else { return cuts };
    let held = world.network.cuts.iter().filter(|cut| cuts.contains(&cut.id));
    let sides: Vec<(u128, u128)> = held.map(|cut| (cut.from, cut.to)).collect();
    let (id, extra) = (world.network.number(), world.rng.u64(SECOND / 10..SECOND / 2));
    world.network.spikes.push(Spike { id, places: Place::Host(host).bit(), extra });
    let others: Vec<usize> = world.running_hosts().into_iter().filter(|other| *other != host).collect();
    for _ in 0..4 {
        world.heal_cuts(cuts);
        let here = |w: &World| others.iter().any(|other| sees(w, host, *other));
        let there = |w: &World| others.iter().any(|other| sees(w, *other, host));
        step_until(world, |w| here(w) || there(w));
        // Who accepts a connection is the first to say what it has.
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

/// A claim ends with its client and its node: what is left is a record that nobody stands by, then an inference, then
/// nothing. Returns when to meet, in one of two cases about when the inference is forgotten, otherwise any time before; and
/// who heard of it late.
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
    // What was inferred is under way to the others; read late, it looks young.
    let first = serving(world).find(|(other, node)| *other != apart && infers(node)).map(|(other, _)| other);
    let late = another(world, &[Some(apart), first]);
    if let Some(late) = late {
        world.pause(late, pause);
    }
    (world.now + tombstones(world) + world.rng.u64(..2 * SECOND), late)
}

/// Time passes in small steps, to the moment when something happens, or for ten seconds.
fn step_until(world: &mut World, happened: impl Fn(&World) -> bool) {
    let end = world.now + 10 * SECOND;
    while !happened(world) && world.now < end && world.violation.is_none() {
        world.advance(SECOND / 2000);
    }
}

/// A client that is attached to another host than this one, and one that is attached to it.
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

/// A node sleeps until everybody else has forgotten what happened at its beginning.
fn sleep_through(world: &mut World, host: usize) {
    let sleep = tombstones(world) + world.inference_after() + world.rng.u64(..20 * SECOND);
    world.busy(2 * SECOND, SECOND / 5);
    world.pause(host, sleep);
    world.faults.count(Fault::LongPause);
    let awake = world.now + sleep;
    world.busy(10 * SECOND, SECOND / 5);
    rest_until(world, awake, REST);
}

fn tombstones(world: &World) -> Micros {
    micros(world.setup.timers.tombstone_timeout)
}

/// How far apart operations are while little is to happen.
const REST: Micros = 10 * SECOND;
/// And while nothing is to happen.
const STILL: Micros = 1000 * SECOND;

/// Little happens, so that what was left stays so.
fn rest_until(world: &mut World, time: Micros, apart: Micros) {
    let interval = std::mem::replace(&mut world.faults.operation_interval, apart);
    let enabled = std::mem::take(&mut world.faults.enabled);
    world.run_to(time.max(world.now));
    world.faults.operation_interval = interval;
    world.faults.enabled = enabled;
}
