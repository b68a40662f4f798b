//! Writes and reads of keys over the SDK.

use super::cluster::Cluster;
use super::load::{Tally, measure};
use super::report::Report;
use super::tls;
use crate::args::{BenchCommon, LogLoad};
use convoke_cli::{CommandError, Result};
use convoke_client::log::{Ambassador, Consistency, Kv, Options, connector};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Time for a log of new nodes to elect a leader.
const LEADER_WITHIN: Duration = Duration::from_secs(30);

pub(super) async fn log(common: &BenchCommon, load: &LogLoad) -> Result<Report> {
    let cluster =
        if common.nodes_given.is_empty() { Cluster::start_log(common).await? } else { Cluster::of(common).await? };
    let mut handles = Vec::new();
    let links: Vec<Ambassador> = (0..load.links)
        .map(|_| Ambassador::start_with(cluster.addresses(), connector(tls::current(), None)))
        .collect::<Result<_, _>>()?;
    for client in 0..load.clients as usize {
        let options = Options::default().window(load.pipeline as usize);
        handles.push(links[client % links.len()].kv_with(options));
    }
    warm_up(&handles).await?;
    let value = vec![b'x'; load.value as usize];
    let issued = Arc::new(AtomicU64::new(0));
    let tally = Tally::new(common.duration);
    let mut workers = JoinSet::new();
    for kv in &handles {
        for _ in 0..load.pipeline {
            let (kv, tally, value, issued, load) =
                (kv.clone(), tally.clone(), value.clone(), issued.clone(), load.clone());
            workers.spawn(async move {
                work(&kv, &tally, &load, &value, &issued).await;
                Ok(())
            });
        }
    }
    let report = measure(&cluster, "log", &tally, workers).await?;
    end(handles).await;
    Ok(report
        .figure("clients", "Clients", load.clients.into(), "")
        .figure("pipeline", "In progress per client", load.pipeline.into(), "")
        .figure("value_bytes", "Value", load.value.into(), "bytes")
        .figure("reads_percent", "Reads", load.reads.into(), "%"))
}

/// Opens every session before the measurement.
async fn warm_up(handles: &[Kv]) -> Result {
    let opening = async {
        for kv in handles {
            kv.put("bench/warm-up", "x").await?;
        }
        Ok(())
    };
    match tokio::time::timeout(LEADER_WITHIN, opening).await {
        Ok(opened) => opened.map_err(|error: convoke_proto::Error| error.into()),
        Err(_) => Err(CommandError::unreachable(format!("the log has no leader after {LEADER_WITHIN:?}"))),
    }
}

/// Ends all sessions; those that cannot be ended expire.
async fn end(handles: Vec<Kv>) {
    let mut ending: JoinSet<_> = handles.into_iter().map(|kv| kv.close(Duration::from_secs(2))).collect();
    while ending.join_next().await.is_some() {}
}

async fn work(kv: &Kv, tally: &Tally, load: &LogLoad, value: &[u8], issued: &AtomicU64) {
    while tally.open() {
        let number = issued.fetch_add(1, Ordering::Relaxed);
        if load.rate > 0 {
            let due = tally.start() + Duration::from_secs_f64(number as f64 / f64::from(load.rate));
            if due >= tally.end() {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
        let key = format!("bench/{:08}", number % u64::from(load.keys));
        let began = Instant::now();
        let done = if number % 100 < u64::from(load.reads) {
            kv.get_with(key, Consistency::Linearizable).await.map(drop)
        } else {
            kv.put(key, value.to_vec()).await.map(drop)
        };
        match done {
            Ok(()) => tally.record(began),
            Err(error) => tally.record_error(&error),
        }
    }
}
