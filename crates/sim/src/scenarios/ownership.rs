//! Members whose node stops: clients that move, clients that do not, and which node is responsible then (L3, L4, N2,
//! N6).

use super::log::Log;
use super::support::ScenarioResult;
use crate::network::{MINUTE, SECOND};
use crate::world::{Crash, World};
use convoke_core::member::Status;
use std::collections::BTreeSet;

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("m{i}")).collect()
}

fn borrowed(ids: &[String]) -> Vec<&str> {
    ids.iter().map(String::as_str).collect()
}

/// A node is killed, or loses its power (even seeds): its clients move, and no member is ever down.
pub(super) fn kill_node_only(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let ids = ids(10);
    let clients: Vec<usize> = ids.iter().map(|id| world.add_client_at(id, &[id], 0)).collect();
    world.up(&borrowed(&ids))?;
    let log = Log::on(world);
    world.pass(MINUTE)?;
    world.crash(0, if world.even_seed() { Crash::Silent } else { Crash::Process });
    world.pass(MINUTE)?;
    log.never(world, Status::Down)?;
    log.never(world, Status::Left)?;
    world.require(clients.iter().all(|client| world.attached(*client)), "a client did not find another node")?;
    world.up(&borrowed(&ids))?;
    world.settle()
}

/// A node and its clients are lost together: down everywhere, then left, inferred by exactly one node.
pub(super) fn kill_node_and_its_client_together(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let ids = ids(5);
    let clients: Vec<usize> = ids.iter().map(|id| world.add_client_at(id, &[id], 0)).collect();
    world.up(&borrowed(&ids))?;
    world.pass(MINUTE)?;
    let origin = world.node(0).origin().clone();
    let owned = world.node(1).slots().iter().filter(|slot| slot.origin == origin && !slot.name).count();
    world.lose(0, Crash::Silent);
    for client in clients {
        world.client_crash(client, true);
    }
    world.throughout(20 * SECOND, "down too early", |w| ids.iter().all(|id| w.shown_everywhere(id, Status::Up)))?;
    world.run_until(|w| ids.iter().all(|id| w.shown_everywhere(id, Status::Down)), 8 * SECOND)?;
    let responsible: BTreeSet<_> = (1..5).map(|host| world.node(host).responsible_for(&origin)).collect();
    world.require(responsible.len() == 1, &format!("responsible nodes: {responsible:?}"))?;
    world.throughout(4 * MINUTE, "left too early", |w| ids.iter().all(|id| w.shown_everywhere(id, Status::Down)))?;
    world.run_until(|w| ids.iter().all(|id| w.absent_everywhere(id)), 2 * MINUTE)?;
    let takeovers: Vec<u64> = (1..5).map(|host| world.node(host).counters().members_expired).collect();
    let one = takeovers.iter().filter(|count| **count > 0).count() == 1;
    let message = format!("{owned} members, expiries per node: {takeovers:?}");
    world.require(one && takeovers.iter().sum::<u64>() == owned as u64, &message)?;
    world.settle()
}

/// A move is one event, also where its writes arrive late: no node sees a release before the new claim.
pub(super) fn ordinary_reconnect_never_vanishes(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m", "n", "o"], 0);
    world.up(&["m", "n", "o"])?;
    let log = Log::on(world);
    for (from, to, far) in [(0, 1, 2), (1, 2, 0), (2, 0, 1)] {
        let cuts = world.partition(&[to], &[far]);
        world.go(client, to);
        world.run_until(|w| w.at(client, to), 5 * SECOND)?;
        world.pass(2 * SECOND)?;
        world.require(
            world.member(from, "m").is_some_and(|m| m.owner().node == format!("n{to}")),
            "the old owner has not received the move",
        )?;
        world.rejoin(cuts);
        world.pass(10 * SECOND)?;
        world.run_until(|w| w.owned_by("m", to) && w.linked(), 10 * SECOND)?;
    }
    log.never(world, Status::Down)?;
    log.never(world, Status::Left)?;
    world.settle()
}

/// A node restarts quickly. Members of its older incarnation stay up until their clients have returned, which takes a
/// while.
pub(super) fn restart_drops_no_members(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let ids = ids(10);
    let clients: Vec<usize> = ids.iter().map(|id| world.add_client_at(id, &[id], 0)).collect();
    world.up(&borrowed(&ids))?;
    let log = Log::on(world);
    world.pass(MINUTE)?;
    let cuts: Vec<u64> = clients.iter().flat_map(|client| world.unplug(*client)).collect();
    world.crash(0, Crash::Process);
    world.pass(SECOND)?;
    world.start(0);
    world.pass(6 * SECOND)?;
    world.require(world.hosts[0].serving().is_some(), "the node is not back")?;
    world.rejoin(cuts);
    world.run_until(|w| clients.iter().all(|client| w.attached(*client)), 14 * SECOND)?;
    world.pass(30 * SECOND)?;
    log.never(world, Status::Down)?;
    log.never(world, Status::Left)?;
    world.settle()
}

/// Two sides of a split make the same inference independently, at different times: no node reverts it afterwards.
pub(super) fn two_inferences_agree(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.up(&["m"])?;
    world.pass(MINUTE)?;
    let cuts = world.partition(&[1], &[2, 3]);
    world.lose(0, Crash::Process);
    world.client_crash(client, true);
    world.run_until(|w| w.shown_everywhere("m", Status::Down), MINUTE)?;
    let log = Log::on(world);
    world.run_until(|w| w.absent_everywhere("m"), 6 * MINUTE)?;
    let by = [1, 2, 3].map(|host| {
        let inferred = world.node(host).explain("m").and_then(|explanation| explanation.inferred);
        inferred.map_or(String::new(), |inferred| inferred.by.to_string())
    });
    world.require(by[0] == "n1" && by[1] == by[2] && by[1] != "n1", &format!("inferred by {by:?}"))?;
    world.rejoin(cuts);
    world.throughout(3 * MINUTE, "the member is back", |w| w.absent_everywhere("m"))?;
    let reported = log.of("m");
    let left = reported.iter().all(|seen| seen.shown().is_some_and(|(_, status)| status == Status::Left));
    world.require(reported.len() == 3 && left, &format!("each node must report once that it left: {reported:?}"))?;
    world.settle()
}

