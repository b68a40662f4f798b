//! Incarnations: numbers lost, numbers used twice, incarnations retired and incarnations that return (D1, D10, N1–N4).

use super::log::{Log, Seen};
use super::support::ScenarioResult;
use crate::host::HostState;
use crate::invariants::Violation;
use crate::network::{MINUTE, Micros, SECOND};
use crate::world::{Crash, Setup, World, micros};
use convoke_core::member::Status;

/// A node loses its disk and starts alone with a number it had before. Its new writes are not mistaken for its earlier
/// ones, and it keeps its number: nobody ignores it (N9).
pub(super) fn same_incarnation_number_twice(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.hosts[2].has_disk = false;
    let before = world.add_client_at("before", &["before"], 2);
    world.up(&["before"])?;
    let first = world.node(2).origin().clone();
    world.crash(2, Crash::Process);
    let cuts = world.partition(&[2], &[0, 1]);
    world.start(2);
    world.run_until(World::all_serving, 20 * SECOND)?;
    let second = world.node(2).origin().clone();
    world.require(
        first.incarnation.number == second.incarnation.number && first != second,
        "the number was not used twice",
    )?;
    let during = world.add_client_at("during", &["during"], 2);
    world.run_until(|w| w.at(during, 2) && w.status(2, "during").is_some(), 10 * SECOND)?;
    world.set(during, "during", &"written");
    world.pass(10 * SECOND)?;
    world.rejoin(cuts);
    world.run_until(|w| w.attached(during) && w.attached(before), MINUTE)?;
    world.up(&["before", "during"])?;
    world.require((0..3).all(|host| world.value(host, "during").as_deref() == Some("written")), "a write was lost")?;
    world.require(*world.node(2).origin() == second, "a running node took another number")?;
    world.settle()
}

/// Restarts n2 twice, and waits until these nodes have retired its second number.
fn retire_numbers(world: &mut World, nodes: &[usize]) -> ScenarioResult {
    world.begin()?;
    for _ in 0..2 {
        world.crash(2, Crash::Process);
        world.pass(2 * SECOND)?;
        world.start(2);
        world.run_until(World::all_serving, 20 * SECOND)?;
    }
    let has_retired = |w: &World, host: usize| w.node(host).retired().iter().any(|(_, number)| number.number == 2);
    world.run_until(|w| nodes.iter().all(|host| has_retired(w, *host)), 80 * MINUTE)
}

/// A node that has lost its disk starts alone with a number that the others retired long ago, and a client unregisters
/// there. The others accept that incarnation once it proves to be alive (D14), and the node keeps its number (N8).
pub(super) fn unregistered_at_a_retired_number(world: &mut World) -> ScenarioResult {
    retire_numbers(world, &[0, 1])?;
    let client = world.add_client_fixed("c", &["m"], 2);
    world.up(&["m"])?;
    world.crash(2, Crash::Process);
    let cuts = world.partition(&[2], &[0, 1]);
    world.hosts[2].has_disk = false;
    world.start(2);
    world.run_until(|w| w.at(client, 2) && w.status(2, "m") == Some(Status::Up), 30 * SECOND)?;
    world.require(world.node(2).origin().incarnation.number == 1, "it kept its number")?;
    world.client_unregister(client, "m");
    world.run_until(|w| w.member(2, "m").is_none(), 5 * SECOND)?;
    world.require((0..2).all(|host| world.status(host, "m").is_some()), "the others have received it")?;
    world.rejoin(cuts);
    world.run_until(|w| w.absent_everywhere("m"), 15 * SECOND)?;
    world.require(world.node(2).origin().incarnation.number == 1, "a running node took another number")?;
    world.settle()
}

