//! A node's life: bind, start, serve, stop.

use super::Plan;
use super::announce;
use crate::failure::{Failure, Outcome, exit};
use crate::signals::{Signal, Signals};
use convoke_node::{Ending, Node};
use convoke_server::{Bound, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::ErrorKind;
use std::time::Duration;

/// How often a node that waits for others says so.
const REMIND: Duration = Duration::from_secs(10);

/// A node that serves clients.
struct Running {
    node: Node,
    server: Server,
}

/// Runs until a signal comes or the node ends by itself. A second signal ends it at once.
pub(crate) async fn run(plan: Plan) -> Outcome {
    let mut signals = Signals::listen()?;
    raise_open_files();
    let running = tokio::select! {
        running = start(&plan) => running?,
        signal = signals.next() => return Err(cut_short(signal)),
    };
    let (node, clients) = (running.node.handle(), running.server.address());
    announce::listening(&plan, &node, clients)?;
    let signal = tokio::select! {
        ending = node.stopped() => return ended(&plan, ending),
        signal = signals.next() => signal,
        failure = announce::when_ready(&plan, &node, clients, REMIND) => return Err(failure),
    };
    tracing::info!(node = %node.id(), "{signal}: stopping; clients are sent elsewhere; once more stops at once");
    tokio::select! {
        ending = running.server.stop() => ended(&plan, ending),
        signal = signals.next() => Err(cut_short(signal)),
    }
}

/// Every client is an open file, and the usual soft limit of 1,024 is for programs that use `select`.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
}

/// The client port comes first: the node tells others where its clients connect.
async fn start(plan: &Plan) -> Outcome<Running> {
    let bound = bind(plan).await?;
    let mut config = plan.parts.node.clone();
    let clients = bound.address();
    if !clients.ip().is_loopback() {
        tracing::warn!("{clients} can be reached from other machines, and whoever reaches it may do everything");
    }
    config.client_address = match &plan.parts.client_host {
        Some(host) => format!("{host}:{}", clients.port()),
        None => clients.to_string(),
    };
    let node = match Node::start(config.clone()).await {
        Err(convoke_node::StartError::Bind { source, .. })
            if plan.any_peer_port && source.kind() == ErrorKind::AddrInUse =>
        {
            announce::port_taken("peers", &config.bind)?;
            config.bind = any_port(&config.bind);
            Node::start(config).await
        }
        started => started,
    };
    let node = node.map_err(|error| cannot_start(&error))?;
    let server = bound.serve(node.handle());
    Ok(Running { node, server })
}

async fn bind(plan: &Plan) -> Outcome<Bound> {
    let mut config = plan.parts.server.clone();
    let bound = match Server::bind(config.clone()).await {
        Err(convoke_server::StartError::Bind { source, .. })
            if plan.any_client_port && source.kind() == ErrorKind::AddrInUse =>
        {
            announce::port_taken("clients", &config.bind)?;
            config.bind = any_port(&config.bind);
            Server::bind(config).await
        }
        bound => bound,
    };
    bound.map_err(|error| match &error {
        convoke_server::StartError::Public { .. } | convoke_server::StartError::Zero { .. } => {
            Failure::usage(error.to_string())
        }
        convoke_server::StartError::Bind { .. } => Failure::failed(error.to_string()),
    })
}

fn any_port(address: &str) -> String {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    format!("{host}:0")
}

fn cannot_start(error: &convoke_node::StartError) -> Failure {
    use convoke_node::StartError as E;
    let exit = match error {
        E::Config(_) | E::Zero { .. } | E::LinkQueue { .. } | E::Advertise { .. } | E::DataDirOfAnother { .. } => {
            exit::USAGE
        }
        E::Bind { .. } | E::DataDirInUse { .. } | E::Damaged { .. } | E::Disk { .. } | E::Randomness(_) => exit::FAILED,
    };
    Failure { exit, message: error.to_string() }
}

fn ended(plan: &Plan, ending: Ending) -> Outcome {
    let id = &plan.parts.node.id;
    match ending {
        Ending::Graceful => Ok(()),
        Ending::IdentityConflict => Err(Failure::refused(format!(
            "another process of the cluster uses the node id {id}: give each its own (--id)"
        ))),
        Ending::Aborted => Err(Failure::failed(format!("node {id} ended unexpectedly: see the log"))),
    }
}

fn cut_short(signal: Signal) -> Failure {
    Failure::failed(format!("{signal}: stopped at once; clients notice by themselves"))
}
