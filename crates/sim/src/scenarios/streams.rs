//! Watchers that reconnect (W3–W5): exact views, and no member that vanishes in between.

use super::log::Log;
use super::support::ScenarioResult;
use crate::invariants::Violation;
use crate::network::{MINUTE, Micros, SECOND};
use crate::watcher::Return;
use crate::world::{Setup, World};
use convoke_core::Timers;
use convoke_core::member::{Member, Status};
use convoke_core::node::{ResetReason, StreamEvent};
use std::time::Duration;

/// Marks are frequent.
pub(super) fn many_marks() -> Setup {
    let timers = Timers { mark_interval: Duration::from_millis(200), ..Timers::default() };
    Setup { timers, ..Setup::default() }
}

/// Prepares one client with members of every kind, and a watcher at n0 that has seen them.
fn prepare(world: &mut World) -> Result<(usize, usize), Violation> {
    world.begin()?;
    // After the grace period in which no member is reported as absent (N3).
    world.pass(30 * SECOND)?;
    let client = world.add_client_fixed("c", &["kept", "changed", "deleted", "again"], 0);
    world.up(&["kept", "changed", "deleted", "again"])?;
    let watcher = world.watch_at(0);
    world.run_until(|w| w.caught_up(watcher) && w.watchers[watcher].view.len() == 4, 10 * SECOND)?;
    world.pass(10 * SECOND)?;
    Ok((client, watcher))
}

/// Adds, changes, deletes, deletes and adds again.
fn change(world: &mut World, client: usize) -> ScenarioResult {
    world.register(client, "added");
    world.set(client, "changed", &"new");
    world.client_unregister(client, "deleted");
    world.client_unregister(client, "again");
    world.register(client, "again");
    world.set(client, "again", &"new");
    world.run_until(|w| w.clients[client].pending.is_empty(), 5 * SECOND)
}

/// Whether the view equals the registry.
fn exact(world: &World, watcher: usize) -> bool {
    let view = &world.watchers[watcher].view;
    let value = |id: &str| view.get(id).and_then(|member| member.metadata().get("v"));
    view.keys().map(String::as_str).eq(["added", "again", "changed", "kept"])
        && view.values().all(|member| member.status() == Status::Up)
        && value("changed") == Some("new")
        && value("again") == Some("new")
}

/// Until the view is exact, and while it stays exact, no live member is missing and no removal is wrong.
fn resumes_exactly(world: &mut World, log: &Log, watcher: usize, within: Micros) -> ScenarioResult {
    let start = world.now;
    while !(world.caught_up(watcher) && exact(world, watcher)) {
        let view = &world.watchers[watcher].view;
        world.require(view.contains_key("kept") && view.contains_key("changed"), "a live member vanished")?;
        let shown = view.keys().collect::<Vec<_>>();
        world.require(world.now < start + within, &format!("the view did not become exact: {shown:?}"))?;
        world.pass(SECOND / 100)?;
        world.finish()?;
    }
    world.throughout(MINUTE, "the view did not stay exact", |w| exact(w, watcher))?;
    for event in log.by(watcher) {
        let fine = match &event {
            StreamEvent::Reset(_) => false,
            // A resuming watcher gets the state of everything that may have changed, known to it or not.
            StreamEvent::Unregistered { id, .. } => !["kept", "changed", "added"].contains(&id.as_str()),
            _ => true,
        };
        world.require(fine, &format!("the watcher got {event:?}"))?;
    }
    Ok(())
}

fn reconnect(world: &mut World, watcher: usize, host: usize, how: Return) -> ScenarioResult {
    let taken = world.watcher_connect(watcher, host, how);
    world.require(taken, "the node rejected the watcher")
}

fn how(world: &World) -> Return {
    [Return::Token, Return::TokenAndKnown, Return::Known][world.setup.seed as usize % 3]
}

/// Reconnects to the same node. Seeds: with its token, with versions, with both.
pub(super) fn offline_watcher_returns_to_the_same_node(world: &mut World) -> ScenarioResult {
    let (client, watcher) = prepare(world)?;
    world.watcher_disconnect(watcher);
    change(world, client)?;
    world.pass(MINUTE)?;
    let log = Log::on(world);
    let how = how(world);
    reconnect(world, watcher, 0, how)?;
    resumes_exactly(world, &log, watcher, SECOND)?;
    world.settle()
}

