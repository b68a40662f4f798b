//! Loads over Consul's HTTP API: also for a real Consul, whose process `bench/consul.py` starts.

mod checks;
mod instances;
mod wait;

pub(in crate::bench) use checks::run_checks;
pub(in crate::bench) use wait::wake;

use super::super::cluster::Cluster;
use super::super::load::{Tally, measure};
use super::super::members::PATIENCE;
use super::super::report::Report;
use super::super::usage;
use super::connection::Connection;
use super::send_requests;
use crate::args::{BenchCommon, ConsulLookupLoad, ConsulRegisterLoad};
use convoke_cli::{CommandError, Result};
use instances::{Instance, lookup_of, registered, unregistered};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A server is idle if it uses less CPU time than this in [`PAUSE`].
const IDLE: Duration = Duration::from_millis(30);
const PAUSE: Duration = Duration::from_secs(1);

/// Returns the nodes to use. Those that are given may be a Consul, so they are asked nothing.
async fn servers(common: &BenchCommon) -> Result<Cluster> {
    if common.nodes_given.is_empty() { Cluster::start(common, common.nodes).await } else { Cluster::given(common) }
}

/// Connections, spread over the servers.
async fn connections(cluster: &Cluster, count: u32) -> Result<Vec<Connection>> {
    let mut connections = Vec::new();
    for number in 0..count as usize {
        connections.push(Connection::open(&cluster.address(number)).await?);
    }
    Ok(connections)
}

pub(in crate::bench) async fn register(common: &BenchCommon, load: &ConsulRegisterLoad) -> Result<Report> {
    let cluster = servers(common).await?;
    let connections = connections(&cluster, load.clients).await?;
    let each = load.members.div_ceil(load.clients);
    let tally = Tally::new(common.duration);
    let mut workers = JoinSet::new();
    // How many instances each connection has registered.
    let sent: Vec<Arc<AtomicU32>> = connections.iter().map(|_| Arc::default()).collect();
    for ((number, connection), sent) in (0..).zip(connections).zip(sent.iter().cloned()) {
        let (services, catalog) = (load.services, load.catalog);
        let requests = (0..each).map(move |index| {
            sent.fetch_add(1, Ordering::Relaxed);
            let instance = Instance { service: index % services, client: number, number: index };
            if catalog { instance.in_catalog() } else { instance.at_agent() }
        });
        let written = |body: &[u8]| matches!(body.trim_ascii(), b"" | b"true");
        workers.spawn(send_requests(connection, tally.clone(), 1, requests, written));
    }
    // An agent of Consul tells its servers of the instances later: the CPU time counts until all is done.
    let processes = cluster.processes();
    if !processes.is_empty() {
        workers.spawn(idle(processes, tally.clone()));
    }
    let name = if load.catalog { "consul-register --catalog" } else { "consul-register" };
    let report = measure(&cluster, name, &tally, workers).await?;
    if !load.keep {
        let sent: Vec<u32> = sent.iter().map(|sent| sent.load(Ordering::Relaxed)).collect();
        unregistered(&cluster, &sent, load.catalog).await?;
    }
    Ok(report.figure("clients", "Clients", load.clients.into(), ""))
}

/// Waits until the servers have nothing to do any more.
async fn idle(processes: Vec<u32>, tally: Arc<Tally>) -> Result {
    let cpu = || processes.iter().copied().filter_map(usage::cpu).sum::<Duration>();
    let mut done = 0;
    // First until the load is over, which may be before the end.
    while tally.open() && (done == 0 || done != tally.done()) {
        done = tally.done();
        tokio::time::sleep(PAUSE).await;
    }
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let before = cpu();
        tokio::time::sleep(PAUSE).await;
        if cpu().saturating_sub(before) < IDLE {
            return Ok(());
        }
    }
    Err(CommandError::failed(format!(
        "the servers still use CPU time {PATIENCE:?} after the load: use fewer --members"
    )))
}

pub(in crate::bench) async fn lookup(common: &BenchCommon, load: &ConsulLookupLoad) -> Result<Report> {
    let cluster = servers(common).await?;
    registered(&cluster, load.services, load.members).await?;
    let mut connections = connections(&cluster, load.clients).await?;
    let wanted = load.members as usize;
    for connection in &mut connections {
        wait_for_instances(connection, load).await?;
    }
    let tally = Tally::new(common.duration);
    let mut workers = JoinSet::new();
    for (number, connection) in (0..).zip(connections) {
        let services = load.services;
        let requests = (number..=u32::MAX).map(move |index| lookup_of(index.wrapping_mul(7) % services));
        workers
            .spawn(send_requests(connection, tally.clone(), 1, requests, move |body| instances::count(body) == wanted));
    }
    let report = measure(&cluster, "consul-lookup", &tally, workers).await?;
    if !load.keep {
        unregistered(&cluster, &vec![load.members; load.services as usize], false).await?;
    }
    let report = report.figure("clients", "Clients", load.clients.into(), "");
    Ok(report.figure("members", "Instances per answer", load.members.into(), ""))
}

/// Waits until this server shows all instances of every service.
async fn wait_for_instances(connection: &mut Connection, load: &ConsulLookupLoad) -> Result {
    let deadline = Instant::now() + PATIENCE;
    for service in 0..load.services {
        while instances::count(&connection.call(&lookup_of(service)).await?) < load.members as usize {
            if Instant::now() >= deadline {
                return Err(CommandError::failed("a server did not show all instances in time"));
            }
            tokio::time::sleep(super::LOOK).await;
        }
    }
    Ok(())
}