/// Two nodes lose their disks and start alone with lower numbers than before. The third node meets them again: both are there, so
/// the silence of their earlier incarnations is no mass failure.
pub(super) fn two_nodes_return_with_lower_numbers(world: &mut World) -> ScenarioResult {
    world.begin()?;
    for host in 0..2 {
        world.crash(host, Crash::Process);
        world.pass(2 * SECOND)?;
        world.start(host);
        world.run_until(World::all_serving, 20 * SECOND)?;
    }
    let clients = [world.add_client_fixed("c0", &["m0"], 0), world.add_client_fixed("c1", &["m1"], 1)];
    world.up(&["m0", "m1"])?;
    let cuts = [(0, 1), (0, 2), (1, 2)].map(|(one, other)| world.partition(&[one], &[other])).concat();
    for (host, client) in clients.into_iter().enumerate() {
        world.client_crash(client, true);
        world.crash(host, Crash::Process);
        world.hosts[host].has_disk = false;
        world.start(host);
    }
    world.run_until(World::all_serving, 20 * SECOND)?;
    let numbers = [0, 1].map(|host| world.node(host).origin().incarnation.number);
    world.require(numbers == [1, 1], "they remember their numbers")?;
    world.rejoin(cuts);
    world.throughout(MINUTE, "the third node holds back its judgement", |w| w.node(2).degraded().is_empty())?;
    world.require(["m0", "m1"].iter().all(|id| world.shown_everywhere(id, Status::Down)), "a dead member is up")?;
    world.settle()
}

/// A node that has lost its disk starts beside a restarted one, with a number that a third node has retired. A client takes
/// a member there and dies with the node. The third node hears of it when it is dead for long: it rejects the records of that
/// number, and its client keeps the member.
pub(super) fn taken_at_a_retired_number(world: &mut World) -> ScenarioResult {
    retire_numbers(world, &[0])?;
    let keeper = world.add_client_fixed("keeper", &["m"], 0);
    world.up(&["m"])?;
    world.crash(1, Crash::Process);
    world.crash(2, Crash::Process);
    let cuts = world.partition(&[1, 2], &[0]);
    world.hosts[2].has_disk = false;
    world.start(1);
    world.start(2);
    world.run_until(|w| [1, 2].iter().all(|host| w.node(*host).is_serving()), 30 * SECOND)?;
    world.require(world.node(2).origin().incarnation.number == 1, "it remembers its number")?;
    let taker = world.add_client_fixed("taker", &[], 2);
    world.run_until(|w| w.at(taker, 2), 10 * SECOND)?;
    world.raise_claim(taker, 50);
    world.client_move(taker, Some(2));
    world.pass(2 * SECOND)?;
    world.register(taker, "m");
    world.run_until(|w| w.status(1, "m") == Some(Status::Up), 5 * SECOND)?;
    world.client_crash(taker, false);
    world.crash(2, Crash::Process);
    world.start(2);
    world.pass(micros(world.setup.timers.admission_window()) + 5 * SECOND)?;
    world.rejoin(cuts);
    world.run_until(|w| w.owned_by("m", 0), 10 * MINUTE)?;
    world.require(world.holds(keeper, "m"), "the keeper has lost its member")?;
    world.settle()
}

/// A node that has lost its disk starts beside a restarted one, with a number that a third node has retired. A member moves to
/// it from the restarted node. The third node then receives the writes of the restarted node from that node itself. The write
/// that replaced one of them comes with them, although it has a retired number.
pub(super) fn moved_to_a_retired_number(world: &mut World) -> ScenarioResult {
    retire_numbers(world, &[0])?;
    world.crash(1, Crash::Process);
    world.crash(2, Crash::Process);
    let [first, second] = [1, 2].map(|host| world.partition(&[host], &[0]));
    world.hosts[2].has_disk = false;
    world.start(1);
    world.start(2);
    world.run_until(|w| [1, 2].iter().all(|host| w.node(*host).is_serving()), 30 * SECOND)?;
    world.require(world.node(2).origin().incarnation.number == 1, "it remembers its number")?;
    let client = world.add_client_at("c", &["m"], 1);
    let cuts = world.keep_to(client, &[1, 2]);
    world.run_until(|w| w.at(client, 1) && w.status(2, "m") == Some(Status::Up), 10 * SECOND)?;
    world.go(client, 2);
    let moved = |w: &World| w.at(client, 2) && w.member(1, "m").is_some_and(|m| m.owner().node == "n2");
    world.run_until(moved, 10 * SECOND)?;
    let last = world.node(1).last_dot();
    world.rejoin(first);
    world.run_until(|w| w.node(0).context().get(&last.origin) >= last.n, 30 * SECOND)?;
    world.require(world.status(0, "m") == Some(Status::Up), "the context covers a record that is missing")?;
    world.rejoin(second);
    world.rejoin(cuts);
    world.settle()
}

