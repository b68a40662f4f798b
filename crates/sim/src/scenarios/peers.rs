//! Links between nodes: how they are established, lost and re-established (P1–P6, P8, N3).

use super::log::Log;
use super::support::ScenarioResult;
use crate::invariants::Violation;
use crate::network::{MINUTE, Micros, SECOND};
use crate::wires::EVERY_HOST;
use crate::world::{Crash, Setup, Topology, World};
use convoke_core::member::Status;
use convoke_core::node::PeerState;

pub(super) fn line_of_ten() -> Setup {
    Setup { nodes: 10, topology: Topology::Line, ..Setup::default() }
}

pub(super) fn star_of_six() -> Setup {
    Setup { nodes: 6, topology: Topology::Star, ..Setup::default() }
}

pub(super) fn one_sided_five() -> Setup {
    Setup { nodes: 5, topology: Topology::OneSided, ..Setup::default() }
}

fn all_linked(world: &World) -> bool {
    let count = world.hosts.len() - 1;
    world
        .running_hosts()
        .into_iter()
        .all(|host| world.node(host).peers().iter().filter(|peer| peer.state == PeerState::Up).count() == count)
}

/// Ten nodes with one neighbour each as a seed: all find all. Then only neighbours can reach each other: changes and
/// liveness evidence pass along the line.
pub(super) fn line_of_10_nodes(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.run_until(all_linked, 30 * SECOND)?;
    let first = world.add_client_fixed("first", &["first"], 0);
    let last = world.add_client_fixed("last", &["last"], 9);
    world.up(&["first", "last"])?;
    let log = Log::on(world);
    for one in 0..10 {
        for other in one + 2..10 {
            world.partition(&[one], &[other]);
        }
    }
    for value in 0..6 {
        world.set(first, "first", &value);
        world.set(last, "last", &value);
        let shown = Some(value.to_string());
        world.run_until(|w| w.value(9, "first") == shown && w.value(0, "last") == shown, 30 * SECOND)?;
        world.pass(30 * SECOND)?;
    }
    let links = (0..10).map(|host| world.node(host).peers().iter().filter(|peer| peer.state == PeerState::Up).count());
    world.require(links.sum::<usize>() == 18, "more than neighbours are linked")?;
    log.never(world, Status::Down)?;
    world.settle()
}

/// Every node has only the hub as a seed. The hub restarts: first as one of many, then as the only path between the
/// others.
pub(super) fn star_with_hub_restarted(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.run_until(all_linked, 30 * SECOND)?;
    let ids = ["m1", "m2", "m3", "m4", "m5"];
    for (index, id) in ids.iter().enumerate() {
        world.add_client_fixed(id, &[id], index + 1);
    }
    world.up(&ids)?;
    let log = Log::on(world);
    for only_way in [false, true] {
        if only_way {
            for one in 1..6 {
                for other in one + 1..6 {
                    world.partition(&[one], &[other]);
                }
            }
            world.pass(30 * SECOND)?;
        }
        world.crash(0, Crash::Process);
        world.pass(8 * SECOND)?;
        world.start(0);
        world.run_until(World::all_serving, 20 * SECOND)?;
        world.up(&ids)?;
        world.pass(MINUTE)?;
    }
    log.never(world, Status::Down)?;
    log.never(world, Status::Left)?;
    world.settle()
}

/// A node ran at another address, which is cut off now, and returns to the address of the seed. It knows no other node. The
/// other one has no link, so it dials the other address all the time, and must dial the seed too.
pub(super) fn seed_returns_to_its_address(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.crash(0, Crash::Process);
    world.run_until(|w| w.peer_state(1, 0) != Some(PeerState::Up), SECOND)?;
    let elsewhere = world.add_second_process(0);
    world.start(elsewhere);
    world.run_until(|w| w.peer_state(1, 0) == Some(PeerState::Up), 20 * SECOND)?;
    world.partition(&[elsewhere], &[0, 1]);
    world.run_until(|w| w.peer_state(1, 0) != Some(PeerState::Up), 10 * SECOND)?;
    world.lose(elsewhere, Crash::Silent);
    world.hosts[0].duplicate = None;
    world.hosts[0].config.seeds.clear();
    // Until each dial of the other address begins as soon as the last one has failed.
    world.pass(MINUTE)?;
    world.start(0);
    world.run_until(|w| w.peer_state(1, 0) == Some(PeerState::Up), 15 * SECOND)?;
    world.settle()
}

