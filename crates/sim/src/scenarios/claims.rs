//! Which client owns a member when several claim it (D3, C1, C2, C4).

use super::log::{Log, Seen};
use super::support::ScenarioResult;
use crate::client::ProcessState;
use crate::network::{MINUTE, SECOND};
use crate::world::{Crash, Setup, World};
use convoke_core::member::{MetadataUpdate, Status};

/// B claims the member, A takes it over after receiving that claim, C claims it without having received either; ids
/// are ordered A < C < B. Each seed is one of the orders in which a fourth node receives the three.
pub(super) fn three_claims_in_all_orders(world: &mut World) -> ScenarioResult {
    const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let order = ORDERS[(world.setup.seed as usize + 5) % 6];
    world.begin()?;
    let mut cuts = world.scatter();
    cuts.join(world, 0, 2);
    let b = world.add_client_fixed("b", &["m"], 2);
    world.run_until(|w| w.status(0, "m") == Some(Status::Up), 5 * SECOND)?;
    cuts.part(world, 0, 2);
    let a = world.add_taker_at("a", &["m"], 0);
    world.keep_to(a, &[0]);
    let c = world.add_client_fixed("c", &["m"], 1);
    world.raise_claim(c, 1);
    world.run_until(|w| w.attached(a) && w.attached(c), 5 * SECOND)?;
    let claims = [0, 1, 2].map(|host| world.claim(host, "m"));
    world.require(claims == [Some(2), Some(2), Some(1)], &format!("the three claims are {claims:?}"))?;

    let winner = |met: &[usize]| ["a", "c", "b"][met.iter().copied().min().unwrap_or(0)];
    for met in 1..=3 {
        let from = order[met - 1];
        let expected = winner(&order[..met]);
        cuts.join(world, 3, from);
        let holds = |w: &World| w.node(3).slot("m").is_some_and(|slot| slot.client == expected);
        world.run_until(holds, 15 * SECOND)?;
        world.throughout(3 * SECOND, "the higher claim was replaced", holds)?;
        cuts.part(world, 3, from);
    }
    world.heal_all();
    world.run_until(|w| w.owned_by("m", 0) && w.shown_everywhere("m", Status::Up), 20 * SECOND)?;
    world.require(world.holds(a, "m"), "the winner lost the member")?;
    world.run_until(|w| !w.holds(b, "m") && !w.holds(c, "m"), 5 * SECOND)?;
    let conflicts: u64 = (0..4).map(|host| world.node(host).counters().conflicts).sum();
    world.require(conflicts > 0, "no node reported the conflict")?;
    world.settle()
}

/// Claims of different clients are compared: a tombstone of a client that attached often must not hide a new client.
pub(super) fn old_tombstone_does_not_hide_a_new_client(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let old = world.add_client_at("old", &["m"], 0);
    world.up(&["m"])?;
    for turn in 1..7 {
        world.go(old, turn % 3);
        world.run_until(|w| w.at(old, turn % 3), 5 * SECOND)?;
    }
    world.up(&["m"])?;
    world.client_unregister(old, "m");
    world.run_until(|w| w.absent_everywhere("m"), 5 * SECOND)?;
    let tombstone = world.claim(1, "m").unwrap_or(0);
    world.require(tombstone >= 7, "the tombstone has a low claim")?;
    let new = world.add_client_at("new", &["m"], 1);
    world.up(&["m"])?;
    world.require(
        world.holds(new, "m") && world.claim(2, "m") == Some(tombstone + 1),
        "the new client did not claim above the tombstone",
    )?;
    world.settle()
}

/// A former owner behind a partition keeps updating a member that moved: more writes, but with a lower claim.
pub(super) fn takeover_while_ex_owner_updates_metadata(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.up(&["m"])?;
    let old = world.stream_of(client);
    let cuts = world.partition(&[0], &[1, 2]);
    world.go(client, 1);
    world.run_until(|w| w.at(client, 1), 5 * SECOND)?;
    world.set(client, "m", &"new");
    for turn in 1..=30 {
        let update = MetadataUpdate::set("v", format!("old {turn}"));
        let done = world.with_node(0, |node, time, out| {
            Some(node.update(time, old.session, turn, "m", &update, None, out).is_ok())
        });
        world.require(done == Some(true), "the former owner has received the move already")?;
        world.pass(SECOND)?;
    }
    let (ex, owner) = (world.rank(0, "m"), world.rank(1, "m"));
    let ahead = ex.as_ref().map(|r| r.1) > owner.as_ref().map(|r| r.1);
    world.require(ahead && ex < owner, &format!("ranks are {ex:?} and {owner:?}"))?;
    world.rejoin(cuts);
    world.run_until(|w| (0..3).all(|host| w.value(host, "m").as_deref() == Some("new")), 15 * SECOND)?;
    world.require(world.owned_by("m", 1) && world.at(client, 1), "the member did not stay with the new owner")?;
    let accepted = world.with_node(0, |node, time, out| Some(node.heartbeat(time, old.session, out).is_ok()));
    world.require(accepted == Some(false), "the old session still exists")?;
    world.settle()
}

