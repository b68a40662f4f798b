//! Revocations of credentials (P11).

use super::support::ScenarioResult;
use crate::network::SECOND;
use crate::world::World;
use convoke_core::Revocation;

fn revoke(world: &mut World, host: usize, key: &str) {
    let revocation = Revocation { key: key.to_owned(), issued_until: 1, keep_until: 2 };
    let added = world.with_node(host, |node, time, out| Some(node.revoke(time, revocation, out)));
    world.note(format!("n{host} revokes {key}: {added:?}"));
}

fn everywhere(world: &World, keys: &[&str]) -> bool {
    world.running_hosts().into_iter().all(|host| {
        let held = world.node(host).revocations();
        keys.iter().all(|key| held.issued_until(key) == Some(1)) && held.len() == keys.len()
    })
}

/// A revocation reaches nodes of other regions within a second, over relays. Revocations on both sides of a cut are joined
/// when it heals, and a node that starts again receives them.
pub(super) fn revocations_reach_every_node(world: &mut World) -> ScenarioResult {
    world.begin()?;
    revoke(world, 0, "a");
    world.run_until(|world| everywhere(world, &["a"]), SECOND)?;
    let cuts = world.partition(&[0], &[1, 2, 3, 4, 5, 6, 7, 8]);
    revoke(world, 0, "b");
    revoke(world, 1, "c");
    world.pass(60 * SECOND)?;
    world.rejoin(cuts);
    world.run_until(|world| everywhere(world, &["a", "b", "c"]), 30 * SECOND)?;
    world.settle()
}
