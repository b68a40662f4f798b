//! A split outlasts the tombstones of what was unregistered at its beginning (D4, D8, C1).

use crate::network::{Micros, SECOND};
use crate::world::{World, micros};

/// One side forgets what the other has not heard was unregistered, or has registered itself meanwhile, and both return
/// before either has inferred and forgotten the rest.
pub(super) fn play(world: &mut World, until: Micros) {
    let tombstones = micros(world.setup.timers.tombstone_timeout);
    world.busy(10 * SECOND, SECOND / 4);
    while world.now < until && world.violation.is_none() {
        let host = world.any_host();
        let cuts = world.split(&[host]);
        let begun = world.now;
        let window = world.inference_after();
        let burst = world.duration(2 * SECOND, window);
        let apart = world.rng.u64(SECOND / 10..SECOND / 2);
        world.busy(burst, apart);
        let healed = begun + tombstones + world.rng.u64(..window);
        let interval = std::mem::replace(&mut world.faults.operation_interval, 10 * SECOND);
        let before = healed.saturating_sub(world.rng.u64(..5 * SECOND));
        world.run_to(before);
        if world.rng.bool() {
            // Not all forget at the same moment.
            let (late, pause) = (world.any_host(), world.duration(SECOND / 2, 8 * SECOND));
            world.pause(late, pause);
        }
        world.faults.operation_interval = interval;
        let left = healed.saturating_sub(world.now);
        world.busy(left, apart);
        world.heal_cuts(cuts);
        world.busy(8 * SECOND, apart);
    }
}
