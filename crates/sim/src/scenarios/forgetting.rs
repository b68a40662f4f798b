//! Tombstones and their end: nothing unregistered comes back, nothing else goes with it (D4, D8, D10, N5).

use super::log::{Log, Seen};
use super::support::Told;
use crate::invariants::Violation;
use crate::network::{MINUTE, Place, SECOND, Spike};
use crate::world::{Crash, Setup, World, micros};
use convoke_core::Limits;
use convoke_core::member::Status;
use convoke_core::node::PeerState;

/// Many small chunks, so that a full merge takes its time.
pub(super) fn small_chunks() -> Setup {
    let limits = Limits { chunk_bytes: 300, chunk_window: 1, ..Limits::default() };
    Setup { nodes: 4, limits, ..Setup::default() }
}

pub(super) fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i}")).collect()
}

/// Time passes in small steps, to the moment when something happens.
fn step_until(world: &mut World, happened: impl Fn(&World) -> bool) -> Told {
    let start = world.now;
    while !happened(world) {
        world.pass(SECOND / 2000)?;
        world.require(world.now < start + 20 * SECOND, "it did not happen")?;
    }
    Ok(())
}

fn borrowed(ids: &[String]) -> Vec<&str> {
    ids.iter().map(String::as_str).collect()
}

/// A member is deleted while a replica is cut off, and forgotten everywhere else before it returns.
pub(super) fn delete_collect_lagging_replica_returns(world: &mut World) -> Told {
    world.begin()?;
    let client = world.add_client_at("c", &["m", "kept"], 0);
    world.keep_to(client, &[0, 1]);
    world.up(&["m", "kept"])?;
    let cuts = world.partition(&[2], &[0, 1]);
    world.pass(MINUTE)?;
    world.client_unregister(client, "m");
    world.run_until(|w| w.forgotten(0, "m") && w.forgotten(1, "m"), 33 * MINUTE)?;
    world.require(!world.forgotten(2, "m") && world.member(2, "m").is_none(), "the lagging replica forgot first")?;
    let log = Log::on(world);
    world.rejoin(cuts);
    world.run_until(|w| w.forgotten(2, "m"), 20 * SECOND)?;
    world.throughout(2 * MINUTE, "the member is held again", |w| (0..3).all(|host| w.forgotten(host, "m")))?;
    log.never_shown(world, "m")?;
    world.up(&["kept"])?;
    world.settle()
}

/// The same, where the full merge that would clear the replica is cut in the middle, and a second replica that lags as
/// well is met before the next one.
pub(super) fn cut_full_merge_meets_a_lagging_third_node(world: &mut World) -> Told {
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
        world.require(world.now < start + 20 * SECOND, "no merge began")?;
    }
    let again = world.partition(&[2], &[0, 1]);
    let held = dead.iter().all(|id| !world.forgotten(2, id));
    world.require(world.node(2).counters().full_merges == merges && held, "the full merge was not cut")?;
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

/// A node sleeps with the tombstone of another client's earlier registration, and collects it when it wakes up. The others
/// start anew; a member of the same id is unregistered at a node that is lost before it can tell: what is left elsewhere is
/// waited for, whatever the sleeper held (C6, D8).
pub(super) fn earlier_tombstone_expires_in_sleep(world: &mut World) -> Told {
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
    world.lose(1, Crash::Silent);
    world.run_until(|w| !w.hosts[2].paused(), 4 * MINUTE)?;
    world.require(world.status(0, "m").is_some(), "it was waited for already")?;
    world.settle()?;
    world.run_until(|w| w.absent_everywhere("m"), 6 * MINUTE)?;
    world.settle()
}

