//! Nodes are paused, for moments or for longer than any horizon, without other faults (L5, N5, P1, C6).

use crate::faults::{Action, Fault};
use crate::network::{Micros, SECOND};
use crate::world::{World, micros};

pub(super) fn play(world: &mut World, until: Micros) {
    world.busy(16 * SECOND, SECOND / 4);
    while world.now < until && world.violation.is_none() {
        let host = world.any_host();
        let timers = &world.setup.timers;
        let (short, dead) = (micros(timers.heartbeat_timeout), micros(timers.dead_peer_timeout));
        let forgotten = micros(timers.tombstone_timeout) + world.inference_after();
        let pause = match world.rng.u32(..6) {
            0 => world.duration(SECOND / 2, short),
            1 | 2 => world.duration(short + short / 2, dead / 2),
            3 | 4 => world.duration(dead / 2, dead),
            _ => world.duration(dead, forgotten + dead),
        };
        let waiting = register_before_the_pause(world, host);
        world.pause(host, pause);
        world.faults.count(if pause < dead { Fault::Pause } else { Fault::LongPause });
        let resumed = world.now + pause;
        world.busy(pause.min(5 * SECOND), SECOND / 3);
        for (client, id) in waiting {
            world.client_unregister(client, &id);
        }
        world.busy(resumed.saturating_sub(world.now).min(20 * SECOND), SECOND);
        world.run_to(resumed);
        // The effects of a pause show while no other fault can be the cause.
        let rest = world.rng.u64(5 * SECOND..20 * SECOND);
        world.busy(rest, SECOND / 2);
    }
}

/// Registrations that the clients of a host send just before its pause wait in its sockets, or only that host has
/// them. Some clients crash before the answer.
fn register_before_the_pause(world: &mut World, host: usize) -> Vec<(usize, String)> {
    let mut waiting = Vec::new();
    for client in 0..world.clients.len() {
        if world.clients[client].attached_to() != Some(host) || world.rng.u32(..3) == 0 {
            continue;
        }
        world.faults.next_id += 1;
        let id = format!("m{}", world.faults.next_id);
        let spec = world.spec(&id);
        world.client_register(client, spec, false);
        if world.rng.u32(..4) == 0 {
            world.client_crash(client, true);
            world.faults.count(Fault::ClientCrash);
            let down = world.duration(SECOND, 60 * SECOND);
            world.schedule_action(down, Action::StartClient { client });
        } else {
            waiting.push((client, id));
        }
    }
    waiting
}
