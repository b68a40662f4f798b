//! Starting without seeds in reach, and names of nodes that are gone (N7, D15).

use super::support::ScenarioResult;
use crate::network::{MINUTE, Micros, SECOND};
use crate::plan::brief_timers;
use crate::world::{Crash, Setup, Topology, World, micros};
use convoke_core::Limits;
use convoke_core::member::Status;
use convoke_core::node::PeerState;

pub(super) fn brief() -> Setup {
    Setup { timers: brief_timers(), topology: Topology::Full, ..Setup::default() }
}

fn forget_timeout(world: &World) -> Micros {
    micros(world.setup.timers.forget_timeout)
}

/// A restarted node that reaches none of its seeds serves its clients and reports nothing as absent. It does once it has
/// exchanged with a seed, and goes on doing so when it loses all of them again.
pub(super) fn node_without_seeds_in_reach_asserts_no_absence(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world
        .require((0..3).all(|host| world.node(host).asserts_absence()), "nodes that started together are not alone")?;
    world.add_client_fixed("c", &["m"], 0);
    world.up(&["m"])?;
    world.crash(2, Crash::Process);
    let cuts = world.partition(&[2], &[0, 1]);
    world.start(2);
    world.run_until(World::all_serving, 20 * SECOND)?;
    let own = world.add_client_fixed("own", &["own"], 2);
    let watcher = world.watch_at(2);
    world.run_until(|w| w.at(own, 2) && w.status(2, "own") == Some(Status::Up), 10 * SECOND)?;
    world.throughout(MINUTE, "a node that has reached no seed asserts an absence", |w| {
        !w.node(2).asserts_absence() && !w.caught_up(watcher)
    })?;
    world.rejoin(cuts);
    world.throughout(20 * SECOND, "a node asserts absences before it has received the registry", |w| {
        !w.node(2).asserts_absence() || w.status(2, "m").is_some()
    })?;
    world.run_until(|w| w.node(2).asserts_absence() && w.caught_up(watcher), 10 * SECOND)?;
    let again = world.partition(&[2], &[0, 1]);
    world.throughout(MINUTE, "a node that has joined is alone again", |w| w.node(2).asserts_absence())?;
    world.rejoin(again);
    world.settle()
}

/// Of each node, three incarnations are tracked.
pub(super) fn few_incarnations() -> Setup {
    Setup { limits: Limits { incarnations_per_node: 3, ..Limits::default() }, ..brief() }
}

/// A node restarts more often than its incarnations can be tracked. Its handshakes are rejected with the reason, and it
/// asserts no absence. It is accepted when its older incarnations are retired (P2).
pub(super) fn incarnation_beyond_the_limit_is_rejected(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let restart = |world: &mut World| {
        world.crash(2, Crash::Process);
        world.start(2);
    };
    for _ in 0..2 {
        restart(world);
        world.run_until(|w| w.all_serving() && w.linked(), 30 * SECOND)?;
    }
    let rejections = |w: &World| [0, 1].map(|host| w.node(host).counters().handshakes_rejected);
    let before = rejections(world);
    restart(world);
    let told = |w: &World| w.node(2).absence_unknown().message.contains("no room for another incarnation");
    world.run_until(|w| w.all_serving() && told(w), 30 * SECOND)?;
    world.throughout(MINUTE / 2, "a node whose records cannot be stored is accepted", |w| {
        (0..2).all(|host| w.peer_state(host, 2) != Some(PeerState::Up)) && !w.node(2).asserts_absence()
    })?;
    let after = rejections(world);
    world.require((0..2).all(|host| after[host] > before[host]), "the rejections were not counted")?;
    let retirement = micros(world.setup.timers.retirement());
    world.run_until(|w| w.linked() && w.node(2).asserts_absence(), retirement + MINUTE)?;
    world.add_client_fixed("c", &["m"], 2);
    world.up(&["m"])?;
    world.settle()
}

/// The names of nodes that are gone leave all contexts, and later the markers go too. A node that left is removed sooner
/// than one that was lost, and from the table of peers. Nothing comes back, and the node may join again.
pub(super) fn names_of_gone_nodes_leave_the_contexts(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_fixed("c", &["m"], 2);
    world.up(&["m"])?;
    world.client_unregister(client, "m");
    world.run_until(|w| w.absent_everywhere("m"), 10 * SECOND)?;
    world.unplug(client);
    if world.even_seed() {
        world.stop(2);
    } else {
        world.crash(2, Crash::Silent);
    }
    let known = |w: &World| {
        let at = |host: usize| w.node(host).context().iter().any(|(origin, _)| origin.node.as_str() == "n2");
        at(0) || at(1)
    };
    let retirement = micros(world.setup.timers.retirement());
    if !world.even_seed() {
        world.pass(retirement)?;
        world.require(known(world), "a node that may return is removed like one that left")?;
    }
    let limit = if world.even_seed() { retirement } else { forget_timeout(world) };
    world.run_until(|w| !known(w), limit + MINUTE)?;
    if world.even_seed() {
        world.run_until(|w| (0..2).all(|host| w.peer_state(host, 2).is_none()), 10 * SECOND)?;
    }
    let markers = |w: &World| (0..2).any(|host| w.node(host).sizes().retired > 0);
    world.require(markers(world), "there is no marker")?;
    world.run_until(|w| !markers(w), forget_timeout(world) + MINUTE)?;
    world.throughout(MINUTE, "the name is back", |w| !known(w))?;
    world.start(2);
    world.run_until(World::all_serving, 30 * SECOND)?;
    world.require(world.absent_everywhere("m"), "an unregistered member is back")?;
    world.settle()
}

/// Two sides of a partition remove each other's names. When it heals, both are admitted with all their members, no
/// incarnation ends, and nothing that was unregistered meanwhile returns.
pub(super) fn partition_longer_than_names_are_kept(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let here = world.add_client_fixed("here", &["here", "gone-here"], 0);
    let there = world.add_client_fixed("there", &["there", "gone-there"], 2);
    world.up(&["here", "gone-here", "there", "gone-there"])?;
    let before: Vec<_> = (0..3).map(|host| world.node(host).origin().clone()).collect();
    let cuts = world.partition(&[2], &[0, 1]);
    world.pass(10 * SECOND)?;
    world.client_unregister(here, "gone-here");
    world.client_unregister(there, "gone-there");
    let forgotten = |w: &World| {
        let knows = |host: usize, name: &str| w.node(host).context().iter().any(|(o, _)| o.node.as_str() == name);
        !knows(0, "n2") && !knows(1, "n2") && !knows(2, "n0") && !knows(2, "n1")
    };
    world.run_until(forgotten, 2 * forget_timeout(world))?;
    if world.even_seed() {
        world.pass(2 * forget_timeout(world))?;
    }
    world.rejoin(cuts);
    world.run_until(|w| w.shown_everywhere("here", Status::Up) && w.shown_everywhere("there", Status::Up), MINUTE)?;
    world.throughout(MINUTE, "an unregistered member is back", |w| {
        w.absent_everywhere("gone-here") && w.absent_everywhere("gone-there")
    })?;
    let same = (0..3).all(|host| *world.node(host).origin() == before[host]);
    world.require(same, "a node started a new incarnation")?;
    world.settle()
}
