//! Locks: the time of a hand-over between contenders, and locks without contention.

use super::etcd;
use super::load::{Tally, measure};
use super::report::Report;
use super::target::{KeyClient, Target, close};
use crate::args::{BenchCommon, LockLoad};
use convoke_cli::Result;
use convoke_client::log::{LeaseTerms, LockGuard, Locks};
use convoke_proto::{Error, ErrorCode};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::transport::Channel;

/// Longer than a benchmark of etcd, whose leases are not kept alive here.
const ETCD_TTL: Duration = Duration::from_secs(3_600);
const TTL: Duration = Duration::from_secs(60);

enum Locker {
    Convoke(Locks),
    Etcd { channel: Channel, lease: i64 },
}

enum Held {
    Convoke(LockGuard),
    /// The key to unlock.
    Etcd(Vec<u8>),
}

impl Locker {
    async fn of(client: &KeyClient) -> Result<Locker, Error> {
        match client {
            KeyClient::Convoke(kv) => Ok(Locker::Convoke(kv.locks().with_terms(LeaseTerms::ttl(TTL)))),
            KeyClient::Etcd(channel) => {
                let lease = etcd::grant(channel, ETCD_TTL).await?;
                Ok(Locker::Etcd { channel: channel.clone(), lease })
            }
        }
    }

    async fn acquire(&self, name: &str) -> Result<Held, Error> {
        match self {
            Locker::Convoke(locks) => locks.lock(name.to_owned()).await.map(Held::Convoke),
            Locker::Etcd { channel, lease } => etcd::lock(channel, name.into(), *lease).await.map(Held::Etcd),
        }
    }

    async fn release(&self, held: Held) -> Result<(), Error> {
        match (self, held) {
            (_, Held::Convoke(guard)) => guard.release().await,
            (Locker::Etcd { channel, .. }, Held::Etcd(key)) => etcd::unlock(channel, key).await,
            (Locker::Convoke(_), Held::Etcd(_)) => Err(Error::new(ErrorCode::Internal, "a lock of another system")),
        }
    }

    async fn end(self) {
        if let Locker::Convoke(locks) = self {
            // Leases that cannot be revoked expire.
            let _ = locks.close().await;
        }
    }
}

pub(super) async fn locks(common: &BenchCommon, load: &LockLoad) -> Result<Report> {
    let (cluster, target) = Target::connect(common, &load.etcd, load.connections.unwrap_or(load.contenders)).await?;
    let clients = target.clients(load.contenders, 1).await?;
    let mut lockers = Vec::new();
    for client in &clients {
        let locker = Locker::of(client).await?;
        // The first use of a lock also grants its lease.
        let held = locker.acquire("bench/warm-up").await?;
        locker.release(held).await?;
        lockers.push(locker);
    }
    let tally = Tally::new(common.duration);
    let mut workers = JoinSet::new();
    let released = Arc::new(Mutex::new(None));
    for (number, locker) in lockers.into_iter().enumerate() {
        let (tally, released, own) = (tally.clone(), released.clone(), load.own);
        workers.spawn(async move {
            if own {
                alone(&locker, &format!("bench/lock-{number}"), &tally).await;
            } else {
                contend(&locker, "bench/lock", &tally, &released).await;
            }
            locker.end().await;
            Ok(())
        });
    }
    let name = match load.own {
        true => target.name("lock --own", "etcd lock --own"),
        false => target.name("lock", "etcd lock"),
    };
    let report = measure(&cluster, name, &tally, workers).await?;
    close(clients).await;
    Ok(report.figure("contenders", "Clients", load.contenders.into(), ""))
}

/// Locks and unlocks; an operation is both.
async fn alone(locker: &Locker, name: &str, tally: &Tally) {
    while tally.open() {
        let both = async { locker.release(locker.acquire(name).await?).await };
        tally.time(both).await;
    }
}

/// Measures the time from the release of one holder to the grant of the next one.
async fn contend(locker: &Locker, name: &str, tally: &Tally, released: &Mutex<Option<Instant>>) {
    while tally.open() {
        let held = match locker.acquire(name).await {
            Ok(held) => held,
            Err(error) => {
                tally.record_error(&error);
                continue;
            }
        };
        let before = released.lock().unwrap_or_else(PoisonError::into_inner).replace(Instant::now());
        if let Some(before) = before {
            tally.record(before);
        }
        if let Err(error) = locker.release(held).await {
            tally.record_error(&error);
        }
    }
}
