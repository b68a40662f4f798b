//! Owners that return, permanently or for a moment, and nodes that are paused twice (L3, L4, N5).

use super::collection::ids;
use super::log::Log;
use super::support::ScenarioResult;
use crate::invariants::Violation;
use crate::network::{MINUTE, SECOND, Site, Spike};
use crate::world::{Crash, Setup, Topology, World};
use convoke_core::member::Status;
use convoke_core::node::PeerState;

/// Delays everything to and from a host.
fn slow_down(world: &mut World, host: usize) {
    let (id, extra) = (world.network.number(), SECOND / 4);
    world.network.spikes.push(Spike { id, places: Site::Host(host).bit(), extra });
}

/// A replica receives a delta with later evidence of an owner, and while that delta is in flight, direct evidence that
/// the owner is alive. A member that the owner unregistered in between must not be shown as up before the delta is
/// complete.
pub(super) fn evidence_arrives_before_the_writes(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_fixed("c", &["gone"], 3);
    world.up(&["gone"])?;
    let near = world.partition(&[2], &[0]);
    world.partition(&[2], &[1, 3]);
    let news = ids("news", 60);
    for id in &news {
        world.register(client, id);
    }
    world.run_until(|w| news.iter().all(|id| w.status(0, id) == Some(Status::Up)), 10 * SECOND)?;
    let far = world.partition(&[3], &[0]);
    world.partition(&[3], &[1]);
    world.client_unregister(client, "gone");
    world.run_until(|w| (0..3).all(|host| w.status(host, "gone") == Some(Status::Down)), MINUTE)?;
    let log = Log::on(world);
    slow_down(world, 2);
    world.rejoin(near);
    world.run_until(|w| w.status(2, "news0").is_some(), 10 * SECOND)?;
    world.rejoin(far);
    world.run_until(|w| w.peer_state(0, 3) == Some(PeerState::Up), 10 * SECOND)?;
    world.require(world.status(2, "news59").is_none(), "the owner returned after the delta was complete")?;
    world.run_until(|w| (0..3).all(|host| w.status(host, "gone").is_none()), 30 * SECOND)?;
    log.never_shown(world, "gone")?;
    world.settle()
}

/// A client moves to the other side of a partition, and its members expire at the node that it left. A node that was paused all
/// that time reaches this node first, and shows what it shows until it reaches the other side.
pub(super) fn paused_node_returns_to_one_side(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.keep_to(client, &[0, 2]);
    world.up(&["m"])?;
    world.pass(30 * SECOND)?;
    world.pause(1, 7 * MINUTE);
    let cuts = world.partition(&[0], &[2]);
    world.go(client, 2);
    world.run_until(|w| w.at(client, 2), 5 * SECOND)?;
    world.run_until(|w| w.status(0, "m").is_none(), 7 * MINUTE)?;
    let late = world.partition(&[1], &[2]);
    world.run_until(|w| !w.hosts[1].paused(), 2 * MINUTE)?;
    world.run_until(|w| w.status(1, "m").is_none(), 10 * SECOND)?;
    world.rejoin(cuts);
    world.rejoin(late);
    world.up(&["m"])?;
    world.settle()
}

/// A member moves from a quiet node to another one and is unregistered there. Two nodes were cut off meanwhile. One of them
/// reaches the quiet node again, and the exchange that brings the unregistration takes a while. The other one receives only
/// what the first relays, and must not show the member before the first does.
pub(super) fn returning_owner_is_not_relayed_as_alive(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["gone"], 0);
    world.keep_to(client, &[0, 1]);
    world.up(&["gone"])?;
    let near = world.partition(&[2], &[0]);
    world.partition(&[2], &[1]);
    world.partition(&[3], &[0, 1]);
    world.go(client, 1);
    world.run_until(|w| w.at(client, 1), 5 * SECOND)?;
    let news = ids("news", 120);
    for id in &news {
        world.register(client, id);
    }
    world.client_unregister(client, "gone");
    world.run_until(|w| w.status(0, "gone").is_none() && w.status(0, "news119").is_some(), 10 * SECOND)?;
    world.run_until(|w| [2, 3].iter().all(|host| w.status(*host, "gone") == Some(Status::Down)), MINUTE)?;
    let log = Log::on(world);
    slow_down(world, 0);
    world.rejoin(near);
    world.run_until(|w| w.peer_state(2, 0) == Some(PeerState::Up), 10 * SECOND)?;
    world.pass(4 * SECOND)?;
    world.require(world.status(2, "gone").is_some(), "the exchange was too short")?;
    world.run_until(|w| [2, 3].iter().all(|host| w.status(*host, "gone").is_none()), 30 * SECOND)?;
    log.never_up(world, "gone")?;
    world.settle()
}