/// All nodes have the same name as their only seed. Two pairs that start apart find each other too.
pub(super) fn one_name_for_all_nodes(world: &mut World) -> ScenarioResult {
    for host in &mut world.hosts {
        host.config.seeds = vec![EVERY_HOST.to_owned()];
    }
    world.partition(&[0, 1], &[2, 3]);
    for host in 0..4 {
        world.start(host);
    }
    world.run_until(World::all_serving, 30 * SECOND)?;
    let paired = |w: &World| [(0, 1), (2, 3)].into_iter().all(|(a, b)| w.peer_state(a, b) == Some(PeerState::Up));
    world.require(paired(world), "the nodes of a pair are linked")?;
    world.heal_all();
    world.run_until(all_linked, 30 * SECOND)?;
    world.settle()
}

/// Each node has the nodes before it as seeds, which start after it. Writes that the last node made while alone reach
/// all.
pub(super) fn one_sided_seeding(world: &mut World) -> ScenarioResult {
    for host in (0..5).rev() {
        world.start(host);
        world.pass(8 * SECOND)?;
        if host == 4 {
            let client = world.add_client_fixed("c", &["m"], 4);
            world.run_until(|w| w.at(client, 4), 10 * SECOND)?;
        }
    }
    world.run_until(|w| w.all_serving() && all_linked(w), 30 * SECOND)?;
    world.up(&["m"])?;
    world.settle()
}

/// A peer whose kernel accepts connections, but that never reads: no other node is slowed down, and no queue grows.
pub(super) fn peer_that_accepts_and_never_reads(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_fixed("c", &["m"], 0);
    world.up(&["m"])?;
    let log = Log::on(world);
    world.pause(2, 12 * MINUTE);
    let start = world.now;
    let mut value = 0;
    while world.now < start + 5 * MINUTE {
        value += 1;
        world.set(client, "m", &value);
        world.pass(SECOND / 10)?;
        world.require(world.value(1, "m") == Some(value.to_string()), "a change took too long")?;
        let links = [0, 1].map(|host| world.node(host).sizes().links);
        world.require(links.iter().all(|links| *links <= 3), &format!("too many links: {links:?}"))?;
    }
    let gave_up = |host| world.peer_state(host, 2) == Some(PeerState::Failed);
    world.require(gave_up(0) && gave_up(1), "a peer that never reads counts as up")?;
    world.run_until(|w| !w.hosts[2].paused(), 8 * MINUTE)?;
    world.run_until(|w| w.value(2, "m") == Some(value.to_string()), 15 * SECOND)?;
    log.never(world, Status::Down)?;
    world.settle()
}

/// Two nodes with each other as seeds start at the same moment and dial at once: one link results, and stays.
pub(super) fn simultaneous_dial_keeps_one_link(world: &mut World) -> ScenarioResult {
    world.start_all();
    let start = world.now;
    world.run_until(|w| w.linked() && !w.node(0).peers().is_empty(), SECOND)?;
    while world.now < start + 30 * SECOND {
        world.pass(SECOND / 100)?;
        let states = [world.peer_state(0, 1), world.peer_state(1, 0)];
        world.require(states == [Some(PeerState::Up); 2], &format!("the link was lost: {states:?}"))?;
    }
    world.require(world.connections_between(0, 1).len() == 1, "there is more than one connection")?;
    world.settle()
}

/// Linked nodes make no further connections.
pub(super) fn linked_nodes_do_not_dial(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.pass(30 * SECOND)?;
    let before = world.network.number();
    world.pass(2 * MINUTE)?;
    let made = world.network.number() - before - 1;
    world.require(made == 0, &format!("{made} connections were made between nodes that are linked"))?;
    world.settle()
}

/// An open connection is not evidence: the node behind it has to send something (P1).
pub(super) fn open_connection_is_not_evidence(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.crash(2, Crash::Process);
    world.run_until(|w| w.peer_state(0, 2) == Some(PeerState::Failed), 5 * SECOND)?;
    world.start(2);
    world.pause(2, MINUTE);
    let start = world.now;
    let mut connected = false;
    while world.now < start + 59 * SECOND {
        world.pass(SECOND / 20)?;
        connected |= !world.connections_between(0, 2).is_empty();
        world.require(world.peer_state(0, 2) == Some(PeerState::Failed), "the peer counts as better than failed")?;
    }
    world.require(connected, "no connection was made")?;
    world.run_until(|w| w.peer_state(0, 2) == Some(PeerState::Up), 15 * SECOND)?;
    world.settle()
}