/// Three nodes are restarted one after another while clients keep writing: no member is ever down.
pub(super) fn rolling_restart_of_three_under_load(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let ids = ids(12);
    let clients: Vec<usize> = ids.iter().enumerate().map(|(i, id)| world.add_client_at(id, &[id], i % 3)).collect();
    world.up(&borrowed(&ids))?;
    let log = Log::on(world);
    let mut value = 0;
    let mut load = |world: &mut World| -> ScenarioResult {
        value += 1;
        let at = value % clients.len();
        world.set(clients[at], &ids[at], &value);
        world.pass(SECOND / 4)
    };
    for host in 0..3 {
        world.stop(host);
        let patience = world.now + 60 * SECOND;
        while world.hosts[host].running() && world.now < patience {
            load(world)?;
        }
        world.require(!world.hosts[host].running(), "the node did not stop")?;
        for _ in 0..8 {
            load(world)?;
        }
        world.start(host);
        while !world.all_serving() && world.now < patience + 30 * SECOND {
            load(world)?;
        }
        for _ in 0..40 {
            load(world)?;
        }
    }
    log.never(world, Status::Down)?;
    log.never(world, Status::Left)?;
    world.up(&borrowed(&ids))?;
    world.settle()
}

/// A drained member stays drained when its client moves, when its node dies, and when the write of the move arrives
/// late. A drained node stays drained when it restarts.
pub(super) fn drain_survives_moving(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.up(&["m"])?;
    let drained = |w: &World, id: &str, drained: bool| {
        w.running_hosts().into_iter().all(|host| w.member(host, id).is_some_and(|m| m.drained() == drained))
    };
    let asked = world.with_node(2, |node, time, out| Some(node.drain(time, "m", true, out).is_ok()));
    world.require(asked == Some(true), "a drain was rejected")?;
    world.run_until(|w| drained(w, "m", true), 5 * SECOND)?;
    world.go(client, 1);
    world.run_until(|w| w.owned_by("m", 1), 5 * SECOND)?;
    world.require(drained(world, "m", true), "the drain mark was lost in the move")?;

    let cuts = world.partition(&[1], &[0, 2]);
    world.go(client, 2);
    world.run_until(|w| w.at(client, 2), 5 * SECOND)?;
    let done = world.with_node(1, |node, time, out| {
        Some(node.drain(time, "m", false, out).is_ok() && node.drain(time, "m", true, out).is_ok())
    });
    world.require(done == Some(true), "the old owner has received the move")?;
    world.rejoin(cuts);
    world.run_until(|w| w.owned_by("m", 2), 15 * SECOND)?;
    world.pass(3 * SECOND)?;
    world.require(drained(world, "m", true), "a drain mark was lost in a move")?;
    world.crash(2, Crash::Process);
    world.run_until(|w| w.attached(client), 20 * SECOND)?;
    world.up(&["m"])?;
    world.require(drained(world, "m", true), "the drain mark was lost with its node")?;
    world.start(2);
    world.run_until(World::all_serving, 20 * SECOND)?;

    let done = world.with_node(2, |node, time, out| Some(node.drain_node(time, true, out).is_ok()));
    world.require(done == Some(true), "the node could not be drained")?;
    world.run_until(|w| drained(w, "convoke.n2", true), 5 * SECOND)?;
    world.crash(2, Crash::Process);
    world.pass(2 * SECOND)?;
    world.start(2);
    world.run_until(World::all_serving, 20 * SECOND)?;
    world.pass(2 * SECOND)?;
    world.require(drained(world, "convoke.n2", true), "the restarted node is not drained")?;
    world.with_node(2, |node, time, out| Some(node.drain_node(time, false, out).is_ok()));
    world.run_until(|w| drained(w, "convoke.n2", false), 5 * SECOND)?;
    world.settle()
}

/// A node starts and dies behind a partition. A node that was paused meanwhile brings its records to another one, which
/// expires them at once and pushes the inference and the records to a third. The third has no evidence of the dead origin,
/// and must not show its member as `up`.
pub(super) fn members_of_a_dead_origin_arrive_by_push(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let cuts = world.partition(&[2, 3], &[0]);
    world.partition(&[2, 3], &[1]);
    world.crash(3, Crash::Process);
    world.start(3);
    world.run_until(|w| w.hosts[3].serving().is_some(), 30 * SECOND)?;
    let client = world.add_client_fixed("c", &["m"], 3);
    world.run_until(|w| w.status(2, "m") == Some(Status::Up), 10 * SECOND)?;
    world.pause(2, 8 * MINUTE);
    world.lose(3, Crash::Silent);
    world.client_crash(client, true);
    world.run_until(|w| !w.hosts[2].paused(), 9 * MINUTE)?;
    let log = Log::on(world);
    world.rejoin(cuts);
    world.run_until(|w| !w.forgotten(1, "m"), 15 * SECOND)?;
    world.pass(10 * SECOND)?;
    log.never_up(world, "m")?;
    // The node that was paused may be the responsible one, and does not count its pause as silence.
    world.run_until(|w| w.absent_everywhere("m"), 7 * MINUTE)?;
    world.settle()
}