/// A node without records serves behind a partition. Host 0 is with the owner, host 1 has lost both of them.
fn empty_node_between_two_sides(world: &mut World) -> Result<[[u64; 2]; 3], Violation> {
    world.begin()?;
    let news = ids("news", 60);
    let near = world.add_client_fixed("near", &[], 0);
    for id in &news {
        world.register(near, id);
    }
    world.run_until(|w| w.shown_everywhere("news59", Status::Up), 10 * SECOND)?;
    let client = world.add_client_fixed("c", &["gone"], 3);
    world.up(&["gone"])?;
    world.partition(&[1], &[0, 3]);
    let cuts = [0, 1, 3].map(|host| world.partition(&[2], &[host]));
    world.client_unregister(client, "gone");
    world.register(near, "latest");
    world.run_until(|w| w.status(0, "gone").is_none() && w.status(1, "gone") == Some(Status::Down), MINUTE)?;
    world.crash(2, Crash::Process);
    world.hosts[2].config.seeds.clear();
    world.start(2);
    world.run_until(|w| w.hosts[2].serving().is_some(), 20 * SECOND)?;
    world.require(world.status(2, "news0").is_none(), "the node has records")?;
    Ok(cuts)
}

/// A node without records hears that an owner is alive. It receives the owner's records from a node that lost it before it
/// unregistered a member. The member must not be shown as up.
pub(super) fn first_records_come_from_a_node_that_lost_the_owner(world: &mut World) -> ScenarioResult {
    let [alive, lost, _] = empty_node_between_two_sides(world)?;
    let log = Log::on(world);
    slow_down(world, 0);
    world.rejoin(alive);
    world.run_until(|w| w.status(2, "news0").is_some(), 20 * SECOND)?;
    world.rejoin(lost);
    world.run_until(|w| w.peer_state(2, 1) == Some(PeerState::Up), 10 * SECOND)?;
    world.require(world.status(2, "latest").is_none(), "the exchange was too short")?;
    world.run_until(|w| (0..4).all(|host| w.status(host, "gone").is_none()), MINUTE)?;
    log.never_up(world, "gone")?;
    world.settle()
}

/// A node without records receives a delta from a node that lost an owner, and meanwhile hears that the owner is alive. The
/// rest of the delta must not show as up what the owner has unregistered since.
pub(super) fn owner_returns_during_a_delta_of_another_node(world: &mut World) -> ScenarioResult {
    let [_, lost, owner] = empty_node_between_two_sides(world)?;
    let log = Log::on(world);
    slow_down(world, 1);
    slow_down(world, 3);
    world.rejoin(lost);
    world.run_until(|w| w.status(2, "news0").is_some(), 20 * SECOND)?;
    world.rejoin(owner);
    world.run_until(|w| w.peer_state(2, 3) == Some(PeerState::Up), 10 * SECOND)?;
    world.require(world.status(2, "news59").is_none(), "the delta was too short")?;
    world.run_until(|w| (0..4).all(|host| w.status(host, "gone").is_none()), MINUTE)?;
    log.never_up(world, "gone")?;
    world.settle()
}

/// A node returns that was silent for so long that its members expire at once. The exchange with it takes a while, and the
/// node that receives its new members passes some of them on, with old evidence. They do not expire before that node admits
/// their owner.
pub(super) fn write_arrives_before_the_evidence(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_fixed("c", &[], 3);
    world.run_until(|w| w.at(client, 3), 10 * SECOND)?;
    let near = world.partition(&[3], &[0]);
    world.partition(&[3], &[1, 2]);
    world.pass(6 * MINUTE)?;
    let news = ids("news", 120);
    for id in &news {
        world.register(client, id);
    }
    world.pass(SECOND)?;
    let log = Log::on(world);
    slow_down(world, 3);
    world.rejoin(near);
    world.run_until(|w| w.status(0, "news0").is_some(), 10 * SECOND)?;
    world.reset_between(0, 1);
    world.reset_between(0, 2);
    let passed_on = |w: &World| (1..3).all(|host| w.status(host, "news0").is_some());
    world.run_until(passed_on, 10 * SECOND)?;
    world.require(world.status(0, "news119").is_none(), "the exchange was too short")?;
    world.run_until(|w| (0..3).all(|host| w.status(host, "news119") == Some(Status::Up)), 2 * MINUTE)?;
    log.never(world, Status::Left)?;
    world.settle()
}

