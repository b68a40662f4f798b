//! Heartbeats of sessions.

use super::cluster::Cluster;
use super::load::{Tally, measure, preparing};
use super::report::Report;
use super::streams::{Session, connect};
use crate::args::{BenchCommon, HeartbeatLoad};
use convoke_cli::Result;
use std::time::Duration;
use tokio::task::JoinSet;

pub(super) async fn heartbeat(common: &BenchCommon, load: &HeartbeatLoad) -> Result<Report> {
    let cluster = Cluster::of(common).await?;
    let connections = load.connections.unwrap_or(load.clients).min(load.clients);
    let sessions = attached(&cluster.address(0), load.clients, connections).await?;
    let tally = Tally::new(common.duration);
    let pause = (load.rate > 0).then(|| Duration::from_secs(1) * load.clients / load.rate);
    let mut workers = JoinSet::new();
    for (number, mut session) in (0..).zip(sessions) {
        let tally = tally.clone();
        // Spread over the interval, so that not all are sent at once.
        let mut due = tally.start() + pause.unwrap_or_default() * number / load.clients;
        workers.spawn(async move {
            while tally.open() {
                if let Some(pause) = pause {
                    tokio::time::sleep_until(due).await;
                    due += pause;
                }
                tally.time(session.heartbeat()).await;
            }
            Ok(())
        });
    }
    let report = measure(&cluster, "heartbeat", &tally, workers).await?;
    Ok(report.figure("clients", "Clients", load.clients.into(), "").figure(
        "connections",
        "Connections",
        connections.into(),
        "",
    ))
}

async fn attached(address: &str, clients: u32, connections: u32) -> Result<Vec<Session>> {
    let bar = preparing("attaching", clients.into());
    let mut channels = Vec::new();
    for _ in 0..connections {
        channels.push(connect(address).await?);
    }
    let mut sessions = Vec::new();
    for number in 0..clients {
        let channel = channels[(number % connections) as usize].clone();
        sessions.push(Session::attach(channel, format!("bench-{}-{number}", std::process::id())).await?);
        bar.advance(1);
    }
    Ok(sessions)
}
