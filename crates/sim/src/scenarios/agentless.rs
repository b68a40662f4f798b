//! Members without a client: who owns them, and what survives (AG1 to AG5).

use super::log::Log;
use super::support::ScenarioResult;
use crate::network::{MINUTE, SECOND};
use crate::world::{Crash, World, micros};
use convoke_core::member::Status;

/// Whether every serving node shows the member without a client, with this owner.
fn owned_by(world: &World, id: &str, host: usize) -> bool {
    let owner = &world.hosts[host].id;
    world.running_hosts().into_iter().all(|at| {
        let member = world.hosts[at].serving().and_then(|node| node.member(id));
        member.is_some_and(|member| member.owner().node == owner.as_str())
    })
}

fn owner_of(world: &World, id: &str) -> Option<usize> {
    (0..world.hosts.len()).find(|host| owned_by(world, id, *host))
}

fn absent(world: &World, id: &str) -> bool {
    world.running_hosts().into_iter().all(|at| world.node(at).member(id).is_none())
}

/// The owner is lost, and later the next one: another node adopts the member each time, and it never shows `down`.
pub(super) fn agentless_member_outlives_its_owners(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.register_agentless(0, "a1", "v");
    world.up(&["a1"])?;
    let log = Log::on(world);
    for _ in 0..2 {
        world.run_until(|w| owner_of(w, "a1").is_some(), 30 * SECOND)?;
        let owner = owner_of(world, "a1").expect("there is an owner");
        let crash = if world.even_seed() { Crash::Silent } else { Crash::Process };
        world.crash(owner, crash);
        world.run_until(|w| owner_of(w, "a1").is_some_and(|next| next != owner), MINUTE)?;
        world.start(owner);
        world.run_until(World::all_serving, 30 * SECOND)?;
    }
    log.never(world, Status::Down)?;
    log.never(world, Status::Left)?;
    world.settle()?;
    // One node is responsible, so nobody takes the member from it.
    world.pass(10 * SECOND)?;
    let version = |w: &World| w.node(0).member("a1").map(|member| member.version());
    let before = version(world);
    world.pass(10 * SECOND)?;
    world.require(version(world) == before, "the member has no lasting owner")
}

/// Each side of a partition has a node that is responsible for the member, and one side deregisters it meanwhile.
pub(super) fn agentless_member_deregistered_on_one_side(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.register_agentless(0, "a1", "v");
    world.up(&["a1"])?;
    world.pass(10 * SECOND)?;
    let owner = owner_of(world, "a1").expect("there is an owner");
    let others: Vec<usize> = (0..3).filter(|host| *host != owner).collect();
    let cuts = world.partition(&[owner], &others);
    world.run_until(
        |w| {
            others
                .iter()
                .all(|at| w.node(*at).member("a1").is_some_and(|m| m.owner().node != w.hosts[owner].id.as_str()))
        },
        MINUTE,
    )?;
    world.deregister_agentless(owner, "a1");
    world.pass(10 * SECOND)?;
    world.rejoin(cuts);
    world.run_until(|w| absent(w, "a1"), 10 * SECOND)?;
    world.settle()
}

/// All nodes are killed and started again. What was deregistered does not come back.
pub(super) fn agentless_members_survive_a_total_restart(world: &mut World) -> ScenarioResult {
    world.begin()?;
    for id in ["a1", "a2"] {
        world.register_agentless(1, id, "v");
    }
    world.up(&["a1", "a2"])?;
    // This node is down when the member ends, and has it on its disk.
    world.crash(2, Crash::Process);
    world.deregister_agentless(0, "a2");
    world.pass(SECOND)?;
    for host in 0..2 {
        world.crash(host, Crash::Process);
    }
    world.pass(3 * SECOND)?;
    if world.even_seed() {
        world.start_all();
    } else {
        world.start(0);
        world.run_until(|w| w.hosts[0].serving().is_some(), 30 * SECOND)?;
        world.start_all();
    }
    world.run_until(World::all_serving, MINUTE)?;
    world.settle()?;
    world.up(&["a1"])?;
    world.run_until(|w| absent(w, "a2"), 10 * SECOND)
}

/// The tombstone of a member is collected, and then all nodes are killed. Members that were registered earlier are restored.
pub(super) fn agentless_members_outlive_a_collected_tombstone(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.register_agentless(0, "a1", "v");
    world.register_agentless(1, "a2", "v");
    world.up(&["a1", "a2"])?;
    world.deregister_agentless(0, "a2");
    world.run_until(
        |w| (0..3).all(|host| w.forgotten(host, "a2")),
        micros(world.setup.timers.forget_timeout) + MINUTE,
    )?;
    world.require(world.status(0, "a1") == Some(Status::Up), "the other member ended")?;
    for host in 0..3 {
        world.crash(host, Crash::Process);
    }
    if world.even_seed() {
        world.start_all();
    } else {
        world.start(0);
        world.run_until(|w| w.hosts[0].serving().is_some(), 30 * SECOND)?;
        world.start_all();
    }
    world.run_until(World::all_serving, MINUTE)?;
    world.up(&["a1"])?;
    world.settle()?;
    world.require(absent(world, "a2"), "a deregistered member is back")
}

/// A node restores a member that the others have never known, although they have collected the tombstone of another one while
/// it was down.
pub(super) fn agentless_member_known_to_one_disk(world: &mut World) -> ScenarioResult {
    world.begin()?;
    for _ in 0..3 {
        world.register_agentless(0, "a1", "v");
        world.deregister_agentless(0, "a1");
    }
    world.pass(SECOND)?;
    let cuts = world.partition(&[2], &[0, 1]);
    world.register_agentless(2, "a2", "v");
    world.crash(2, Crash::Process);
    world.pass(micros(world.setup.timers.forget_timeout) + MINUTE)?;
    for host in 0..2 {
        world.crash(host, Crash::Process);
    }
    world.rejoin(cuts);
    world.start(0);
    world.run_until(|w| w.hosts[0].serving().is_some(), 30 * SECOND)?;
    world.start_all();
    world.run_until(World::all_serving, MINUTE)?;
    world.up(&["a2"])?;
    world.settle()
}
