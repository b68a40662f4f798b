//! Faults that last for a while, and their effects as nodes and watchers see them. All figures are counted.

use super::links::state_name;
use super::printer::{Tone, seconds};
use super::script::Fault;
use super::view::Counts;
use super::world::World;
use convoke_cli::output::counted;
use convoke_cli::{CommandError, Result};
use convoke_lab::{Direction, NodeError};
use convoke_proto::Error;
use convoke_proto::v1::NodeState;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Duration of a cut, a pause or an outage at speed 1.
const LASTS: Duration = Duration::from_secs(8);
/// Longest wait for an effect or a repair.
const NOTICE: Duration = Duration::from_secs(15);
const REPAIR: Duration = Duration::from_secs(30);
/// Time between the death of a client and its return.
const ABSENCE: Duration = Duration::from_secs(5);

pub(crate) async fn run(world: &World, fault: Fault) -> Result {
    match fault {
        Fault::Partition { between: [a, b] } => partition(world, a, b).await,
        Fault::OneWay { from, to } => one_way(world, from, to).await,
        Fault::Crash { node } => without(world, node, crash(world, node)).await,
        Fault::Pause { node } => without(world, node, pause(world, node)).await,
        Fault::ClientDeath { draw } => client_death(world, draw).await,
    }
}

/// Runs a fault of a node while no client starts there.
async fn without(world: &World, node: usize, fault: impl Future<Output = Result>) -> Result {
    world.clients.lock().await.set_unavailable(Some(node));
    let outcome = fault.await;
    world.clients.lock().await.set_unavailable(None);
    outcome
}

/// Counts of all watchers before a fault.
struct Before(Vec<Counts>);

impl Before {
    async fn at(world: &World) -> Before {
        Before(world.watchers.read().await.iter().map(super::watcher::NodeWatcher::counts).collect())
    }

    /// Flaps since then: the largest number at any node.
    async fn flaps(&self, world: &World) -> u64 {
        let watchers = world.watchers.read().await;
        let flaps = watchers.iter().zip(&self.0).map(|(watcher, before)| watcher.counts().since(*before).flaps);
        flaps.max().unwrap_or(0)
    }
}

async fn partition(world: &World, a: usize, b: usize) -> Result {
    let (here, there) = (world.id(a).to_owned(), world.id(b).to_owned());
    let directions = |direction: Direction| [direction, direction.back()].to_vec();
    let text = format!("connection between {here} and {there} cut");
    cut_and_heal(world, [a, b], "partition", &text, directions).await
}

async fn one_way(world: &World, from: usize, to: usize) -> Result {
    let (here, there) = (world.id(to).to_owned(), world.id(from).to_owned());
    let text = format!("connection from {there} to {here} cut in one direction");
    cut_and_heal(world, [to, from], "one-way", &text, |direction| vec![direction.back()]).await
}

