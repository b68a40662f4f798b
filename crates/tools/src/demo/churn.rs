//! Members that join, leave, change and move; keys that change.

use super::printer::{Tone, seconds};
use super::script::{Action, SERVICES};
use super::view::View;
use super::world::World;
use convoke_cli::Result;
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);
/// A change arrives within milliseconds unless a fault is active.
const SOON: Duration = Duration::from_millis(500);

pub(crate) async fn run(world: &World, action: Action) -> Result {
    match action {
        Action::Join { service, node } => join(world, service, node).await,
        Action::Leave { draw } => leave(world, draw).await,
        Action::Update { draw } => update(world, draw).await,
        Action::MoveCourier => move_courier(world).await,
        Action::Increment => increment(world).await,
    }
}

async fn join(world: &World, service: usize, node: usize) -> Result {
    let mut clients = world.clients.lock().await;
    if clients.is_full() {
        return Ok(());
    }
    let name = SERVICES[service];
    match clients.join(service, node).await {
        Ok((id, at)) => {
            let up = up_in(world, name, |view| view.member(&id).is_some()).await;
            let text = format!("{id} joined at {at} ({})", known(world, name, up));
            world.printer.event(Tone::Churn, "join", json!({ "member": id, "node": at, "up": up }), &text)
        }
        Err(error) => {
            let text = format!("a member of {name} could not join at {}: {}", world.id(node), error.message);
            world.printer.event(Tone::Churn, "join-failed", json!({ "service": name, "error": error.message }), &text)
        }
    }
}

async fn leave(world: &World, draw: usize) -> Result {
    match world.clients.lock().await.leave(draw).await {
        None => Ok(()),
        Some(Ok((id, service))) => {
            let name = SERVICES[service];
            let up = up_in(world, name, |view| view.member(&id).is_none()).await;
            let text = format!("{id} left ({})", known(world, name, up));
            world.printer.event(Tone::Churn, "leave", json!({ "member": id, "up": up }), &text)
        }
        Some(Err((id, error))) => {
            let text = format!("{id} left, but no node confirmed it: {}", error.message);
            world.printer.event(Tone::Churn, "leave-failed", json!({ "member": id, "error": error.message }), &text)
        }
    }
}

async fn update(world: &World, draw: usize) -> Result {
    match world.clients.lock().await.update(draw).await {
        None => Ok(()),
        Some(Ok((id, load))) => world.printer.event(
            Tone::Churn,
            "update",
            json!({ "member": id, "load": load }),
            &format!("{id} has load {load}"),
        ),
        Some(Err(error)) => {
            let text = format!("an update failed: {}", error.message);
            world.printer.event(Tone::Churn, "update-failed", json!({ "error": error.message }), &text)
        }
    }
}

/// Moves a client to another node. Watchers see a new owner and nothing else.
async fn move_courier(world: &World) -> Result {
    let watchers = world.watchers.read().await;
    let Some(watcher) = watchers.first() else { return Ok(()) };
    let before = watcher.counts();
    let roamed = world.clients.lock().await.move_courier().await;
    let (id, from, to) = match roamed {
        None => return Ok(()),
        Some(Err(error)) => {
            let text = format!("the courier could not move: {}", error.message);
            return world.printer.event(Tone::Churn, "move-failed", json!({ "error": error.message }), &text);
        }
        Some(Ok(roamed)) => roamed,
    };
    let moved = |view: &View| view.member(&id).is_some_and(|member| member.owner.node == to);
    let took = watcher.until(PATIENCE, moved).await;
    let flaps = watcher.counts().since(before).flaps;
    let facts = json!({ "member": id, "from": from, "to": to, "flaps": flaps, "seen": took.is_some() });
    let text = match took {
        Some(took) => {
            let (at, took) = (watcher.node(), seconds(took));
            format!("{id} moved from {from} to {to}; seen at {at} after {took}; {flaps} flaps")
        }
        None => format!("{id} moved from {from} to {to}; not yet seen at {}", watcher.node()),
    };
    world.printer.event(Tone::Churn, "move", facts, &text)
}

/// Increments a key by compare-and-set.
async fn increment(world: &World) -> Result {
    let mut counter = world.counter.lock().await;
    let key = counter.key();
    match counter.increment().await {
        Ok(increment) => {
            world.log_writes.entries.store(increment.number, Ordering::Relaxed);
            let text = format!("key {key} = {}, committed in {}", increment.number, seconds(increment.took));
            let facts = json!({ "key": key, "value": increment.number, "revision": increment.revision });
            world.printer.event(Tone::Churn, "put", facts, &text)
        }
        Err(error) => {
            counter.reread(&error).await;
            let text = format!("cannot increment {key}: {}", error.message);
            world.printer.event(Tone::Churn, "put-failed", json!({ "key": key, "error": error.message }), &text)
        }
    }
}

/// Number of members of a service that are up, once the watcher of the first node has seen a change.
async fn up_in(world: &World, service: &str, changed: impl Fn(&View) -> bool) -> Option<usize> {
    let watchers = world.watchers.read().await;
    let watcher = watchers.first()?;
    watcher.until(SOON, changed).await?;
    Some(watcher.look(|view| view.up_in(service)))
}

fn known(world: &World, service: &str, up: Option<usize>) -> String {
    match up {
        Some(up) => format!("{service}: {up} up"),
        None => format!("not yet seen at {}", world.id(0)),
    }
}
