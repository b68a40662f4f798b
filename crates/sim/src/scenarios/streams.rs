//! Subscribers that come back (S3–S5): exact views, and nothing that vanishes in between.

use super::log::Log;
use super::support::Told;
use crate::invariants::Violation;
use crate::network::{MINUTE, Micros, SECOND};
use crate::subscriber::Return;
use crate::world::{Setup, World};
use convoke_core::Timers;
use convoke_core::member::{Member, Status};
use convoke_core::node::{ResetReason, StreamEvent};
use std::time::Duration;

/// Marks come often.
pub(super) fn many_marks() -> Setup {
    let timers = Timers { mark_interval: Duration::from_millis(200), ..Timers::default() };
    Setup { timers, ..Setup::default() }
}

/// One client with members of every fate, and a subscriber at n0 that has seen them.
fn prepare(world: &mut World) -> Result<(usize, usize), Violation> {
    world.begin()?;
    // After the grace in which nothing is called absent (N3).
    world.pass(30 * SECOND)?;
    let client = world.add_client_fixed("c", &["kept", "changed", "deleted", "again"], 0);
    world.up(&["kept", "changed", "deleted", "again"])?;
    let subscriber = world.subscribe_at(0);
    world.run_until(|w| w.caught_up(subscriber) && w.subscribers[subscriber].view.len() == 4, 10 * SECOND)?;
    world.pass(10 * SECOND)?;
    Ok((client, subscriber))
}

/// Adds, changes, deletes, deletes and adds again.
fn change(world: &mut World, client: usize) -> Told {
    world.register(client, "added");
    world.set(client, "changed", &"new");
    world.client_unregister(client, "deleted");
    world.client_unregister(client, "again");
    world.register(client, "again");
    world.set(client, "again", &"new");
    world.run_until(|w| w.clients[client].pending.is_empty(), 5 * SECOND)
}

/// The view is exactly what there is.
fn exact(world: &World, subscriber: usize) -> bool {
    let view = &world.subscribers[subscriber].view;
    let value = |id: &str| view.get(id).and_then(|member| member.metadata().get("v"));
    view.keys().map(String::as_str).eq(["added", "again", "changed", "kept"])
        && view.values().all(|member| member.status() == Status::Up)
        && value("changed") == Some("new")
        && value("again") == Some("new")
}

/// Until the view is exact, and as long as it stays so, no living member is missing and nothing else is announced gone.
fn resumes_exactly(world: &mut World, log: &Log, subscriber: usize, within: Micros) -> Told {
    let start = world.now;
    while !(world.caught_up(subscriber) && exact(world, subscriber)) {
        let view = &world.subscribers[subscriber].view;
        world.require(view.contains_key("kept") && view.contains_key("changed"), "a living member vanished")?;
        let shown = view.keys().collect::<Vec<_>>();
        world.require(world.now < start + within, &format!("the view did not become exact: {shown:?}"))?;
        world.pass(SECOND / 100)?;
        world.finish()?;
    }
    world.throughout(MINUTE, "the view did not stay exact", |w| exact(w, subscriber))?;
    for event in log.by(subscriber) {
        let fine = match &event {
            StreamEvent::Reset(_) => false,
            // Who resumes is told of everything that may have changed, known to it or not.
            StreamEvent::Unregistered { id, .. } => !["kept", "changed", "added"].contains(&id.as_str()),
            _ => true,
        };
        world.require(fine, &format!("the subscriber was told {event:?}"))?;
    }
    Ok(())
}

fn reconnect(world: &mut World, subscriber: usize, host: usize, how: Return) -> Told {
    let taken = world.subscriber_connect(subscriber, host, how);
    world.require(taken, "the node does not take the subscriber")
}

fn how(world: &World) -> Return {
    [Return::Token, Return::TokenAndKnown, Return::Known][world.setup.seed as usize % 3]
}

/// Back at the node it came from. Seeds: with its token, with versions, with both.
pub(super) fn offline_subscriber_returns_to_the_same_node(world: &mut World) -> Told {
    let (client, subscriber) = prepare(world)?;
    world.subscriber_disconnect(subscriber);
    change(world, client)?;
    world.pass(MINUTE)?;
    let log = Log::on(world);
    let how = how(world);
    reconnect(world, subscriber, 0, how)?;
    resumes_exactly(world, &log, subscriber, SECOND)?;
    world.settle()
}