/// The client's last call wins, whichever of its two nodes is received first. Seeds: last call × order of arrival.
pub(super) fn unregister_then_reregister_elsewhere(world: &mut World) -> ScenarioResult {
    let registers_last = world.even_seed();
    let order = if world.setup.seed % 4 < 2 { [0, 1] } else { [1, 0] };
    world.begin()?;
    let client = world.add_client_at("c", &["m", "other"], 0);
    world.up(&["m", "other"])?;
    let mut cuts = world.scatter();
    if registers_last {
        world.client_unregister(client, "m");
        world.run_until(|w| w.clients[client].unregistered.is_empty(), 5 * SECOND)?;
    }
    world.go(client, 1);
    world.run_until(|w| w.at(client, 1), 5 * SECOND)?;
    if registers_last {
        world.register(client, "m");
        world.run_until(|w| w.clients[client].pending.is_empty(), 5 * SECOND)?;
    } else {
        world.client_unregister(client, "m");
        world.run_until(|w| w.clients[client].unregistered.is_empty(), 5 * SECOND)?;
    }
    let other_view = world.member(0, "m").is_some();
    world.require(other_view != registers_last, "the old node has received it already")?;
    for from in order {
        cuts.join(world, 2, from);
        world.pass(8 * SECOND)?;
    }
    let last = |w: &World, host| w.member(host, "m").is_some() == registers_last;
    world.require(last(world, 2), "the node that received both does not show the last call")?;
    world.heal_all();
    world.run_until(|w| (0..3).all(|host| last(w, host)), 15 * SECOND)?;
    world.throughout(MINUTE, "the result of the last call did not last", |w| (0..3).all(|host| last(w, host)))?;
    world.settle()
}

/// Two clients register one id on the two sides of a split. One wins, the other is notified; they do not keep
/// competing.
pub(super) fn two_clients_one_id_two_sides(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let cuts = world.partition(&[0], &[1, 2]);
    let a = world.add_client_fixed("a", &["m", "a"], 0);
    let b = world.add_client_at("b", &["m", "b"], 1);
    world.keep_to(b, &[1, 2]);
    world.run_until(|w| w.attached(a) && w.attached(b), 10 * SECOND)?;
    world.pass(10 * SECOND)?;
    world.require(
        world.status(0, "m") == Some(Status::Up) && world.status(2, "m") == Some(Status::Up),
        "not up on its side",
    )?;
    world.rejoin(cuts);
    world.run_until(|w| w.holds(a, "m") != w.holds(b, "m"), 15 * SECOND)?;
    world.up(&["m", "a", "b"])?;
    let (rank, winner) = (world.rank(0, "m"), if world.holds(a, "m") { "a" } else { "b" });
    world.throughout(MINUTE, "the two keep competing", |w| {
        let settled = |host| w.rank(host, "m") == rank && w.member(host, "m").is_some_and(|m| m.client() == winner);
        (0..3).all(settled) && w.attached(a) && w.attached(b)
    })?;
    world.settle()
}

/// Two processes with one client id: the second supersedes the first, which retries once and then stops.
pub(super) fn two_processes_with_one_client_id(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let first = world.add_client_at("c", &["m"], 0);
    world.up(&["m"])?;
    let log = Log::on(world);
    world.second_process(first);
    let second = world.clients.len() - 1;
    let ended = |w: &World, client: usize| w.clients[client].process == ProcessState::Stopped;
    world.run_until(|w| ended(w, first) || ended(w, second), 3 * MINUTE)?;
    let living = if ended(world, first) { second } else { first };
    world.require(living == second, "the older process won")?;
    world.require(world.attached(living) && world.clients[living].claim <= 4, "the two kept superseding each other")?;
    log.never(world, Status::Down)?;
    log.never(world, Status::Left)?;
    world.settle()
}

/// Wall clocks an hour apart, and one that steps back between two writes: the last acknowledged write is shown, and
/// the decisions are the same as with correct clocks.
pub(super) fn clocks_an_hour_apart_and_stepping_back(world: &mut World) -> ScenarioResult {
    const HOUR_MS: i64 = 3_600_000;
    let mut other = World::new(Setup { wall_seed: !world.setup.wall_seed, ..world.setup.clone() });
    moves_and_updates(&mut other, |_, _| {})?;
    for (host, offset) in [(0, HOUR_MS), (1, -HOUR_MS), (2, 0)] {
        world.hosts[host].wall_offset = offset;
    }
    moves_and_updates(world, |w, turn| w.hosts[turn % 3].wall_offset -= HOUR_MS)?;
    let same = world.trace.decisions == other.trace.decisions;
    world.require(same, "wall clocks changed decisions")
}

