//! Which origins count as alive, at which node, and for how long (L2–L6).

use super::log::Log;
use super::support::ScenarioResult;
use crate::network::{MINUTE, SECOND, Site, Spike};
use crate::world::{Crash, World};
use convoke_core::member::Status;
use convoke_core::node::{DegradedReason, PeerState};

/// A node is not reachable: its members are down, never absent; members it unregistered stay absent.
pub(super) fn unreachable_is_down_not_absent(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_fixed("c", &["m", "gone"], 0);
    world.up(&["m", "gone"])?;
    world.client_unregister(client, "gone");
    world.run_until(|w| w.absent_everywhere("gone"), 5 * SECOND)?;
    world.pass(MINUTE)?;
    let log = Log::on(world);
    let cuts = world.partition(&[0], &[1, 2]);
    world.throughout(3 * MINUTE, "the member is absent", |w| (0..3).all(|host| w.member(host, "m").is_some()))?;
    let statuses = [0, 1, 2].map(|host| world.status(host, "m"));
    let expected = [Some(Status::Up), Some(Status::Down), Some(Status::Down)];
    world.require(statuses == expected, &format!("the member is {statuses:?}"))?;
    let rank = world.rank(1, "m");
    world.rejoin(cuts);
    world.up(&["m"])?;
    world.require((0..3).all(|host| world.rank(host, "m") == rank), "the wrong judgement caused a write")?;
    log.never_shown(world, "gone")?;
    world.settle()
}

/// Three of four other nodes have lost the owner, one still receives from it: that evidence wins.
pub(super) fn evidence_of_one_node_is_enough(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_fixed("c", &["m"], 0);
    world.up(&["m"])?;
    world.pass(MINUTE)?;
    let log = Log::on(world);
    let cuts = world.partition(&[0], &[1, 2, 3]);
    world.pass(10 * SECOND)?;
    let failed = (1..4).filter(|host| world.peer_state(*host, 0) == Some(PeerState::Failed)).count();
    world.require(failed > 0, "no node found the owner failed, so the evidence was not needed")?;
    for value in 0..60 {
        world.set(client, "m", &value);
        world.run_until(|w| (0..5).all(|host| w.value(host, "m") == Some(value.to_string())), 5 * SECOND)?;
        world.pass(10 * SECOND)?;
    }
    log.never(world, Status::Down)?;
    world.rejoin(cuts);
    world.run_until(|w| (1..4).all(|host| w.peer_state(host, 0) == Some(PeerState::Up)), 10 * SECOND)?;
    world.settle()
}

/// A replica joins minutes after a node died: it inherits the age of the last evidence.
pub(super) fn new_node_inherits_the_silence(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 2);
    world.up(&["m"])?;
    world.lose(2, Crash::Silent);
    world.client_crash(client, true);
    let died = world.now;
    world.pass(4 * MINUTE)?;
    let fresh = world.join_host("n3");
    world.run_until(|w| w.hosts[fresh].serving().is_some(), 20 * SECOND)?;
    world.throughout(30 * SECOND, "not down at the fresh replica", |w| w.status(fresh, "m") == Some(Status::Down))?;
    world.run_until(|w| w.absent_everywhere("m"), 90 * SECOND)?;
    let after = (world.now - died) / SECOND;
    world.require((320..335).contains(&after), &format!("left after {after} s instead of 323"))?;
    world.throughout(10 * MINUTE, "back", |w| w.absent_everywhere("m"))?;
    world.settle()
}

/// Most clients of a node fall silent at once: it reports that it is degraded and waits for one further timeout. Then
/// it marks them down.
pub(super) fn mass_failure_guard(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let ids: Vec<String> = (0..10).map(|i| format!("m{i}")).collect();
    let clients: Vec<usize> = ids.iter().map(|id| world.add_client_at(id, &[id], 0)).collect();
    world.up(&ids.iter().map(String::as_str).collect::<Vec<_>>())?;
    world.pass(MINUTE)?;
    let log = Log::on(world);
    for client in clients {
        world.client_crash(client, true);
    }
    let died = world.now;
    let all = |w: &World, status| ids.iter().all(|id| w.shown_everywhere(id, status));
    world.throughout(34 * SECOND, "the guard did not wait", |w| all(w, Status::Up))?;
    let reported = log.degraded(0, DegradedReason::Sessions);
    world
        .require(reported.is_some_and(|at| at <= died + 21 * SECOND), "the node did not report that it is degraded")?;
    world.run_until(|w| all(w, Status::Down), 8 * SECOND)?;
    world.require(world.node(0).degraded().is_empty(), "still degraded")?;
    world.run_until(|w| ids.iter().all(|id| w.absent_everywhere(id)), 6 * MINUTE)?;
    world.settle()
}

