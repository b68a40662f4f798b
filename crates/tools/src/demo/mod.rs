//! `convoke demo`: three real nodes, services that come and go, faults, and what came of them.
//!
//! The script says what happens; what is told is what subscribers and nodes were found to say. Rules: docs/demo-and-clusters.md.

mod acts;
mod episodes;
mod ledger;
mod links;
mod script;
mod seen;
mod stage;
mod story;
mod troupe;
mod witness;

pub use stage::timers;

use crate::args::DemoArgs;
use crate::log_group;
use convoke_cli::output::counted;
use convoke_cli::{CommandError, Result, Signals};
use convoke_lab::{ClusterPlan, LocalCluster, StateDir};
use ledger::Ledger;
use links::Links;
use script::{Episode, Scene, Script};
use seen::Counts;
use serde_json::json;
use stage::{Kept, Stage};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use story::{Story, Tone, seconds};
use tokio::sync::{Mutex, OwnedSemaphorePermit, RwLock, Semaphore, mpsc};
use troupe::Troupe;
use witness::{SharedWanted, Witness};

const NODES: usize = 3;
/// Directories of demos begin with this.
const DIRECTORY: &str = "demo-";
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs until Ctrl-C. Whatever happens, processes and directory are gone when this returns.
pub(crate) async fn run(arguments: &DemoArgs) -> Result {
    let mut signals = Signals::listen()?;
    let root = StateDir::root();
    StateDir::sweep(&root, DIRECTORY);
    let dir = StateDir::claim(&root, &format!("{DIRECTORY}{}", std::process::id()))
        .map_err(|error| CommandError::failed(error.to_string()))?;
    let cluster = cluster(dir.path(), arguments.speed)?;
    let cluster = Arc::new(Mutex::new(cluster));
    let story = Arc::new(Story::new(arguments.quiet, arguments.json));
    let wanted = SharedWanted::default();
    let kept = Arc::new(Kept::default());
    let outcome = tokio::select! {
        failure = show(arguments, story.clone(), cluster.clone(), wanted.clone(), kept.clone()) => failure,
        _ = signals.next() => Ok(()),
    };
    // A second signal does not wait for this: then nodes end with this process, and the directory is removed by the next demo.
    tokio::select! {
        () = finish(cluster) => {}
        _ = signals.next() => {}
    }
    let path = dir.path().to_owned();
    drop(dir);
    if path.exists() {
        return outcome.and(Err(CommandError::failed(format!("cannot remove {}: remove it by hand", path.display()))));
    }
    outcome?;
    let (told, flaps, after) = (story.told(), wanted.flaps(), seconds(story.elapsed()));
    let (entries, lost) = (kept.entries.load(Ordering::Relaxed), kept.lost.load(Ordering::Relaxed));
    let text = format!(
        "ended after {after}: {}, {}, {flaps} flaps in the eyes of all subscribers, {lost} of {} to the log lost; nodes and their directory are gone",
        counted(told.churn, "change"),
        counted(told.faults, "fault"),
        counted(entries, "acknowledged write")
    );
    let facts =
        json!({ "changes": told.churn, "faults": told.faults, "flaps": flaps, "entries": entries, "lost": lost });
    // The shell has just printed ^C.
    story.aside("\n")?;
    story.tell(if flaps == 0 && lost == 0 { Tone::Good } else { Tone::Bad }, "ended", facts, &text)
}

async fn finish(cluster: Arc<Mutex<LocalCluster>>) {
    if let Some(cluster) = Arc::into_inner(cluster) {
        cluster.into_inner().end().await;
    }
}

fn cluster(dir: &Path, speed: f64) -> Result<LocalCluster> {
    let cannot = |error: std::io::Error| CommandError::failed(format!("cannot start the demo: {error}"));
    let plan = ClusterPlan {
        cluster: "demo".to_owned(),
        binary: std::env::current_exe().map_err(cannot)?,
        dir: dir.to_owned(),
        prefix: "node-",
        environment: stage::timers(speed)?,
        at_localhost: true,
    };
    LocalCluster::new(plan).map_err(cannot)
}