/// Two clients register a member with the same claim on two sides of a partition. The first one's node is lost, and the
/// member is inferred to have left. The other registration is received, and its node is lost as well. It expires, although
/// there is an inference about the first one, which names the higher node id.
pub(super) fn inference_about_an_earlier_registration(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let cuts = world.partition(&[0], &[1, 2, 3]);
    let first = world.add_client_fixed("first", &["m"], 2);
    let second = world.add_client_fixed("second", &["m"], 0);
    world.run_until(|w| [0, 1, 3].iter().all(|host| w.status(*host, "m") == Some(Status::Up)), 5 * SECOND)?;
    for value in 0..3 {
        world.set(second, "m", &value);
        world.pass(SECOND)?;
    }
    world.lose(2, Crash::Silent);
    world.client_crash(first, true);
    world.run_until(|w| [1, 3].iter().all(|host| w.status(*host, "m").is_none()), 6 * MINUTE)?;
    world.rejoin(cuts);
    world.run_until(|w| [1, 3].iter().all(|host| w.status(*host, "m") == Some(Status::Up)), 10 * SECOND)?;
    world.require(world.claim(1, "m") == Some(1), "the claims differ")?;
    world.lose(0, Crash::Silent);
    world.client_crash(second, true);
    world.run_until(|w| [1, 3].iter().all(|host| w.status(*host, "m").is_none()), 7 * MINUTE)?;
    world.settle()
}

/// The first node has no seeds and lost its disk, so it serves an empty registry. The other seeds of a fresh node answer
/// later, and it must have compared them before it serves.
pub(super) fn fresh_node_whose_seed_is_empty(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.add_client_fixed("c", &["m"], 1);
    world.up(&["m"])?;
    world.partition(&[0], &[1, 2]);
    world.crash(0, crate::world::Crash::Process);
    world.hosts[0].config.seeds.clear();
    world.start(0);
    world.run_until(|w| w.hosts[0].serving().is_some(), SECOND)?;
    world.require(world.member(0, "m").is_none(), "the first node has the member")?;
    let spikes = [1, 2].map(|host| world.slow_links(host, 40_000));
    let fresh = world.add_host("n3", (0..3).map(|host| format!("h{host}:7000")).collect());
    world.start(fresh);
    world.run_until(|w| w.hosts[fresh].serving().is_some(), 2 * SECOND)?;
    world.require(world.member(fresh, "m").is_some(), "the fresh node serves an empty registry")?;
    for spike in spikes {
        world.end_spike(spike);
    }
    world.settle()
}

/// The seed of a fresh node lags: a partition keeps an unregistration from it. The fresh node reaches both sides, and
/// must have compared them before it serves.
pub(super) fn fresh_node_whose_seed_lags(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_fixed("c", &["gone"], 1);
    world.up(&["gone"])?;
    world.partition(&[0], &[1, 2]);
    world.client_unregister(client, "gone");
    world.run_until(|w| w.status(2, "gone").is_none(), SECOND)?;
    let log = Log::on(world);
    let fresh = world.join_host("n3");
    world.run_until(|w| w.hosts[fresh].serving().is_some(), 2 * SECOND)?;
    world.require(log.of("gone").is_empty(), "the fresh node shows what was unregistered")?;
    world.run_until(|w| w.status(0, "gone").is_none(), 5 * SECOND)?;
    log.never_shown(world, "gone")?;
    world.settle()
}

/// An owner whose members were inferred to have left sends a ping and is permanently lost before its writes arrive.
/// Nodes that received the ping and a replica that joins later reach the same judgement.
pub(super) fn owner_lost_again_before_its_writes_arrive(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_fixed("c", &["m"], 3);
    world.up(&["m"])?;
    let cuts = world.partition(&[3], &[0, 1, 2]);
    let news = ids("news", 60);
    for id in &news {
        world.register(client, id);
    }
    world.run_until(|w| (0..3).all(|host| w.status(host, "m").is_none()), 6 * MINUTE)?;
    slow_down(world, 3);
    world.rejoin(cuts);
    world.run_until(|w| (0..3).all(|host| w.peer_state(host, 3) == Some(PeerState::Up)), 10 * SECOND)?;
    world.pass(SECOND)?;
    world.require((0..3).all(|host| world.status(host, "m").is_none()), "the writes have arrived")?;
    world.lose(3, Crash::Silent);
    world.client_crash(client, true);
    let fresh = world.join_host("n4");
    world.run_until(|w| w.hosts[fresh].serving().is_some(), 20 * SECOND)?;
    let all = [0, 1, 2, fresh];
    world.run_until(|w| all.iter().all(|host| w.status(*host, "m") == Some(Status::Down)), 30 * SECOND)?;
    world.run_until(|w| all.iter().all(|host| w.status(*host, "m").is_none()), 6 * MINUTE)?;
    world.settle()
}