/// Five nodes lose each other for longer than they keep each other's records: they rejoin without an operator.
pub(super) fn isolated_nodes_rejoin(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let ids = ["m0", "m1", "m2", "m3", "m4"];
    for (host, id) in ids.iter().enumerate() {
        world.add_client_fixed(id, &[id], host);
        world.register_name(host, &format!("name-{host}"), id);
    }
    world.up(&ids)?;
    let mut cuts = world.scatter();
    world.throughout(20 * MINUTE, "an isolated node lost its own member", |w| {
        ids.iter().enumerate().all(|(host, id)| w.status(host, id) == Some(Status::Up))
    })?;
    for host in 0..5 {
        let names = (0..5).filter(|other| world.location(host, &format!("name-{other}")).is_some()).count();
        world.require(names == 1, "names of lost nodes are still shown")?;
    }
    for one in 0..5 {
        for other in one + 1..5 {
            cuts.join(world, one, other);
        }
    }
    world.up(&ids)?;
    world.run_until(|w| (0..5).all(|host| w.named_everywhere(&format!("name-{host}"), ids[host])), 10 * SECOND)?;
    world.run_until(all_linked, 10 * SECOND)?;
    world.settle()
}

pub(super) fn no_jitter(world: &mut World) {
    for host in &mut world.hosts {
        host.config.retry_jitter = 0.0;
    }
}

/// The timeline of R-46, second by second; then the rule for peers that stay away.
pub(super) fn timeline_of_a_failing_peer(world: &mut World) -> ScenarioResult {
    const A: usize = 0;
    const B: usize = 1;
    no_jitter(world);
    world.begin()?;
    world.require(world.now < 10 * SECOND, "connected too late for the timeline")?;
    world.register_name(A, "actor", "at A");
    world.run_to(10 * SECOND);
    world.require(world.named_everywhere("actor", "at A"), "0 s: A and B are connected, gossiping normally")?;

    world.crash(A, Crash::Process);
    world.run_to(10 * SECOND + 3_000);
    world.require(world.peer_state(B, A) == Some(PeerState::Lost), "10.003 s: B detects EOF")?;
    world.require(world.location(B, "actor").is_some(), "10.003 s: but keeps A's actors")?;
    world.run_to(10 * SECOND + 99_000);
    world.require(world.peer_state(B, A) == Some(PeerState::Lost), "10.099 s: the others have not been asked yet")?;
    world.run_to(10 * SECOND + 110_000);
    world.require(world.peer_state(B, A) == Some(PeerState::Failed), "10.103 s: B asks the others, which agree")?;

    let dials = dials_of(world, B, 25 * SECOND - 1)?;
    let near = |at: Micros, second: Micros| at.abs_diff(second * SECOND) < SECOND / 50;
    let expected = dials.len() == 2 && near(dials[0], 15) && near(dials[1], 20);
    world.require(expected, &format!("15 s, 20 s: B attempts to reconnect; it did so at {dials:?}"))?;
    world.require(world.location(B, "actor").as_deref() == Some("at A"), "24 s: A's actors are still there")?;
    world.run_to(25 * SECOND);
    world.start(A);
    world.run_to(25 * SECOND + 100_000);
    world.require(world.peer_state(B, A) == Some(PeerState::Up), "25.1 s: A sends a message, B resets its failure")?;
    world.run_to(26 * SECOND);
    world.require(world.all_serving() && world.named_everywhere("actor", "at A"), "25.1 s: normal gossip resumes")?;

    world.crash(A, Crash::Process);
    world.pass(15 * MINUTE - 10 * SECOND)?;
    world.require(world.location(B, "actor").is_some(), "A's actors are removed before 15 minutes")?;
    world.pass(40 * SECOND)?;
    world.require(world.location(B, "actor").is_none(), "A's actors are not removed after 15 minutes")?;
    world.require(world.peer_state(B, A) == Some(PeerState::Failed), "the peer itself is removed")?;
    world.pass(10 * MINUTE)?;
    let retries = dials_of(world, B, world.now + 21 * SECOND)?.len();
    world.require((3..=5).contains(&retries), &format!("after 25 minutes B retries {retries} times in 21 s"))?;
    world.start(A);
    world.run_until(|w| w.all_serving() && w.named_everywhere("actor", "at A"), 10 * SECOND)?;
    world.settle()
}

/// Returns when a host started to dial, until the given time; dials that begin together count once.
fn dials_of(world: &mut World, host: usize, until: Micros) -> Result<Vec<Micros>, Violation> {
    let (mut seen, mut known) = (Vec::new(), Vec::new());
    while world.now < until {
        world.pass(200.min(until - world.now))?;
        for dial in world.hosts[host].dials.keys() {
            if !known.contains(dial) {
                known.push(*dial);
                if seen.last().is_none_or(|last| world.now > last + SECOND / 20) {
                    seen.push(world.now);
                }
            }
        }
    }
    Ok(seen)
}
