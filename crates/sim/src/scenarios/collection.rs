//! Tombstones and their collection: nothing unregistered comes back, and nothing else is dropped (D4, D8, D10, N5).

use super::log::{Log, Seen};
use super::support::ScenarioResult;
use crate::invariants::Violation;
use crate::network::{MINUTE, SECOND, Site, Spike};
use crate::world::{Crash, Setup, World, micros};
use convoke_core::Limits;
use convoke_core::member::Status;
use convoke_core::node::PeerState;

/// Many small chunks, so that a full merge takes many steps.
pub(super) fn small_chunks() -> Setup {
    let limits = Limits { chunk_bytes: 300, chunk_window: 1, ..Limits::default() };
    Setup { nodes: 4, limits, ..Setup::default() }
}

pub(super) fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i}")).collect()
}

/// Advances in small steps until a condition holds.
fn step_until(world: &mut World, happened: impl Fn(&World) -> bool) -> ScenarioResult {
    let start = world.now;
    while !happened(world) {
        world.pass(SECOND / 2000)?;
        world.require(world.now < start + 20 * SECOND, "the condition did not become true")?;
    }
    Ok(())
}

fn borrowed(ids: &[String]) -> Vec<&str> {
    ids.iter().map(String::as_str).collect()
}

/// A member is deleted while a replica is cut off. All other nodes collect the tombstone before the replica returns.
pub(super) fn delete_collect_lagging_node_returns(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m", "kept"], 0);
    world.keep_to(client, &[0, 1]);
    world.up(&["m", "kept"])?;
    let cuts = world.partition(&[2], &[0, 1]);
    world.pass(MINUTE)?;
    world.client_unregister(client, "m");
    world.run_until(|w| w.forgotten(0, "m") && w.forgotten(1, "m"), 33 * MINUTE)?;
    world.require(!world.forgotten(2, "m") && world.member(2, "m").is_none(), "the lagging replica collected first")?;
    let log = Log::on(world);
    world.rejoin(cuts);
    world.run_until(|w| w.forgotten(2, "m"), 20 * SECOND)?;
    world.throughout(2 * MINUTE, "the member is held again", |w| (0..3).all(|host| w.forgotten(host, "m")))?;
    log.never_shown(world, "m")?;
    world.up(&["kept"])?;
    world.settle()
}

/// Like `delete_collect_lagging_node_returns`, but the full merge that would clear the replica is interrupted. The
/// replica meets a second lagging replica before the next full merge.
pub(super) fn cut_full_merge_meets_a_lagging_third_node(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let (dead, kept) = (ids("dead", 40), ids("kept", 40));
    let all: Vec<&str> = borrowed(&dead).into_iter().chain(borrowed(&kept)).collect();
    let client = world.add_client_at("c", &all, 0);
    world.keep_to(client, &[0, 1]);
    world.up(&all)?;
    let cuts = world.partition(&[2, 3], &[0, 1]);
    let between = world.partition(&[2], &[3]);
    world.pass(MINUTE)?;
    for id in &dead {
        world.client_unregister(client, id);
    }
    world.run_until(|w| dead.iter().all(|id| w.forgotten(0, id) && w.forgotten(1, id)), 33 * MINUTE)?;
    let log = Log::on(world);

    let third = world.partition(&[0, 1], &[3]);
    world.rejoin(cuts);
    let chunks = |w: &World| w.node(0).counters().chunks_sent + w.node(1).counters().chunks_sent;
    let (before, merges, start) = (chunks(world), world.node(2).counters().full_merges, world.now);
    while chunks(world) < before + 6 {
        world.pass(SECOND / 1000)?;
        world.require(world.now < start + 20 * SECOND, "no merge started")?;
    }
    let again = world.partition(&[2], &[0, 1]);
    let held = dead.iter().all(|id| !world.forgotten(2, id));
    world.require(world.node(2).counters().full_merges == merges && held, "the full merge was not interrupted")?;
    world.rejoin(between);
    world.pass(20 * SECOND)?;
    world.rejoin(again);
    world.rejoin(third);
    world.run_until(|w| dead.iter().all(|id| (0..4).all(|host| w.forgotten(host, id))), 30 * SECOND)?;
    for id in &dead {
        log.never_shown(world, id)?;
    }
    world.up(&borrowed(&kept))?;
    world.settle()
}

