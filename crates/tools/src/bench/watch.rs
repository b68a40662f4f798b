//! Watchers: changes sent to many of them, and the cost of idle ones.

use super::cluster::Cluster;
use super::load::{Tally, measure, preparing};
use super::members::{client, close, registered};
use super::report::Report;
use super::streams::{connect, watch};
use crate::args::{BenchCommon, WatchLoad};
use convoke_cli::{CommandError, Result};
use convoke_client::{AuthorizedChannel, Client, Error, Registration, Update};
use convoke_proto::v1::WatchEvent;
use convoke_proto::v1::watch_event::Event;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tonic::Streaming;

/// Members that change in turn, and that every watcher watches.
pub(super) const MEMBERS: u32 = 100;
pub(super) const FILTER: &str = "service == \"bench-0\"";
/// Metadata key with the time of the change, in microseconds since the start.
pub(super) const AT: &str = "at";
/// How long watchers keep reading after the end.
pub(super) const LATE: Duration = Duration::from_secs(2);
/// Idle watchers that connect concurrently.
const CONNECTING: usize = 64;

/// Changes at the first node, sent to watchers at all nodes.
pub(super) async fn fan_out(common: &BenchCommon, load: &WatchLoad) -> Result<Report> {
    let cluster = Cluster::of(common).await?;
    let writer = client(cluster.address(0)).await?;
    let registrations = registered(std::slice::from_ref(&writer), MEMBERS, 1).await?.pop().unwrap_or_default();
    let mut watchers = Vec::new();
    let connections = load.watchers.div_ceil(load.shared);
    for number in 0..connections {
        let channel = connect(&cluster.address(number as usize)).await?;
        let count = load.shared.min(load.watchers - number * load.shared);
        for _ in 0..count {
            watchers.push(watch(channel.clone(), FILTER).await?);
        }
    }
    let tally = Tally::new(common.duration);
    let mut workers = JoinSet::new();
    for watcher in watchers {
        workers.spawn(count_events(watcher, tally.clone()));
    }
    workers.spawn(change(registrations, tally.clone(), load.rate, 1));
    let report = measure(&cluster, "watch", &tally, workers).await?;
    close(vec![writer]).await?;
    Ok(report.figure("watchers", "Watchers", load.watchers.into(), "").figure(
        "connections",
        "Connections",
        connections.into(),
        "",
    ))
}

/// Changes members in turn, in bursts of the given size.
pub(super) async fn change(registrations: Vec<Registration>, tally: Arc<Tally>, rate: u32, burst: u32) -> Result {
    let pause = Duration::from_secs(1) * burst / rate;
    let registrations: Vec<Arc<Registration>> = registrations.into_iter().map(Arc::new).collect();
    let mut turn = registrations.iter().cycle();
    let mut due = tally.start();
    while due < tally.end() {
        tokio::time::sleep_until(due).await;
        let at = due.duration_since(tally.start()).as_micros().to_string();
        let mut changing = JoinSet::new();
        for registration in turn.by_ref().take(burst as usize) {
            let (registration, update) = (registration.clone(), Update::merge().set(AT, at.clone()));
            changing.spawn(async move { registration.update(update).await });
        }
        for changed in changing.join_all().await {
            if let Err(error) = changed {
                tally.record_error(&error);
            }
        }
        due += pause;
    }
    Ok(())
}

async fn count_events(mut events: Streaming<WatchEvent>, tally: Arc<Tally>) -> Result {
    let ending = tokio::time::sleep_until(tally.end() + LATE);
    tokio::pin!(ending);
    loop {
        let event = tokio::select! {
            event = events.message() => event,
            () = &mut ending => return Ok(()),
        };
        match event {
            Ok(Some(WatchEvent { event: Some(Event::Updated(member)) })) => {
                if let Some(at) = member.metadata.get(AT).and_then(|at| at.parse().ok()) {
                    tally.record(tally.start() + Duration::from_micros(at));
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => return Err(CommandError::failed("a node ended a watch")),
            Err(status) => {
                tally.record_error(&Error::from(status));
                return Ok(());
            }
        }
    }
}

/// Measures the memory that nodes need for idle watchers.
pub(super) async fn idle(common: &BenchCommon, load: &WatchLoad, count: u32) -> Result<Report> {
    if !common.nodes_given.is_empty() || common.nodes < 2 {
        return Err(CommandError::usage(
            "--idle compares two nodes that it starts itself: leave out --addr and --nodes 1",
        ));
    }
    let cluster = Cluster::of(common).await?;
    let writer: Client = client(cluster.address(0)).await?;
    registered(std::slice::from_ref(&writer), MEMBERS, 1).await?;
    let [own, shared, ..] = cluster.own()? else {
        return Err(CommandError::failed("there are not enough nodes"));
    };
    let (before_own, before_shared) = (own.resident()?, shared.resident()?);
    let tally = Tally::new(common.duration);
    let mut held = open_watches(&own.clients(), count, 1, &tally).await?;
    held.extend(open_watches(&shared.clients(), count, load.shared, &tally).await?);
    // Memory that is only needed to connect may be freed.
    let mut workers = JoinSet::new();
    let end = tally.end();
    workers.spawn(async move {
        tokio::time::sleep_until(end).await;
        Ok(())
    });
    let report = measure(&cluster, "watch --idle", &tally, workers).await?;
    let each = |before: u64, after: u64| after.saturating_sub(before) as f64 / f64::from(count) / 1_000.0;
    let (after_own, after_shared) = (own.resident()?, shared.resident()?);
    drop(held);
    // The CPU use before does not belong to the watchers.
    let report = Report { server_cpu_us: None, server_cores: None, ..report };
    Ok(report
        .figure("watchers", "Watchers", count.into(), "")
        .figure("own_connection_kb", "With own connection", each(before_own, after_own), "kB each")
        .figure("shared_connection_kb", "Sharing connections", each(before_shared, after_shared), "kB each"))
}

/// Opens watches at one node, with this many per connection.
async fn open_watches(
    address: &str,
    count: u32,
    shared: u32,
    tally: &Arc<Tally>,
) -> Result<Vec<(AuthorizedChannel, Vec<Streaming<WatchEvent>>)>> {
    let bar = preparing("watching", count.into());
    let mut watching: JoinSet<Result<(AuthorizedChannel, Vec<Streaming<WatchEvent>>)>> = JoinSet::new();
    let mut held = Vec::new();
    for number in 0..count.div_ceil(shared) {
        if watching.len() >= CONNECTING
            && let Some(Ok(done)) = watching.join_next().await
        {
            held.push(done?);
        }
        let (address, tally) = (address.to_owned(), tally.clone());
        let streams = shared.min(count - number * shared);
        watching.spawn(async move {
            let channel = connect(&address).await?;
            let mut watches = Vec::new();
            for _ in 0..streams {
                let began = tokio::time::Instant::now();
                watches.push(watch(channel.clone(), FILTER).await?);
                tally.record(began);
            }
            Ok((channel, watches))
        });
        bar.advance(streams.into());
    }
    for done in watching.join_all().await {
        held.push(done?);
    }
    Ok(held)
}
