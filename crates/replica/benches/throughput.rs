//! Benchmark of durable writes: replicas in one process over loopback sockets, each with a disk, and clients that write
//! one value after the other. Without clients it measures the cost of an idle group. `cargo bench -p convoke-replica
//! --bench throughput -- [REPLICAS] [CLIENTS] [SECONDS]`.

#![allow(clippy::unwrap_used, reason = "in a bench a panic is the message")]

use convoke_log::command::{Body, Open, Request};
use convoke_replica::{Config, LOG_PREAMBLE, LogHandle, Replica, Role};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

const VALUE_BYTES: usize = 256;

#[tokio::main]
async fn main() {
    // Ignore cargo's own flags.
    let numbers: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let number = |place: usize, default: u64| numbers.get(place).copied().unwrap_or(default);
    let (replicas, clients, seconds) = (number(0, 3), number(1, 64), number(2, 5));
    let dir = tempfile::tempdir().unwrap();
    let hosts = start(replicas, dir.path()).await;
    let leader = leader(&hosts).await;
    if clients == 0 {
        return idle(replicas, seconds).await;
    }
    let before = leader.counters();
    let mut latencies = load(&leader, clients, Duration::from_secs(seconds)).await;
    let after = leader.counters();
    latencies.sort_unstable();
    let share = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    let (entries, batches) = (after.entries - before.entries, after.batches - before.batches);
    println!(
        "{replicas} replicas, {clients} clients, values of {VALUE_BYTES} bytes: {:.0} writes/s, p50 {:?}, p99 {:?}, \
         {:.1} entries per fsync",
        latencies.len() as f64 / seconds as f64,
        share(0.5),
        share(0.99),
        entries as f64 / batches.max(1) as f64,
    );
    for replica in &hosts {
        replica.handle().stop().await;
    }
}

/// Measures the cost of an idle group.
async fn idle(replicas: u64, seconds: u64) {
    let used = || {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let fields: Vec<i64> = stat.split(' ').filter_map(|field| field.parse().ok()).collect();
        // Ticks of 10 ms in user mode and in the kernel: fields 14 and 15, of which two are not numbers.
        fields.get(11).copied().unwrap_or(0) + fields.get(12).copied().unwrap_or(0)
    };
    let before = used();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let share = (used() - before) as f64 / seconds as f64;
    println!("{replicas} replicas, idle: {share:.2} % of a core in total");
}

async fn start(replicas: u64, dir: &std::path::Path) -> Vec<Replica> {
    let mut listeners = Vec::new();
    for _ in 0..replicas {
        listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let join: Vec<String> = listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect();
    let mut hosts = Vec::new();
    for (place, listener) in listeners.into_iter().enumerate() {
        let node = format!("n{place}");
        let mut config = Config::new(&node, &join[place]);
        config.data_dir = Some(dir.join(&node));
        config.join = if replicas > 1 { join.clone() } else { Vec::new() };
        let replica = Replica::start(config).await.unwrap();
        let handle = replica.handle();
        tokio::spawn(async move {
            while let Ok((mut stream, from)) = listener.accept().await {
                let mut preamble = [0; 8];
                if stream.read_exact(&mut preamble).await.is_ok() && preamble == LOG_PREAMBLE {
                    let _ = stream.set_nodelay(true);
                    handle.accept(stream, from);
                }
            }
        });
        hosts.push(replica);
    }
    hosts
}

async fn leader(hosts: &[Replica]) -> LogHandle {
    loop {
        let leads = hosts.iter().map(Replica::handle).find(|handle| {
            let status = handle.status();
            status.role == Role::Leader && status.available && status.settled
        });
        match leads {
            Some(handle) => return handle,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn load(leader: &LogHandle, clients: u64, duration: Duration) -> Vec<Duration> {
    let epoch = leader.epoch().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for client in 0..clients {
        let open = Open::new(epoch, Duration::from_secs(60), client.into());
        let session = leader.open(open).await.unwrap().opened.unwrap().session;
        let (leader, over) = (leader.clone(), over.clone());
        tasks.push(tokio::spawn(async move {
            let (mut latencies, mut number) = (Vec::new(), 0);
            while !over.load(Ordering::Relaxed) {
                number += 1;
                let body = Body::put(format!("key-{client}-{}", number % 1000), vec![b'x'; VALUE_BYTES]);
                let since = Instant::now();
                leader.submit(Request::new(session, number, epoch, body)).await.unwrap();
                latencies.push(since.elapsed());
            }
            latencies
        }));
    }
    tokio::time::sleep(duration).await;
    over.store(true, Ordering::Relaxed);
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    all
}