fn moves_and_updates(world: &mut World, tamper: impl Fn(&mut World, usize)) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.up(&["m"])?;
    let created = world.member(0, "m").map(|member| member.created());
    for turn in 0..9 {
        world.set(client, "m", &turn);
        world.run_until(|w| (0..3).all(|host| w.value(host, "m") == Some(turn.to_string())), 5 * SECOND)?;
        tamper(world, turn);
        world.set(client, "m", &format!("{turn} again"));
        world.run_until(|w| (0..3).all(|host| w.value(host, "m") == Some(format!("{turn} again"))), 5 * SECOND)?;
        world.go(client, (turn + 1) % 3);
        world.run_until(|w| w.owned_by("m", (turn + 1) % 3), 5 * SECOND)?;
    }
    world.require(world.member(0, "m").map(|member| member.created()) == created, "the time of creation changed")?;
    world.settle()
}

/// On one side of a split, a client that had attached often leaves. On the other side, a new client registers the same
/// id without having received any of that. The old client's tombstone ranks higher, but the new client is alive.
pub(super) fn earlier_tombstone_meets_a_living_client(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let cuts = world.partition(&[0, 1], &[2]);
    world.pass(30 * SECOND)?;
    let old = world.add_client_at("old", &["m"], 0);
    for turn in 1..8 {
        world.go(old, turn % 2);
        world.run_until(|w| w.at(old, turn % 2), 5 * SECOND)?;
    }
    world.run_until(|w| w.status(0, "m") == Some(Status::Up), 5 * SECOND)?;
    world.client_unregister(old, "m");
    world.run_until(|w| w.status(0, "m").is_none(), 5 * SECOND)?;
    let newcomer = world.add_client_fixed("newcomer", &["m"], 2);
    world.run_until(|w| w.status(2, "m") == Some(Status::Up), 5 * SECOND)?;
    let (tombstone, living) = (world.claim(0, "m"), world.claim(2, "m"));
    world.require(tombstone > living, &format!("claims {tombstone:?} and {living:?} do not test the rule"))?;
    world.rejoin(cuts);
    let log = Log::on(world);
    world.run_until(|w| w.shown_everywhere("m", Status::Up) && w.owned_by("m", 2), 20 * SECOND)?;
    let gone = |seen: &Seen| seen.host == 2 && seen.shown().is_some_and(|(_, status)| status == Status::Left);
    world.require(!log.of("m").iter().any(gone), "its own node showed it as left")?;
    world.require(world.holds(newcomer, "m"), "the new client lost the member")?;
    // It can still move: it learns the claim it needs.
    world.heal_all();
    world.go(newcomer, 1);
    world.run_until(|w| w.at(newcomer, 1) && w.owned_by("m", 1), 20 * SECOND)?;
    world.settle()
}

/// A client's process dies behind a partition, where it had attached more often than the other side knows. The next
/// process starts on the other side with a lower claim. The earlier record, down or already left, does not end its
/// registration, and it is not reported as superseded.
pub(super) fn earlier_process_meets_its_successor(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let client = world.add_client_at("c", &["m"], 0);
    world.up(&["m"])?;
    let cuts = world.partition(&[0, 1], &[2]);
    for turn in 1..5 {
        world.go(client, turn % 2);
        world.run_until(|w| w.at(client, turn % 2), 5 * SECOND)?;
    }
    world.client_crash(client, true);
    world.keep_to(client, &[2]);
    world.client_start(client);
    world.run_until(|w| w.at(client, 2), MINUTE)?;
    let left = world.even_seed();
    let expected = if left { None } else { Some(Status::Down) };
    world.run_until(|w| w.status(0, "m") == expected && w.status(1, "m") == expected, 7 * MINUTE)?;
    let (earlier, current) = (world.claim(0, "m"), world.claim(2, "m"));
    world.require(earlier > current, &format!("claims {earlier:?} and {current:?} do not test the rule"))?;
    let log = Log::on(world);
    world.rejoin(cuts);
    world.run_until(|w| w.owned_by("m", 2) && w.shown_everywhere("m", Status::Up), 20 * SECOND)?;
    let gone = |seen: &Seen| seen.host == 2 && seen.shown().is_some_and(|(_, status)| status != Status::Up);
    world.require(!log.of("m").iter().any(gone), "its own node did not show it as up")?;
    world.require(world.at(client, 2) && world.holds(client, "m"), "the client lost its session or the member")?;
    world.settle()
}