/// A paused node holds the tombstone of another client's earlier registration and collects it when it resumes. The
/// others restart. A member of the same id is unregistered at a node that is lost before it can send the tombstone.
/// The remaining records expire by timeout, whatever the paused node held (C6, D8).
pub(super) fn earlier_tombstone_expires_during_pause(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let earlier = world.add_client_at("earlier", &["m"], 0);
    for host in [1, 0, 1] {
        world.run_until(|w| w.attached(earlier), 5 * SECOND)?;
        world.go(earlier, host);
    }
    world.up(&["m"])?;
    world.client_unregister(earlier, "m");
    world.run_until(|w| w.absent_everywhere("m"), 5 * SECOND)?;
    world.pass(20 * MINUTE)?;
    world.pause(2, 12 * MINUTE);
    for host in [0, 1] {
        world.crash(host, Crash::Process);
    }
    world.pass(SECOND)?;
    world.start_all();
    world.pass(9 * MINUTE)?;
    let later = world.add_client_at("later", &["m"], 0);
    world.run_until(|w| w.status(0, "m") == Some(Status::Up), 5 * SECOND)?;
    world.partition(&[0], &[1]);
    world.go(later, 1);
    world.run_until(|w| w.at(later, 1) && w.status(1, "m") == Some(Status::Up), 5 * SECOND)?;
    world.client_unregister(later, "m");
    world.run_until(|w| w.member(1, "m").is_none(), 5 * SECOND)?;
    world.pass(SECOND)?;
    // The client would repeat the unregistration (C13).
    world.client_crash(later, true);
    world.lose(1, Crash::Silent);
    world.run_until(|w| !w.hosts[2].paused(), 4 * MINUTE)?;
    world.require(world.status(0, "m").is_some(), "its timeout has passed already")?;
    world.settle()?;
    world.run_until(|w| w.absent_everywhere("m"), 6 * MINUTE)?;
    world.settle()
}

/// A node is paused while the others collect a tombstone, and collects it minutes later. Its tombstone brings nothing
/// back and hides nothing new (even seeds).
pub(super) fn collection_at_different_times(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m", "kept"], 0);
    world.keep_to(client, &[0, 1]);
    for turn in 1..5 {
        world.run_until(|w| w.attached(client), 5 * SECOND)?;
        world.go(client, turn % 2);
    }
    world.up(&["m", "kept"])?;
    world.client_unregister(client, "m");
    world.run_until(|w| w.absent_everywhere("m"), 5 * SECOND)?;
    let log = Log::on(world);
    world.pass(29 * MINUTE)?;
    world.pause(2, 5 * MINUTE);
    world.run_until(|w| w.forgotten(0, "m") && w.forgotten(1, "m"), 3 * MINUTE)?;
    world.require(!world.forgotten(2, "m"), "all collected at the same time")?;
    let merges: u64 = (0..3).map(|host| world.node(host).counters().full_merges).sum();
    let both = |w: &World| w.forgotten(0, "m") && w.forgotten(1, "m");
    if world.even_seed() {
        // Registered again before the late node has collected: its tombstone must not win.
        let newcomer = world.add_client_at("new", &["m"], 0);
        world.run_until(|w| !w.hosts[2].paused(), 5 * MINUTE)?;
        world.up(&["m", "kept"])?;
        world.throughout(5 * MINUTE, "the old tombstone wins", |w| w.shown_everywhere("m", Status::Up))?;
        world.require(world.holds(newcomer, "m"), "the new client lost the member")?;
        return world.settle();
    }
    world.throughout(7 * MINUTE, "the tombstone came back from the late node", both)?;
    world.require(world.forgotten(2, "m"), "the late node did not collect")?;
    let after: u64 = (0..3).map(|host| world.node(host).counters().full_merges).sum();
    world.require(after == merges, "collecting at different times caused full merges")?;
    log.never_shown(world, "m")?;
    world.up(&["kept"])?;
    world.settle()
}

