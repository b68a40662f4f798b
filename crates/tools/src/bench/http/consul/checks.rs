//! Members with HTTP checks of this process: the CPU time that a node needs for them.

use super::super::super::load::{Tally, join, measure, preparing};
use super::super::super::report::Report;
use super::super::connection::Connection;
use super::instances::{Instance, unregistered};
use super::servers;
use crate::args::{BenchCommon, CheckLoad};
use convoke_cli::{CommandError, Result};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
/// Largest head of a request of a check.
const HEAD_MAX: usize = 4_096;
/// Connections that register.
const WRITERS: u32 = 32;

pub(in crate::bench) async fn run_checks(common: &BenchCommon, load: &CheckLoad) -> Result<Report> {
    let cluster = servers(common).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| failed(&error))?;
    let target = format!("http://{}/health", listener.local_addr().map_err(|error| failed(&error))?);
    let answered = Arc::new(AtomicU64::new(0));
    let mut serving = JoinSet::new();
    serving.spawn(serve(listener, answered.clone()));

    let bar = Arc::new(preparing("registering", load.members.into()));
    let mut writers = JoinSet::new();
    // The first ones have one more if the members cannot be divided.
    let shares: Vec<u32> =
        (0..WRITERS).map(|client| load.members / WRITERS + u32::from(client < load.members % WRITERS)).collect();
    for (client, mine) in (0..).zip(shares.iter().copied()) {
        let (address, bar) = (cluster.address(client as usize), bar.clone());
        let check = json!({ "HTTP": target, "Interval": format!("{}ms", load.interval.as_millis()), "Timeout": "5s" });
        writers.spawn(async move {
            let mut connection = Connection::open(&address).await?;
            for number in 0..mine {
                let instance = Instance { service: number % 100, client, number };
                connection.call(&instance.at_agent_with(&json!({ "Check": check }))).await?;
                bar.advance(1);
            }
            Ok(())
        });
    }
    join(writers).await?;
    drop(bar);
    wait_for(&answered, u64::from(load.members), load.interval).await?;

    let tally = Tally::new(common.duration);
    let mut workers = JoinSet::new();
    let (counted, counting) = (answered.load(Ordering::Relaxed), tally.clone());
    let watched = answered.clone();
    workers.spawn(async move {
        tokio::time::sleep_until(counting.end()).await;
        for _ in counted..watched.load(Ordering::Relaxed) {
            counting.count();
        }
        Ok(())
    });
    let report = measure(&cluster, "checks", &tally, workers).await?;
    unregistered(&cluster, &shares, false).await?;
    let report = report.figure("members", "Members with a check", load.members.into(), "");
    Ok(report.figure("interval_s", "Interval", load.interval.as_secs_f64(), "s"))
}

/// Waits until every member has been checked about once.
async fn wait_for(answered: &AtomicU64, members: u64, interval: Duration) -> Result {
    let deadline = Instant::now() + interval * 10;
    while answered.load(Ordering::Relaxed) < members {
        if Instant::now() >= deadline {
            return Err(CommandError::failed(format!(
                "only {} checks of {members} members within ten intervals: the nodes cannot reach this process, or are too busy",
                answered.load(Ordering::Relaxed)
            )));
        }
        tokio::time::sleep(super::super::LOOK).await;
    }
    Ok(())
}

/// Answers every request with as little work as possible.
async fn serve(listener: TcpListener, answered: Arc<AtomicU64>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(stream, answered.clone()));
    }
}

async fn answer(mut stream: TcpStream, answered: Arc<AtomicU64>) {
    let mut head = Vec::new();
    loop {
        match stream.read_buf(&mut head).await {
            Ok(0) | Err(_) => return,
            Ok(_) if head.len() > HEAD_MAX => return,
            Ok(_) => {}
        }
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            if stream.write_all(ANSWER).await.is_err() {
                return;
            }
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn failed(error: &std::io::Error) -> CommandError {
    CommandError::failed(format!("cannot listen for checks on 127.0.0.1: {error}"))
}
