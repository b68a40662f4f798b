//! Leases that are only kept alive: the CPU time that servers need for them.

use super::etcd;
use super::load::{Tally, measure, preparing};
use super::report::Report;
use super::target::{KeyClient, Target, close};
use crate::args::{BenchCommon, LeaseLoad};
use convoke_cli::{CommandError, Result};
use convoke_client::log::{Lease, LeaseTerms};
use convoke_proto::{Error, ErrorCode};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::transport::Channel;

/// A ttl contains this many keep-alives, in the SDK of Convoke and in etcd's client.
const KEEP_ALIVES: u32 = 3;

/// The leases of one connection.
enum Leases {
    Convoke(Vec<Lease>),
    Etcd(Channel, Vec<i64>),
}

pub(super) async fn keep_alive(common: &BenchCommon, load: &LeaseLoad) -> Result<Report> {
    let (cluster, target) = Target::connect(common, &load.etcd, load.connections).await?;
    let clients = target.clients(load.connections, 1).await?;
    let mut granting = JoinSet::new();
    let bar = Arc::new(preparing("granting", load.leases.into()));
    for (number, client) in (0..).zip(clients.iter().cloned()) {
        // The first ones have one more if the leases cannot be divided.
        let count = load.leases / load.connections + u32::from(number < load.leases % load.connections);
        let (ttl, bar) = (load.ttl, bar.clone());
        granting.spawn(async move {
            let leases = grant(&client, count, ttl).await;
            bar.advance(count.into());
            leases
        });
    }
    let granted: Result<Vec<Leases>, Error> = granting.join_all().await.into_iter().collect();
    let granted = granted?;
    drop(bar);
    let tally = Tally::new(common.duration);
    let mut workers = JoinSet::new();
    for leases in granted {
        workers.spawn(hold(leases, tally.clone(), load.ttl));
    }
    let report = measure(&cluster, target.name("lease", "etcd lease"), &tally, workers).await?;
    close(clients).await;
    Ok(report
        .figure("leases", "Leases", load.leases.into(), "")
        .figure("connections", "Connections", load.connections.into(), "")
        .figure("ttl_s", "Ttl", load.ttl.as_secs_f64(), "s"))
}

async fn grant(client: &KeyClient, count: u32, ttl: Duration) -> Result<Leases, Error> {
    match client {
        KeyClient::Convoke(kv) => {
            let (leases, mut granted) = (kv.leases(), Vec::new());
            for _ in 0..count {
                granted.push(leases.grant(LeaseTerms::ttl(ttl)).await?);
            }
            Ok(Leases::Convoke(granted))
        }
        KeyClient::Etcd(channel) => {
            let mut granted = Vec::new();
            for _ in 0..count {
                granted.push(etcd::grant(channel, ttl).await?);
            }
            Ok(Leases::Etcd(channel.clone(), granted))
        }
    }
}

/// Keeps the leases alive until the end. All of them must exist then.
async fn hold(leases: Leases, tally: Arc<Tally>, ttl: Duration) -> Result {
    match leases {
        Leases::Convoke(leases) => {
            // The SDK sends one message for all leases of a connection; each lease of it counts.
            let interval = ttl / KEEP_ALIVES;
            let mut due = tally.start() + interval;
            while due < tally.end() {
                tokio::time::sleep_until(due).await;
                for lease in &leases {
                    match lease.is_valid() {
                        true => tally.count(),
                        false => tally.record_error(&lost()),
                    }
                }
                due += interval;
            }
            tokio::time::sleep_until(tally.end()).await;
            Ok(())
        }
        Leases::Etcd(channel, leases) => {
            keep_etcd_alive(&channel, &leases, &tally, ttl).await.map_err(CommandError::from)
        }
    }
}

fn lost() -> Error {
    Error::new(ErrorCode::NotFound, "a lease was lost")
}

/// Sends the keep-alives of etcd evenly over a third of the ttl, on one stream.
async fn keep_etcd_alive(channel: &Channel, leases: &[i64], tally: &Tally, ttl: Duration) -> Result<(), Error> {
    let Some(first) = leases.first().copied() else { return Ok(()) };
    let mut sent = BTreeMap::from([(first, Instant::now())]);
    let (send, mut answers) = etcd::keep_alives(channel, first).await?;
    let pause = ttl / KEEP_ALIVES / u32::try_from(leases.len()).unwrap_or(u32::MAX);
    let (mut turn, mut due) = (leases.iter().cycle().skip(1), tally.start() + pause);
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(due.min(tally.end())) => {
                if due >= tally.end() {
                    return Ok(());
                }
                let Some(id) = turn.next().copied() else { return Ok(()) };
                sent.insert(id, Instant::now());
                send.send(etcd::LeaseKeepAliveRequest { id }).await.map_err(|_| etcd::ended())?;
                due += pause;
            }
            answer = answers.message() => {
                let answer = answer?.ok_or_else(etcd::ended)?;
                match sent.remove(&answer.id) {
                    Some(at) if answer.ttl > 0 => tally.record(at),
                    _ => tally.record_error(&lost()),
                }
            }
        }
    }
}
