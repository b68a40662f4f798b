//! Writes and reads of keys, and transactions.

use super::load::{Tally, measure};
use super::report::Report;
use super::target::{KeyClient, Target, close};
use crate::args::{BenchCommon, LogLoad, TxnLoad};
use convoke_cli::{CommandError, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(super) async fn log(common: &BenchCommon, load: &LogLoad) -> Result<Report> {
    let (cluster, target) = Target::connect(common, &load.etcd, load.links).await?;
    let clients = target.clients(load.clients, load.pipeline).await?;
    let value = vec![b'x'; load.value as usize];
    let issued = Arc::new(AtomicU64::new(0));
    let tally = Tally::new(common.duration);
    let mut workers = JoinSet::new();
    for client in &clients {
        for _ in 0..load.pipeline {
            let (client, tally, value, issued, load) =
                (client.clone(), tally.clone(), value.clone(), issued.clone(), load.clone());
            workers.spawn(async move {
                work(&client, &tally, &load, &value, &issued).await;
                Ok(())
            });
        }
    }
    let report = measure(&cluster, target.name("log", "etcd"), &tally, workers).await?;
    close(clients).await;
    Ok(report
        .figure("clients", "Clients", load.clients.into(), "")
        .figure("pipeline", "In progress per client", load.pipeline.into(), "")
        .figure("value_bytes", "Value", load.value.into(), "bytes")
        .figure("reads_percent", "Reads", load.reads.into(), "%"))
}

async fn work(client: &KeyClient, tally: &Tally, load: &LogLoad, value: &[u8], issued: &AtomicU64) {
    while tally.open() {
        let number = issued.fetch_add(1, Ordering::Relaxed);
        if load.rate > 0 {
            let due = tally.start() + Duration::from_secs_f64(number as f64 / f64::from(load.rate));
            if due >= tally.end() {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
        let key = key(number, load.keys);
        let began = Instant::now();
        let done =
            if number % 100 < u64::from(load.reads) { client.get(key).await } else { client.put(key, value).await };
        match done {
            Ok(()) => tally.record(began),
            Err(error) => tally.record_error(&error),
        }
    }
}

fn key(number: u64, keys: u32) -> String {
    format!("bench/{:08}", number % u64::from(keys))
}

/// Transactions of four operations: if a key exists, three puts and a read.
pub(super) async fn txn(common: &BenchCommon, load: &TxnLoad) -> Result<Report> {
    let (cluster, target) = Target::connect(common, &load.etcd, load.links).await?;
    let clients = target.clients(load.clients, 1).await?;
    fill(&clients, load.keys).await?;
    let value = vec![b'x'; load.value as usize];
    let issued = Arc::new(AtomicU64::new(0));
    let tally = Tally::new(common.duration);
    let mut workers = JoinSet::new();
    for client in clients.clone() {
        let (tally, value, issued, keys) = (tally.clone(), value.clone(), issued.clone(), load.keys);
        workers.spawn(async move {
            while tally.open() {
                let first = issued.fetch_add(4, Ordering::Relaxed);
                let all = [0, 1, 2, 3].map(|next| key(first + next, keys));
                tally.time(client.txn(all, &value)).await;
            }
            Ok(())
        });
    }
    let report = measure(&cluster, target.name("txn", "etcd txn"), &tally, workers).await?;
    close(clients).await;
    Ok(report.figure("clients", "Clients", load.clients.into(), "").figure(
        "value_bytes",
        "Value",
        load.value.into(),
        "bytes",
    ))
}

/// Puts all keys, so that every compare holds.
async fn fill(clients: &[KeyClient], keys: u32) -> Result {
    let mut filling = JoinSet::new();
    for (start, client) in (0..).zip(clients.iter().cloned()) {
        let step = clients.len();
        filling.spawn(async move {
            for number in (start..keys as usize).step_by(step) {
                client.put(key(number as u64, keys), b"x").await?;
            }
            Ok(())
        });
    }
    let filled: Result<Vec<()>, convoke_proto::Error> = filling.join_all().await.into_iter().collect();
    filled.map(drop).map_err(CommandError::from)
}