/// On one side of a split, a client that had attached often dies with its node. On the other side, a new client
/// registers the same id without having received any of that. The silent owner's record ranks higher, but the new
/// client is alive. Seeds: the record arrives before or after it was inferred to have left; or the old client lives
/// and is notified that it lost.
pub(super) fn silent_owner_meets_a_living_client(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let cuts = world.partition(&[0, 1], &[2]);
    world.pass(30 * SECOND)?;
    let old = world.add_client_at("old", &["m"], 0);
    for turn in 1..7 {
        world.go(old, turn % 2);
        world.run_until(|w| w.at(old, turn % 2), 5 * SECOND)?;
    }
    world.run_until(|w| w.status(1, "m") == Some(Status::Up) && w.claim(0, "m") == w.claim(1, "m"), 5 * SECOND)?;
    let newcomer = world.add_client_fixed("newcomer", &["m"], 2);
    world.run_until(|w| w.status(2, "m") == Some(Status::Up), 5 * SECOND)?;
    let (leftover, living) = (world.claim(0, "m"), world.claim(2, "m"));
    world.require(leftover > living, &format!("claims {leftover:?} and {living:?} do not test the rule"))?;
    let old_client_lives = world.setup.seed.is_multiple_of(3);
    let between = if old_client_lives {
        world.keep_to(old, &[0]);
        Some(world.partition(&[0], &[1, 2]))
    } else {
        world.client_crash(old, true);
        world.lose(0, Crash::Silent);
        None
    };
    let inferred = world.setup.seed % 3 == 2;
    let expected = if inferred { None } else { Some(Status::Down) };
    world.run_until(|w| w.status(1, "m") == expected, 7 * MINUTE)?;
    let log = Log::on(world);
    world.rejoin(cuts);
    world.run_until(|w| (1..3).all(|host| w.status(host, "m") == Some(Status::Up)), 20 * SECOND)?;
    let gone = |seen: &Seen| seen.host == 2 && seen.shown().is_some_and(|(_, status)| status != Status::Up);
    world.require(!log.of("m").iter().any(gone), "its own node showed it as left")?;
    world.require(world.holds(newcomer, "m"), "the new client lost the member")?;
    if let Some(between) = between {
        world.rejoin(between);
        world.run_until(|w| !w.holds(old, "m"), 20 * SECOND)?;
        let claim = world.claim(2, "m");
        world.throughout(30 * SECOND, "the two keep competing", |w| w.claim(2, "m") == claim && w.owned_by("m", 2))?;
    }
    world.settle()
}

/// A client takes over a member that another client registered behind a split, and dies with its node. Seeds: the
/// member is still registered there and is lost; or another client registered it since and loses nothing.
pub(super) fn takeover_by_a_client_that_dies(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let newcomer = world.add_client_fixed("newcomer", &["own"], 2);
    let first = world.add_client_fixed("first", &["m"], 2);
    world.up(&["own", "m"])?;
    let cuts = world.partition(&[0, 1], &[2]);
    let rival = world.add_taker_at("rival", &["m"], 0);
    world.raise_claim(rival, 10);
    world.run_until(|w| w.attached(rival) && w.claim(1, "m") > w.claim(2, "m"), 10 * SECOND)?;
    world.set(rival, "m", &"taken");
    world.run_until(|w| w.value(1, "m").as_deref() == Some("taken"), 5 * SECOND)?;
    let since = world.even_seed();
    if since {
        world.client_unregister(first, "m");
        world.run_until(|w| w.clients[first].unregistered.is_empty(), 5 * SECOND)?;
        world.register(newcomer, "m");
        world.run_until(|w| w.status(2, "m") == Some(Status::Up) && w.attached(newcomer), 5 * SECOND)?;
        world.require(world.claim(0, "m") > world.claim(2, "m"), "the claims are in the wrong order")?;
    }
    world.client_crash(rival, true);
    world.lose(0, Crash::Silent);
    world.run_until(|w| w.status(1, "m") == Some(Status::Down), 2 * MINUTE)?;
    world.rejoin(cuts);
    let (expected, client) = if since { (Status::Up, "newcomer") } else { (Status::Down, "rival") };
    let shown = |w: &World, host| w.member(host, "m").is_some_and(|m| m.status() == expected && m.client() == client);
    world.run_until(|w| (1..3).all(|host| shown(w, host)), 20 * SECOND)?;
    world.require(!world.holds(first, "m") && world.holds(newcomer, "m") == since, "the wrong client was notified")?;
    world.settle()
}