/// A member moves to another node and is unregistered there, while its first node writes nothing more. A replica that
/// was away for longer than the tombstone timeout has received all writes of the first node, and must drop the member
/// nevertheless.
pub(super) fn unregistered_after_a_move_from_a_quiet_node(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.keep_to(client, &[0, 1]);
    world.up(&["m"])?;
    let cuts = world.partition(&[0, 1], &[2]);
    world.go(client, 1);
    world.run_until(|w| w.at(client, 1) && w.claim(0, "m") == w.claim(1, "m"), 5 * SECOND)?;
    world.client_unregister(client, "m");
    world.run_until(|w| w.forgotten(0, "m") && w.forgotten(1, "m"), 33 * MINUTE)?;
    world.require(!world.forgotten(2, "m"), "the replica inferred and collected it too")?;
    let log = Log::on(world);
    world.rejoin(cuts);
    world.run_until(|w| w.forgotten(2, "m"), 20 * SECOND)?;
    log.never_up(world, "m")?;
    world.throughout(MINUTE, "it came back", |w| w.absent_everywhere("m"))?;
    world.settle()
}

/// A lower claim returns from behind a split. One node has collected the tombstone of the higher claim; another node,
/// which received it late, has not. The tombstone is sent again, its owner claims above it, and all nodes agree.
pub(super) fn lower_claim_meets_a_tombstone(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let far = world.add_client_fixed("far", &["far"], 2);
    let near = world.add_client_fixed("near", &["near"], 0);
    world.up(&["far", "near"])?;
    let cuts = world.partition(&[0, 1], &[2]);
    world.raise_claim(near, 10);
    world.go(near, 0);
    world.run_until(|w| w.attached(near), 5 * SECOND)?;
    world.register(near, "m");
    world.register(far, "m");
    world.pass(SECOND)?;
    world.require(world.claim(2, "m") < world.claim(0, "m"), "the claims are in the wrong order")?;
    world.pause(1, 15 * SECOND);
    world.client_unregister(near, "m");
    world.run_until(|w| w.forgotten(0, "m"), 33 * MINUTE)?;
    world.require(!world.forgotten(1, "m"), "all collected at the same time")?;
    let late = world.partition(&[1], &[2]);
    world.rejoin(cuts);
    world.run_until(|w| !w.forgotten(0, "m"), 10 * SECOND)?;
    world.require(!world.forgotten(1, "m"), "the late node collected before they met")?;
    world.pass(20 * SECOND)?;
    world.rejoin(late);
    world.run_until(|w| w.shown_everywhere("m", Status::Up) && w.owned_by("m", 2), 20 * SECOND)?;
    world.require(world.holds(far, "m"), "the live client lost the member")?;
    world.settle()
}

/// As before, but the higher claim was inferred to have ended. One node has collected the inference and accepts the
/// lower claim; the other has not collected it and is about to receive that claim.
struct LateInference {
    near: usize,
    far: usize,
    first: usize,
    late: usize,
    /// Cuts between the late node and the node of the lower claim.
    apart: [u64; 2],
}

/// `silence` makes the node and the client of the higher claim, which are the first ones, stop.
fn inference_collected_by_one(
    world: &mut World,
    silence: impl FnOnce(&mut World, usize),
) -> Result<LateInference, Violation> {
    world.begin()?;
    let far = world.add_client_fixed("far", &["far"], 3);
    let near = world.add_client_fixed("near", &["near"], 0);
    world.up(&["far", "near"])?;
    let cuts = world.partition(&[1, 2], &[3]);
    world.partition(&[0], &[3]);
    world.raise_claim(near, 10);
    world.go(near, 0);
    world.run_until(|w| w.attached(near), 5 * SECOND)?;
    world.register(near, "m");
    world.register(far, "m");
    world.pass(30 * SECOND)?;
    world.require(world.claim(3, "m") < world.claim(0, "m"), "the claims are in the wrong order")?;
    let owner = world.node(0).origin().clone();
    silence(world, near);
    world.run_until(|w| w.status(1, "m") == Some(Status::Down) && w.status(2, "m") == Some(Status::Down), MINUTE)?;
    let responsible = world.node(1).responsible_for(&owner);
    let (first, late) = if responsible.as_ref() == Some(&world.hosts[1].id) { (1, 2) } else { (2, 1) };
    world.pass(micros(world.setup.timers.reconnect_timeout) - 5 * SECOND)?;
    // The push is in flight; a node that reads it late dates it late.
    step_until(world, |w| w.status(first, "m").is_none())?;
    world.pause(late, 15 * SECOND);
    world.run_until(|w| w.forgotten(first, "m"), 33 * MINUTE)?;
    world.require(!world.forgotten(late, "m"), "both collected at the same time")?;
    let apart = world.partition(&[late], &[3]);
    world.rejoin(cuts);
    step_until(world, |w| !w.forgotten(first, "m"))?;
    world.require(!world.forgotten(late, "m"), "the late node collected before they met")?;
    Ok(LateInference { near, far, first, late, apart })
}