/// Cuts connections between two nodes for a while. The first node is the observer.
async fn cut_and_heal(
    world: &World,
    [a, b]: [usize; 2],
    what: &str,
    text: &str,
    cut: impl Fn(Direction) -> Vec<Direction>,
) -> Result {
    let (here, there) = (world.id(a), world.id(b));
    let before = Before::at(world).await;
    let (network, directions) = {
        let cluster = world.cluster.lock().await;
        let direction =
            cluster.direction(here, there).ok_or_else(|| CommandError::failed("a node of the demo is missing"))?;
        (cluster.network().clone(), cut(direction))
    };
    let owned = world.watchers.read().await[a].look(|view| view.up_at(there));
    let begin = Instant::now();
    directions.iter().for_each(|direction| network.cut(*direction));
    world.printer.event(Tone::Fault, what, json!({ "at": here, "from": there, "members": owned.len() }), text)?;

    let until = begin + world.scaled(LASTS);
    let unlinked = |links: &super::links::Links| links.state(here, there).is_some_and(|state| state != NodeState::Up);
    let noticed = world.links.until(until.saturating_duration_since(Instant::now()), unlinked).await;
    if let Some(after) = noticed {
        let state = state_name(world.links.state(here, there));
        let (kept, of) = kept(world, a, &owned).await;
        let members = members_kept(kept, of);
        let text = format!("{here} reports {there} {state} after {}; {members}", seconds(after));
        let facts =
            json!({ "at": here, "from": there, "after_ms": millis(after), "state": state, "kept": kept, "of": of });
        world.printer.event(Tone::Noticed, "unreachable", facts, &text)?;
    }
    sleep_until(until).await;
    let (kept, of) = kept(world, a, &owned).await;
    directions.iter().for_each(|direction| network.heal(*direction));
    let lasted = begin.elapsed();
    let linked = |links: &super::links::Links| {
        links.state(here, there) == Some(NodeState::Up) && links.state(there, here) == Some(NodeState::Up)
    };
    let patience = world.scaled(REPAIR).max(NOTICE);
    let (relinked, same) = tokio::join!(world.links.until(patience, linked), world.wait_for_agreement(patience));
    let flaps = before.flaps(world).await;
    let reached = match noticed {
        Some(_) => format!("{there} was unreachable from {here}"),
        None => format!("{here} did not detect it"),
    };
    let repaired = match (relinked, same) {
        (Some(linked), Some(same)) => {
            format!("connected again after {}, all nodes agree after {}", seconds(linked), seconds(same))
        }
        (Some(linked), None) => {
            format!("connected again after {}, but nodes do not agree", seconds(linked))
        }
        (None, _) => format!("but {here} and {there} are not connected again"),
    };
    let members = members_kept(kept, of);
    let text = format!("{reached}; {members}; healed after {}, {flaps} flaps; {repaired}", seconds(lasted));
    let facts = json!({
        "at": here, "from": there, "lasted_ms": millis(lasted), "kept": kept, "of": of, "flaps": flaps,
        "noticed": noticed.is_some(), "linked": relinked.is_some(), "same": same.is_some(),
    });
    world.printer.event(tone(flaps == 0 && relinked.is_some() && same.is_some()), "healed", facts, &text)
}

/// Number of these members that a watcher sees up, and the number of those that have not left since.
async fn kept(world: &World, node: usize, ids: &BTreeSet<String>) -> (usize, usize) {
    let expected: BTreeSet<String> = world.expected.change(|expected| ids.intersection(expected).cloned().collect());
    (world.watchers.read().await[node].look(|view| view.up_of(&expected)), expected.len())
}

fn members_kept(kept: usize, of: usize) -> String {
    if of == 0 { "no members there".to_owned() } else { format!("{kept} of {of} members kept") }
}

async fn crash(world: &World, node: usize) -> Result {
    let victim = world.id(node).to_owned();
    let observer = (node + 1) % world.nodes.len();
    let before = Before::at(world).await;
    let owned = world.watchers.read().await[observer].look(|view| view.up_at(&victim));
    let leader = world.counter.lock().await.leader().await;
    let begin = Instant::now();
    world.cluster.lock().await.kill(&victim).await;
    let led = leader.as_deref() == Some(&victim);
    let and = if led { ", leader of the log" } else { "" };
    let text = format!("{victim} killed ({} members{and})", owned.len());
    world.printer.event(Tone::Fault, "killed", json!({ "node": victim, "members": owned.len(), "led": led }), &text)?;

    let (moved, noticed, written) = tokio::join!(
        moved_away(world, node, observer, &owned, begin),
        reported_failed(world, node, observer, begin),
        log_recovers(world, leader.as_deref(), begin, "crash")
    );
    moved.and(noticed).and(written)?;
    sleep_until(begin + world.scaled(LASTS)).await;
    let restarted = world.cluster.lock().await.restart(&victim).await;
    restarted.unwrap_or(Ok(())).map_err(|error| failed(&error))?;
    world.replace_watcher(node).await?;
    let same = world.wait_for_agreement(world.scaled(REPAIR).max(NOTICE)).await;
    let flaps = before.flaps(world).await;
    let members = world.watchers.read().await[node].look(super::view::View::len);
    let (gone, state) = (seconds(begin.elapsed()), same.is_some());
    let text = match same {
        Some(_) => {
            format!("{victim} back after {gone}; all nodes agree on {members} members; {flaps} flaps")
        }
        None => format!("{victim} back after {gone}, but nodes do not agree; {flaps} flaps"),
    };
    let facts = json!({ "node": victim, "after_ms": millis(begin.elapsed()), "members": members, "flaps": flaps, "same": state });
    world.printer.event(tone(flaps == 0 && state), "back", facts, &text)
}