/// A node is paused until the others have closed its links and their dial backoff is long: it dials them at once when
/// it resumes.
pub(super) fn resumed_node_dials_its_peers(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.pause(2, 12 * SECOND);
    world.pass(12 * SECOND)?;
    world.require(!world.linked(), "no node closed its link to the paused node")?;
    world.run_until(World::linked, SECOND)?;
    world.settle()
}

pub(super) fn line_of_three() -> Setup {
    Setup { nodes: 3, topology: Topology::Line, ..Setup::default() }
}

/// A node without seeds was met by others and is paused for so long that it begins a new incarnation in the same process. That
/// one dials the nodes it met, and does not start alone.
pub(super) fn next_incarnation_keeps_the_peers(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let first = world.node(0).origin().clone();
    world.pause(0, 20 * MINUTE);
    world.run_until(|w| !w.hosts[0].paused(), 21 * MINUTE)?;
    world.run_until(|w| w.hosts[0].running() && *w.node(0).origin() != first, 7 * SECOND)?;
    world.run_until(|w| w.all_serving() && w.linked(), SECOND)?;
    world.require(!world.hosts[0].alone, "it started alone again")?;
    world.settle()
}

/// A node is paused while an owner dies and returns with a new incarnation. It has the latest evidence of the old one,
/// so no peer can report a longer silence. Once it has received the new incarnation, it no longer waits for the old
/// one.
pub(super) fn resumed_node_expires_a_dead_incarnation(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_fixed("c", &["m"], 0);
    world.up(&["m"])?;
    let cuts = world.partition(&[1], &[0, 2]);
    world.pass(10 * SECOND)?;
    world.pause(2, 2 * MINUTE);
    world.crash(0, Crash::Process);
    world.client_crash(client, true);
    world.start(0);
    world.rejoin(cuts);
    world.run_until(|w| w.status(1, "m") == Some(Status::Down), MINUTE)?;
    world.run_until(|w| !w.hosts[2].paused(), 3 * MINUTE)?;
    world.run_until(|w| w.shown_everywhere("m", Status::Down), 3 * SECOND)?;
    world.settle()
}

/// A paused node holds the member of a process that dies meanwhile. All others restart, so the claims of the client's
/// next process start below, and so does its unregistration. The record of the resumed node outranks that, and lasts
/// until the dead process's timeouts have passed (C1, C6).
pub(super) fn resumed_node_holds_an_earlier_process(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    for host in [1, 0, 1, 2] {
        world.run_until(|w| w.attached(client), 5 * SECOND)?;
        world.go(client, host);
    }
    world.run_until(|w| w.owned_by("m", 2), 5 * SECOND)?;
    world.pause(2, 10 * MINUTE);
    world.client_crash(client, true);
    for host in [0, 1] {
        world.crash(host, Crash::Process);
    }
    world.pass(SECOND)?;
    world.start_all();
    world.run_until(|w| (0..2).all(|host| w.hosts[host].serving().is_some()), MINUTE)?;
    world.clients[client].prefer = Some(1);
    world.client_start(client);
    world.run_until(|w| (0..2).all(|host| w.claim(host, "m") == Some(1)), MINUTE)?;
    let cuts = world.partition(&[0], &[1]);
    world.client_unregister(client, "m");
    world.pass(5 * SECOND)?;
    world.rejoin(cuts);
    world.run_until(|w| !w.hosts[2].paused(), 11 * MINUTE)?;
    world.run_until(|w| w.shown_everywhere("m", Status::Up), 3 * SECOND)?;
    world.run_until(|w| w.absent_everywhere("m"), 6 * MINUTE)?;
    world.settle()
}

/// A node is paused twice, each time for less than it takes to be written off, and reaches no peer in between.
/// Together the pauses count as one long pause.
pub(super) fn two_pauses_count_as_one(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.keep_to(client, &[0, 1]);
    world.up(&["m"])?;
    let log = Log::on(world);
    world.pause(2, 10 * MINUTE);
    world.client_unregister(client, "m");
    let cuts = world.partition(&[2], &[0, 1]);
    world.run_until(|w| !w.hosts[2].paused(), 11 * MINUTE)?;
    world.pass(SECOND)?;
    world.require(log.end_of(2).is_none(), "the first pause was too long by itself")?;
    world.pause(2, 10 * MINUTE);
    world.rejoin(cuts);
    log.clear();
    world.run_until(|w| !w.hosts[2].paused(), 11 * MINUTE)?;
    let last_line = log.end_of(2).unwrap_or_default();
    world.require(last_line.contains("PausedTooLong"), &format!("the process did not end: {last_line}"))?;
    world.run_until(World::all_serving, 30 * SECOND)?;
    log.never_shown(world, "m")?;
    world.settle()
}
