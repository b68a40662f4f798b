//! Thousands of connections that say nothing, or nearly nothing, on both ports. Alone in its file, because it measures the
//! memory of the process.
//!
//! `CONVOKE_TEST_SILENT=50000` opens as many connections on each port, from many addresses. Both ends are in this process, so it
//! needs four open files for each, and some more:
//!
//! ```sh
//! ulimit -n 250000 && CONVOKE_TEST_SILENT=50000 cargo test --workspace --test silent -- --nocapture
//! ```

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::eventually;
use std::net::SocketAddr;
use support::Served;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

/// On each port, if the system allows that many open files: both ends are in this process.
const WANTED: usize = 2_000;
/// Files that everything else needs.
const SPARE: usize = 400;
const MEMORY: usize = 64 * 1024 * 1024;

/// Returns the resident memory of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// Returns the number of connections on each port that were asked for.
fn wanted() -> usize {
    std::env::var("CONVOKE_TEST_SILENT").map_or(WANTED, |count| count.parse().expect("CONVOKE_TEST_SILENT is a number"))
}

/// Returns the number of connections that fit into the limit of open files.
fn possible() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let soft = line.split_whitespace().nth(3).and_then(|soft| soft.parse().ok()).unwrap_or(usize::MAX);
    // Two ports, two ends.
    (soft.saturating_sub(SPARE) / 4).min(wanted())
}

/// Connects from an address of strangers: all of 127/8 is this machine. One address has too few ports for many connections.
async fn stranger(to: SocketAddr, number: usize) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    let address = 2 + number / 10_000;
    socket.bind(format!("127.0.0.{address}:0").parse().unwrap()).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_do_not_close_the_ports_to_others() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let cluster = Served::cluster(2).await;
    let (clients, peers) = (cluster[0].address(), cluster[0].node.local_address());
    // The first requests need memory that stays.
    for _ in 0..50 {
        cluster[0].get("/api/v1/members").await.ok();
    }
    let (before, count) = (resident(), possible());
    assert!(count > 100, "the limit of open files is too low for this test");
    assert!(count == wanted() || wanted() == WANTED, "the limit of open files allows {count} connections on each port");
    let mut silent = Vec::with_capacity(2 * count);
    for number in 0..count {
        for (port, begun) in [(clients, &b"GET /api"[..]), (peers, b"CONVO")] {
            let mut stream = stranger(port, number).await;
            // Some begin to speak. The node may have closed the connection already.
            if number % 4 == 0 {
                let _ = stream.write_all(begun).await;
            }
            silent.push(stream);
        }
    }
    eventually("the peer port refuses what it cannot hold", async || {
        cluster[0].node.counters().await.unwrap().network.links_unidentified_rejected > 0
    })
    .await;
    // Clients and peers go on.
    cluster[0].get("/api/v1/members").await.ok();
    let joined = Served::start("n2", &[&cluster[0]], |_| {}, |_| {}).await;
    convoke_testkit::meshed([&cluster[0].node, &cluster[1].node, &joined.node].into_iter()).await;
    joined.get("/api/v1/members").await.ok();
    let grown = resident().saturating_sub(before);
    assert!(grown < MEMORY, "{grown} bytes for {count} connections on each port");
    println!("{grown} bytes for {count} connections on each port");
    drop(silent);
    cluster[0].get("/api/v1/members").await.ok();
}

/// Connections without a request have a limit of their own, so that they cannot use up all connections of the node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ts6_the_oldest_connection_without_a_request_makes_room() {
    const CONNECTIONS: usize = 80;
    let limited = |server: &mut convoke_server::Config| server.limits.connections = CONNECTIONS;
    let served = Served::start("n0", &[], |_| {}, limited).await;
    let mut silent = Vec::new();
    // Some say nothing, others begin a request and never end it.
    for number in 0..4 * CONNECTIONS {
        let mut stream = stranger(served.address(), number).await;
        if number % 2 == 0 {
            let _ = stream.write_all(b"GET /api/v1/mem").await;
        }
        silent.push(stream);
    }
    served.get("/api/v1/members").await.ok();
    // The oldest has ended.
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), async {
        tokio::io::AsyncReadExt::read(&mut silent[1], &mut [0; 16]).await
    });
    assert!(matches!(ended.await.unwrap(), Ok(0) | Err(_)), "the oldest connection stays");
}
