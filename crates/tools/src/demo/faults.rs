//! Things that go wrong for a while, and what nodes and subscribers made of it. Every figure that is told was counted.

use super::links::word;
use super::script::Episode;
use super::seen::Counts;
use super::stage::Stage;
use super::story::{Tone, seconds};
use convoke_cli::output::counted;
use convoke_cli::{CommandError, Result};
use convoke_lab::{NodeError, Way};
use convoke_proto::Error;
use convoke_proto::v1::NodeState;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How long a cut or a pause lasts at speed 1, and how long a node is dead.
const LASTS: Duration = Duration::from_secs(8);
/// How long is waited for something to be noticed or repaired before the truth is told.
const NOTICE: Duration = Duration::from_secs(15);
const REPAIR: Duration = Duration::from_secs(30);
/// Between a client's death and its return.
const ABSENCE: Duration = Duration::from_secs(5);

pub(crate) async fn play(stage: &Stage, episode: Episode) -> Result {
    match episode {
        Episode::Partition { between: [a, b] } => partition(stage, a, b).await,
        Episode::OneWay { from, to } => one_way(stage, from, to).await,
        Episode::Crash { node } => crash(stage, node).await,
        Episode::Pause { node } => pause(stage, node).await,
        Episode::ClientDeath { draw } => client_death(stage, draw).await,
    }
}

/// What subscribers at all nodes were told before an episode.
struct Before(Vec<Counts>);

impl Before {
    async fn at(stage: &Stage) -> Before {
        Before(stage.witnesses.read().await.iter().map(super::witness::Witness::counts).collect())
    }

    /// Flaps since then, at whichever node most were seen.
    async fn flaps(&self, stage: &Stage) -> u64 {
        let witnesses = stage.witnesses.read().await;
        let flaps = witnesses.iter().zip(&self.0).map(|(witness, before)| witness.counts().since(*before).flaps);
        flaps.max().unwrap_or(0)
    }
}

async fn partition(stage: &Stage, a: usize, b: usize) -> Result {
    let (here, there) = (stage.id(a).to_owned(), stage.id(b).to_owned());
    let ways = |way: Way| [way, way.back()].to_vec();
    let text = format!("{here} and {there} hear nothing from each other any more");
    cut_and_heal(stage, [a, b], "partition", &text, ways).await
}

async fn one_way(stage: &Stage, from: usize, to: usize) -> Result {
    let (here, there) = (stage.id(to).to_owned(), stage.id(from).to_owned());
    let text = format!("what {there} sends does not reach {here} any more; the way back is open");
    cut_and_heal(stage, [to, from], "one-way", &text, |way| vec![way.back()]).await
}

