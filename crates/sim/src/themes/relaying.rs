//! Two nodes communicate only through a third, over slow links and in small chunks (D5, D6, D7, L2).

use crate::faults::{Action, Fault};
use crate::network::{Micros, SECOND};
use crate::world::World;

/// Clients move between two linked nodes, while a third receives the changes late and from one of them only.
pub(super) fn play(world: &mut World, until: Micros) {
    world.busy(8 * SECOND, SECOND / 4);
    while world.now < until && world.violation.is_none() {
        let hidden = world.any_host();
        let others: Vec<usize> = world.running_hosts().into_iter().filter(|host| *host != hidden).collect();
        let Some(source) = world.rng.choice(others) else { return };
        let cuts = world.partition(&[hidden], &[source]);
        world.faults.count(Fault::PartialPartition);
        let length = world.duration(5 * SECOND, 40 * SECOND);
        slow_down(world, hidden, length);
        let end = world.now + length;
        while world.now < end && world.violation.is_none() {
            move_after_writing(world);
            let pause = world.rng.u64(..SECOND / 3);
            world.busy(pause, SECOND / 8);
        }
        world.heal_cuts(cuts);
        world.busy(5 * SECOND, SECOND / 4);
    }
}

/// Delays everything from and to a host, but not so much that its links are closed.
fn slow_down(world: &mut World, host: usize, length: Micros) {
    let extra = world.duration(SECOND / 50, SECOND / 2);
    let id = world.slow_links(host, extra);
    world.faults.count(Fault::DelaySpike);
    world.schedule_action(length, Action::EndSpike { spike: id });
}

fn move_after_writing(world: &mut World) {
    let attached: Vec<usize> =
        (0..world.clients.len()).filter(|client| world.clients[*client].attached_to().is_some()).collect();
    let Some(client) = world.rng.choice(attached) else { return };
    world.client_operation(client);
    let pause = world.rng.u64(..SECOND / 4);
    world.advance(pause);
    if world.clients[client].attached_to().is_some() {
        world.client_move(client, None);
        world.faults.count(Fault::ClientMove);
    }
}
