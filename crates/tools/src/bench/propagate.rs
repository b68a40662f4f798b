//! Time from a change at one node to a watcher at another.

use super::cluster::Cluster;
use super::load::{Tally, join, measure};
use super::members::{PATIENCE, client, close, registered};
use super::report::Report;
use crate::args::{BenchCommon, PropagateLoad};
use convoke_cli::{CommandError, Result};
use convoke_client::{Client, Event, Registration, Update, Watch};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Workers per client, which is the number of changes that one client may have in progress.
const WORKERS: u32 = 16;
/// Metadata key with the time of the change, in microseconds since the start.
const AT: &str = "at";
/// Interval of checks whether all changes have arrived.
const LOOK: Duration = Duration::from_millis(5);

pub(super) async fn propagate(common: &BenchCommon, load: &PropagateLoad) -> Result<Report> {
    let cluster = Cluster::of(common).await?;
    let mut writers = Vec::new();
    for _ in 0..load.clients {
        writers.push(client(cluster.address(0)).await?);
    }
    let members = registered(&writers, load.members.div_ceil(load.clients), 1).await?;
    let watcher = client(cluster.address(1)).await?;
    let watch = caught_up(&watcher, load.members).await?;

    let tally = Tally::new(common.duration);
    let changing = changing(&tally, members, load);
    let mut workers = JoinSet::new();
    let missing = Arc::new(AtomicU64::new(0));
    let (counted, never_seen) = (tally.clone(), missing.clone());
    workers.spawn(async move {
        let reading = tokio::spawn(read(watch, counted.clone()));
        let acknowledged = changing.await?;
        let deadline = Instant::now() + PATIENCE;
        while counted.done() < acknowledged && Instant::now() < deadline && !reading.is_finished() {
            tokio::time::sleep(LOOK).await;
        }
        never_seen.store(acknowledged.saturating_sub(counted.done()), Ordering::Relaxed);
        reading.abort();
        Ok(())
    });
    let report = measure(&cluster, "propagate", &tally, workers).await?;
    writers.push(watcher);
    close(writers).await?;
    let missing = missing.load(Ordering::Relaxed) as f64;
    Ok(report.figure("rate_wanted", "Wanted", load.rate.into(), "per second").figure(
        "missing",
        "Never arrived",
        missing,
        "changes",
    ))
}

/// Returns a watch that has caught up.
async fn caught_up(watcher: &Client, members: u32) -> Result<Watch> {
    let mut watch = watcher.watch("service == \"bench-0\"")?;
    let mut seen = 0;
    let catching_up = async {
        loop {
            match watch.next().await {
                Some(Event::Snapshot(_) | Event::Registered(_)) => seen += 1,
                Some(_) => {}
                None => return Err(CommandError::failed("the watch ended")),
            }
            if seen >= members {
                return Ok(());
            }
        }
    };
    let late = CommandError::failed("the watcher's node did not receive all members in time");
    tokio::time::timeout(PATIENCE, catching_up).await.map_err(|_| late)??;
    Ok(watch)
}

/// Changes every member in turn, at the given rate; returns the number of acknowledged changes.
fn changing(
    tally: &Arc<Tally>,
    members: Vec<Vec<Registration>>,
    load: &PropagateLoad,
) -> impl Future<Output = Result<u64>> + use<> {
    let workers = load.clients * WORKERS;
    let pause = Duration::from_secs(1) * workers / load.rate;
    let acknowledged = Arc::new(AtomicU64::new(0));
    let mut changing = JoinSet::new();
    for (client, registrations) in (0..).zip(members) {
        let registrations: Arc<[Registration]> = registrations.into();
        for worker in 0..WORKERS {
            let (registrations, tally, acknowledged) = (registrations.clone(), tally.clone(), acknowledged.clone());
            // Spread over the interval, so that not all are sent at once.
            let mut due = tally.start() + pause * (worker * load.clients + client) / workers;
            changing.spawn(async move {
                let mut number = worker as usize;
                while due < tally.end() {
                    tokio::time::sleep_until(due).await;
                    let registration = &registrations[number % registrations.len()];
                    // The time when it was due, even if it is sent late: waiting is part of the latency that a user
                    // sees.
                    let at = due.duration_since(tally.start()).as_micros();
                    match registration.update(Update::merge().set(AT, at.to_string())).await {
                        Ok(_) => drop(acknowledged.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => tally.record_error(&error),
                    }
                    number += WORKERS as usize;
                    due += pause;
                }
                Ok(())
            });
        }
    }
    async move {
        join(changing).await?;
        Ok(acknowledged.load(Ordering::Relaxed))
    }
}

async fn read(mut watch: Watch, tally: Arc<Tally>) {
    while let Some(event) = watch.next().await {
        if let Event::Updated(member) = event
            && let Some(at) = member.metadata.get(AT).and_then(|at| at.parse().ok())
        {
            tally.record(tally.start() + Duration::from_micros(at));
        }
    }
}