/// Cuts ways between two nodes for a while. The first is the one that is asked what it sees.
async fn cut_and_heal(
    stage: &Stage,
    [a, b]: [usize; 2],
    what: &str,
    text: &str,
    cut: impl Fn(Way) -> Vec<Way>,
) -> Result {
    let (here, there) = (stage.id(a), stage.id(b));
    let before = Before::at(stage).await;
    let (network, ways) = {
        let cluster = stage.cluster.lock().await;
        let way = cluster.way(here, there).ok_or_else(|| CommandError::failed("the demo has lost a node"))?;
        (cluster.network().clone(), cut(way))
    };
    let owned = stage.witnesses.read().await[a].look(|seen| seen.up_at(there));
    let begin = Instant::now();
    ways.iter().for_each(|way| network.cut(*way));
    stage.story.tell(Tone::Fault, what, json!({ "at": here, "from": there, "members": owned.len() }), text)?;

    let until = begin + stage.scaled(LASTS);
    let unlinked = |links: &super::links::Links| links.state(here, there).is_some_and(|state| state != NodeState::Up);
    let noticed = stage.links.until(until.saturating_duration_since(Instant::now()), unlinked).await;
    if let Some(after) = noticed {
        let state = word(stage.links.state(here, there));
        let (kept, of) = kept(stage, a, &owned).await;
        let members = members_kept(kept, of);
        let text = format!("{there} unreachable from {here} after {} ({state}); {members}", seconds(after));
        let facts =
            json!({ "at": here, "from": there, "after_ms": millis(after), "state": state, "kept": kept, "of": of });
        stage.story.tell(Tone::Noticed, "unreachable", facts, &text)?;
    }
    sleep_until(until).await;
    let (kept, of) = kept(stage, a, &owned).await;
    ways.iter().for_each(|way| network.heal(*way));
    let lasted = begin.elapsed();
    let linked = |links: &super::links::Links| {
        links.state(here, there) == Some(NodeState::Up) && links.state(there, here) == Some(NodeState::Up)
    };
    let patience = stage.scaled(REPAIR).max(NOTICE);
    let (relinked, same) = tokio::join!(stage.links.until(patience, linked), stage.same_everywhere(patience));
    let flaps = before.flaps(stage).await;
    let reached = match noticed {
        Some(_) => format!("{there} unreachable from {here}"),
        None => format!("{here} did not notice"),
    };
    let repaired = match (relinked, same) {
        (Some(linked), Some(same)) => {
            format!("linked again {} later, all nodes show the same {} later", seconds(linked), seconds(same))
        }
        (Some(linked), None) => {
            format!("linked again {} later, but nodes still show different members", seconds(linked))
        }
        (None, _) => format!("but {here} and {there} are not linked again"),
    };
    let members = members_kept(kept, of);
    let text = format!("{reached}; {members}; healed after {}, {flaps} flaps; {repaired}", seconds(lasted));
    let facts = json!({
        "at": here, "from": there, "lasted_ms": millis(lasted), "kept": kept, "of": of, "flaps": flaps,
        "noticed": noticed.is_some(), "linked": relinked.is_some(), "same": same.is_some(),
    });
    stage.story.tell(tone(flaps == 0 && relinked.is_some() && same.is_some()), "healed", facts, &text)
}

/// How many of these are up in the eyes of a node's subscribers, and how many should be: those that have not left since.
async fn kept(stage: &Stage, node: usize, ids: &BTreeSet<String>) -> (usize, usize) {
    let wanted: BTreeSet<String> = stage.wanted.change(|wanted| ids.intersection(wanted).cloned().collect());
    (stage.witnesses.read().await[node].look(|seen| seen.up_of(&wanted)), wanted.len())
}

fn members_kept(kept: usize, of: usize) -> String {
    if of == 0 { "it had no members".to_owned() } else { format!("{kept} of {of} members kept") }
}

async fn crash(stage: &Stage, node: usize) -> Result {
    let victim = stage.id(node).to_owned();
    let observer = (node + 1) % stage.nodes.len();
    let before = Before::at(stage).await;
    let owned = stage.witnesses.read().await[observer].look(|seen| seen.up_at(&victim));
    let leader = stage.ledger.lock().await.leader().await;
    let begin = Instant::now();
    stage.cluster.lock().await.kill(&victim).await;
    let led = leader.as_deref() == Some(&victim);
    let and = if led { ", and it led the log" } else { "" };
    let text = format!("{victim} is killed; {} members were there{and}", owned.len());
    stage.story.tell(Tone::Fault, "killed", json!({ "node": victim, "members": owned.len(), "led": led }), &text)?;

    let (moved, noticed, written) = tokio::join!(
        moved_away(stage, node, observer, &owned, begin),
        called_failed(stage, node, observer, begin),
        log_goes_on(stage, leader.as_deref(), begin, "crash")
    );
    moved.and(noticed).and(written)?;
    sleep_until(begin + stage.scaled(LASTS)).await;
    let restarted = stage.cluster.lock().await.restart(&victim).await;
    restarted.unwrap_or(Ok(())).map_err(|error| failed(&error))?;
    stage.witness_again(node).await?;
    let same = stage.same_everywhere(stage.scaled(REPAIR).max(NOTICE)).await;
    let flaps = before.flaps(stage).await;
    let members = stage.witnesses.read().await[node].look(super::seen::Seen::len);
    let (gone, state) = (seconds(begin.elapsed()), same.is_some());
    let text = match same {
        Some(_) => {
            format!("{victim} is back after {gone} and shows the same {members} members as all others; {flaps} flaps")
        }
        None => format!("{victim} is back after {gone}, but nodes still show different members; {flaps} flaps"),
    };
    let facts = json!({ "node": victim, "after_ms": millis(begin.elapsed()), "members": members, "flaps": flaps, "same": state });
    stage.story.tell(tone(flaps == 0 && state), "back", facts, &text)
}

