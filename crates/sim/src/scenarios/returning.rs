//! Owners that return, for good or for a moment, and sleepers that wake twice (L3, L4, N5).

use super::forgetting::ids;
use super::log::Log;
use super::support::Told;
use crate::network::{MINUTE, Place, SECOND, Spike};
use crate::world::{Crash, Setup, Topology, World};
use convoke_core::member::Status;
use convoke_core::node::PeerState;

/// Everything to and from a host takes its time.
fn slow_down(world: &mut World, host: usize) {
    let (id, extra) = (world.network.number(), SECOND / 4);
    world.network.spikes.push(Spike { id, places: Place::Host(host).bit(), extra });
}

/// A replica hears that an owner lived longer than it knew, and while that news is under way, that it lives. What it
/// unregistered in between is not shown as up before that is heard too.
pub(super) fn heard_of_before_it_is_heard(world: &mut World) -> Told {
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
    world.require(world.status(2, "news59").is_none(), "the owner was back only when the delta was over")?;
    world.run_until(|w| (0..3).all(|host| w.status(host, "gone").is_none()), 30 * SECOND)?;
    log.never_shown(world, "gone")?;
    world.settle()
}

/// An owner that was inferred to have left gives a sign of life and is lost for good before its news are through. Those
/// that heard it and a replica that joins later come to the same judgement.
pub(super) fn a_sign_of_life_and_no_more(world: &mut World) -> Told {
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
    world.require((0..3).all(|host| world.status(host, "m").is_none()), "the news were through")?;
    world.lose(3, Crash::Silent);
    world.client_crash(client, true);
    let fresh = world.join_host("n4");
    world.run_until(|w| w.hosts[fresh].serving().is_some(), 20 * SECOND)?;
    let all = [0, 1, 2, fresh];
    world.run_until(|w| all.iter().all(|host| w.status(*host, "m") == Some(Status::Down)), 30 * SECOND)?;
    world.run_until(|w| all.iter().all(|host| w.status(*host, "m").is_none()), 6 * MINUTE)?;
    world.settle()
}

/// A node sleeps until the others have given it up and left it alone for the moment: it looks for them at once.
pub(super) fn sleeper_looks_for_the_others(world: &mut World) -> Told {
    world.begin()?;
    world.pause(2, 12 * SECOND);
    world.pass(12 * SECOND)?;
    world.require(!world.linked(), "nobody gave the sleeper up")?;
    world.run_until(World::linked, SECOND)?;
    world.settle()
}

pub(super) fn line_of_three() -> Setup {
    Setup { nodes: 3, topology: Topology::Line, ..Setup::default() }
}

/// A node that lost its disk and was told of nobody begins alone, is found, and learns that its number is taken: its next
/// run asks those who told it, and does not begin alone again.
pub(super) fn next_run_knows_the_peers(world: &mut World) -> Told {
    world.begin()?;
    world.crash(0, Crash::Process);
    world.start(0);
    world.pass(SECOND)?;
    world.run_until(|w| w.all_ready() && w.linked(), 10 * SECOND)?;
    world.hosts[0].has_disk = false;
    world.crash(0, Crash::Process);
    world.start(0);
    world.require(world.hosts[0].alone, "it was told of somebody")?;
    world.run_until(|w| w.hosts[0].collisions > 0, 7 * SECOND)?;
    world.run_until(|w| w.all_ready() && w.linked(), SECOND)?;
    world.require(!world.hosts[0].alone, "it began alone again")?;
    world.settle()
}

/// A node sleeps while an owner dies and comes back as a new run. It was the last to hear the old one, so nobody can tell
/// it of a longer silence; once it has heard the news it does not wait for that run's word any more.
pub(super) fn sleeper_knows_a_dead_run(world: &mut World) -> Told {
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

/// A node sleeps with the member of a process that dies meanwhile. All others start anew, so the claims of the client's next
/// process begin below, and so does its unregistration. What the sleeper wakes up with outranks that, and lasts until it has
/// waited for the dead process (C1, C6).
pub(super) fn sleeper_brings_an_earlier_process(world: &mut World) -> Told {
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

/// A node sleeps twice, each time for less than it takes to be given up, and reaches nobody in between: together that is
/// a long sleep.
pub(super) fn two_sleeps_are_one(world: &mut World) -> Told {
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
    world.require(log.end_of(2).is_none(), "the first sleep was too long by itself")?;
    world.pause(2, 10 * MINUTE);
    world.rejoin(cuts);
    log.clear();
    world.run_until(|w| !w.hosts[2].paused(), 11 * MINUTE)?;
    let words = log.end_of(2).unwrap_or_default();
    world.require(words.contains("SleptTooLong"), &format!("it goes on: {words}"))?;
    world.run_until(World::all_ready, 30 * SECOND)?;
    log.never_shown(world, "m")?;
    world.settle()
}
