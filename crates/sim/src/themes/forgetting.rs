//! A split outlasts the tombstones of what was unregistered at its beginning (D4, D8, C1, N5).

use crate::client::ClientState;
use crate::faults::Fault;
use crate::network::{Micros, SECOND};
use crate::truth::Claimed;
use crate::world::{World, micros};

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
    world.clients[closing].claim += world.rng.u64(..5);
    world.client_move(closing, None);
    world.busy(3 * SECOND, SECOND / 3);
    let cuts = world.split(&[host]);
    let (begun, window) = (world.now, world.inference_after());
    let apart = world.rng.u64(SECOND / 10..SECOND / 2);
    let former: Vec<String> = world.clients[closing].members.keys().cloned().collect();
    world.client_close(closing);
    let burst = world.duration(2 * SECOND, window);
    world.busy(burst, apart);
    let healed = begun + tombstones(world) + world.rng.u64(..window);
    rest_until(world, healed - 5 * SECOND);
    begin_anew(world, closing, &former);
    world.busy(healed.saturating_sub(world.now), apart);
    world.heal_cuts(cuts);
    world.advance(4 * SECOND);
}

/// A client that closed is run again and wants what it had, with claims that start over.
fn begin_anew(world: &mut World, client: usize, former: &[String]) {
    if world.clients[client].state != ClientState::Stopped {
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

/// Both sides have the same id, one of them unregisters it, and they meet when some have forgotten that and some have
/// not.
pub(super) fn torn(world: &mut World, _until: Micros) {
    world.busy(10 * SECOND, SECOND / 4);
    let host = world.any_host();
    let cuts = world.split(&[host]);
    world.busy(6 * SECOND, SECOND / 3);
    let Some((here, there)) = one_on_each_side(world, host) else { return world.heal_cuts(cuts) };
    let id = format!("torn-{}", world.rng.u32(..3));
    if [here, there].iter().any(|client| world.clients[*client].members.contains_key(&id)) {
        return world.heal_cuts(cuts);
    }
    // As after many attempts: the claim that ends is mostly the higher one.
    let attempts = world.rng.u64(..20);
    world.clients[here].claim += attempts;
    world.client_move(here, None);
    world.advance(4 * SECOND);
    for client in [here, there] {
        let spec = world.spec(&id);
        world.client_register(client, spec, true);
    }
    world.advance(SECOND);
    // Who hears of it late forgets it late, and is met through the others.
    let at = world.clients[here].attached_to();
    let late = world.running_hosts().into_iter().find(|other| *other != host && Some(*other) != at).unwrap_or(host);
    let pause = world.rng.u64(2 * SECOND..4 * SECOND);
    world.pause(late, pause);
    world.client_unregister(here, &id);
    let met = world.now + tombstones(world) + world.rng.u64(..2 * SECOND);
    rest_until(world, met - 3 * SECOND / 2);
    let apart = if late == host { [0; 2] } else { world.partition(&[late], &[host]) };
    world.heal_cuts(cuts);
    world.advance(6 * SECOND);
    world.heal_cuts(apart);
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
    rest_until(world, awake);
}

fn tombstones(world: &World) -> Micros {
    micros(world.setup.timers.tombstone_timeout)
}

/// Little happens, so that what was left stays so.
fn rest_until(world: &mut World, time: Micros) {
    let interval = std::mem::replace(&mut world.faults.operation_interval, 10 * SECOND);
    let enabled = std::mem::take(&mut world.faults.enabled);
    world.run_to(time.max(world.now));
    world.faults.operation_interval = interval;
    world.faults.enabled = enabled;
}