/// A node that has had several incarnations restarts with nothing but its id: its peers report the next number.
pub(super) fn crash_and_restart_with_lower_counters(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.up(&["m"])?;
    world.register_name(0, "name", "first");
    for _ in 0..3 {
        world.crash(0, Crash::Process);
        world.pass(2 * SECOND)?;
        world.start(0);
        world.run_until(World::all_serving, 20 * SECOND)?;
    }
    let high = world.node(0).origin().incarnation;
    world.require(high.number == 4, &format!("three restarts lead to {high:?}"))?;
    world.go(client, 0);
    world.run_until(|w| w.owned_by("m", 0), 10 * SECOND)?;
    let log = Log::on(world);
    world.crash(0, Crash::Process);
    world.hosts[0].has_disk = false;
    world.pass(2 * SECOND)?;
    world.start(0);
    world.run_until(World::all_serving, 20 * SECOND)?;
    world.require(world.node(0).origin().incarnation.number == 5, "the number did not increase")?;
    world.run_until(|w| w.attached(client), 20 * SECOND)?;
    world.go(client, 0);
    world.run_until(|w| w.owned_by("m", 0) && w.named_everywhere("name", "first"), 10 * SECOND)?;
    world.set(client, "m", &"after");
    world.run_until(|w| (0..3).all(|host| w.value(host, "m").as_deref() == Some("after")), 5 * SECOND)?;
    log.never(world, Status::Down)?;
    world.settle()
}

/// A second process with the id of a running node: it is rejected, retries for a while and stops. No other node is
/// affected.
pub(super) fn two_processes_with_one_id(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 2);
    world.up(&["m"])?;
    let log = Log::on(world);
    let origin = world.node(2).origin().clone();
    let second = world.add_second_process(2);
    world.start(second);
    let start = world.now;
    world.run_until(|w| !w.hosts[second].running(), 40 * SECOND)?;
    let last_line = log.end_of(second).unwrap_or_default();
    world.require(
        last_line.contains("IdentityConflict"),
        &format!("the second process ended for another reason: {last_line}"),
    )?;
    world.require(world.now >= start + 19 * SECOND, "the second process stopped at once")?;
    world.pass(30 * SECOND)?;
    world.require(world.at(client, 2) && *world.node(2).origin() == origin, "the first process was disturbed")?;
    log.never(world, Status::Down)?;
    log.never(world, Status::Left)?;
    world.settle()
}

/// One node has no link to the first process and accepts a second one with its id; another node rejects it. The second
/// process does not serve: the registry that it received is not kept current.
pub(super) fn rejected_process_does_not_serve(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let cuts = world.partition(&[2], &[0]);
    world.pass(10 * SECOND)?;
    let second = world.add_second_process(2);
    world.start(second);
    for _ in 0..15 {
        world.pass(SECOND)?;
        world.require(world.hosts[second].serving().is_none(), "the second process serves")?;
    }
    world.rejoin(cuts);
    world.run_until(|w| !w.hosts[2].running() || !w.hosts[second].running(), 40 * SECOND)?;
    world.settle()
}

/// Two established processes with one id meet when a split heals: the older one stops, and its members move.
pub(super) fn two_processes_with_one_id_meet(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 2);
    world.up(&["m"])?;
    let log = Log::on(world);
    let second = world.add_second_process(2);
    let cuts = world.partition(&[2], &[0, 1, second]);
    world.pass(5 * SECOND)?;
    world.start(second);
    world.run_until(|w| w.hosts[second].serving().is_some(), 20 * SECOND)?;
    world.require(
        world.node(second).origin() > world.node(2).origin(),
        "the second process does not have a higher number",
    )?;
    world.pass(5 * SECOND)?;
    world.rejoin(cuts);
    world.run_until(|w| !w.hosts[2].running(), 30 * SECOND)?;
    let last_line = log.end_of(2).unwrap_or_default();
    world.require(
        last_line.contains("IdentityConflict"),
        &format!("the first process ended for another reason: {last_line}"),
    )?;
    world.require(world.hosts[second].running(), "both stopped")?;
    world.run_until(|w| w.attached(client), 20 * SECOND)?;
    world.up(&["m"])?;
    world.settle()
}