/// Never ends by itself, unless something fails.
async fn show(
    arguments: &DemoArgs,
    story: Arc<Story>,
    cluster: Arc<Mutex<LocalCluster>>,
    wanted: SharedWanted,
    kept: Arc<Kept>,
) -> Result {
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let mut script = Script::new(seed, NODES);
    let stage = prepare(arguments, story, cluster, (wanted, kept), seed, &mut script).await?;
    let (episodes, next_episode) = mpsc::channel(1);
    tokio::try_join!(act(&stage, script, episodes), go_wrong(&stage, next_episode)).map(drop)
}

async fn prepare(
    arguments: &DemoArgs,
    story: Arc<Story>,
    cluster: Arc<Mutex<LocalCluster>>,
    (wanted, kept): (SharedWanted, Arc<Kept>),
    seed: u64,
    script: &mut Script,
) -> Result<Stage> {
    story.aside(&format!(
        "Three nodes on this machine, a dozen services, and things that go wrong (seed {seed}). Ctrl-C ends it.\n\n"
    ))?;
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        let mut cluster = cluster.lock().await;
        let id = cluster.add("").await.map_err(|error| CommandError::failed(error.to_string()))?;
        let address = cluster.node(&id).map(convoke_lab::LocalNode::clients);
        nodes.extend(address.map(|address| (id, address)));
    }
    let first = nodes.first().map(|(_, address)| *address).ok_or_else(|| CommandError::failed("no node"))?;
    let others: Vec<String> = nodes.iter().skip(1).map(|(id, _)| id.clone()).collect();
    log_group::form(&first.to_string(), &others).await?;
    story.aside(&format!("  dashboard  http://{first}/ui/\n"))?;
    story.aside(&format!("  look       convoke members --addr {first}\n"))?;
    story.aside(&format!("             convoke kv list --addr {first}\n"))?;
    for (id, address) in &nodes {
        story.aside(&format!("  {id:<9}  {address}\n"))?;
    }
    story.aside("\n")?;
    let mut witnesses = Vec::new();
    for (id, address) in &nodes {
        witnesses.push(Witness::at(id, *address, &wanted, Counts::default()).await?);
    }
    let mut troupe = Troupe::new(nodes.clone(), wanted.clone());
    troupe::assemble(&mut troupe, script.cast()).await?;
    let (links, members) = (Links::of(&nodes)?, troupe.len());
    let (witnesses, troupe, speed) = (RwLock::new(witnesses), Mutex::new(troupe), arguments.speed);
    let ledger = Mutex::new(Ledger::open(&nodes)?);
    let stage = Stage { cluster, nodes, links, troupe, ledger, kept, witnesses, wanted, story, speed };
    let same = stage.same_everywhere(PATIENCE).await;
    let shown = if same.is_some() { "every node shows them all" } else { "nodes do not show the same yet" };
    let leader = stage.ledger.lock().await.leader().await;
    let text = format!(
        "{} of {} registered; {shown}; {} leads the log",
        counted(members as u64, "member"),
        counted(script::SERVICES.len() as u64, "service"),
        leader.as_deref().unwrap_or("nobody")
    );
    let clients: Vec<String> = stage.nodes.iter().map(|(_, address)| address.to_string()).collect();
    let facts = json!({ "seed": seed, "members": members, "nodes": clients, "dashboard": format!("http://{first}/ui/"), "same": same.is_some(), "leader": leader });
    stage.story.tell(Tone::Good, "started", facts, &text)?;
    Ok(stage)
}

/// An episode, and the right to be the only one.
type Turn = (Episode, OwnedSemaphorePermit);

/// Acts one after another. An episode is handed over; if the one before still lasts, everything waits: the order is the script's.
async fn act(stage: &Stage, script: Script, episodes: mpsc::Sender<Turn>) -> Result {
    let one = Arc::new(Semaphore::new(1));
    for (pause, scene) in script {
        tokio::time::sleep(stage.scaled(pause)).await;
        match scene {
            Scene::Act(act) => acts::play(stage, act).await?,
            Scene::Episode(episode) => {
                let Ok(permit) = one.clone().acquire_owned().await else { break };
                // Whoever takes it ends only with a failure, which is told there.
                if episodes.send((episode, permit)).await.is_err() {
                    break;
                }
            }
        }
    }
    Ok(())
}

async fn go_wrong(stage: &Stage, mut episodes: mpsc::Receiver<Turn>) -> Result {
    while let Some((episode, _permit)) = episodes.recv().await {
        episodes::play(stage, episode).await?;
    }
    Ok(())
}