/// A node sleeps while the others collect a tombstone, and does so minutes later: what it still holds brings nothing
/// back, and hides nothing new (even seeds).
pub(super) fn collection_at_different_times(world: &mut World) -> Told {
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
        // Registered anew before the late node has collected: its tombstone must not win.
        let newcomer = world.add_client_at("new", &["m"], 0);
        world.run_until(|w| !w.hosts[2].paused(), 5 * MINUTE)?;
        world.up(&["m", "kept"])?;
        world.throughout(5 * MINUTE, "the old tombstone wins", |w| w.shown_everywhere("m", Status::Up))?;
        world.require(world.holds(newcomer, "m"), "the newcomer gave up")?;
        return world.settle();
    }
    world.throughout(7 * MINUTE, "the tombstone came back from the late node", both)?;
    world.require(world.forgotten(2, "m"), "the late node does not collect")?;
    let after: u64 = (0..3).map(|host| world.node(host).counters().full_merges).sum();
    world.require(after == merges, "collecting at different times costs full merges")?;
    log.never_shown(world, "m")?;
    world.up(&["kept"])?;
    world.settle()
}

/// A member moves to another node and is unregistered there, while its first node writes nothing more. A replica that was
/// away for longer than the tombstone lived has seen all that the first node ever wrote, and must let go all the same.
pub(super) fn unregistered_after_a_move_from_a_quiet_node(world: &mut World) -> Told {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.keep_to(client, &[0, 1]);
    world.up(&["m"])?;
    let cuts = world.partition(&[0, 1], &[2]);
    world.go(client, 1);
    world.run_until(|w| w.at(client, 1) && w.claim(0, "m") == w.claim(1, "m"), 5 * SECOND)?;
    world.client_unregister(client, "m");
    world.run_until(|w| w.forgotten(0, "m") && w.forgotten(1, "m"), 33 * MINUTE)?;
    world.require(!world.forgotten(2, "m"), "the replica inferred and forgot it too")?;
    world.rejoin(cuts);
    world.run_until(|w| w.forgotten(2, "m"), 20 * SECOND)?;
    world.throughout(MINUTE, "it came back", |w| w.absent_everywhere("m"))?;
    world.settle()
}

/// A lower claim comes back from behind a split when one node has collected the tombstone of the higher one and another,
/// which heard of it late, has not: the tombstone is said again, its owner claims anew above it, and they agree.
pub(super) fn lower_claim_meets_a_tombstone(world: &mut World) -> Told {
    world.begin()?;
    let far = world.add_client_fixed("far", &["far"], 2);
    let near = world.add_client_fixed("near", &["near"], 0);
    world.up(&["far", "near"])?;
    let cuts = world.partition(&[0, 1], &[2]);
    world.clients[near].claim += 10;
    world.go(near, 0);
    world.run_until(|w| w.attached(near), 5 * SECOND)?;
    world.register(near, "m");
    world.register(far, "m");
    world.pass(SECOND)?;
    world.require(world.claim(2, "m") < world.claim(0, "m"), "the claims are the other way round")?;
    world.pause(1, 15 * SECOND);
    world.client_unregister(near, "m");
    world.run_until(|w| w.forgotten(0, "m"), 33 * MINUTE)?;
    world.require(!world.forgotten(1, "m"), "all collected at the same time")?;
    let late = world.partition(&[1], &[2]);
    world.rejoin(cuts);
    world.run_until(|w| !w.forgotten(0, "m"), 10 * SECOND)?;
    world.require(!world.forgotten(1, "m"), "the late one collected before they met")?;
    world.pass(20 * SECOND)?;
    world.rejoin(late);
    world.run_until(|w| w.shown_everywhere("m", Status::Up) && w.owned_by("m", 2), 20 * SECOND)?;
    world.require(world.holds(far, "m"), "the living client gave up")?;
    world.settle()
}

/// The same where the higher claim was inferred to have ended: one node has collected the inference and takes the lower claim
/// in, the other has not, and is about to hear of it.
struct LateInference {
    near: usize,
    far: usize,
    first: usize,
    late: usize,
    /// Between the late one and the node of the lower claim.
    apart: [u64; 2],
}

