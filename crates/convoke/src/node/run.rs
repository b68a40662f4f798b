//! Runs a node: bind, start, serve, stop.

use super::Plan;
use super::announce;
use convoke_cli::{CommandError, Result, Signal, Signals, exit};
use convoke_core::filter::Filter;
use convoke_core::member::NODE_ID_PREFIX;
use convoke_node::{Ending, Inbound, Node, NodeHandle, PreparedNode};
use convoke_replica::{Dial, DialWithLookup, LOG_PREAMBLE, LogHandle, NodeLog, NodeLookup, Replica, TlsDial};
use convoke_server::{Bound, Server};
use convoke_tls::NodeTls;
use std::io::ErrorKind;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Interval of the warning that the node is not ready.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Most nodes that the records are looked up of.
const NODES_MAX: usize = 1_025;

/// A node that serves clients.
struct Running {
    node: Node,
    server: Server,
    log: Option<Replica>,
}

/// Runs until a signal arrives or the node stops by itself. A second signal stops it immediately.
pub(crate) async fn run(plan: Plan) -> Result {
    let mut signals = Signals::listen()?;
    convoke_cli::raise_open_files();
    let running = tokio::select! {
        running = start(&plan) => running?,
        signal = stop_signal(&mut signals, &plan) => return Err(stopped_by_second_signal(signal)),
    };
    let node = running.node.handle();
    let addresses = announce::Addresses::of(&node, &running.server);
    announce::listening(&plan, &node, &addresses);
    let signal = tokio::select! {
        ending = node.stopped() => return ended(&plan, ending),
        signal = stop_signal(&mut signals, &plan) => signal,
        never = announce::when_ready(&plan, &node, &addresses, WARNING_INTERVAL) => match never {},
    };
    // Without the notification the service manager only waits longer.
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Stopping]);
    tracing::info!(node = %node.id(), %signal, "stopping: handing clients over; a second signal stops immediately");
    let stopping = async {
        let log = running.log.as_ref().map(Replica::handle);
        let leaving = async {
            if let Some(log) = log {
                // The other replicas elect a leader without waiting for a timeout.
                log.hand_over().await;
                log.stop().await;
            }
        };
        tokio::join!(running.server.stop(), leaving).0
    };
    let ending = tokio::select! {
        ending = stopping => ending,
        signal = stop_signal(&mut signals, &plan) => return Err(stopped_by_second_signal(signal)),
    };
    ended(&plan, ending)
}

/// Waits for a signal that stops the node.
///
/// SIGHUP asks daemons to read their configuration again. A node reads it at its start only, and must not stop because
/// of a habit or a closed terminal. `convoke dev` belongs to its terminal and ends with it.
async fn stop_signal(signals: &mut Signals, plan: &Plan) -> Signal {
    loop {
        match signals.next().await {
            Signal::Hangup if !plan.dev => tracing::warn!(
                node = %plan.parts.node.id,
                "SIGHUP ignored: restart the node to change its configuration, stop it with SIGTERM"
            ),
            signal => return signal,
        }
    }
}

/// Stops the log after a fault: the content of its disk is unknown until it is read again. The registry does not depend on
/// it and goes on.
async fn stop_after_fault(log: LogHandle) {
    // The replica has logged the reason.
    log.failed().await;
    log.stop().await;
    tracing::error!("replicated log stopped until the next start of this node; the registry goes on");
}

/// Binds the client port first, because the node advertises it to its peers.
async fn start(plan: &Plan) -> Result<Running> {
    let tls = load_tls(plan)?;
    let bound = bind(plan, tls.as_ref()).await?;
    let mut config = plan.parts.node.clone();
    config.tls.clone_from(&tls);
    let clients = bound.address();
    if !clients.ip().is_loopback() && plan.parts.server.auth.is_none() {
        tracing::warn!(address = %clients, "listening on a non-loopback address without authentication");
    }
    config.client_address = match &plan.parts.client_host {
        Some(host) => format!("{host}:{}", clients.port()),
        None => clients.to_string(),
    };
    let node = match Node::prepare(config.clone()).await {
        Err(convoke_node::StartError::Bind { source, .. }) if plan.any_peer_port && taken(&source) => {
            announce::port_taken("peers", &config.bind);
            config.bind = any_port(&config.bind);
            Node::prepare(config).await
        }
        started => started,
    };
    let node = node.map_err(|error| cannot_start(&error))?;
    // The log first: a process that cannot open it ends before the registry announces a new incarnation.
    let registry = Arc::new(OnceLock::new());
    let log = match &plan.parts.log {
        Some(config) => Some(start_log(config.clone(), &node, registry.clone(), tls.as_ref()).await?),
        None => None,
    };
    let node = node.begin();
    registry.get_or_init(|| node.handle());
    if let Some(tls) = tls {
        let registry = node.handle();
        tls.set_records(move |address, id| uses_tls(&registry, address, id));
        tokio::spawn(tls.follow());
    }
    let server = bound.serve(node.handle(), log.as_ref().map(Replica::handle));
    Ok(Running { node, server, log })
}

