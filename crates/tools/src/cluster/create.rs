//! `convoke cluster create`: starts the manager if there is none, and a cluster; if interrupted, removes both.

use super::api::{ClusterInfo, CreateRequest, Progress, check_name};
use super::client::{ManagerClient, json};
use super::{settings, show};
use crate::VariableOf;
use crate::args::CreateArgs;
use convoke_cli::output::{print, print_json};
use convoke_cli::{CommandError, Result, Signals};
use hyper::Method;
use serde_json::Value;
use std::cell::Cell;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

const START_TIMEOUT: Duration = Duration::from_secs(20);
const END_TIMEOUT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A manager that is just ending is replaced by a new one.
const ATTEMPTS: usize = 5;

pub(crate) async fn create(
    manager: &ManagerClient,
    arguments: &CreateArgs,
    json: bool,
    variable_of: VariableOf,
) -> Result {
    let mut signals = Signals::listen()?;
    check_name(&arguments.name).map_err(CommandError::usage)?;
    let request = CreateRequest {
        name: arguments.name.clone(),
        nodes: arguments.nodes,
        regions: arguments.regions.clone(),
        settings: arguments.settings.iter().cloned().collect(),
    };
    settings::variables(&request.settings, variable_of).map_err(CommandError::usage)?;
    let mut started = None;
    let begun = Cell::new(None);
    let created = tokio::select! {
        created = attempt(manager, &request, &mut started, &begun) => Some(created),
        _ = signals.next() => None,
    };
    let outcome = match created {
        Some(Ok(info)) => {
            if json {
                print_json(&info)
            } else {
                print(&show::created(&info, manager.port()))
            }
        }
        Some(Err(error)) => Err(error),
        None => {
            // Closing the connection removes a cluster that is being created, but not one that was complete.
            if let Some(id) = begun.get() {
                let gone: Result<Value> = manager.delete(&format!("/clusters/{}?id={id}", request.name)).await;
                // The cluster, and perhaps the manager, may have ended already.
                drop(gone);
            }
            settled(manager).await;
            Err(CommandError::failed(format!("interrupted: cluster {} was removed", request.name)))
        }
    };
    release(started, outcome.is_err()).await;
    if outcome.is_err() {
        // The first error is reported, whether the manager ends or not.
        let _ = manager.wait_ended().await;
    }
    outcome
}

/// Retries, because the manager may end between the check and the request.
async fn attempt(
    manager: &ManagerClient,
    request: &CreateRequest,
    started: &mut Option<Child>,
    begun: &Cell<Option<u64>>,
) -> Result<ClusterInfo> {
    for _ in 1..ATTEMPTS {
        ensure(manager, started).await?;
        match follow(manager, request, begun).await {
            Err(error) if begun.get().is_none() && manager.probe().await?.is_none() => drop(error),
            outcome => return outcome,
        }
    }
    ensure(manager, started).await?;
    follow(manager, request, begun).await
}

/// Finds or starts the manager.
async fn ensure(manager: &ManagerClient, started: &mut Option<Child>) -> Result {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        if manager.probe().await?.is_some() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(CommandError::failed("the cluster manager did not start in time"));
        }
        match started {
            None => *started = Some(start(manager.port())?),
            Some(child) => {
                if let Ok(Some(_)) = child.try_wait() {
                    let output = stderr_of(child).await;
                    *started = None;
                    // Another process started a manager first, or the port is in use.
                    if manager.probe().await?.is_none() {
                        return Err(CommandError::failed(format!("the cluster manager did not start: {output}")));
                    }
                }
            }
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Starts the manager in its own process group, so that Ctrl-C does not reach it. Its stdin closes when this command ends.
fn start(port: u16) -> Result<Child> {
    let cannot = |error: std::io::Error| CommandError::failed(format!("cannot start the cluster manager: {error}"));
    let binary = std::env::current_exe().map_err(cannot)?;
    let mut command = Command::new(binary);
    command.args(["cluster", "serve", "--background", "--port", &port.to_string()]).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(cannot)
}

async fn stderr_of(child: &mut Child) -> String {
    let mut output = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut output).await;
    }
    output.trim().trim_start_matches("convoke: ").to_owned()
}

/// Requests the cluster and prints the progress.
async fn follow(manager: &ManagerClient, request: &CreateRequest, begun: &Cell<Option<u64>>) -> Result<ClusterInfo> {
    let mut answer = manager.open(Method::POST, "/clusters", Some(json(request)?)).await?;
    while let Some(line) = answer.line().await.map_err(|why| manager.error(why))? {
        let progress = serde_json::from_slice(&line)
            .map_err(|error| CommandError::failed(format!("cannot read the answer of the cluster manager: {error}")))?;
        match progress {
            Progress::Begun { id } => {
                begun.set(Some(id));
                eprintln!(
                    "creating {} with {}",
                    request.name,
                    convoke_cli::output::counted(request.nodes as u64, "node")
                );
            }
            Progress::Ready { node, number, of } => eprintln!("{node} is ready ({number} of {of})"),
            Progress::Done(info) => return Ok(info),
            Progress::Failed(error) => return Err(error.into()),
        }
    }
    Err(CommandError::failed("the cluster manager ended before the cluster was complete"))
}

/// Waits until no cluster is being created.
async fn settled(manager: &ManagerClient) {
    let deadline = Instant::now() + END_TIMEOUT;
    while Instant::now() < deadline && matches!(manager.probe().await, Ok(Some(found)) if found.creating > 0) {
        sleep(POLL_INTERVAL).await;
    }
}

/// Releases a manager that was started here. After a failure, waits for its end.
async fn release(started: Option<Child>, wait: bool) {
    let Some(mut child) = started else { return };
    drop(child.stdin.take());
    if wait {
        // It keeps running if it has clusters of others.
        let _ = timeout(POLL_INTERVAL * 50, child.wait()).await;
    }
}