/// Reports when the log accepts writes again, its leader, and whether acknowledged writes are lost.
async fn log_recovers(world: &World, before: Option<&str>, begin: Instant, what: &str) -> Result {
    let mut counter = world.counter.lock().await;
    let acknowledged = counter.acknowledged();
    let increment = counter.increment().await;
    let after = begin.elapsed();
    match increment {
        Ok(increment) => world.log_writes.entries.store(increment.number, Ordering::Relaxed),
        Err(Error { message: error, .. }) => {
            let text = format!("the log accepts no writes {} after the {what}: {error}", seconds(after));
            return world.printer.event(Tone::Bad, "log-stands", json!({ "error": error }), &text);
        }
    }
    let lost = match counter.lost().await {
        Ok(lost) => lost,
        Err(Error { message: error, .. }) => {
            let text = format!(
                "the log accepted a write {} after the {what}, but earlier writes cannot be read: {error}",
                seconds(after)
            );
            return world.printer.event(Tone::Bad, "log-unread", json!({ "error": error }), &text);
        }
    };
    world.log_writes.lost.fetch_add(lost, Ordering::Relaxed);
    let leader = counter.leader().await;
    let leads = match &leader {
        Some(leader) if before == Some(leader) => format!("{leader} still leads"),
        Some(leader) => format!("{leader} leads now"),
        None => "leader unknown".to_owned(),
    };
    let writes = counted(acknowledged, "write");
    let kept =
        if lost == 0 { format!("{writes} acknowledged before, none lost") } else { format!("{lost} of {writes} LOST") };
    let text = format!("the log accepted a write {} after the {what} ({leads}); {kept}", seconds(after));
    let facts = json!({ "leader": leader, "after_ms": millis(after), "acknowledged": acknowledged, "lost": lost });
    world.printer.event(if lost == 0 { Tone::Noticed } else { Tone::Bad }, "log", facts, &text)
}

/// Reports when another node considers a node failed.
async fn reported_failed(world: &World, node: usize, observer: usize, begin: Instant) -> Result {
    let (victim, other) = (world.id(node), world.id(observer));
    let failed = |links: &super::links::Links| links.state(other, victim) == Some(NodeState::Failed);
    if world.links.until(world.scaled(LASTS), failed).await.is_none() {
        return Ok(());
    }
    let after = begin.elapsed();
    let text = format!("{other} reports {victim} failed after {}", seconds(after));
    world.printer.event(
        Tone::Noticed,
        "failed",
        json!({ "node": victim, "at": other, "after_ms": millis(after) }),
        &text,
    )
}

/// Reports the new owners of the members of a node.
async fn moved_away(world: &World, node: usize, observer: usize, ids: &BTreeSet<String>, begin: Instant) -> Result {
    let victim = world.id(node);
    let watchers = world.watchers.read().await;
    let watcher = &watchers[observer];
    let expected = || world.expected.change(|expected| ids.intersection(expected).cloned().collect::<BTreeSet<_>>());
    let moved = watcher.until(NOTICE, |view| !view.owners(&expected()).contains_key(victim)).await;
    let owners = watcher.look(|view| view.owners(&expected()));
    let places: Vec<String> = owners.iter().map(|(node, count)| format!("{count} at {node}")).collect();
    let (at, places) = (watcher.node(), places.join(", "));
    let text = match moved {
        Some(_) => {
            format!("all its clients reconnected within {}: {places} (seen at {at})", seconds(begin.elapsed()))
        }
        None => {
            format!("not all its clients reconnected within {}: {places} (seen at {at})", seconds(begin.elapsed()))
        }
    };
    let facts =
        json!({ "node": victim, "owners": owners, "complete": moved.is_some(), "after_ms": millis(begin.elapsed()) });
    world.printer.event(Tone::Noticed, "moved", facts, &text)
}

