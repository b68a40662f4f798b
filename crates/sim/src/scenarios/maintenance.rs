//! Drains that end by themselves (C21), and sessions that move towards an even spread (N10).

use super::log::Log;
use super::support::ScenarioResult;
use crate::network::{MINUTE, Micros, SECOND};
use crate::world::{Crash, World};
use convoke_core::member::{Drain, Status};
use std::time::Duration;

/// Whether every running node shows this drain mark.
fn drained(world: &World, id: &str, drained: bool) -> bool {
    world.running_hosts().into_iter().all(|host| world.member(host, id).is_some_and(|m| m.drained() == drained))
}

fn mark(world: &mut World, host: usize, id: &str, wanted: Option<&Drain>) -> ScenarioResult {
    let done = world.with_node(host, |node, time, out| Some(node.mark(time, id, wanted, out).is_ok()));
    world.require(done == Some(true), "a drain was rejected")?;
    world.run_until(|w| drained(w, id, wanted.is_some()), 5 * SECOND)
}

fn drain_for(secs: u64) -> Drain {
    Drain { lasts: Some(Duration::from_secs(secs)), reason: "disk".to_owned(), until: 7 }
}

/// A node learns of the drain when 20 s have passed, and becomes the owner. The node that took the command is lost.
pub(super) fn drain_ends_on_time_whoever_owns_the_member(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = (!world.even_seed()).then(|| world.add_client_at("c", &["m"], 0));
    if client.is_none() {
        world.register_agentless(0, "m", "v");
    }
    world.up(&["m"])?;
    world.crash(1, Crash::Process);
    world.pass(8 * SECOND)?;
    let begun = world.now;
    mark(world, 2, "m", Some(&drain_for(60)))?;
    world.run_to(begun + 20 * SECOND);
    world.start(1);
    world.run_until(World::all_serving, 15 * SECOND)?;
    if let Some(client) = client {
        world.go(client, 1);
        world.run_until(|w| w.owned_by("m", 1), 10 * SECOND)?;
    }
    world.crash(2, Crash::Process);
    let shown = |w: &World| {
        let maintenance =
            |host: usize| w.member(host, "m").and_then(|m| m.maintenance().map(|m| m.reason().to_owned()));
        [0, 1].into_iter().all(|host| maintenance(host).as_deref() == Some("disk"))
    };
    world.run_until(shown, 5 * SECOND)?;
    let left = begun + 57 * SECOND - world.now;
    world.throughout(left, "the drain ended early", |w| drained(w, "m", true))?;
    world.run_until(|w| drained(w, "m", false), 8 * SECOND)?;
    world.start(2);
    world.run_until(World::all_serving, 20 * SECOND)?;
    world.settle()?;
    world.require(drained(world, "m", false), "the drain is back")
}

/// Two drains of one member, at different nodes: the time of the first one has no effect on the second.
pub(super) fn newer_drain_outlives_an_older_one(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.add_client_at("c", &["m"], 0);
    world.up(&["m"])?;
    mark(world, 2, "m", Some(&drain_for(20)))?;
    world.pass(10 * SECOND)?;
    mark(world, 1, "m", Some(&Drain::default()))?;
    world.throughout(30 * SECOND, "the earlier drain ended the later one", |w| drained(w, "m", true))?;
    mark(world, 2, "m", Some(&drain_for(20)))?;
    world.pass(5 * SECOND)?;
    mark(world, 1, "m", None)?;
    mark(world, 1, "m", Some(&drain_for(60)))?;
    world.throughout(50 * SECOND, "an undone drain ended the next one", |w| drained(w, "m", true))?;
    world.run_until(|w| drained(w, "m", false), 15 * SECOND)?;

    mark(world, 1, "convoke.n0", Some(&drain_for(40)))?;
    world.crash(0, Crash::Process);
    world.pass(2 * SECOND)?;
    world.start(0);
    world.run_until(World::all_serving, 20 * SECOND)?;
    world.require(drained(world, "convoke.n0", true), "the restarted node is not drained")?;
    world.run_until(|w| drained(w, "convoke.n0", false), 40 * SECOND)?;
    world.settle()
}