/// The late node sends the inference as a tombstone. Collecting it without a message would lose the lower claim there.
pub(super) fn lower_claim_meets_an_inference(world: &mut World) -> ScenarioResult {
    let late_inference = inference_collected_by_one(world, |world, near| {
        world.client_crash(near, true);
        world.lose(0, Crash::Silent);
    })?;
    world.pass(20 * SECOND)?;
    world.rejoin(late_inference.apart);
    world.run_until(|w| w.shown_everywhere("m", Status::Up) && w.owned_by("m", 3), 20 * SECOND)?;
    world.require(world.holds(late_inference.far, "m"), "the live client lost the member")?;
    world.settle()
}

/// The owner of the higher claim was only cut off, and the client of the lower claim dies after the late node sent its
/// tombstone. A tombstone of the owner's own claim that others inferred ends nothing.
pub(super) fn inference_meets_its_owner(world: &mut World) -> ScenarioResult {
    let late_inference = inference_collected_by_one(world, |world, _| {
        world.partition(&[0], &[1, 2]);
    })?;
    let reported = |w: &World| w.node(late_inference.late).slot("m").is_some_and(|slot| slot.stated == Status::Left);
    step_until(world, reported)?;
    world.client_crash(late_inference.far, true);
    world.lose(3, Crash::Silent);
    world.run_until(|w| w.claim(late_inference.first, "m") == w.claim(late_inference.late, "m"), 5 * SECOND)?;
    world.require(world.status(0, "m") == Some(Status::Up), "it ended without the tombstone")?;
    let log = Log::on(world);
    world.heal_all();
    world.run_until(|w| w.shown_everywhere("m", Status::Up) && w.owned_by("m", 0), 20 * SECOND)?;
    world.require(world.holds(late_inference.near, "m"), "the live client lost the member")?;
    let gone = |seen: &Seen| seen.host == 0 && seen.shown().is_some_and(|(_, status)| status != Status::Up);
    world.require(!log.of("m").iter().any(gone), "its own node showed it as left")?;
    world.settle()
}

/// A node receives a lower claim that a tombstone outranks, and is cut off before it can answer. When they meet again,
/// the tombstone is collected. The full merge must not remove a member whose client is alive at the receiver.
pub(super) fn full_merge_meets_a_living_client(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let far = world.add_client_fixed("far", &["far"], 2);
    let near = world.add_client_fixed("near", &["near"], 0);
    world.up(&["far", "near"])?;
    let mut cuts = world.partition(&[0, 1], &[2]).to_vec();
    world.raise_claim(near, 10);
    world.go(near, 0);
    world.run_until(|w| w.attached(near), 5 * SECOND)?;
    world.register(near, "m");
    world.register(far, "m");
    world.pass(20 * SECOND)?;
    world.require(world.claim(2, "m") < world.claim(0, "m"), "the claims are in the wrong order")?;
    world.client_unregister(near, "m");
    world.run_until(|w| w.member(0, "m").is_none() && w.member(1, "m").is_none(), 5 * SECOND)?;
    let (id, extra) = (world.network.number(), SECOND / 4);
    world.network.spikes.push(Spike { id, places: Site::Host(2).bit(), extra });
    let (before, origin) = (world.node(2).slot("m"), world.node(2).origin().clone());
    let written = before.as_ref().map_or(0, |slot| slot.n);
    // The acceptor of a connection is the first to send its state.
    loop {
        world.rejoin(std::mem::take(&mut cuts));
        let met = |w: &World, one: usize, other: usize| w.peer_state(one, other) == Some(PeerState::Up);
        step_until(world, |w| (0..2).any(|host| met(w, host, 2) || met(w, 2, host)))?;
        if (0..2).any(|host| met(world, 2, host)) {
            break;
        }
        cuts = world.partition(&[0, 1], &[2]).to_vec();
        world.pass(30 * SECOND)?;
    }
    step_until(world, |w| (0..2).any(|host| w.node(host).context().get(&origin) >= written))?;
    let again = world.partition(&[0, 1], &[2]);
    world.network.spikes.retain(|spike| spike.id != id);
    world.require(world.node(2).slot("m") == before, "the tombstone arrived")?;
    world.run_until(|w| (0..2).all(|host| w.forgotten(host, "m")), 33 * MINUTE)?;
    world.require(world.status(2, "m") == Some(Status::Up), "it was lost before")?;
    let log = Log::on(world);
    world.rejoin(again);
    world.run_until(|w| w.shown_everywhere("m", Status::Up) && w.owned_by("m", 2), 20 * SECOND)?;
    world.require(world.holds(far, "m"), "the live client lost the member")?;
    let gone = |seen: &Seen| seen.host == 2 && seen.shown().is_some_and(|(_, status)| status != Status::Up);
    world.require(!log.of("m").iter().any(gone), "its own node showed it as left")?;
    world.settle()
}

