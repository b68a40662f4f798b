//! Members that come, go, change and move.

use super::script::{Act, SERVICES};
use super::seen::Seen;
use super::stage::Stage;
use super::story::{Tone, seconds};
use convoke_cli::Result;
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);
/// Changes arrive within milliseconds, unless something is broken.
const SOON: Duration = Duration::from_millis(500);

pub(crate) async fn play(stage: &Stage, act: Act) -> Result {
    match act {
        Act::Join { service, node } => join(stage, service, node).await,
        Act::Leave { draw } => leave(stage, draw).await,
        Act::Update { draw } => update(stage, draw).await,
        Act::Roam => roam(stage).await,
        Act::Enter => enter(stage).await,
    }
}

async fn join(stage: &Stage, service: usize, node: usize) -> Result {
    let mut troupe = stage.troupe.lock().await;
    if troupe.is_full() {
        return Ok(());
    }
    let name = SERVICES[service];
    match troupe.join(service, node).await {
        Ok((id, at)) => {
            let up = up_in(stage, name, |seen| seen.member(&id).is_some()).await;
            let text = format!("{id} joined at {at} ({})", known(stage, name, up));
            stage.story.tell(Tone::Churn, "join", json!({ "member": id, "node": at, "up": up }), &text)
        }
        Err(error) => {
            let text = format!("a member of {name} could not join at {}: {}", stage.id(node), error.message);
            stage.story.tell(Tone::Churn, "join-failed", json!({ "service": name, "error": error.message }), &text)
        }
    }
}

async fn leave(stage: &Stage, draw: usize) -> Result {
    match stage.troupe.lock().await.leave(draw).await {
        None => Ok(()),
        Some(Ok((id, service))) => {
            let name = SERVICES[service];
            let up = up_in(stage, name, |seen| seen.member(&id).is_none()).await;
            let text = format!("{id} left ({})", known(stage, name, up));
            stage.story.tell(Tone::Churn, "leave", json!({ "member": id, "up": up }), &text)
        }
        Some(Err((id, error))) => {
            let text = format!("{id} left, and no node confirmed it: {}", error.message);
            stage.story.tell(Tone::Churn, "leave-failed", json!({ "member": id, "error": error.message }), &text)
        }
    }
}

async fn update(stage: &Stage, draw: usize) -> Result {
    match stage.troupe.lock().await.update(draw).await {
        None => Ok(()),
        Some(Ok((id, load))) => stage.story.tell(
            Tone::Churn,
            "update",
            json!({ "member": id, "load": load }),
            &format!("{id} has load {load}"),
        ),
        Some(Err(error)) => {
            let text = format!("an update failed: {}", error.message);
            stage.story.tell(Tone::Churn, "update-failed", json!({ "error": error.message }), &text)
        }
    }
}

/// A client goes on at another node; subscribers see its member change hands, and nothing else.
async fn roam(stage: &Stage) -> Result {
    let witnesses = stage.witnesses.read().await;
    let Some(witness) = witnesses.first() else { return Ok(()) };
    let before = witness.counts();
    let roamed = stage.troupe.lock().await.roam().await;
    let (id, from, to) = match roamed {
        None => return Ok(()),
        Some(Err(error)) => {
            let text = format!("the courier could not move: {}", error.message);
            return stage.story.tell(Tone::Churn, "roam-failed", json!({ "error": error.message }), &text);
        }
        Some(Ok(roamed)) => roamed,
    };
    let moved = |seen: &Seen| seen.member(&id).is_some_and(|member| member.owner.node == to);
    let took = witness.until(PATIENCE, moved).await;
    let flaps = witness.counts().since(before).flaps;
    let facts = json!({ "member": id, "from": from, "to": to, "flaps": flaps, "seen": took.is_some() });
    let text = match took {
        Some(took) => {
            let (at, took) = (witness.node(), seconds(took));
            format!("{id} moved from {from} to {to}; subscribers at {at} knew {took} later; {flaps} flaps")
        }
        None => format!("{id} moved from {from} to {to}; subscribers at {} do not know yet", witness.node()),
    };
    stage.story.tell(Tone::Churn, "roam", facts, &text)
}

/// A key is raised by one, by compare-and-set.
async fn enter(stage: &Stage) -> Result {
    let mut ledger = stage.ledger.lock().await;
    let key = ledger.key();
    match ledger.enter().await {
        Ok(entered) => {
            stage.kept.entries.store(entered.number, Ordering::Relaxed);
            let text = format!("key {key} is {}, agreed within {}", entered.number, seconds(entered.took));
            let facts = json!({ "key": key, "value": entered.number, "revision": entered.revision });
            stage.story.tell(Tone::Churn, "put", facts, &text)
        }
        Err(error) => {
            ledger.look_again(&error).await;
            let text = format!("{key} could not be raised: {}", error.message);
            stage.story.tell(Tone::Churn, "put-failed", json!({ "key": key, "error": error.message }), &text)
        }
    }
}

/// Up members of a service, once the first node's subscribers have seen a change.
async fn up_in(stage: &Stage, service: &str, changed: impl Fn(&Seen) -> bool) -> Option<usize> {
    let witnesses = stage.witnesses.read().await;
    let witness = witnesses.first()?;
    witness.until(SOON, changed).await?;
    Some(witness.look(|seen| seen.up_in(service)))
}

fn known(stage: &Stage, service: &str, up: Option<usize>) -> String {
    match up {
        Some(up) => format!("{service}: {up} up"),
        None => format!("{} does not know yet", stage.id(0)),
    }
}