/// Two processes with one id are linked to different nodes, and no node has links to both. They learn of each other only from
/// reports, which stop nobody. They meet at the address in the node record, and the older one stops.
pub(super) fn two_processes_with_one_id_meet_by_reports(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 2);
    world.up(&["m"])?;
    let log = Log::on(world);
    let second = world.add_second_process(2);
    let split = world.partition(&[0, 2], &[1, second]);
    let (first_apart, second_apart) = (world.partition(&[2], &[1]), world.partition(&[second], &[0]));
    world.pass(5 * SECOND)?;
    world.start(second);
    world.run_until(|w| w.hosts[second].serving().is_some(), 20 * SECOND)?;
    world.pass(5 * SECOND)?;
    world.rejoin(split);
    world.run_until(|w| !w.hosts[2].running(), 60 * SECOND)?;
    let last_line = log.end_of(2).unwrap_or_default();
    world.require(
        last_line.contains("IdentityConflict"),
        &format!("the first process ended for another reason: {last_line}"),
    )?;
    world.require(world.hosts[second].running(), "both stopped")?;
    world.rejoin(first_apart);
    world.rejoin(second_apart);
    world.run_until(|w| w.attached(client), 20 * SECOND)?;
    world.up(&["m"])?;
    world.settle()
}

/// The survivors retire a dead node at different times, and one of them is restarted meanwhile. None of the dead
/// node's records come back.
pub(super) fn dead_node_retired_at_different_times_never_returns(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.register_name(0, "name", "there");
    world.up(&["m"])?;
    world.run_until(|w| w.named_everywhere("name", "there"), 5 * SECOND)?;
    world.lose(0, Crash::Silent);
    world.client_crash(client, true);
    world.pass(5 * MINUTE)?;
    world.require(world.named_everywhere("name", "there"), "a name expired early")?;
    world.pass(5 * MINUTE)?;
    world.crash(2, Crash::Process);
    world.start(2);
    world.run_until(World::all_serving, 20 * SECOND)?;
    world.require(world.location(2, "name").is_some(), "the restarted node did not receive the name")?;
    let cuts = world.partition(&[1], &[2]);
    world.run_until(|w| w.location(1, "name").is_none(), 7 * MINUTE)?;
    let rejoined = world.now;
    world.rejoin(cuts);
    world.run_until(|w| w.location(2, "name").is_none(), MINUTE)?;
    while world.now < rejoined + 25 * MINUTE {
        world.pass(SECOND)?;
        world.require((1..3).all(|host| world.location(host, "name").is_none()), "the name is back")?;
        world.require(world.absent_everywhere("m"), "the member is back")?;
    }
    let dead = world.hosts[0].id.clone();
    let clean = |host: usize| world.node(host).slots().iter().all(|slot| slot.origin.node != dead);
    world.require(clean(1) && clean(2), "something of the dead node is still held")?;
    world.settle()
}

/// A node with a live client, a client that dies, and a name; behind a partition for so long that the others write it
/// off.
struct Behind {
    alive: usize,
    claim: Option<u64>,
    origin: convoke_core::version::OriginId,
    cuts: [u64; 2],
}

fn written_off_behind_a_partition(world: &mut World, time: Micros) -> Result<Behind, Violation> {
    world.begin()?;
    let alive = world.add_client_fixed("alive", &["alive"], 0);
    let dies = world.add_client_fixed("dies", &["dies"], 0);
    world.register_name(0, "name", "here");
    world.up(&["alive", "dies"])?;
    world.run_until(|w| w.named_everywhere("name", "here"), 5 * SECOND)?;
    let claim = world.claim(0, "alive");
    let origin = world.node(0).origin().clone();
    let cuts = world.partition(&[0], &[1, 2]);
    world.client_crash(dies, true);
    world.pass(time)?;
    world.finish()?;
    world.require((1..3).all(|host| world.location(host, "name").is_none()), "the lost node's name is still shown")?;
    world.require((1..3).all(|host| world.member(host, "alive").is_none()), "the lost node's member is still shown")?;
    world.require(world.member(0, "dies").is_none(), "the dead client's member is still shown by its own node")?;
    Ok(Behind { alive, claim, origin, cuts })
}

/// A live node that was written off does not publish members that died meanwhile.
pub(super) fn dead_members_are_not_republished(world: &mut World) -> ScenarioResult {
    let behind = written_off_behind_a_partition(world, 16 * MINUTE)?;
    let log = Log::on(world);
    world.rejoin(behind.cuts);
    world.up(&["alive"])?;
    world.throughout(2 * MINUTE, "a dead member is shown", |w| w.absent_everywhere("dies"))?;
    log.never_shown(world, "dies")?;
    world.settle()
}