/// The same for nodes: all others fall silent at once. The survivor waits, but not for ever.
pub(super) fn mass_failure_guard_of_nodes_ends(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let ids = ["m1", "m2", "m3", "m4"];
    let clients: Vec<usize> = (1..5).map(|host| world.add_client_at(ids[host - 1], &[ids[host - 1]], host)).collect();
    world.up(&ids)?;
    world.pass(MINUTE)?;
    let log = Log::on(world);
    for host in 1..5 {
        world.lose(host, Crash::Silent);
        world.client_crash(clients[host - 1], true);
    }
    let died = world.now;
    world.throughout(40 * SECOND, "the guard did not wait", |w| {
        ids.iter().all(|id| w.status(0, id) == Some(Status::Up))
    })?;
    let reported = log.degraded(0, DegradedReason::Nodes);
    world
        .require(reported.is_some_and(|at| at <= died + 25 * SECOND), "the node did not report that it is degraded")?;
    world.run_until(|w| ids.iter().all(|id| w.status(0, id) == Some(Status::Down)), 8 * SECOND)?;
    world.require(world.node(0).degraded().is_empty(), "still degraded")?;
    world.run_until(|w| ids.iter().all(|id| w.absent_everywhere(id)), 6 * MINUTE)?;
    world.settle()
}

/// Most other nodes are gone, and the one that is left confirms it: the guard does not wait.
pub(super) fn confirmed_mass_failure_is_judged_at_once(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let ids = ["m2", "m3", "m4"];
    let clients: Vec<usize> = (2..5).map(|host| world.add_client_at(ids[host - 2], &[ids[host - 2]], host)).collect();
    world.up(&ids)?;
    world.pass(MINUTE)?;
    let log = Log::on(world);
    for host in 2..5 {
        world.lose(host, Crash::Process);
        world.client_crash(clients[host - 2], true);
    }
    let down = |w: &World| (0..2).all(|host| ids.iter().all(|id| w.status(host, id) == Some(Status::Down)));
    world.run_until(down, 27 * SECOND)?;
    let degraded = (0..2).any(|host| log.degraded(host, DegradedReason::Nodes).is_some());
    world.require(!degraded, "a node waited although another one had confirmed the failure")?;
    world.run_until(|w| ids.iter().all(|id| w.absent_everywhere(id)), 6 * MINUTE)?;
    world.settle()
}

/// A node is paused for 30 s (SIGSTOP) with many clients, or with few (no guard, L6). The clients move. The node does
/// not judge others by its own pause.
pub(super) fn node_paused_30_s(world: &mut World) -> ScenarioResult {
    paused_30_s(world, if world.even_seed() { 5 } else { 10 })
}

/// The same with one other node: there is no majority for the guard.
pub(super) fn node_of_two_paused_30_s(world: &mut World) -> ScenarioResult {
    paused_30_s(world, 5)
}

fn paused_30_s(world: &mut World, paused_clients: usize) -> ScenarioResult {
    world.begin()?;
    let ids: Vec<String> = (0..paused_clients + 12).map(|i| format!("m{i}")).collect();
    let running = world.hosts.len() - 1;
    let home = |i: usize| if i < paused_clients { 0 } else { 1 + i % running };
    let clients: Vec<usize> = ids.iter().enumerate().map(|(i, id)| world.add_client_at(id, &[id], home(i))).collect();
    world.up(&ids.iter().map(String::as_str).collect::<Vec<_>>())?;
    world.pass(MINUTE)?;
    let log = Log::on(world);
    world.pause(0, 30 * SECOND);
    world.pass(2 * MINUTE)?;
    log.never(world, Status::Down)?;
    log.never(world, Status::Left)?;
    world.require(clients.iter().all(|client| world.attached(*client)), "a client is lost")?;
    world.up(&ids.iter().map(String::as_str).collect::<Vec<_>>())?;
    world.settle()
}

/// A node is paused while another one hands its clients over and starts again. Then its links are slow: it hears for how long the
/// earlier incarnation has been silent before it has the records of the clients that moved.
pub(super) fn paused_during_a_restart(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let ids: Vec<String> = (0..6).map(|i| format!("m{i}")).collect();
    for id in &ids {
        world.add_client_at(id, &[id], 2);
    }
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    world.up(&ids)?;
    world.pass(MINUTE)?;
    let log = Log::on(world);
    world.pause(0, 36 * SECOND);
    world.pass(SECOND)?;
    world.stop(2);
    world.run_until(|w| w.hosts[2].node.is_none(), 10 * SECOND)?;
    world.start(2);
    world.run_until(|w| w.node(2).is_serving(), 20 * SECOND)?;
    let (id, extra) = (world.network.number(), world.rng.u64(SECOND / 4..SECOND));
    world.network.spikes.push(Spike { id, places: Site::Host(0).bit(), extra });
    world.pass(MINUTE)?;
    world.network.spikes.retain(|spike| spike.id != id);
    world.up(&ids)?;
    log.never(world, Status::Down)?;
    world.settle()
}