/// Starts the replicated log. It shares the peer port of the node, and looks up moved nodes in the registry.
async fn start_log(
    mut config: convoke_replica::Config,
    node: &PreparedNode,
    registry: Arc<OnceLock<NodeHandle>>,
    tls: Option<&NodeTls>,
) -> Result<Replica> {
    node.peer_address().clone_into(&mut config.address);
    node.client_address().clone_into(&mut config.client_address);
    let mut connections = node.connections(LOG_PREAMBLE);
    let dial: Arc<dyn Dial> = match tls.cloned() {
        Some(tls) => Arc::new(TlsDial { lookup: Registry(registry), tls }),
        None => Arc::new(DialWithLookup(Registry(registry))),
    };
    let replica = Replica::start_with(config, dial).await.map_err(|error| {
        use convoke_replica::StartError as E;
        let exit = match error {
            E::Config(_) | E::Limits(_) | E::OfAnother { .. } | E::TooOld { .. } => exit::USAGE,
            E::Store(_) | E::Engine(_) | E::Randomness(_) => exit::FAILED,
        };
        CommandError { exit, message: format!("cannot start the replicated log: {error}") }
    })?;
    let handle = replica.handle();
    tokio::spawn(stop_after_fault(handle.clone()));
    tokio::spawn(async move {
        while let Some(Inbound { stream, identity, address, known }) = connections.recv().await {
            let _ = stream.socket().set_nodelay(true);
            match identity {
                Some(identity) => handle.accept_authenticated(stream, address, &identity.name),
                None if known => handle.accept(stream, address),
                None => handle.accept_stranger(stream, address),
            }
        }
    });
    Ok(replica)
}

/// Reads and checks the certificates, before anything is opened.
fn load_tls(plan: &Plan) -> Result<Option<NodeTls>> {
    let Some(settings) = &plan.parts.tls else { return Ok(None) };
    NodeTls::load(settings.clone()).map(Some).map_err(|error| CommandError::usage(error.to_string()))
}

/// Whether the record of a node, or of the one at an address, says that it uses TLS (TS5).
fn uses_tls(registry: &NodeHandle, address: &str, id: Option<&str>) -> bool {
    let nodes = Filter::parse("service == \"convoke\"").expect("a valid filter");
    let Ok(page) = registry.members(&nodes, None, NODES_MAX) else { return false };
    page.members.iter().any(|member| {
        let metadata = member.metadata();
        let ports = metadata.get("tls").unwrap_or_default();
        let uses = |port: &str| ports.split(' ').any(|used| used == port);
        let peer = metadata.get("peer_address") == Some(address)
            || id.is_some_and(|id| member.id().strip_prefix(NODE_ID_PREFIX) == Some(id));
        (peer && uses("peer")) || (member.address() == address && uses("client"))
    })
}

/// The data of the registry about replicas of other nodes. It is empty until the registry has started.
struct Registry(Arc<OnceLock<NodeHandle>>);

impl NodeLookup for Registry {
    fn find(&self, node: &str) -> Option<String> {
        let record = self.0.get()?.member(&format!("{NODE_ID_PREFIX}{node}"))?;
        record.metadata().get("peer_address").filter(|address| !address.is_empty()).map(str::to_owned)
    }

    fn logs(&self) -> Vec<NodeLog> {
        self.0.get().map(convoke_server::registered_logs).unwrap_or_default()
    }
}

async fn bind(plan: &Plan, tls: Option<&NodeTls>) -> Result<Bound> {
    use convoke_server::StartError as E;
    let mut config = plan.parts.server.clone();
    config.tls = tls.cloned();
    loop {
        let error = match Server::bind(config.clone()).await {
            Ok(bound) => return Ok(bound),
            Err(error) => error,
        };
        if let (E::BindConsul { source, .. }, Some(at)) = (&error, &mut config.consul)
            && plan.any_consul_port
            && taken(source)
            && !is_any_port(at)
        {
            announce::port_taken("Consul's HTTP API", at);
            *at = any_port(at);
            continue;
        }
        match (error, &mut config.dns) {
            (E::Bind { source, .. }, _) if plan.any_client_port && taken(&source) && !is_any_port(&config.bind) => {
                announce::port_taken("clients", &config.bind);
                config.bind = any_port(&config.bind);
            }
            (E::Dns(convoke_dns::StartError::Bind { source, .. }), Some(dns))
                if plan.any_dns_port && taken(&source) && !is_any_port(&dns.bind) =>
            {
                announce::port_taken("DNS", &dns.bind);
                dns.bind = any_port(&dns.bind);
            }
            (error @ (E::Bind { .. } | E::BindConsul { .. } | E::Dns(convoke_dns::StartError::Bind { .. })), _) => {
                return Err(CommandError::failed(error.to_string()));
            }
            (error @ (E::Public { .. } | E::Zero { .. } | E::Auth(_) | E::Audit(_) | E::Checks(_) | E::Dns(_)), _) => {
                return Err(CommandError::usage(error.to_string()));
            }
        }
    }
}

fn taken(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::AddrInUse
}

fn is_any_port(address: &str) -> bool {
    address.ends_with(":0")
}

fn any_port(address: &str) -> String {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    format!("{host}:0")
}

fn cannot_start(error: &convoke_node::StartError) -> CommandError {
    use convoke_node::StartError as E;
    let exit = match error {
        E::Config(_) | E::Zero { .. } | E::LinkQueue { .. } | E::Advertise { .. } | E::DataDirOfAnother { .. } => {
            exit::USAGE
        }
        E::Bind { .. } | E::DataDirInUse { .. } | E::Damaged { .. } | E::Disk { .. } | E::Randomness(_) => exit::FAILED,
    };
    CommandError { exit, message: error.to_string() }
}

fn ended(plan: &Plan, ending: Ending) -> Result {
    let id = &plan.parts.node.id;
    match ending {
        Ending::Graceful => Ok(()),
        Ending::IdentityConflict => Err(CommandError::rejected(format!(
            "another process of the cluster uses the node id {id}: give each node its own id (--id)"
        ))),
        Ending::Aborted => Err(CommandError::failed(format!("node {id} ended unexpectedly: see the log lines above"))),
    }
}

fn stopped_by_second_signal(signal: Signal) -> CommandError {
    CommandError::failed(format!("{signal}: stopped immediately, without handing clients over"))
}
