//! A simulated node: its replica, its peer port and its client port.

use crate::clients::ambassador;
use crate::net::{CLIENT_PORT, PEER_PORT, ReplicaDial};
use crate::plan::Mutant;
use crate::registry;
use crate::world::Shared;
use convoke_client::log::Ambassador;
use convoke_log::command::MemberBinding;
use convoke_proto::Error;
use convoke_replica::{Config, LOG_PREAMBLE, LogHandle, Mutation, Replica};
use convoke_server::Directory;
use futures_util::future::BoxFuture;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use turmoil::net::TcpListener;

/// How often a grant looks for its registration.
const REGISTRY_LOOK: Duration = Duration::from_millis(50);

pub(crate) fn name(place: usize) -> String {
    format!("n{place}")
}

pub(crate) fn peer_address(node: &str) -> String {
    format!("{node}:{PEER_PORT}")
}

pub(crate) fn client_address(node: &str) -> String {
    format!("{node}:{CLIENT_PORT}")
}

/// Small, so that minutes of simulated work make snapshots, new segments and purges.
fn config(shared: &Shared, place: usize) -> Config {
    let node = name(place);
    let mut config = Config::new(node.clone(), peer_address(&node));
    config.join = (0..shared.plan.founders).map(|founder| peer_address(&name(founder))).collect();
    config.limits.segment_bytes = 16 * 1024;
    config.limits.snapshot_log_bytes = 24 * 1024;
    config.limits.catch_up_bytes = 8 * 1024;
    if shared.plan.churn {
        config.limits.segment_bytes = 4 * 1024;
        config.limits.snapshot_log_bytes = 4 * 1024;
        config.limits.catch_up_bytes = 1024;
    }
    if shared.plan.has(Mutant::RollbackIgnored) {
        config.mutation = Mutation::of(convoke_replica::Mutant::EvidenceIgnored);
    }
    config
}

/// Node names are also their addresses. The registry is simulated.
#[derive(Debug)]
struct Names {
    shared: Arc<Shared>,
    place: usize,
}

impl Directory for Names {
    fn own(&self) -> String {
        name(self.place)
    }

    fn is_registered(&self, bound: &MemberBinding) -> bool {
        self.shared.registry().shows(self.place, bound)
    }

    fn registered<'a>(&'a self, bound: &'a MemberBinding) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            while !self.is_registered(bound) {
                tokio::time::sleep(REGISTRY_LOOK).await;
            }
        })
    }

    fn knows(&self, _: &str) -> bool {
        true
    }

    fn client_address(&self, node: &str) -> String {
        client_address(node)
    }

    fn peer_address<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<String, Error>> {
        Box::pin(async move { Ok(peer_address(node)) })
    }
}

/// Runs until the host crashes. If the replica stops because of a fault, the node waits for the crash.
pub(crate) async fn run(shared: Arc<Shared>, place: usize) -> turmoil::Result {
    let peers = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PEER_PORT)).await?;
    let clients = TcpListener::bind((Ipv4Addr::UNSPECIFIED, CLIENT_PORT)).await?;
    let disk = shared.disks[place].mount();
    let started = Replica::start_on(config(&shared, place), Arc::new(ReplicaDial), Some(disk)).await;
    let replica = match started {
        Ok(replica) => replica,
        Err(error) => {
            shared.node(place).failed = Some(error.to_string());
            return std::future::pending().await;
        }
    };
    #[allow(clippy::disallowed_methods, reason = "one jump per fault")]
    let (jump, mut jumps) = tokio::sync::mpsc::unbounded_channel();
    {
        let mut node = shared.node(place);
        node.handle = Some(replica.handle());
        node.jump = Some(jump);
    }
    tokio::spawn(take_peers(peers, replica.handle()));
    let names = Names { shared: shared.clone(), place };
    tokio::spawn(take_clients(clients, replica.handle(), names, ambassador(&shared)?));
    tokio::spawn(registry::follow(shared.clone(), place, replica.handle()));
    let jumping = async {
        while let Some(by) = jumps.recv().await {
            tokio::time::advance(by).await;
        }
        std::future::pending::<()>().await;
    };
    let handle = replica.handle();
    tokio::select! {
        biased;
        fault = handle.failed() => shared.node(place).failed = Some(fault),
        () = jumping => {}
    }
    std::future::pending().await
}

async fn take_peers(listener: TcpListener, handle: LogHandle) {
    while let Ok((mut stream, from)) = listener.accept().await {
        let handle = handle.clone();
        tokio::spawn(async move {
            let mut preamble = [0; 8];
            if stream.read_exact(&mut preamble).await.is_ok() && preamble == LOG_PREAMBLE {
                handle.accept(stream, from);
            }
        });
    }
}

/// The node follows a replica as a client while it has none.
async fn take_clients(listener: TcpListener, handle: LogHandle, names: Names, ambassador: Ambassador) {
    let config = convoke_server::Config::default();
    let log = convoke_server::log_service(handle, Arc::new(names), &config, ambassador);
    while let Ok((stream, _)) = listener.accept().await {
        let service = TowerToHyperService::new(log.clone());
        tokio::spawn(async move {
            // Without the date, which is not simulated.
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new()).auto_date_header(false);
            // Ends with the connection; the client handles errors.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