/// Two survivors relay evidence about a dead node over slow links: that does not make the evidence newer (L2).
pub(super) fn relayed_evidence_is_not_new_evidence(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.up(&["m"])?;
    for extra in [7 * SECOND / 10, 13 * SECOND / 10] {
        world.slow_links(1, extra);
        world.pass(10 * SECOND)?;
    }
    world.require(world.shown_everywhere("m", Status::Up), "slow links alone changed the status")?;
    world.lose(0, Crash::Silent);
    world.client_crash(client, true);
    world.run_until(|w| w.shown_everywhere("m", Status::Down), 30 * SECOND)?;
    world.throughout(4 * MINUTE, "relayed evidence counted as new", |w| w.shown_everywhere("m", Status::Down))?;
    world.run_until(|w| w.absent_everywhere("m"), 2 * MINUTE)?;
    world.settle()
}

/// A and B cannot reach each other for half an hour, C reaches both: everything is up everywhere, and changes
/// propagate.
pub(super) fn a_b_cut_with_c_reachable(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let a = world.add_client_fixed("a", &["a"], 0);
    let b = world.add_client_fixed("b", &["b"], 1);
    world.up(&["a", "b"])?;
    world.pass(MINUTE)?;
    let log = Log::on(world);
    let cuts = world.partition(&[0], &[1]);
    for value in 0..30 {
        world.set(a, "a", &value);
        world.set(b, "b", &value);
        let shown = Some(value.to_string());
        world.run_until(|w| w.value(1, "a") == shown && w.value(0, "b") == shown, 3 * SECOND)?;
        world.pass(MINUTE)?;
    }
    world.require(world.peer_state(0, 1) == Some(PeerState::Lost), "the direct link is not lost")?;
    world.rejoin(cuts);
    world.run_until(|w| w.peer_state(0, 1) == Some(PeerState::Up), 10 * SECOND)?;
    world.pass(MINUTE)?;
    log.never(world, Status::Down)?;
    world.settle()
}

/// Frames from A to B vanish, the other direction works: both detect that their link is useless, and no member is
/// affected.
pub(super) fn one_way_link(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let a = world.add_client_fixed("a", &["a"], 0);
    world.add_client_fixed("b", &["b"], 1);
    world.up(&["a", "b"])?;
    world.pass(MINUTE)?;
    let log = Log::on(world);
    let cut = world.one_way(&[0], &[1]);
    let down = |w: &World| w.peer_state(0, 1) != Some(PeerState::Up) && w.peer_state(1, 0) != Some(PeerState::Up);
    world.run_until(down, 8 * SECOND)?;
    world.throughout(5 * MINUTE, "the useless link counts as up", down)?;
    world.set(a, "a", &"news");
    world.run_until(|w| w.value(1, "a").as_deref() == Some("news"), 3 * SECOND)?;
    world.heal(cut);
    world.run_until(
        |w| w.peer_state(0, 1) == Some(PeerState::Up) && w.peer_state(1, 0) == Some(PeerState::Up),
        10 * SECOND,
    )?;
    world.pass(MINUTE)?;
    log.never(world, Status::Down)?;
    world.settle()
}

/// A client leaves cleanly on one side of a partition: the other side shows down at most, and left afterwards.
pub(super) fn clean_leave_during_partition(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_fixed("c", &["m"], 0);
    world.up(&["m"])?;
    let cuts = world.partition(&[0], &[1, 2]);
    world.pass(2 * SECOND)?;
    world.client_close(client);
    world.pass(MINUTE)?;
    world.require(world.member(0, "m").is_none(), "the member did not leave at its own node")?;
    world.require(world.status(1, "m") == Some(Status::Down), "the other side does not show down")?;
    let log = Log::on(world);
    world.rejoin(cuts);
    world.run_until(|w| w.absent_everywhere("m"), 15 * SECOND)?;
    world.throughout(10 * MINUTE, "the member is back", |w| w.absent_everywhere("m"))?;
    let up = log.of("m").into_iter().find(|seen| seen.shown().is_some_and(|(_, status)| status == Status::Up));
    world.require(up.is_none(), &format!("a member that left was shown up: {up:?}"))?;
    world.settle()
}

/// Two nodes lose the owner five minutes before the third does. They have inferred `left` when they meet the third,
/// which has later evidence: all wait as long as the third.
pub(super) fn latest_evidence_decides(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_fixed("c", &["m"], 3);
    world.up(&["m"])?;
    let cuts = world.partition(&[0, 1], &[2, 3]);
    world.run_until(|w| w.status(0, "m").is_none() && w.status(1, "m").is_none(), 6 * MINUTE)?;
    world.lose(3, Crash::Silent);
    world.client_crash(client, true);
    world.pass(MINUTE)?;
    world.rejoin(cuts);
    world.run_until(|w| (0..3).all(|host| w.status(host, "m") == Some(Status::Down)), 10 * SECOND)?;
    world.throughout(3 * MINUTE, "expired too early", |w| (0..3).all(|host| w.status(host, "m").is_some()))?;
    world.run_until(|w| (0..3).all(|host| w.status(host, "m").is_none()), 3 * MINUTE)?;
    world.settle()
}