/// Tells when the log takes writes again after something happened to a node, who leads it, and whether what it had acknowledged is still there.
async fn log_goes_on(stage: &Stage, before: Option<&str>, begin: Instant, what: &str) -> Result {
    let mut ledger = stage.ledger.lock().await;
    let acknowledged = ledger.acknowledged();
    let entered = ledger.enter().await;
    let after = begin.elapsed();
    match entered {
        Ok(entered) => stage.kept.entries.store(entered.number, Ordering::Relaxed),
        Err(Error { message: error, .. }) => {
            let text = format!("the log takes no writes {} after the {what}: {error}", seconds(after));
            return stage.story.tell(Tone::Bad, "log-stands", json!({ "error": error }), &text);
        }
    }
    let lost = match ledger.lost().await {
        Ok(lost) => lost,
        Err(Error { message: error, .. }) => {
            let text = format!(
                "the log took a write {} after the {what}, but what it had acknowledged before cannot be read: {error}",
                seconds(after)
            );
            return stage.story.tell(Tone::Bad, "log-unread", json!({ "error": error }), &text);
        }
    };
    stage.kept.lost.fetch_add(lost, Ordering::Relaxed);
    let leader = ledger.leader().await;
    let leads = match &leader {
        Some(leader) if before == Some(leader) => format!("{leader} still leads"),
        Some(leader) => format!("{leader} leads now"),
        None => "nobody says who leads".to_owned(),
    };
    let writes = counted(acknowledged, "write");
    let kept =
        if lost == 0 { format!("{writes} acknowledged before, none lost") } else { format!("{lost} of {writes} LOST") };
    let text = format!("the log took a write {} after the {what} ({leads}); {kept}", seconds(after));
    let facts = json!({ "leader": leader, "after_ms": millis(after), "acknowledged": acknowledged, "lost": lost });
    stage.story.tell(if lost == 0 { Tone::Noticed } else { Tone::Bad }, "log", facts, &text)
}

/// Tells when a node is called failed by another.
async fn called_failed(stage: &Stage, node: usize, observer: usize, begin: Instant) -> Result {
    let (victim, other) = (stage.id(node), stage.id(observer));
    let failed = |links: &super::links::Links| links.state(other, victim) == Some(NodeState::Failed);
    if stage.links.until(stage.scaled(LASTS), failed).await.is_none() {
        return Ok(());
    }
    let after = begin.elapsed();
    let text = format!("{other} calls {victim} failed, {} after its death", seconds(after));
    stage.story.tell(Tone::Noticed, "failed", json!({ "node": victim, "at": other, "after_ms": millis(after) }), &text)
}

/// Tells where the members of a node went.
async fn moved_away(stage: &Stage, node: usize, observer: usize, ids: &BTreeSet<String>, begin: Instant) -> Result {
    let victim = stage.id(node);
    let witnesses = stage.witnesses.read().await;
    let witness = &witnesses[observer];
    let wanted = || stage.wanted.change(|wanted| ids.intersection(wanted).cloned().collect::<BTreeSet<_>>());
    let moved = witness.until(NOTICE, |seen| !seen.owners(&wanted()).contains_key(victim)).await;
    let owners = witness.look(|seen| seen.owners(&wanted()));
    let places: Vec<String> = owners.iter().map(|(node, count)| format!("{count} at {node}")).collect();
    let (at, places) = (witness.node(), places.join(", "));
    let text = match moved {
        Some(_) => {
            format!("all its clients went elsewhere within {}: {places}, as {at} sees it", seconds(begin.elapsed()))
        }
        None => {
            format!("after {} not all its clients are elsewhere: {places}, as {at} sees it", seconds(begin.elapsed()))
        }
    };
    let facts =
        json!({ "node": victim, "owners": owners, "complete": moved.is_some(), "after_ms": millis(begin.elapsed()) });
    stage.story.tell(Tone::Noticed, "moved", facts, &text)
}

