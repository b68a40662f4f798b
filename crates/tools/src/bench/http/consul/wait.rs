//! Blocking queries: all of them wait for the same service, and every change ends all.

use super::super::super::load::{Tally, measure, preparing};
use super::super::super::report::Report;
use super::super::super::usage;
use super::super::super::watch::{AT, LATE};
use super::super::connection::{Connection, request};
use super::instances::{Instance, unregistered};
use super::servers;
use crate::args::{BenchCommon, ConsulWaitLoad};
use convoke_cli::{CommandError, Result};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const CHANGED: Instance = Instance { service: 0, client: 0, number: 0 };
/// Queries that are opened concurrently.
const OPENING: usize = 64;

/// A connection whose query waits.
struct Watcher {
    connection: Connection,
    path: String,
    index: u64,
}

impl Watcher {
    async fn open(address: String, path: String) -> Result<Watcher> {
        let mut connection = Connection::open(&address).await?;
        connection.call(&request("GET", &path, b"")).await?;
        let mut watcher = Watcher { connection, path, index: 0 };
        watcher.ask_again().await?;
        Ok(watcher)
    }

    /// Waits for a result other than the one that the connection has received last.
    async fn ask_again(&mut self) -> Result {
        let index = self.connection.index().ok_or_else(|| CommandError::failed("a server sent no X-Consul-Index"))?;
        // As clients do: a lower index is a reset.
        self.index = if index < self.index { 0 } else { index };
        let path = format!("{}&index={}&wait=10m", self.path, self.index);
        self.connection.send(&request("GET", &path, b"")).await
    }
}

/// Changes at the first server end the queries at all of them.
pub(in crate::bench) async fn wake(common: &BenchCommon, load: &ConsulWaitLoad) -> Result<Report> {
    let cluster = servers(common).await?;
    let processes = cluster.processes();
    let resident = || processes.iter().copied().filter_map(usage::resident).sum::<u64>();
    let mut writer = Connection::open(&cluster.address(0)).await?;
    writer.call(&changed(0)).await?;
    let before = resident();
    let bar = preparing("waiting", load.watchers.into());
    let (mut watchers, mut opening) = (Vec::new(), JoinSet::new());
    for number in 0..load.watchers as usize {
        let path = format!("/v1/health/service/{}?passing", super::super::service_name(0));
        opening.spawn(Watcher::open(cluster.address(number), path));
        while opening.len() >= OPENING || (number + 1 == load.watchers as usize && !opening.is_empty()) {
            if let Some(opened) = opening.join_next().await {
                watchers.push(opened.map_err(|error| CommandError::failed(error.to_string()))??);
                bar.advance(1);
            }
        }
    }
    drop(bar);
    let grown = resident().saturating_sub(before);
    let tally = Tally::new(common.duration);
    let mut workers = JoinSet::new();
    for watcher in watchers {
        workers.spawn(answers(watcher, tally.clone()));
    }
    let pause = Duration::from_secs(1) / load.rate;
    let changes = u32::try_from(common.duration.as_nanos().div_ceil(pause.as_nanos())).unwrap_or(u32::MAX);
    workers.spawn(change(writer, tally.clone(), pause));
    let report = measure(&cluster, "consul-wait", &tally, workers).await?;
    unregistered(&cluster, &[1], false).await?;
    let wanted = f64::from(changes) * f64::from(load.watchers);
    Ok(report
        .figure("watchers", "Watchers", load.watchers.into(), "")
        .figure("changes", "Changes", changes.into(), "")
        .figure("missing", "Never arrived", wanted - tally.done() as f64, "")
        .figure("watcher_kb", "Memory per watcher", grown as f64 / 1e3 / f64::from(load.watchers), "kB"))
}

/// The registration with another time in its metadata.
fn changed(at: u128) -> Vec<u8> {
    CHANGED.at_agent_with(&json!({ "Meta": { AT: at.to_string() } }))
}

async fn change(mut writer: Connection, tally: Arc<Tally>, pause: Duration) -> Result {
    let mut due = tally.start();
    while due < tally.end() {
        tokio::time::sleep_until(due).await;
        let at = due.duration_since(tally.start()).as_micros();
        writer.call(&changed(at + 1)).await?;
        due += pause;
    }
    Ok(())
}

async fn answers(mut watcher: Watcher, tally: Arc<Tally>) -> Result {
    let ending = tokio::time::sleep_until(tally.end() + LATE);
    tokio::pin!(ending);
    let mut last = 0;
    loop {
        let at = tokio::select! {
            answer = watcher.connection.receive() => changed_at(answer??),
            () = &mut ending => return Ok(()),
        };
        // A query may also end without a change.
        if let Some(at) = at.filter(|at| *at > last) {
            last = at;
            tally.record(tally.start() + Duration::from_micros(at - 1));
        }
        watcher.ask_again().await?;
    }
}

/// The time in the metadata of the instance.
fn changed_at(body: &[u8]) -> Option<u64> {
    let mark = format!("\"{AT}\":\"");
    let found = body.windows(mark.len()).position(|part| part == mark.as_bytes())? + mark.len();
    let digits = body[found..].split(|byte| *byte == b'"').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_change_is_found() {
        assert_eq!(changed_at(br#"[{"Service":{"Meta":{"at":"120"}}}]"#), Some(120));
        assert_eq!(changed_at(br#"[{"Service":{"Meta":{}}}]"#), None);
    }
}