/// `silence` makes the node and the client of the higher claim, which are the first ones, fall silent.
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
    world.clients[near].claim += 10;
    world.go(near, 0);
    world.run_until(|w| w.attached(near), 5 * SECOND)?;
    world.register(near, "m");
    world.register(far, "m");
    world.pass(30 * SECOND)?;
    world.require(world.claim(3, "m") < world.claim(0, "m"), "the claims are the other way round")?;
    let owner = world.node(0).origin().clone();
    silence(world, near);
    world.run_until(|w| w.status(1, "m") == Some(Status::Down) && w.status(2, "m") == Some(Status::Down), MINUTE)?;
    let responsible = world.node(1).responsible_for(&owner);
    let (first, late) = if responsible.as_ref() == Some(&world.hosts[1].id) { (1, 2) } else { (2, 1) };
    world.pass(micros(world.setup.timers.reconnect_timeout) - 5 * SECOND)?;
    // The push is under way; read late, it looks young.
    step_until(world, |w| w.status(first, "m").is_none())?;
    world.pause(late, 15 * SECOND);
    world.run_until(|w| w.forgotten(first, "m"), 33 * MINUTE)?;
    world.require(!world.forgotten(late, "m"), "both collected at the same time")?;
    let apart = world.partition(&[late], &[3]);
    world.rejoin(cuts);
    step_until(world, |w| !w.forgotten(first, "m"))?;
    world.require(!world.forgotten(late, "m"), "the late one collected before they met")?;
    Ok(LateInference { near, far, first, late, apart })
}

/// The late one says what was inferred as a tombstone; to collect it in silence would lose the lower claim there.
pub(super) fn lower_claim_meets_an_inference(world: &mut World) -> Told {
    let story = inference_collected_by_one(world, |world, near| {
        world.client_crash(near, true);
        world.lose(0, Crash::Silent);
    })?;
    world.pass(20 * SECOND)?;
    world.rejoin(story.apart);
    world.run_until(|w| w.shown_everywhere("m", Status::Up) && w.owned_by("m", 3), 20 * SECOND)?;
    world.require(world.holds(story.far, "m"), "the living client gave up")?;
    world.settle()
}

/// The owner of the higher claim was only cut off, and the lower one dies when the late one has said so: the tombstone of its
/// own claim, which others inferred, ends nothing.
pub(super) fn inferred_end_meets_its_owner(world: &mut World) -> Told {
    let story = inference_collected_by_one(world, |world, _| {
        world.partition(&[0], &[1, 2]);
    })?;
    let said = |w: &World| w.node(story.late).slot("m").is_some_and(|slot| slot.stated == Status::Left);
    step_until(world, said)?;
    world.client_crash(story.far, true);
    world.lose(3, Crash::Silent);
    world.run_until(|w| w.claim(story.first, "m") == w.claim(story.late, "m"), 5 * SECOND)?;
    world.require(world.status(0, "m") == Some(Status::Up), "it ended by itself")?;
    let log = Log::on(world);
    world.heal_all();
    world.run_until(|w| w.shown_everywhere("m", Status::Up) && w.owned_by("m", 0), 20 * SECOND)?;
    world.require(world.holds(story.near, "m"), "the living client gave up")?;
    let gone = |seen: &Seen| seen.host == 0 && seen.shown().is_some_and(|(_, status)| status != Status::Up);
    world.require(!log.of("m").iter().any(gone), "its own node showed it as gone")?;
    world.settle()
}