/// Back at a node that has not heard yet what the subscriber has seen: it waits and shows nothing old.
pub(super) fn offline_subscriber_returns_to_a_lagging_node(world: &mut World) -> Told {
    let (client, subscriber) = prepare(world)?;
    // Slower by steps, so that no link seems silent in between.
    for extra in [7 * SECOND / 10, 14 * SECOND / 10] {
        world.slow_links(2, extra);
        world.pass(10 * SECOND)?;
    }
    let old = world.subscribers[subscriber].sdk.token().to_vec();
    change(world, client)?;
    let start = world.now;
    while world.subscribers[subscriber].sdk.token() == old || !exact(world, subscriber) {
        world.pass(SECOND / 100)?;
        world.require(world.now < start + 5 * SECOND / 4, "no mark came in time")?;
    }
    world.require(
        world.value(2, "changed").is_none() && world.member(2, "deleted").is_some(),
        "the node does not lag",
    )?;
    let log = Log::on(world);
    let how = if world.even_seed() { Return::Token } else { Return::TokenAndKnown };
    reconnect(world, subscriber, 2, how)?;
    let waiting = world.now;
    while !world.caught_up(subscriber) {
        world.require(exact(world, subscriber), "a lagging node showed something old")?;
        world.require(world.now < waiting + 5 * SECOND, "the node did not catch up")?;
        world.pass(SECOND / 100)?;
    }
    resumes_exactly(world, &log, subscriber, SECOND)?;
    world.settle()
}

/// Back at a node that lags for too long: told explicitly to start over, and right in the end.
pub(super) fn subscriber_ahead_of_a_cut_off_node_is_reset(world: &mut World) -> Told {
    let (client, subscriber) = prepare(world)?;
    let cuts = world.partition(&[2], &[0, 1]);
    change(world, client)?;
    world.pass(10 * SECOND)?;
    world.require(exact(world, subscriber), "the subscriber did not see the changes")?;
    let log = Log::on(world);
    reconnect(world, subscriber, 2, Return::Token)?;
    world.run_until(|w| w.caught_up(subscriber), 7 * SECOND)?;
    let reset = log.by(subscriber).first().cloned();
    world.require(reset == Some(StreamEvent::Reset(ResetReason::Ahead)), &format!("the first word is {reset:?}"))?;
    world.rejoin(cuts);
    world.run_until(|w| exact(w, subscriber), 15 * SECOND)?;
    world.settle()
}

/// Back at a node that did not exist when it left.
pub(super) fn offline_subscriber_returns_to_a_fresh_node(world: &mut World) -> Told {
    let (client, subscriber) = prepare(world)?;
    world.subscriber_disconnect(subscriber);
    change(world, client)?;
    let fresh = world.join_host("n3");
    world.run_until(|w| w.hosts[fresh].serving().is_some(), 20 * SECOND)?;
    let log = Log::on(world);
    let how = how(world);
    reconnect(world, subscriber, fresh, how)?;
    resumes_exactly(world, &log, subscriber, SECOND)?;
    world.settle()
}

/// Back after everything about the deletions was forgotten: by versions without a break, by token alone with a reset.
pub(super) fn subscriber_returns_after_everything_was_forgotten(world: &mut World) -> Told {
    let (client, subscriber) = prepare(world)?;
    world.subscriber_disconnect(subscriber);
    change(world, client)?;
    world.run_until(|w| (0..3).all(|host| w.forgotten(host, "deleted")), 33 * MINUTE)?;
    let log = Log::on(world);
    let with_versions = world.even_seed();
    let how = if with_versions { Return::TokenAndKnown } else { Return::Token };
    reconnect(world, subscriber, 1, how)?;
    if with_versions {
        resumes_exactly(world, &log, subscriber, SECOND)?;
    } else {
        world.run_until(|w| w.caught_up(subscriber) && exact(w, subscriber), 2 * SECOND)?;
        let reset = log.by(subscriber).first().cloned();
        world
            .require(reset == Some(StreamEvent::Reset(ResetReason::TooOld)), &format!("the first word is {reset:?}"))?;
    }
    world.settle()
}