async fn pause(world: &World, node: usize) -> Result {
    let victim = world.id(node).to_owned();
    let observer = (node + 1) % world.nodes.len();
    let other = world.id(observer);
    let before = Before::at(world).await;
    let owned = world.watchers.read().await[observer].look(|view| view.up_at(&victim));
    let leader = world.counter.lock().await.leader().await;
    let led = leader.as_deref() == Some(&victim);
    let begin = Instant::now();
    world.cluster.lock().await.pause(&victim).unwrap_or(Ok(())).map_err(|error| failed(&error))?;
    let and = if led { ", leader of the log" } else { "" };
    let text = format!("{victim} paused ({} members{and})", owned.len());
    world.printer.event(Tone::Fault, "paused", json!({ "node": victim, "members": owned.len(), "led": led }), &text)?;
    let until = begin + world.scaled(LASTS);
    let unlinked =
        |links: &super::links::Links| links.state(other, &victim).is_some_and(|state| state != NodeState::Up);
    let notice = async {
        let patience = until.saturating_duration_since(Instant::now());
        let Some(after) = world.links.until(patience, unlinked).await else { return Ok(()) };
        let state = state_name(world.links.state(other, &victim));
        let text = format!("{other} reports {victim} {state} after {}", seconds(after));
        let facts = json!({ "at": other, "from": victim, "after_ms": millis(after) });
        world.printer.event(Tone::Noticed, "unreachable", facts, &text)
    };
    let log = async { if led { log_recovers(world, leader.as_deref(), begin, "pause").await } else { Ok(()) } };
    let (noticed, written) = tokio::join!(notice, log);
    noticed.and(written)?;
    sleep_until(until).await;
    let (kept, of) = kept(world, observer, &owned).await;
    world.cluster.lock().await.resume(&victim).unwrap_or(Ok(())).map_err(|error| failed(&error))?;
    let lasted = begin.elapsed();
    let same = world.wait_for_agreement(world.scaled(REPAIR).max(NOTICE)).await;
    let flaps = before.flaps(world).await;
    let repaired = match same {
        Some(same) => format!("all nodes agree after {}", seconds(same)),
        None => "but nodes do not agree".to_owned(),
    };
    let members = members_kept(kept, of);
    let text = format!("{victim} resumed after {}; {members}, {flaps} flaps; {repaired}", seconds(lasted));
    let facts = json!({ "node": victim, "lasted_ms": millis(lasted), "kept": kept, "of": of, "flaps": flaps, "same": same.is_some() });
    world.printer.event(tone(flaps == 0 && same.is_some()), "resumed", facts, &text)
}

async fn client_death(world: &World, draw: usize) -> Result {
    let Some(id) = world.clients.lock().await.die(draw) else { return Ok(()) };
    let text = format!("client of {id} killed");
    world.printer.event(Tone::Fault, "client-died", json!({ "member": id }), &text)?;
    let is = |view: &super::view::View, status| view.member(&id).is_some_and(|member| member.status == status);
    let down = world.watchers.read().await[0].until(NOTICE, |view| is(view, convoke_client::Status::Down)).await;
    let (facts, text) = match down {
        Some(after) => {
            (json!({ "member": id, "after_ms": millis(after) }), format!("{id} down after {}", seconds(after)))
        }
        None => (json!({ "member": id }), format!("{id} not reported down")),
    };
    world.printer.event(Tone::Noticed, "down", facts, &text)?;
    tokio::time::sleep(world.scaled(ABSENCE)).await;
    let begin = Instant::now();
    if let Err(error) = world.clients.lock().await.revive(&id, draw % world.nodes.len()).await {
        let text = format!("{id} cannot register again: {}", error.message);
        return world.printer.event(
            Tone::Bad,
            "client-back-failed",
            json!({ "member": id, "error": error.message }),
            &text,
        );
    }
    let mut everywhere = true;
    for watcher in world.watchers.read().await.iter() {
        everywhere &= watcher.until(NOTICE, |view| is(view, convoke_client::Status::Up)).await.is_some();
    }
    world.clients.lock().await.want(&id);
    let took = seconds(begin.elapsed());
    let text = match everywhere {
        true => format!("{id} started again; up at all nodes after {took}"),
        false => format!("{id} started again, but not up at all nodes after {took}"),
    };
    world.printer.event(tone(everywhere), "client-back", json!({ "member": id, "up": everywhere }), &text)
}

fn tone(good: bool) -> Tone {
    if good { Tone::Good } else { Tone::Bad }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn failed(error: &NodeError) -> CommandError {
    CommandError::failed(error.to_string())
}
