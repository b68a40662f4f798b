//! Watchers over HTTP: every change is sent to many of them.

use super::super::cluster::Cluster;
use super::super::load::{Tally, measure, preparing};
use super::super::members::{client, close, registered};
use super::super::report::Report;
use super::super::watch::{AT, FILTER, LATE, MEMBERS, change};
use super::connection::{Events, request};
use crate::args::{BenchCommon, HttpWatchLoad};
use convoke_cli::{CommandError, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Changes at the first node, sent to watchers at all of them.
pub(in crate::bench) async fn fan_out(common: &BenchCommon, load: &HttpWatchLoad) -> Result<Report> {
    let cluster = Cluster::of(common).await?;
    let writer = client(cluster.address(0)).await?;
    let registrations = registered(std::slice::from_ref(&writer), MEMBERS, 1).await?.pop().unwrap_or_default();
    let filter: String = form_urlencoded(FILTER);
    let bar = preparing("watching", load.watchers.into());
    let mut watchers = Vec::new();
    for number in 0..load.watchers as usize {
        let path = format!("/api/v1/watch?filter={filter}");
        let mut events = Events::open(&cluster.address(number), &request("GET", &path, b"")).await?;
        while events.next().await?.0 != "caught-up" {}
        watchers.push(events);
        bar.advance(1);
    }
    drop(bar);
    let tally = Tally::new(common.duration);
    let mut workers = JoinSet::new();
    for watcher in watchers {
        workers.spawn(count_events(watcher, tally.clone()));
    }
    workers.spawn(change(registrations, tally.clone(), load.rate, load.burst));
    let report = measure(&cluster, "http-watch", &tally, workers).await?;
    close(vec![writer]).await?;
    let report = report.figure("watchers", "Watchers", load.watchers.into(), "");
    Ok(report.figure("burst", "Changes at once", load.burst.into(), ""))
}

async fn count_events(mut events: Events, tally: Arc<Tally>) -> Result {
    let ending = tokio::time::sleep_until(tally.end() + LATE);
    tokio::pin!(ending);
    loop {
        let (event, data) = tokio::select! {
            event = events.next() => event?,
            () = &mut ending => return Ok(()),
        };
        if event == "update" {
            let at = changed_at(data).ok_or_else(|| CommandError::failed("a node sent a change without its time"))?;
            tally.record(tally.start() + Duration::from_micros(at));
        }
    }
}

/// The time that the change carries in its metadata, without decoding the rest.
fn changed_at(data: &str) -> Option<u64> {
    let (_, rest) = data.split_once(&format!("\"{AT}\":\""))?;
    rest.split('"').next()?.parse().ok()
}

/// The few characters of a filter that a query cannot contain.
fn form_urlencoded(text: &str) -> String {
    text.replace(' ', "%20").replace('"', "%22").replace('=', "%3D")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_change_is_found() {
        assert_eq!(changed_at(r#"{"member":{"metadata":{"at":"120","load":"1"}}}"#), Some(120));
        assert_eq!(changed_at(r#"{"member":{"metadata":{}}}"#), None);
        assert_eq!(form_urlencoded("a == \"b\""), "a%20%3D%3D%20%22b%22");
    }
}