/// A subscriber that reads far too slowly: it is told to start over, and nobody waits for it.
pub(super) fn slow_subscriber_is_reset(world: &mut World) -> Told {
    world.setup.limits.subscriber_queue = 16;
    for host in &mut world.hosts {
        host.config.limits.subscriber_queue = 16;
    }
    let (client, slow) = prepare(world)?;
    let quick = world.subscribe_at(0);
    world.run_until(|w| w.caught_up(quick), 5 * SECOND)?;
    let log = Log::on(world);
    world.subscribers[slow].pace = 20 * SECOND;
    for value in 0..100 {
        world.set(client, "changed", &value);
        world.pass(SECOND / 5)?;
        let seen = world.subscribers[quick].view["changed"].metadata().get("v").map(str::to_owned);
        world.require(seen == Some(value.to_string()), "a quick subscriber has to wait")?;
    }
    world.subscribers[slow].pace = SECOND / 1000;
    world.run_until(|w| w.caught_up(slow) && w.subscribers[slow].view == w.subscribers[quick].view, 25 * SECOND)?;
    let reset = |subscriber| log.by(subscriber).iter().any(|e| matches!(e, StreamEvent::Reset(ResetReason::Overflow)));
    world.require(reset(slow) && !reset(quick), "the slow one was not told, or the quick one was")?;
    world.settle()
}

/// A large snapshot is read slowly while members behind and ahead of its cursor change (S2).
pub(super) fn snapshot_while_the_registry_changes(world: &mut World) -> Told {
    world.begin()?;
    let ids: Vec<String> = (0..60).map(|i| format!("m{i}")).collect();
    let client = world.add_client_fixed("c", &ids.iter().map(String::as_str).collect::<Vec<_>>(), 0);
    world.run_until(|w| w.shown_everywhere("m59", Status::Up), 10 * SECOND)?;
    let subscriber = world.subscribe_at(1);
    world.subscribers[subscriber].pace = SECOND / 10;
    world.subscribers[subscriber].batch = 2;
    world.pass(SECOND)?;
    world.require(!world.caught_up(subscriber), "read too quickly to be met by a change")?;
    for id in &ids[..40] {
        world.set(client, id, &"new");
    }
    for id in &ids[40..] {
        world.client_unregister(client, id);
    }
    world.register(client, "added");
    world.run_until(|w| w.caught_up(subscriber), 30 * SECOND)?;
    world.pass(10 * SECOND)?;
    let view = &world.subscribers[subscriber].view;
    let new = |id: &String| view.get(id).is_some_and(|member| member.metadata().get("v") == Some("new"));
    let exact = view.len() == 41 && ids[..40].iter().all(new) && view.contains_key("added");
    world.require(exact, &format!("the view has {} members, or old ones", view.len()))?;
    world.settle()
}

/// While a subscriber is away a node falls silent, which nobody writes down: it is told when it comes back, and told
/// again when the node is (S3).
pub(super) fn offline_subscriber_learns_of_silence(world: &mut World) -> Told {
    world.begin()?;
    world.add_client_fixed("c", &["m"], 2);
    world.up(&["m"])?;
    let subscriber = world.subscribe_at(0);
    world.run_until(|w| w.caught_up(subscriber), 5 * SECOND)?;
    world.pass(10 * SECOND)?;
    let seen = |w: &World| w.subscribers[subscriber].view.get("m").map(Member::status);
    let mut cuts = [0; 2];
    for (expected, host) in [(Status::Down, 1), (Status::Up, 0)] {
        world.subscriber_disconnect(subscriber);
        match expected {
            Status::Down => cuts = world.partition(&[2], &[0, 1]),
            _ => world.rejoin(cuts),
        }
        world.pass(MINUTE)?;
        reconnect(world, subscriber, host, Return::Token)?;
        world.run_until(|w| w.caught_up(subscriber), 10 * SECOND)?;
        world.require(seen(world) == Some(expected), &format!("shown as {:?}, not {expected}", seen(world)))?;
        world.pass(10 * SECOND)?;
    }
    world.settle()
}