/// Two sides were apart for longer than any horizon. An owner and its client die just before the sides meet. Nodes
/// that received the owner's last writes keep records that the others have collected, and all nodes agree in the end.
pub(super) fn owner_dies_as_the_sides_meet(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_fixed("c", &["m"], 0);
    world.up(&["m"])?;
    let cuts = world.partition(&[0, 1], &[2, 3]);
    world.run_until(|w| w.forgotten(2, "m") && w.forgotten(3, "m"), 40 * MINUTE)?;
    world.require(world.status(1, "m") == Some(Status::Up), "it is down on its own side")?;
    world.client_crash(client, true);
    world.lose(0, Crash::Silent);
    world.rejoin(cuts);
    world.pass(10 * SECOND)?;
    world.settle()?;
    world.run_until(|w| w.absent_everywhere("m"), 8 * MINUTE)?;
    world.settle()
}

/// A node is alone until another node's names expire there. Then it meets nodes that had contact with that node until
/// now. Its inferences are void: the names are shown again, like the members, and both are down because their owner is
/// unreachable.
pub(super) fn names_expire_like_members(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.add_client_fixed("c", &["m"], 0);
    world.register_name(0, "name", "zero");
    world.up(&["m"])?;
    let alone = world.partition(&[1], &[0, 2]);
    world.throughout(14 * MINUTE, "the name expired early", |w| w.location(1, "name").is_some())?;
    world.run_until(|w| w.location(1, "name").is_none(), 2 * MINUTE)?;
    world.require(!world.forgotten(1, "m"), "the member was collected, too")?;
    let apart = world.partition(&[0], &[1, 2]);
    world.rejoin(alone);
    let down = |w: &World, id: &str| (1..3).all(|host| w.status(host, id) == Some(Status::Down));
    let named = |w: &World| (1..3).all(|host| w.location(host, "name").is_some());
    world.run_until(|w| down(w, "m") && down(w, "convoke.n0") && named(w), 40 * SECOND)?;
    world.throughout(4 * MINUTE, "a record expired early", |w| down(w, "m") && down(w, "convoke.n0") && named(w))?;
    world.rejoin(apart);
    world.up(&["m", "convoke.n0"])?;
    world.run_until(|w| w.named_everywhere("name", "zero"), 10 * SECOND)?;
    world.settle()
}

/// A node is alone for longer than any horizon and has collected a member that the others inferred to have left once
/// and saw again. The owner and its client die. Then one of the others receives that collection, before (odd seeds) or
/// after it judges the owner; the other one never meets that node. No node keeps a record that no node will infer any
/// more.
pub(super) fn collected_by_an_isolated_node(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_fixed("c", &["m"], 0);
    world.up(&["m"])?;
    let away = world.partition(&[0], &[1, 2, 3]);
    world.run_until(|w| (1..4).all(|host| w.node(host).slot("m").is_some_and(|slot| slot.inferred)), 7 * MINUTE)?;
    let alone = world.partition(&[1], &[2]);
    world.partition(&[1], &[0, 3]);
    world.rejoin(away);
    world.run_until(|w| [0, 2, 3].iter().all(|host| w.status(*host, "m") == Some(Status::Up)), 20 * SECOND)?;
    world.run_until(|w| w.forgotten(1, "m"), 33 * MINUTE)?;
    world.client_crash(client, true);
    world.lose(0, Crash::Silent);
    world.pass(if world.even_seed() { 40 * SECOND } else { 10 * SECOND })?;
    world.require((2..4).all(|host| !world.forgotten(host, "m")), "it expired early")?;
    world.rejoin(alone);
    world.run_until(|w| (1..4).all(|host| w.forgotten(host, "m")), MINUTE)?;
    world.settle()
}

