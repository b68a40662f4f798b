//! Registrations, lookups, watches and key writes over HTTP, and the loads over Consul's API.

mod connection;
pub(super) mod consul;
mod keys;
mod watch;

pub(super) use keys::put_keys;
pub(super) use watch::fan_out;

use super::cluster::Cluster;
use super::load::{Tally, measure};
use super::members::{PATIENCE, clients, close, member, registered, service_name};
use super::report::Report;
use crate::args::{BenchCommon, HttpLookupLoad, HttpRegisterLoad};
use connection::{Connection, request};
use convoke_cli::{CommandError, Result};
use convoke_proto::json::{MemberList, SessionResponse};
use convoke_proto::{Error, ErrorCode};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Number of services of the registered members.
const SERVICES: u32 = 100;
/// SDK clients that register the members for lookups.
const FILLERS: u32 = 4;
/// Interval of checks whether a node has all members.
const LOOK: Duration = Duration::from_millis(20);

pub(super) async fn register(common: &BenchCommon, load: &HttpRegisterLoad) -> Result<Report> {
    let cluster = Cluster::of(common).await?;
    let sessions = load.sessions.unwrap_or(load.clients).min(load.clients);
    let mut secrets = Vec::new();
    for number in 0..sessions {
        let mut connection = Connection::open(&cluster.address(number as usize)).await?;
        let answer = connection.call(&request("POST", "/api/v1/sessions", b"{}")).await?;
        secrets.push(parsed::<SessionResponse>(&answer)?.session);
    }
    let mut connections = Vec::new();
    for session in (0..sessions as usize).cycle().take(load.clients as usize) {
        connections.push((Connection::open(&cluster.address(session)).await?, secrets[session].clone()));
    }
    let each = load.members.div_ceil(load.clients);
    let tally = Tally::new(common.duration);
    let mut workers = JoinSet::new();
    for (number, (connection, session)) in (0..).zip(connections) {
        let requests = (0..each).map(move |index| {
            let member = member(index % SERVICES, number, index);
            let path = format!("/api/v1/sessions/{session}/members/{}", member.id);
            request("PUT", &path, &serde_json::to_vec(&member).unwrap_or_default())
        });
        let written = |body: &[u8]| body.starts_with(b"{\"version\":");
        workers.spawn(send_requests(connection, tally.clone(), load.pipeline, requests, written));
    }
    let report = measure(&cluster, "http-register", &tally, workers).await?;
    for (number, session) in secrets.into_iter().enumerate() {
        let mut connection = Connection::open(&cluster.address(number)).await?;
        connection.call(&request("DELETE", &format!("/api/v1/sessions/{session}"), b"")).await?;
    }
    let report = report.figure("clients", "Clients", load.clients.into(), "");
    Ok(report.figure("sessions", "Sessions", sessions.into(), ""))
}

pub(super) async fn lookup(common: &BenchCommon, load: &HttpLookupLoad) -> Result<Report> {
    let cluster = Cluster::of(common).await?;
    let fillers = clients(&cluster, FILLERS).await?;
    registered(&fillers, (load.services * load.members).div_ceil(FILLERS), load.services).await?;
    let mut connections = Vec::new();
    for number in 0..load.clients {
        let mut connection = Connection::open(&cluster.address(number as usize)).await?;
        wait_for_members(&mut connection, load).await?;
        connections.push(connection);
    }
    let tally = Tally::new(common.duration);
    let mut workers = JoinSet::new();
    for (number, connection) in (0..).zip(connections) {
        let services = load.services;
        let requests = (number..=u32::MAX).map(move |index| lookup_of(index.wrapping_mul(7) % services));
        let wanted = load.members as usize;
        let found = move |body: &[u8]| body.windows(6).filter(|part| part == b"{\"id\":").count() >= wanted;
        workers.spawn(send_requests(connection, tally.clone(), load.pipeline, requests, found));
    }
    let report = measure(&cluster, "http-lookup", &tally, workers).await?;
    close(fillers).await?;
    Ok(report.figure("clients", "Clients", load.clients.into(), "").figure(
        "members",
        "Members per answer",
        load.members.into(),
        "",
    ))
}

fn lookup_of(service: u32) -> Vec<u8> {
    request("GET", &format!("/api/v1/members?service={}", service_name(service)), b"")
}

/// Waits until this node has all members of every service.
async fn wait_for_members(connection: &mut Connection, load: &HttpLookupLoad) -> Result {
    let deadline = Instant::now() + PATIENCE;
    for service in 0..load.services {
        loop {
            let found: MemberList = parsed(&connection.call(&lookup_of(service)).await?)?;
            if found.members.len() >= load.members as usize {
                break;
            }
            if Instant::now() >= deadline {
                return Err(CommandError::failed("a node did not receive all members in time"));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
    Ok(())
}

fn parsed<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|error| CommandError::failed(format!("unexpected answer of a node: {error}")))
}

/// Sends requests with the given pipeline depth, and checks the answers.
async fn send_requests(
    mut connection: Connection,
    tally: Arc<Tally>,
    pipeline: u32,
    mut requests: impl Iterator<Item = Vec<u8>>,
    fits: impl Fn(&[u8]) -> bool,
) -> Result {
    let mut under_way = VecDeque::new();
    loop {
        while under_way.len() < pipeline as usize
            && tally.open()
            && let Some(request) = requests.next()
        {
            connection.send(&request).await?;
            under_way.push_back(Instant::now());
        }
        let Some(began) = under_way.pop_front() else { return Ok(()) };
        match connection.receive().await? {
            Ok(body) if fits(body) => tally.record(began),
            Ok(_) => tally.record_error(&Error::new(ErrorCode::Internal, "unexpected answer")),
            Err(error) => tally.record_error(&error),
        }
    }
}