/// A node hears of a lower claim that a tombstone outranks, and is cut off before it can say so. By the time they meet again
/// the tombstone is forgotten: the full merge does not take from the other what its client stands by.
pub(super) fn full_merge_meets_a_living_client(world: &mut World) -> Told {
    world.begin()?;
    let far = world.add_client_fixed("far", &["far"], 2);
    let near = world.add_client_fixed("near", &["near"], 0);
    world.up(&["far", "near"])?;
    let mut cuts = world.partition(&[0, 1], &[2]).to_vec();
    world.clients[near].claim += 10;
    world.go(near, 0);
    world.run_until(|w| w.attached(near), 5 * SECOND)?;
    world.register(near, "m");
    world.register(far, "m");
    world.pass(20 * SECOND)?;
    world.require(world.claim(2, "m") < world.claim(0, "m"), "the claims are the other way round")?;
    world.client_unregister(near, "m");
    world.run_until(|w| w.member(0, "m").is_none() && w.member(1, "m").is_none(), 5 * SECOND)?;
    let (id, extra) = (world.network.number(), SECOND / 4);
    world.network.spikes.push(Spike { id, places: Place::Host(2).bit(), extra });
    let (before, origin) = (world.node(2).slot("m"), world.node(2).origin().clone());
    let written = before.as_ref().map_or(0, |slot| slot.n);
    // Who accepts a connection is the first to say what it has.
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
    world.require(world.holds(far, "m"), "the living client gave up")?;
    let gone = |seen: &Seen| seen.host == 2 && seen.shown().is_some_and(|(_, status)| status != Status::Up);
    world.require(!log.of("m").iter().any(gone), "its own node showed it as gone")?;
    world.settle()
}