/// Reconnects to a node that has not received everything the watcher has seen: the node waits and shows nothing old.
pub(super) fn offline_watcher_returns_to_a_lagging_node(world: &mut World) -> ScenarioResult {
    let (client, watcher) = prepare(world)?;
    // Slower in steps, so that no link seems silent in between.
    for extra in [7 * SECOND / 10, 14 * SECOND / 10] {
        world.slow_links(2, extra);
        world.pass(10 * SECOND)?;
    }
    let old = world.watchers[watcher].sdk.token().to_vec();
    change(world, client)?;
    let start = world.now;
    while world.watchers[watcher].sdk.token() == old || !exact(world, watcher) {
        world.pass(SECOND / 100)?;
        world.require(world.now < start + 5 * SECOND / 4, "no mark arrived in time")?;
    }
    world.require(
        world.value(2, "changed").is_none() && world.member(2, "deleted").is_some(),
        "the node does not lag",
    )?;
    let log = Log::on(world);
    let how = if world.even_seed() { Return::Token } else { Return::TokenAndKnown };
    reconnect(world, watcher, 2, how)?;
    let waiting = world.now;
    while !world.caught_up(watcher) {
        world.require(exact(world, watcher), "a lagging node showed something old")?;
        world.require(world.now < waiting + 5 * SECOND, "the node did not catch up")?;
        world.pass(SECOND / 100)?;
    }
    resumes_exactly(world, &log, watcher, SECOND)?;
    world.settle()
}

/// Reconnects to a node that lags for too long: the watcher is reset, and its view is right in the end.
pub(super) fn watcher_ahead_of_a_cut_off_node_is_reset(world: &mut World) -> ScenarioResult {
    let (client, watcher) = prepare(world)?;
    let cuts = world.partition(&[2], &[0, 1]);
    change(world, client)?;
    world.pass(10 * SECOND)?;
    world.require(exact(world, watcher), "the watcher did not see the changes")?;
    let log = Log::on(world);
    reconnect(world, watcher, 2, Return::Token)?;
    world.run_until(|w| w.caught_up(watcher), 7 * SECOND)?;
    let reset = log.by(watcher).first().cloned();
    world.require(reset == Some(StreamEvent::Reset(ResetReason::Ahead)), &format!("the first event is {reset:?}"))?;
    world.rejoin(cuts);
    world.run_until(|w| exact(w, watcher), 15 * SECOND)?;
    world.settle()
}

/// Reconnects right after a change to a node that was cut off just before it. That node covers the token, and lacks the
/// change that the watcher received after it.
pub(super) fn watcher_returns_to_a_node_without_the_last_change(world: &mut World) -> ScenarioResult {
    let (client, watcher) = prepare(world)?;
    let token = world.watchers[watcher].sdk.token().to_vec();
    // It reads so slowly that it does not receive the mark after the last change.
    let quick = (world.watchers[watcher].pace, world.watchers[watcher].batch);
    (world.watchers[watcher].pace, world.watchers[watcher].batch) = (SECOND, 1);
    world.set(client, "changed", &"new");
    world.run_until(|w| w.watchers[watcher].sdk.token() != token, 10 * SECOND)?;
    let cuts = world.partition(&[2], &[0, 1]);
    world.register(client, "added");
    world.run_until(|w| w.watchers[watcher].view.contains_key("added"), 3 * SECOND)?;
    (world.watchers[watcher].pace, world.watchers[watcher].batch) = quick;
    reconnect(world, watcher, 2, Return::Token)?;
    world.run_until(|w| w.caught_up(watcher), 7 * SECOND)?;
    let shown = world.watchers[watcher].application.view.contains_key("added");
    world.require(!shown, "the watcher shows a member that its node does not have")?;
    world.rejoin(cuts);
    world.run_until(|w| w.watchers[watcher].view.contains_key("added"), 15 * SECOND)?;
    world.settle()
}

/// Reconnects to a node that did not exist when it disconnected.
pub(super) fn offline_watcher_returns_to_a_fresh_node(world: &mut World) -> ScenarioResult {
    let (client, watcher) = prepare(world)?;
    world.watcher_disconnect(watcher);
    change(world, client)?;
    let fresh = world.join_host("n3");
    world.run_until(|w| w.hosts[fresh].serving().is_some(), 20 * SECOND)?;
    let log = Log::on(world);
    let how = how(world);
    reconnect(world, watcher, fresh, how)?;
    resumes_exactly(world, &log, watcher, SECOND)?;
    world.settle()
}

