//! A new node joins a node that holds many members.

use super::cluster::Cluster;
use super::load::{Tally, measure, preparing};
use super::members::{PATIENCE, member};
use super::report::Report;
use super::streams::{Session, connect};
use crate::args::{BenchCommon, JoinLoad};
use convoke_cli::{CommandError, Result};
use convoke_client::AuthorizedChannel;
use convoke_proto::v1::admin_client::AdminClient;
use convoke_proto::{Error, v1};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Connections over which members are registered; sessions share them.
const CONNECTIONS: u32 = 16;
/// Concurrent calls that one connection allows by default, with some reserve.
const SESSIONS_PER_CONNECTION: u32 = 250;
/// Registrations in one message.
const BATCH: usize = 1_000;
const SERVICES: u32 = 1_000;
/// Interval of checks whether all members have arrived.
const LOOK: Duration = Duration::from_millis(10);

pub(super) async fn join(common: &BenchCommon, load: &JoinLoad) -> Result<Report> {
    if !common.nodes_given.is_empty() {
        return Err(CommandError::usage("this benchmark measures a node that it starts itself: leave out --addr"));
    }
    let mut cluster = Cluster::start(common, 1).await?;
    let sessions = load.members.div_ceil(load.per_client);
    let (held, filled_in) = fill(&cluster, load, sessions).await?;
    let first = cluster.own()?[0].resident()?;

    let began = Instant::now();
    let fresh = cluster.add().await?;
    let joined_in = began.elapsed();
    let served = served(&connect(&fresh.clients()).await?, load.members).await?;
    let served_in = began.elapsed();
    let resident = fresh.resident()?;

    let tally = Tally::new(Duration::ZERO);
    let report = measure(&cluster, "join", &tally, JoinSet::new()).await?;
    drop(held);
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let report = Report {
        operations: served,
        seconds: joined_in.as_secs_f64(),
        per_second: served as f64 / joined_in.as_secs_f64(),
        server_cpu_us: None,
        server_cores: None,
        ..report
    };
    Ok(report
        .figure("sessions", "Sessions", sessions.into(), "")
        .figure("fill_seconds", "Registered in", filled_in.as_secs_f64(), "s")
        .figure("ready_seconds", "Ready after", joined_in.as_secs_f64(), "s")
        .figure("served_seconds", "All members shown after", served_in.as_secs_f64(), "s")
        .figure("resident_mb", "Memory of the new node", megabytes(resident), "MB")
        .figure("first_resident_mb", "Memory of the first node", megabytes(first), "MB"))
}

/// Tasks that keep sessions alive while this value exists.
type Held = Vec<JoinSet<()>>;

async fn fill(cluster: &Cluster, load: &JoinLoad, sessions: u32) -> Result<(Held, Duration)> {
    let began = Instant::now();
    let bar = Arc::new(preparing("registering", load.members.into()));
    let connections = CONNECTIONS.max(sessions.div_ceil(SESSIONS_PER_CONNECTION)).min(sessions);
    let mut filling: JoinSet<Result<JoinSet<()>>> = JoinSet::new();
    for connection in 0..connections {
        let channel = connect(&cluster.address(0)).await?;
        let (load, bar) = (load.clone(), bar.clone());
        filling.spawn(async move {
            let mut held = JoinSet::new();
            for number in (connection..sessions).step_by(connections as usize) {
                let name = format!("bench-{}-{number}", std::process::id());
                let mut session = Session::attach(channel.clone(), name).await?;
                let count = load.per_client.min(load.members - number * load.per_client);
                let mut members = (0..count).map(|index| member(index % SERVICES, number, index).into()).peekable();
                while members.peek().is_some() {
                    let batch: Vec<v1::MemberSpec> = members.by_ref().take(BATCH).collect();
                    bar.advance(batch.len() as u64);
                    session.register(batch).await?;
                }
                held.spawn(session.hold());
            }
            Ok(held)
        });
    }
    let mut held = Vec::new();
    for filled in filling.join_all().await {
        held.push(filled?);
    }
    Ok((held, began.elapsed()))
}

/// Waits until a node shows all members; returns their number.
async fn served(channel: &AuthorizedChannel, members: u32) -> Result<u64> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = AdminClient::new(channel.clone()).status(v1::StatusRequest {}).await.map_err(Error::from)?;
        let held = status.into_inner().counts.unwrap_or_default().members;
        if held >= members.into() {
            return Ok(members.into());
        }
        if Instant::now() >= deadline {
            return Err(CommandError::failed(format!("the new node has only {held} of {members} members")));
        }
        tokio::time::sleep(LOOK).await;
    }
}