fn sessions(world: &World) -> Vec<u64> {
    world.running_hosts().into_iter().map(|host| world.node(host).streamed_sessions()).collect()
}

/// How many notices all nodes have sent.
fn asked(world: &World) -> u64 {
    world.running_hosts().into_iter().map(|host| world.node(host).counters().sessions_rebalanced).sum()
}

/// Waits until no node has more than its share and the slack, and then requires that nothing moves any more.
fn comes_to_rest(world: &mut World, total: u64, patience: Micros) -> ScenarioResult {
    let nodes = world.running_hosts().len() as u64;
    let highest = total.div_ceil(nodes) + 2;
    let even = |w: &World| sessions(w).iter().sum::<u64>() == total && sessions(w).iter().all(|held| *held <= highest);
    world.run_until(even, patience)?;
    world.pass(20 * SECOND)?;
    let before = asked(world);
    world.throughout(2 * MINUTE, "the spread is uneven again", even)?;
    world.require(asked(world) == before, "sessions move for ever")
}

/// All clients are at one node; later a node is restarted. Both times their sessions spread, and no member is `down`.
pub(super) fn sessions_spread_after_a_restart(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let ids: Vec<String> = (0..24).map(|i| format!("m{i}")).collect();
    for id in &ids {
        world.add_client_at(id, &[id], 0);
    }
    let borrowed: Vec<&str> = ids.iter().map(String::as_str).collect();
    world.up(&borrowed)?;
    let log = Log::on(world);
    comes_to_rest(world, 24, 2 * MINUTE)?;
    let stopped = usize::try_from(world.setup.seed).unwrap_or(0) % 3;
    world.stop(stopped);
    world.run_until(|w| !w.hosts[stopped].running(), MINUTE)?;
    world.pass(10 * SECOND)?;
    world.start(stopped);
    world.run_until(World::all_serving, 30 * SECOND)?;
    comes_to_rest(world, 24, 2 * MINUTE)?;
    log.never(world, Status::Down)?;
    log.never(world, Status::Left)?;
    world.settle()
}

/// The sessions of a drained node move, also the last ones, and return when it is undrained.
pub(super) fn drained_node_hands_its_sessions_over(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let ids: Vec<String> = (0..12).map(|i| format!("m{i}")).collect();
    for (i, id) in ids.iter().enumerate() {
        world.add_client_at(id, &[id], i % 3);
    }
    let borrowed: Vec<&str> = ids.iter().map(String::as_str).collect();
    world.up(&borrowed)?;
    let log = Log::on(world);
    mark(world, 1, "convoke.n0", Some(&Drain::default()))?;
    world.run_until(|w| w.node(0).streamed_sessions() == 0, 10 * SECOND)?;
    world.throughout(MINUTE, "a session returned to a drained node", |w| w.node(0).streamed_sessions() == 0)?;
    mark(world, 1, "convoke.n0", None)?;
    comes_to_rest(world, 12, 2 * MINUTE)?;
    log.never(world, Status::Down)?;
    world.settle()
}

/// The clients reach one node only.
pub(super) fn client_that_cannot_move_stays(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let ids: Vec<String> = (0..6).map(|i| format!("m{i}")).collect();
    for id in &ids {
        world.add_client_fixed(id, &[id], 0);
    }
    let borrowed: Vec<&str> = ids.iter().map(String::as_str).collect();
    world.up(&borrowed)?;
    world.pass(5 * MINUTE)?;
    let asked = asked(world);
    world.require((1..=6).contains(&asked), &format!("6 clients were asked {asked} times"))?;
    world.require(world.node(0).streamed_sessions() == 6, "a client is missing")
}