/// Reconnects after the deletions were collected: by versions without a break, by token alone with a reset.
pub(super) fn watcher_returns_after_everything_was_collected(world: &mut World) -> ScenarioResult {
    let (client, watcher) = prepare(world)?;
    world.watcher_disconnect(watcher);
    change(world, client)?;
    world.run_until(|w| (0..3).all(|host| w.forgotten(host, "deleted")), 33 * MINUTE)?;
    let log = Log::on(world);
    let with_versions = world.even_seed();
    let how = if with_versions { Return::TokenAndKnown } else { Return::Token };
    reconnect(world, watcher, 1, how)?;
    if with_versions {
        resumes_exactly(world, &log, watcher, SECOND)?;
    } else {
        world.run_until(|w| w.caught_up(watcher) && exact(w, watcher), 2 * SECOND)?;
        let reset = log.by(watcher).first().cloned();
        world.require(
            reset == Some(StreamEvent::Reset(ResetReason::TooOld)),
            &format!("the first event is {reset:?}"),
        )?;
    }
    world.settle()
}

/// A watcher that reads far too slowly is reset, and no other watcher waits for it.
pub(super) fn slow_watcher_is_reset(world: &mut World) -> ScenarioResult {
    world.setup.limits.watcher_queue = 16;
    for host in &mut world.hosts {
        host.config.limits.watcher_queue = 16;
    }
    let (client, slow) = prepare(world)?;
    let quick = world.watch_at(0);
    world.run_until(|w| w.caught_up(quick), 5 * SECOND)?;
    let log = Log::on(world);
    world.watchers[slow].pace = 20 * SECOND;
    for value in 0..100 {
        world.set(client, "changed", &value);
        world.pass(SECOND / 5)?;
        let seen = world.watchers[quick].view["changed"].metadata().get("v").map(str::to_owned);
        world.require(seen == Some(value.to_string()), "a fast watcher had to wait")?;
    }
    world.watchers[slow].pace = SECOND / 1000;
    world.run_until(|w| w.caught_up(slow) && w.watchers[slow].view == w.watchers[quick].view, 25 * SECOND)?;
    let reset = |watcher| log.by(watcher).iter().any(|e| matches!(e, StreamEvent::Reset(ResetReason::Overflow)));
    world.require(reset(slow) && !reset(quick), "the slow watcher was not reset, or the fast one was")?;
    world.settle()
}

/// A large snapshot is read slowly while members behind and ahead of its cursor change (W2).
pub(super) fn snapshot_while_the_registry_changes(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let ids: Vec<String> = (0..60).map(|i| format!("m{i}")).collect();
    let client = world.add_client_fixed("c", &ids.iter().map(String::as_str).collect::<Vec<_>>(), 0);
    world.run_until(|w| w.shown_everywhere("m59", Status::Up), 10 * SECOND)?;
    let watcher = world.watch_at(1);
    world.watchers[watcher].pace = SECOND / 10;
    world.watchers[watcher].batch = 2;
    world.pass(SECOND)?;
    world.require(!world.caught_up(watcher), "the snapshot was read before the changes")?;
    for id in &ids[..40] {
        world.set(client, id, &"new");
    }
    for id in &ids[40..] {
        world.client_unregister(client, id);
    }
    world.register(client, "added");
    world.run_until(|w| w.caught_up(watcher), 30 * SECOND)?;
    world.pass(10 * SECOND)?;
    let view = &world.watchers[watcher].view;
    let new = |id: &String| view.get(id).is_some_and(|member| member.metadata().get("v") == Some("new"));
    let exact = view.len() == 41 && ids[..40].iter().all(new) && view.contains_key("added");
    world.require(exact, &format!("the view has {} members, or old ones", view.len()))?;
    world.settle()
}

/// While a watcher is disconnected, a node falls silent, which causes no write. The watcher sees the status when it
/// reconnects, and again when the node returns (W3).
pub(super) fn offline_watcher_sees_an_unreachable_owner(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.add_client_fixed("c", &["m"], 2);
    world.up(&["m"])?;
    let watcher = world.watch_at(0);
    world.run_until(|w| w.caught_up(watcher), 5 * SECOND)?;
    world.pass(10 * SECOND)?;
    let seen = |w: &World| w.watchers[watcher].view.get("m").map(Member::status);
    let mut cuts = [0; 2];
    for (expected, host) in [(Status::Down, 1), (Status::Up, 0)] {
        world.watcher_disconnect(watcher);
        match expected {
            Status::Down => cuts = world.partition(&[2], &[0, 1]),
            _ => world.rejoin(cuts),
        }
        world.pass(MINUTE)?;
        reconnect(world, watcher, host, Return::Token)?;
        world.run_until(|w| w.caught_up(watcher), 10 * SECOND)?;
        world.require(seen(world) == Some(expected), &format!("shown as {:?}, not {expected}", seen(world)))?;
        world.pass(10 * SECOND)?;
    }
    world.settle()
}
