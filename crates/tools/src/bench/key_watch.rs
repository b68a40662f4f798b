//! Changes of keys, sent to many watchers of one prefix.

use super::cluster::Cluster;
use super::etcd;
use super::load::{Tally, measure};
use super::report::Report;
use super::streams::connect;
use super::target::{KeyClient, Target, close};
use super::watch::LATE;
use crate::args::{BenchCommon, KeyWatchLoad};
use convoke_cli::{CommandError, Result};
use convoke_proto::v1::log_client::LogClient;
use convoke_proto::v1::{key_event::Change, key_watch::Which, key_watch_response::Message};
use convoke_proto::{Error, v1};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tonic::Streaming;

const PREFIX: &str = "bench/watched/";
/// Keys that change in turn.
const KEYS: u64 = 100;
/// Writes that may be in progress.
const WRITERS: u32 = 32;

/// Watches of one connection that share a stream.
enum Watches {
    Convoke(Streaming<v1::KeyWatchResponse>),
    Etcd(etcd::Watches),
}

pub(super) async fn fan_out(common: &BenchCommon, load: &KeyWatchLoad) -> Result<Report> {
    let (cluster, target) = Target::connect(common, &load.etcd, 1).await?;
    let writers = target.clients(WRITERS, 1).await?;
    let connections = load.watchers.div_ceil(load.shared);
    let mut watches = Vec::new();
    for number in 0..connections {
        let count = load.shared.min(load.watchers - number * load.shared);
        watches.push(open(&target, &cluster, number, count).await?);
    }
    let tally = Tally::new(common.duration);
    let acknowledged = Arc::new(AtomicU64::new(0));
    let mut workers = JoinSet::new();
    for watches in watches {
        workers.spawn(receive(watches, tally.clone()));
    }
    let issued = Arc::new(AtomicU64::new(0));
    for writer in writers.clone() {
        workers.spawn(write(writer, tally.clone(), issued.clone(), acknowledged.clone(), load.rate));
    }
    let report = measure(&cluster, target.name("key-watch", "etcd key-watch"), &tally, workers).await?;
    close(writers).await;
    let writes = acknowledged.load(Ordering::Relaxed);
    let missing = (writes * u64::from(load.watchers)).saturating_sub(report.operations);
    Ok(report
        .figure("watchers", "Watchers", load.watchers.into(), "")
        .figure("connections", "Connections", connections.into(), "")
        .figure("writes", "Writes", writes as f64, "")
        .figure("missing", "Never arrived", missing as f64, "events"))
}

async fn open(target: &Target, cluster: &Cluster, number: u32, count: u32) -> Result<Watches> {
    let address = cluster.address(number as usize);
    if let Target::Etcd(_) = target {
        return Ok(Watches::Etcd(etcd::watch(&etcd::connect(&address).await?, PREFIX, count).await?));
    }
    let watch = |id| {
        let which = Some(Which::Range(v1::KeyRange::prefix(PREFIX)));
        v1::KeyWatch { id, which, ..v1::KeyWatch::default() }
    };
    let watches = (0..u64::from(count)).map(watch).collect();
    let request = v1::KeyWatchRequest { watches, ..v1::KeyWatchRequest::default() };
    let opened = LogClient::new(connect(&address).await?).watch(request).await;
    let mut events = opened.map_err(|status| CommandError::from(Error::from(status)))?.into_inner();
    let first = events.message().await.map_err(|status| CommandError::from(Error::from(status)))?;
    match first.and_then(|response| response.message) {
        Some(Message::Started(_)) => Ok(Watches::Convoke(events)),
        _ => Err(CommandError::failed("a node did not start a watch")),
    }
}

/// Changes keys at the given rate. Values are the times at which they were due, in microseconds since the start.
async fn write(
    client: KeyClient,
    tally: Arc<Tally>,
    issued: Arc<AtomicU64>,
    acknowledged: Arc<AtomicU64>,
    rate: u32,
) -> Result {
    loop {
        let number = issued.fetch_add(1, Ordering::Relaxed);
        let due = tally.start() + Duration::from_secs_f64(number as f64 / f64::from(rate));
        if due >= tally.end() {
            return Ok(());
        }
        tokio::time::sleep_until(due).await;
        let at = due.duration_since(tally.start()).as_micros().to_string();
        match client.put(format!("{PREFIX}{}", number % KEYS), at.as_bytes()).await {
            Ok(()) => drop(acknowledged.fetch_add(1, Ordering::Relaxed)),
            Err(error) => tally.record_error(&error),
        }
    }
}

async fn receive(mut watches: Watches, tally: Arc<Tally>) -> Result {
    let ending = tokio::time::sleep_until(tally.end() + LATE);
    tokio::pin!(ending);
    loop {
        let received = tokio::select! {
            received = watches.receive(&tally) => received,
            () = &mut ending => return Ok(()),
        };
        if let Err(error) = received {
            tally.record_error(&error);
            return Ok(());
        }
    }
}

impl Watches {
    /// Receives a message and records its events.
    async fn receive(&mut self, tally: &Tally) -> Result<(), Error> {
        match self {
            Watches::Convoke(events) => {
                let response = events.message().await?.ok_or_else(etcd::ended)?;
                let Some(Message::Events(events)) = response.message else { return Ok(()) };
                // The message carries the events of all watches that it names.
                for _ in 0..=events.same.len() {
                    for event in &events.events {
                        if let Some(Change::Put(record)) = &event.change {
                            arrived(tally, &record.value);
                        }
                    }
                }
            }
            Watches::Etcd(watches) => {
                let response = watches.responses.message().await?.ok_or_else(etcd::ended)?;
                for record in response.events.into_iter().filter_map(|event| event.kv) {
                    arrived(tally, &record.value);
                }
            }
        }
        Ok(())
    }
}

fn arrived(tally: &Tally, value: &[u8]) {
    if let Some(at) = std::str::from_utf8(value).ok().and_then(|at| at.parse().ok()) {
        tally.record(tally.start() + Duration::from_micros(at));
    }
}