/// Two sides were apart for longer than any horizon when an owner and its client die, just before they meet: those who heard
/// it to the last keep what the others have forgotten, and all agree nevertheless.
pub(super) fn owner_dies_as_the_sides_meet(world: &mut World) -> Told {
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

/// A node that was alone for long enough to give up another's names, and no more, meets those who heard that one to the
/// last: its members are down, as they are for everybody whose owner is out of reach.
pub(super) fn names_given_up_and_members_not(world: &mut World) -> Told {
    world.begin()?;
    world.add_client_fixed("c", &["m"], 0);
    world.register_name(0, "name", "zero");
    world.up(&["m"])?;
    let alone = world.partition(&[1], &[0, 2]);
    world.run_until(|w| w.location(1, "name").is_none(), 16 * MINUTE)?;
    world.require(!world.forgotten(1, "m"), "the members were given up, too")?;
    let apart = world.partition(&[0], &[1, 2]);
    world.rejoin(alone);
    let down = |w: &World, id: &str| (1..3).all(|host| w.status(host, id) == Some(Status::Down));
    world.run_until(|w| down(w, "m") && down(w, "convoke.n0"), 40 * SECOND)?;
    world.run_until(|w| (1..3).all(|host| w.location(host, "name").is_none()), SECOND)?;
    world.throughout(4 * MINUTE, "a member went that nobody gave up", |w| down(w, "m") && down(w, "convoke.n0"))?;
    world.rejoin(apart);
    world.up(&["m", "convoke.n0"])?;
    world.run_until(|w| w.named_everywhere("name", "zero"), 10 * SECOND)?;
    world.settle()
}

/// A node is alone for longer than any horizon and has forgotten a member that the others took for left once, and saw again.
/// The owner and its client die; then one of the others hears what was forgotten, before (odd seeds) or after it judges the
/// owner, the other one never meets that node. Nobody keeps what nobody will infer any more.
pub(super) fn forgotten_by_one_who_was_alone(world: &mut World) -> Told {
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
    world.require((2..4).all(|host| !world.forgotten(host, "m")), "it was not waited for")?;
    world.rejoin(alone);
    world.run_until(|w| (1..4).all(|host| w.forgotten(host, "m")), MINUTE)?;
    world.settle()
}

/// A side that was alone for longer than any horizon has collected what it inferred about the other; its full merge
/// must not take those living members away, not even for a moment.
pub(super) fn entry_count_never_drops_during_a_full_merge(world: &mut World) -> Told {
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
    world.throughout(30 * SECOND, "a living member vanished", own)?;
    log.never(world, Status::Left)?;
    let after: u64 = (0..4).map(|host| world.node(host).counters().full_merges).sum();
    world.require(after > merges, "no full merge was needed")?;
    world.up(&borrowed(&here[1..]))?;
    world.up(&borrowed(&there[1..]))?;
    world.settle()
}

/// A fresh node is sent everything when what was inferred of a lost node's member is collected in between: it must not be
/// left with a record that nobody else has.
pub(super) fn collected_while_a_full_merge_is_sent(world: &mut World) -> Told {
    world.begin()?;
    let doomed = world.add_client_fixed("doomed", &["lost"], 3);
    world.up(&["lost"])?;
    let rest = ids("m", 60);
    let keeper = world.add_client_fixed("rest", &borrowed(&rest), 0);
    world.up(&borrowed(&rest))?;
    // Long forgotten by then: without a floor there is no full merge.
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
    world.network.spikes.push(Spike { id, places: Place::Host(0).bit(), extra });
    for host in 1..3 {
        world.start(host);
    }
    world.run_until(|w| w.forgotten(0, "lost"), 10 * SECOND)?;
    let sent = |host: usize| !world.node(host).is_ready() && !world.forgotten(host, "lost");
    world.require((1..3).all(sent), "it was not collected in the middle of the merge")?;
    world.run_until(World::all_ready, 30 * SECOND)?;
    world.run_until(|w| (0..3).all(|host| w.forgotten(host, "lost")), 30 * SECOND)?;
    world.up(&borrowed(&rest[..59]))?;
    world.settle()
}

/// The node that wrote a tombstone dies; a replica that did not hear of it returns soon (odd seeds), or long after the
/// dead node was retired (H10).
pub(super) fn h10_tombstones_outlive_their_writer(world: &mut World) -> Told {
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

/// An inferred `left` is collected together with the record it speaks of (H11): neither fresh replicas nor the return of
/// the node bring that back.
pub(super) fn h11_collecting_an_inference_collects_all(world: &mut World) -> Told {
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
    world.run_until(World::all_ready, 30 * SECOND)?;
    world.throughout(2 * MINUTE, "something of it is left", |w| (0..4).all(|host| w.forgotten(host, "m")))?;
    log.never_shown(world, "m")?;
    world.settle()
}

/// A node takes over from a lagging copy what its owner unregistered and collected (H12): nobody else takes that in.
pub(super) fn h12_takeover_from_a_lagging_copy(world: &mut World) -> Told {
    world.begin()?;
    let client = world.add_client_at("c", &["m", "kept"], 0);
    world.keep_to(client, &[0, 1]);
    world.up(&["m", "kept"])?;
    let cuts = world.partition(&[2], &[0, 1]);
    world.client_unregister(client, "m");
    world.run_until(|w| w.node(2).slot("m").is_some_and(|slot| slot.inferred), 8 * MINUTE)?;
    world.run_until(|w| w.forgotten(0, "m") && w.forgotten(1, "m"), 33 * MINUTE)?;
    world
        .require(world.node(2).counters().members_expired > 0 && !world.forgotten(2, "m"), "nothing was taken over")?;
    let log = Log::on(world);
    world.rejoin(cuts);
    world.throughout(MINUTE, "somebody took in what was collected", |w| w.forgotten(0, "m") && w.forgotten(1, "m"))?;
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

/// A node sleeps for 40 minutes. It starts a new run instead of telling what it dreamt.
pub(super) fn long_sleep(world: &mut World) -> Told {
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
    world.run_until(|w| w.all_ready() && w.shown_everywhere("kept", Status::Up), 30 * SECOND)?;
    let words = log.end_of(2).unwrap_or_default();
    world.require(words.contains("SleptTooLong"), &format!("the run ended otherwise: {words}"))?;
    world.require(world.hosts[2].boot > run && *world.node(2).origin() > origin, "it is not a new run")?;
    world.throughout(2 * MINUTE, "something came back", |w| w.absent_everywhere("m") && w.absent_everywhere("gone"))?;
    log.never_shown(world, "m")?;
    log.never_shown(world, "gone")?;
    log.never(world, Status::Down)?;
    world.settle()
}