/// It returns unchanged: the same incarnation, the same names, the same ranks.
pub(super) fn written_off_node_returns_unchanged(world: &mut World) -> ScenarioResult {
    let behind = written_off_behind_a_partition(world, 16 * MINUTE)?;
    world.rejoin(behind.cuts);
    world.up(&["alive"])?;
    world.run_until(|w| w.named_everywhere("name", "here"), 10 * SECOND)?;
    world.require(*world.node(0).origin() == behind.origin, "the node took a new incarnation")?;
    let same = |w: &World, host: usize| {
        let slot = w.node(host).slot("alive");
        let name = w.node(host).name("name");
        slot.is_some_and(|slot| Some(slot.claim) == behind.claim && slot.origin == behind.origin)
            && name.is_some_and(|name| name.node == behind.origin.node && name.location == "here")
    };
    world.throughout(MINUTE, "it returned changed", |w| (0..3).all(|host| same(w, host)))?;
    let retired = (1..3).any(|host| world.node(host).retired().iter().any(|(_, i)| *i >= behind.origin.incarnation));
    world.require(!retired, "a node still counts it as retired")?;
    world.settle()
}

/// No watcher sees a gap, neither on its own side nor, once it has returned, on the other.
pub(super) fn no_gap_for_a_written_off_node(world: &mut World) -> ScenarioResult {
    let log = Log::on(world);
    let behind = written_off_behind_a_partition(world, 16 * MINUTE)?;
    world.rejoin(behind.cuts);
    world.up(&["alive"])?;
    let back = world.now;
    world.throughout(2 * MINUTE, "a gap", |w| w.shown_everywhere("alive", Status::Up) && w.at(behind.alive, 0))?;
    let gaps = |host: usize, since: Micros| {
        let reported = log.of("alive").into_iter().filter(|seen| seen.host == host && seen.at >= since);
        reported.filter(|seen| seen.shown().is_some_and(|(_, status)| status != Status::Up)).count()
    };
    world.require(gaps(0, 0) == 0, "a gap on the node's own side")?;
    world.require(gaps(1, back) + gaps(2, back) == 0, "a gap after its return")?;
    world.settle()
}

/// An hour behind a partition, longer than incarnations are kept at all: the node returns unchanged, and no dead
/// members with it.
pub(super) fn live_node_retired_behind_a_partition_returns(world: &mut World) -> ScenarioResult {
    let behind = written_off_behind_a_partition(world, 60 * MINUTE)?;
    let log = Log::on(world);
    world.require(world.status(0, "alive") == Some(Status::Up), "the node's own side lost its member")?;
    world.rejoin(behind.cuts);
    world.up(&["alive"])?;
    world.run_until(|w| w.named_everywhere("name", "here"), 10 * SECOND)?;
    world.throughout(2 * MINUTE, "the state did not last", |w| {
        w.shown_everywhere("alive", Status::Up) && w.named_everywhere("name", "here") && w.at(behind.alive, 0)
    })?;
    let same = (0..3).all(|host| world.claim(host, "alive") == behind.claim);
    world.require(same && *world.node(0).origin() == behind.origin, "it returned changed")?;
    log.never_shown(world, "dies")?;
    world.settle()
}

/// Shorter and longer than the horizons: each side keeps its own members, and after each partition both have
/// everything.
pub(super) fn partitions_of_14_16_and_40_minutes(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let one = world.add_client_fixed("one", &["one"], 0);
    let two = world.add_client_at("two", &["two"], 1);
    world.keep_to(two, &[1, 2]);
    world.register_name(0, "name-one", "zero");
    world.register_name(1, "name-two", "one");
    world.up(&["one", "two"])?;
    let claims = [world.claim(0, "one"), world.claim(1, "two")];
    let log = Log::on(world);
    for minutes in [14, 16, 40] {
        let cuts = world.partition(&[0], &[1, 2]);
        world.pass(minutes * MINUTE)?;
        let kept = minutes < 15;
        world.require(world.location(1, "name-one").is_some() == kept, "names are kept for fifteen minutes")?;
        world.require(world.location(0, "name-two").is_some() == kept, "names are kept for fifteen minutes")?;
        world.require(
            world.member(1, "one").is_none() && world.member(0, "two").is_none(),
            "the other side never left",
        )?;
        world.rejoin(cuts);
        world.up(&["one", "two"])?;
        world.run_until(
            |w| w.named_everywhere("name-one", "zero") && w.named_everywhere("name-two", "one"),
            10 * SECOND,
        )?;
        let same = (0..3).all(|host| [world.claim(host, "one"), world.claim(host, "two")] == claims);
        world.require(same, "healing needed a new claim")?;
        world.pass(MINUTE)?;
    }
    let flapped = |id: &str, side: std::ops::Range<usize>| {
        let other = |seen: &Seen| seen.shown().is_some_and(|(_, status)| status != Status::Up);
        log.of(id).into_iter().any(|seen| side.contains(&seen.host) && other(&seen))
    };
    world.require(!flapped("one", 0..1) && !flapped("two", 1..3), "a watcher saw its own side lose a member")?;
    world.require(world.at(one, 0) && world.attached(two), "a client lost its node")?;
    world.settle()
}

