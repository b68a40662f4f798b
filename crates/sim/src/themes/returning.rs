//! An owner is lost and returns; its old state must not undo what happened meanwhile (L3–L5, N1–N6, D10).

use crate::faults::Fault;
use crate::network::{Micros, SECOND, Site, Spike};
use crate::world::{Crash, World, micros};
use convoke_core::member::Liveness;

pub(super) fn play(world: &mut World, until: Micros) {
    world.busy(10 * SECOND, SECOND / 4);
    while world.now < until && world.violation.is_none() {
        let owner = world.any_host();
        let dead = micros(world.setup.timers.dead_peer_timeout);
        let away = world.duration(4 * SECOND, 2 * dead);
        let cuts = match world.rng.u32(..3) {
            0 => {
                let crash = if world.rng.bool() { Crash::Process } else { Crash::Silent };
                world.crash(owner, crash);
                world.faults.count(Fault::PowerCut);
                Vec::new()
            }
            _ => world.split(&[owner]).to_vec(),
        };
        let back = world.now + away;
        let apart = world.rng.u64(SECOND / 10..SECOND / 2);
        while world.now < back && world.violation.is_none() {
            let time = world.rng.u64(SECOND..8 * SECOND).min(back - world.now);
            world.busy(time, apart);
            if world.rng.u32(..4) == 0 {
                restart_another(world, owner);
            }
        }
        world.heal_cuts(cuts);
        world.start(owner);
        world.busy(6 * SECOND, apart);
    }
}

/// A node dies with most of its clients, and the survivors have time to expire its members.
pub(super) fn churn(world: &mut World, until: Micros) {
    if world.rng.bool() {
        spread_out(world);
    }
    world.busy(10 * SECOND, SECOND / 4);
    while world.now < until && world.violation.is_none() {
        let owner = world.any_host();
        let gentle = world.rng.u32(..3) == 0;
        for client in 0..world.clients.len() {
            if !gentle && world.clients[client].attached_to() == Some(owner) && world.rng.u32(..4) > 0 {
                world.client_crash(client, true);
                world.faults.count(Fault::ClientCrash);
            }
        }
        let lost = !gentle && world.rng.u32(..3) == 0 && world.lose_for_good(owner);
        if gentle {
            world.stop(owner);
            world.faults.count(Fault::GracefulStop);
        } else if !lost {
            world.crash(owner, Crash::Silent);
            world.faults.count(Fault::PowerCut);
        }
        let window = world.inference_after();
        let down = world.duration(SECOND, 3 * window);
        world.busy(down.min(3 * SECOND), SECOND / 4);
        world.advance(down.saturating_sub(3 * SECOND));
        world.start(owner);
        for client in 0..world.clients.len() {
            if world.rng.bool() {
                world.client_start(client);
            }
        }
        world.busy(5 * SECOND, SECOND / 4);
    }
    for client in 0..world.clients.len() {
        world.client_start(client);
    }
}

/// The nodes are far from each other and from the clients. That is not a fault, only a larger network; only `fast`
/// liveness does not work in it.
fn spread_out(world: &mut World) {
    let (id, extra) = (world.network.number(), world.rng.u64(SECOND / 5..9 * SECOND / 20));
    let places = (0..world.hosts.len()).fold(0, |places, host| places | Site::Host(host).bit());
    world.network.spikes.push(Spike { id, places, extra });
    for client in &mut world.clients {
        client.liveness = Liveness::Normal;
    }
}

fn restart_another(world: &mut World, owner: usize) {
    let others: Vec<usize> = world.running_hosts().into_iter().filter(|host| *host != owner).collect();
    if others.len() < 2 {
        return;
    }
    let Some(other) = world.rng.choice(others) else { return };
    world.crash(other, Crash::Process);
    world.faults.count(Fault::Crash);
    let down = world.duration(SECOND / 5, 3 * SECOND);
    world.busy(down, SECOND / 4);
    world.start(other);
}
