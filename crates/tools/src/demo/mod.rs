//! `convoke demo`: three real nodes, services that come and go, faults and their effects.
//!
//! The seed determines the script. The output reports what watchers and nodes observed. Rules: docs/demo-and-clusters.md.

mod churn;
mod clients;
mod counter;
mod faults;
mod links;
mod printer;
mod script;
mod view;
mod watcher;
mod world;

pub use world::timers;

use crate::args::DemoArgs;
use crate::log_group;
use clients::DemoClients;
use convoke_cli::output::counted;
use convoke_cli::{CommandError, Result, Signals};
use convoke_lab::{ClusterPlan, LocalCluster, StateDir};
use counter::LogCounter;
use links::Links;
use printer::{Printer, Tone, seconds};
use script::{Fault, Script, Step};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{Mutex, OwnedSemaphorePermit, RwLock, Semaphore, mpsc};
use view::Counts;
use watcher::{NodeWatcher, SharedExpected};
use world::{LogWrites, World};

const NODES: usize = 3;
/// Prefix of the directories of demos.
const DIRECTORY: &str = "demo-";
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs until Ctrl-C. Processes and directory are removed when this returns, also after an error.
pub(crate) async fn run(arguments: &DemoArgs) -> Result {
    let mut signals = Signals::listen()?;
    let root = StateDir::root();
    StateDir::sweep(&root, DIRECTORY);
    let dir = StateDir::claim(&root, &format!("{DIRECTORY}{}", std::process::id()))
        .map_err(|error| CommandError::failed(error.to_string()))?;
    let cluster = cluster(dir.path(), arguments.speed)?;
    let cluster = Arc::new(Mutex::new(cluster));
    let printer = Arc::new(Printer::new(arguments.quiet, arguments.json));
    let expected = SharedExpected::new(printer.clone());
    let log_writes = Arc::new(LogWrites::default());
    let outcome = tokio::select! {
        outcome = show(arguments, printer.clone(), cluster.clone(), expected.clone(), log_writes.clone()) => outcome,
        _ = signals.next() => Ok(()),
    };
    // A second signal does not wait: the nodes end with this process, and the next demo removes the directory.
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
    let (counts, flaps, after) = (printer.counts(), expected.flaps(), seconds(printer.elapsed()));
    let (entries, lost) = (log_writes.entries.load(Ordering::Relaxed), log_writes.lost.load(Ordering::Relaxed));
    let text = format!(
        "ended after {after}: {}, {}, {flaps} flaps seen by all watchers, {lost} of {} to the log lost; nodes and their directory removed",
        counted(counts.churn, "change"),
        counted(counts.faults, "fault"),
        counted(entries, "acknowledged write")
    );
    let facts =
        json!({ "changes": counts.churn, "faults": counts.faults, "flaps": flaps, "entries": entries, "lost": lost });
    // The shell has just printed ^C.
    printer.line("\n")?;
    printer.event(if flaps == 0 && lost == 0 { Tone::Good } else { Tone::Bad }, "ended", facts, &text)
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
        environment: world::timers(speed)?,
        at_localhost: true,
    };
    LocalCluster::new(plan).map_err(cannot)
}

/// Runs until something fails.
async fn show(
    arguments: &DemoArgs,
    printer: Arc<Printer>,
    cluster: Arc<Mutex<LocalCluster>>,
    expected: SharedExpected,
    log_writes: Arc<LogWrites>,
) -> Result {
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let mut script = Script::new(seed, NODES);
    let world = prepare(arguments, printer, cluster, (expected, log_writes), seed, &mut script).await?;
    let (faults, next_episode) = mpsc::channel(1);
    tokio::try_join!(run_script(&world, script, faults), run_faults(&world, next_episode)).map(drop)
}

async fn prepare(
    arguments: &DemoArgs,
    printer: Arc<Printer>,
    cluster: Arc<Mutex<LocalCluster>>,
    (expected, log_writes): (SharedExpected, Arc<LogWrites>),
    seed: u64,
    script: &mut Script,
) -> Result<World> {
    printer.line(&format!(
        "Three nodes on this machine, a dozen services and faults (seed {seed}). Press Ctrl-C to stop.\n\n"
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
    printer.line(&format!("  dashboard  http://{first}/ui/\n"))?;
    printer.line(&format!("  members    convoke members --addr {first}\n"))?;
    printer.line(&format!("  keys       convoke kv list --addr {first}\n"))?;
    for (id, address) in &nodes {
        printer.line(&format!("  {id:<9}  {address}\n"))?;
    }
    printer.line("\n")?;
    let mut watchers = Vec::new();
    for (id, address) in &nodes {
        watchers.push(NodeWatcher::at(id, *address, &expected, Counts::default()).await?);
    }
    let mut clients = DemoClients::new(nodes.clone(), expected.clone());
    clients::register_all(&mut clients, script.initial_members()).await?;
    let (links, members) = (Links::of(&nodes)?, clients.len());
    let (watchers, clients, speed) = (RwLock::new(watchers), Mutex::new(clients), arguments.speed);
    let counter = Mutex::new(LogCounter::open(&nodes)?);
    let world = World { cluster, nodes, links, clients, counter, log_writes, watchers, expected, printer, speed };
    let same = world.wait_for_agreement(PATIENCE).await;
    let shown = if same.is_some() { "all nodes agree" } else { "nodes do not agree yet" };
    let leader = world.counter.lock().await.leader().await;
    let text = format!(
        "{} of {} registered; {shown}; {} leads the log",
        counted(members as u64, "member"),
        counted(script::SERVICES.len() as u64, "service"),
        leader.as_deref().unwrap_or("no node")
    );
    let clients: Vec<String> = world.nodes.iter().map(|(_, address)| address.to_string()).collect();
    let facts = json!({ "seed": seed, "members": members, "nodes": clients, "dashboard": format!("http://{first}/ui/"), "same": same.is_some(), "leader": leader });
    world.printer.event(Tone::Good, "started", facts, &text)?;
    Ok(world)
}

/// A fault, and the permit that keeps it the only one.
type Turn = (Fault, OwnedSemaphorePermit);

/// Runs the actions in order. Faults run beside them, one at a time; the script waits while one still runs.
async fn run_script(world: &World, script: Script, faults: mpsc::Sender<Turn>) -> Result {
    let one = Arc::new(Semaphore::new(1));
    for (pause, step) in script {
        tokio::time::sleep(world.scaled(pause)).await;
        match step {
            Step::Action(action) => churn::run(world, action).await?,
            Step::Fault(fault) => {
                let Ok(permit) = one.clone().acquire_owned().await else { break };
                // The receiver ends only with an error, which it reports.
                if faults.send((fault, permit)).await.is_err() {
                    break;
                }
            }
        }
    }
    Ok(())
}

async fn run_faults(world: &World, mut faults: mpsc::Receiver<Turn>) -> Result {
    while let Some((fault, _permit)) = faults.recv().await {
        faults::run(world, fault).await?;
    }
    Ok(())
}