/// A node is cut off from one that dies later. The first node drops the dead node's names, the others have not yet
/// done so. The next incarnation, which has no record of those names, meets the first node first and cannot unregister
/// them.
pub(super) fn name_of_an_older_incarnation_dropped_by_some(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.register_name(2, "name", "two");
    world.run_until(|w| w.named_everywhere("name", "two"), 5 * SECOND)?;
    let cuts = world.partition(&[0], &[1, 2]);
    world.pass(10 * MINUTE)?;
    world.crash(2, Crash::Process);
    world.hosts[2].names.clear();
    world.run_until(|w| w.location(0, "name").is_none(), 6 * MINUTE)?;
    world.require(world.location(1, "name").is_some(), "all dropped it at the same time")?;
    let apart = world.partition(&[1], &[0, 2]);
    world.rejoin(cuts);
    world.start(2);
    world.run_until(World::all_serving, 30 * SECOND)?;
    world.rejoin(apart);
    world.run_until(|w| (0..3).all(|host| w.location(host, "name").is_none()), 30 * SECOND)?;
    world.settle()
}

/// Four nodes, with coarse checks every few seconds.
pub(super) fn watched_four() -> Setup {
    Setup { nodes: 4, check_period: 2 * SECOND, ..Setup::default() }
}

/// A node that the other side has written off is paused before it receives that. The others consider it alive, and it
/// restates its records when it resumes.
pub(super) fn written_off_node_is_paused_as_it_returns(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let cuts = world.partition(&[0, 3], &[1, 2]);
    let forgotten = |w: &World| (1..3).all(|host| w.forgotten(host, "convoke.n0"));
    world.run_until(forgotten, 50 * MINUTE)?;
    world.pause(0, 21 * SECOND);
    world.rejoin(cuts);
    world.pass(19 * SECOND)?;
    world.require(forgotten(world), "another node restated records of the paused node")?;
    world.up(&["convoke.n0"])?;
    world.settle()
}

/// Every node is killed and started again: clients restore everything, and watchers see no member vanish.
pub(super) fn total_restart(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let clients: Vec<usize> =
        (0..6).map(|i| world.add_client_at(&format!("c{i}"), &[&format!("m{i}")], i % 3)).collect();
    let ids: Vec<String> = (0..6).map(|i| format!("m{i}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    world.register_name(1, "name", "one");
    world.up(&ids)?;
    let watcher = world.watch_at(0);
    world.run_until(|w| w.caught_up(watcher), 10 * SECOND)?;
    let log = Log::on(world);
    for host in 0..3 {
        world.crash(host, Crash::Process);
    }
    world.require(world.hosts.iter().all(|host| host.state == HostState::Down), "a node survived")?;
    world.pass(3 * SECOND)?;
    world.start_all();
    world.run_until(World::all_serving, 30 * SECOND)?;
    world.run_until(|w| clients.iter().all(|client| w.attached(*client)), 30 * SECOND)?;
    world.up(&ids)?;
    world.run_until(|w| w.named_everywhere("name", "one"), 5 * SECOND)?;
    world.run_until(|w| w.caught_up(watcher) && w.watchers[watcher].view.len() == 6, MINUTE)?;
    let removed =
        log.by(watcher).into_iter().any(|e| matches!(e, convoke_core::node::StreamEvent::Unregistered { .. }));
    world.require(!removed, "a watcher saw a live member leave")?;
    world.settle()
}