/// A side that was alone for longer than any horizon has collected its inferences about the other side. Its full merge
/// must not remove those live members, not even for a moment.
pub(super) fn entry_count_never_drops_during_a_full_merge(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let (here, there) = (ids("here", 60), ids("there", 60));
    let lone = world.add_client_fixed("lone", &borrowed(&here), 0);
    let many = world.add_client_at("many", &borrowed(&there), 1);
    world.keep_to(many, &[1, 2, 3]);
    world.up(&borrowed(&here))?;
    world.up(&borrowed(&there))?;
    let cuts = world.partition(&[0], &[1, 2, 3]);
    world.pass(MINUTE)?;
    world.client_unregister(lone, "here0");
    world.client_unregister(many, "there0");
    world.run_until(|w| there.iter().all(|id| w.forgotten(0, id)) && w.forgotten(0, "here0"), 40 * MINUTE)?;
    let own = |w: &World| {
        let visible = |host: usize, ids: &[String]| ids[1..].iter().all(|id| w.status(host, id) == Some(Status::Up));
        visible(0, &here) && (1..4).all(|host| visible(host, &there))
    };
    world.require(own(world), "a side lost its own members")?;
    let log = Log::on(world);
    let merges: u64 = (0..4).map(|host| world.node(host).counters().full_merges).sum();
    world.rejoin(cuts);
    world.throughout(30 * SECOND, "a live member vanished", own)?;
    log.never(world, Status::Left)?;
    let after: u64 = (0..4).map(|host| world.node(host).counters().full_merges).sum();
    world.require(after > merges, "no full merge was needed")?;
    world.up(&borrowed(&here[1..]))?;
    world.up(&borrowed(&there[1..]))?;
    world.settle()
}

/// A new node is receiving a full merge while the sender collects its inference about a lost node's member. The new
/// node must not be left with a record that no other node has.
pub(super) fn collected_while_a_full_merge_is_sent(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let doomed = world.add_client_fixed("doomed", &["lost"], 3);
    world.up(&["lost"])?;
    let rest = ids("m", 60);
    let keeper = world.add_client_fixed("rest", &borrowed(&rest), 0);
    world.up(&borrowed(&rest))?;
    // Collected long before: without a floor there is no full merge.
    world.client_unregister(keeper, "m59");
    world.client_crash(doomed, true);
    world.lose(3, Crash::Silent);
    world.run_until(|w| (0..3).all(|host| w.status(host, "lost").is_none()), 20 * MINUTE)?;
    world.pass(micros(world.setup.timers.tombstone_timeout) - 4 * SECOND)?;
    world.require(!world.forgotten(0, "lost"), "it was collected too early")?;
    for host in 1..3 {
        world.crash(host, Crash::Process);
    }
    let (id, extra) = (world.network.number(), SECOND / 4);
    world.network.spikes.push(Spike { id, places: Site::Host(0).bit(), extra });
    for host in 1..3 {
        world.start(host);
    }
    world.run_until(|w| w.forgotten(0, "lost"), 10 * SECOND)?;
    let sent = |host: usize| !world.node(host).is_serving() && !world.forgotten(host, "lost");
    world.require((1..3).all(sent), "it was not collected in the middle of the merge")?;
    world.run_until(World::all_serving, 30 * SECOND)?;
    world.run_until(|w| (0..3).all(|host| w.forgotten(host, "lost")), 30 * SECOND)?;
    world.up(&borrowed(&rest[..59]))?;
    world.settle()
}

/// The writer of a tombstone dies. A replica that did not receive the tombstone returns soon (odd seeds), or long
/// after the dead node was retired.
pub(super) fn tombstones_outlive_their_writer(world: &mut World) -> ScenarioResult {
    let away = if world.setup.seed % 2 == 1 { 2 * MINUTE } else { 20 * MINUTE };
    world.begin()?;
    let client = world.add_client_at("c", &["m", "kept"], 0);
    world.keep_to(client, &[0, 1]);
    world.up(&["m", "kept"])?;
    let cuts = world.partition(&[2], &[0, 1]);
    world.client_unregister(client, "m");
    world.run_until(|w| w.member(1, "m").is_none(), 5 * SECOND)?;
    world.lose(0, Crash::Process);
    world.pass(away)?;
    let log = Log::on(world);
    world.rejoin(cuts);
    world.pass(2 * MINUTE)?;
    log.never_shown(world, "m")?;
    world.require(world.absent_everywhere("m"), "the tombstone died with its writer")?;
    world.up(&["kept"])?;
    world.settle()
}