async fn pause(stage: &Stage, node: usize) -> Result {
    let victim = stage.id(node).to_owned();
    let observer = (node + 1) % stage.nodes.len();
    let other = stage.id(observer);
    let before = Before::at(stage).await;
    let owned = stage.witnesses.read().await[observer].look(|seen| seen.up_at(&victim));
    let leader = stage.ledger.lock().await.leader().await;
    let led = leader.as_deref() == Some(&victim);
    let begin = Instant::now();
    stage.cluster.lock().await.pause(&victim).unwrap_or(Ok(())).map_err(|error| failed(&error))?;
    let and = if led { ", and it leads the log" } else { "" };
    let text = format!(
        "{victim} stands still, as under a debugger or on a machine out of memory; {} members are there{and}",
        owned.len()
    );
    stage.story.tell(Tone::Fault, "paused", json!({ "node": victim, "members": owned.len(), "led": led }), &text)?;
    let until = begin + stage.scaled(LASTS);
    let unlinked =
        |links: &super::links::Links| links.state(other, &victim).is_some_and(|state| state != NodeState::Up);
    let notice = async {
        let patience = until.saturating_duration_since(Instant::now());
        let Some(after) = stage.links.until(patience, unlinked).await else { return Ok(()) };
        let state = word(stage.links.state(other, &victim));
        let text = format!("{other} calls {victim} {state} after {}", seconds(after));
        let facts = json!({ "at": other, "from": victim, "after_ms": millis(after) });
        stage.story.tell(Tone::Noticed, "unreachable", facts, &text)
    };
    let log = async { if led { log_goes_on(stage, leader.as_deref(), begin, "standstill").await } else { Ok(()) } };
    let (noticed, written) = tokio::join!(notice, log);
    noticed.and(written)?;
    sleep_until(until).await;
    let (kept, of) = kept(stage, observer, &owned).await;
    stage.cluster.lock().await.resume(&victim).unwrap_or(Ok(())).map_err(|error| failed(&error))?;
    let lasted = begin.elapsed();
    let same = stage.same_everywhere(stage.scaled(REPAIR).max(NOTICE)).await;
    let flaps = before.flaps(stage).await;
    let repaired = match same {
        Some(same) => format!("all nodes show the same {} later", seconds(same)),
        None => "but nodes still show different members".to_owned(),
    };
    let members = members_kept(kept, of);
    let text = format!("{victim} goes on after {}; {members}, {flaps} flaps; {repaired}", seconds(lasted));
    let facts = json!({ "node": victim, "lasted_ms": millis(lasted), "kept": kept, "of": of, "flaps": flaps, "same": same.is_some() });
    stage.story.tell(tone(flaps == 0 && same.is_some()), "resumed", facts, &text)
}

async fn client_death(stage: &Stage, draw: usize) -> Result {
    let Some(id) = stage.troupe.lock().await.die(draw) else { return Ok(()) };
    let text = format!("the process of {id} ends without a goodbye");
    stage.story.tell(Tone::Fault, "client-died", json!({ "member": id }), &text)?;
    let is = |seen: &super::seen::Seen, status| seen.member(&id).is_some_and(|member| member.status == status);
    let down = stage.witnesses.read().await[0].until(NOTICE, |seen| is(seen, convoke_client::Status::Down)).await;
    let (facts, text) = match down {
        Some(after) => (
            json!({ "member": id, "after_ms": millis(after) }),
            format!("{id} is shown as down {} later", seconds(after)),
        ),
        None => (json!({ "member": id }), format!("{id} is not shown as down")),
    };
    stage.story.tell(Tone::Noticed, "down", facts, &text)?;
    tokio::time::sleep(stage.scaled(ABSENCE)).await;
    let begin = Instant::now();
    if let Err(error) = stage.troupe.lock().await.revive(&id, draw % stage.nodes.len()).await {
        let text = format!("{id} could not come back: {}", error.message);
        return stage.story.tell(
            Tone::Bad,
            "client-back-failed",
            json!({ "member": id, "error": error.message }),
            &text,
        );
    }
    let mut everywhere = true;
    for witness in stage.witnesses.read().await.iter() {
        everywhere &= witness.until(NOTICE, |seen| is(seen, convoke_client::Status::Up)).await.is_some();
    }
    stage.troupe.lock().await.want(&id);
    let took = seconds(begin.elapsed());
    let text = match everywhere {
        true => format!("{id} is started again, and up at all nodes {took} later"),
        false => format!("{id} is started again, but not up at all nodes {took} later"),
    };
    stage.story.tell(tone(everywhere), "client-back", json!({ "member": id, "up": everywhere }), &text)
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