/// An inferred `left` is collected together with its record. Neither new replicas nor the return of the node bring
/// that record back.
pub(super) fn collecting_an_inference_collects_the_record(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.up(&["m"])?;
    world.crash(0, Crash::Silent);
    world.client_crash(client, true);
    world.run_until(|w| w.absent_everywhere("m"), 6 * MINUTE)?;
    let log = Log::on(world);
    world.require(
        (1..3).all(|host| world.node(host).slot("m").is_some_and(|slot| slot.inferred)),
        "nothing was inferred",
    )?;
    world.run_until(|w| w.forgotten(1, "m") && w.forgotten(2, "m"), 33 * MINUTE)?;
    let fresh = world.add_host("n3", vec!["h1:7000".to_owned()]);
    world.start(fresh);
    world.start(0);
    world.run_until(World::all_serving, 30 * SECOND)?;
    world.throughout(2 * MINUTE, "a record of it was kept", |w| (0..4).all(|host| w.forgotten(host, "m")))?;
    log.never_shown(world, "m")?;
    world.settle()
}

/// A node expires members from a lagging copy that the owner unregistered and collected: no other node accepts that.
pub(super) fn expiry_from_a_lagging_copy(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m", "kept"], 0);
    world.keep_to(client, &[0, 1]);
    world.up(&["m", "kept"])?;
    let cuts = world.partition(&[2], &[0, 1]);
    world.client_unregister(client, "m");
    world.run_until(|w| w.node(2).slot("m").is_some_and(|slot| slot.inferred), 8 * MINUTE)?;
    world.run_until(|w| w.forgotten(0, "m") && w.forgotten(1, "m"), 33 * MINUTE)?;
    world.require(world.node(2).counters().members_expired > 0 && !world.forgotten(2, "m"), "nothing was expired")?;
    let log = Log::on(world);
    world.rejoin(cuts);
    world.throughout(MINUTE, "a node accepted a collected record", |w| w.forgotten(0, "m") && w.forgotten(1, "m"))?;
    world.require(world.forgotten(2, "m"), "the lagging copy was not cleared")?;
    for host in 0..2 {
        let slots = world.node(host).slots();
        let left = slots.iter().filter(|slot| slot.stated == Status::Left || slot.inferred).count();
        let kept = world.node(host).sizes().tombstones;
        world.require(kept == left, &format!("n{host} keeps {kept} tombstones of {left} slots"))?;
    }
    log.never_shown(world, "m")?;
    world.up(&["kept"])?;
    world.settle()
}

/// A node is paused for 40 minutes. It starts a new incarnation and publishes none of its old state.
pub(super) fn long_pause(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let gone = world.add_client_at("gone", &["gone"], 2);
    let client = world.add_client_at("c", &["m", "kept"], 2);
    world.up(&["gone", "m", "kept"])?;
    let log = Log::on(world);
    world.pause(2, 40 * MINUTE);
    world.run_until(|w| w.at(client, 0) || w.at(client, 1), 30 * SECOND)?;
    world.client_crash(gone, false);
    world.client_unregister(client, "m");
    world.run_until(|w| (0..2).all(|host| w.forgotten(host, "m") && w.forgotten(host, "gone")), 39 * MINUTE)?;
    let (run, origin) = (world.hosts[2].boot, world.node(2).origin().clone());
    log.clear();
    world.run_until(|w| !w.hosts[2].paused(), 5 * MINUTE)?;
    world.run_until(|w| w.all_serving() && w.shown_everywhere("kept", Status::Up), 30 * SECOND)?;
    let last_line = log.end_of(2).unwrap_or_default();
    world
        .require(last_line.contains("PausedTooLong"), &format!("the process ended for another reason: {last_line}"))?;
    world.require(world.hosts[2].boot > run && *world.node(2).origin() > origin, "it is not a new incarnation")?;
    world.throughout(2 * MINUTE, "something came back", |w| w.absent_everywhere("m") && w.absent_everywhere("gone"))?;
    log.never_shown(world, "m")?;
    log.never_shown(world, "gone")?;
    log.never(world, Status::Down)?;
    world.settle()
}
