//! Garbage on the peer port: the connection is closed and counted, one event is recorded, and the node keeps running
//! (P7).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_base::framing::header;
use convoke_node::{NodeEvent, NodeHandle};
use convoke_testkit::{Cluster, TestClient, eventually, member};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PREAMBLE: &[u8] = b"CONVOKER";

async fn dial(node: &NodeHandle) -> TcpStream {
    TcpStream::connect(node.local_address()).await.unwrap()
}

/// Sends bytes and waits until the node has closed the connection.
async fn send_until_closed(node: &NodeHandle, bytes: &[u8]) {
    let mut stream = dial(node).await;
    // The node may close the connection before everything is sent.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
}

fn malformed_events(node: &NodeHandle) -> usize {
    node.events_after(0).iter().filter(|event| matches!(event.what, NodeEvent::Malformed { .. })).count()
}

/// Checks that the node still serves clients and peers.
async fn assert_serves(cluster: &mut Cluster) {
    let client = TestClient::attach(cluster.node(0), "c", vec![member("a", "s")]).await;
    let added = cluster.add(|_| {}).await;
    let node = cluster.node(added);
    eventually("a new peer sees the member", async || node.member("a").is_some()).await;
    drop(client);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_is_closed_counted_and_reported_once() {
    let mut cluster = Cluster::start(1).await;
    let node = cluster.node(0).handle();
    let mut noise = vec![0; 100_000];
    fastrand::Rng::with_seed(7).fill(&mut noise);
    let framed = |frame: &[u8]| [PREAMBLE, &header(&[frame]), frame].concat();
    // Not the preamble. An HTTP client gets an answer.
    let mut http = dial(&node).await;
    http.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    let _ = http.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 421 ") && answer.contains("client port"), "{answer:?}");
    send_until_closed(&node, &noise).await;
    // A length above the limit.
    send_until_closed(&node, &[PREAMBLE, &[0xff; 8]].concat()).await;
    send_until_closed(&node, &[PREAMBLE, &(8_u64 << 20).to_le_bytes(), &noise].concat()).await;
    let rejected = node.counters().await.unwrap().network.connections_malformed;
    assert_eq!(rejected, 4);
    assert_eq!(malformed_events(&node), 1, "one event per address");
    // Valid frames without a valid message; the core rejects these.
    for frame in [&noise[..], b"", &[1], &[255; 40]] {
        send_until_closed(&node, &framed(frame)).await;
    }
    assert_eq!(node.counters().await.unwrap().registry.frames_malformed, 4);
    assert_serves(&mut cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_are_closed_and_do_not_block_others() {
    let mut cluster = Cluster::start_with(1, |config| config.network.unidentified_links = 4).await;
    let node = cluster.node(0).handle();
    let mut silent = Vec::new();
    for round in 0..8 {
        let mut stream = dial(&node).await;
        // Half of them send the preamble.
        if round % 2 == 0 {
            stream.write_all(PREAMBLE).await.unwrap();
        }
        silent.push(stream);
    }
    eventually("connections above the limit are rejected", async || {
        node.counters().await.unwrap().network.links_unidentified_rejected == 6
    })
    .await;
    for mut stream in silent {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(answer, b"");
    }
    assert_serves(&mut cluster).await;
    assert_eq!(malformed_events(&node), 0, "silence is not garbage");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_frame_ends_with_its_connection() {
    let mut cluster = Cluster::start(1).await;
    let node = cluster.node(0).handle();
    for cut in [1, 4, 7, 8, 9, 11, 12, 100] {
        let whole = [PREAMBLE, &header(&[&[0; 1000]]), &[0; 1000]].concat();
        let mut stream = dial(&node).await;
        stream.write_all(&whole[..cut]).await.unwrap();
        drop(stream);
    }
    eventually("all connections are gone", async || {
        let counters = node.counters().await.unwrap();
        counters.network.links_accepted == 8 && node.status().await.unwrap().sizes.links == 0
    })
    .await;
    assert_serves(&mut cluster).await;
}

/// Strangers hold all places they can get, for as long as they like. Known peers have places of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_cannot_keep_known_peers_out() {
    let patient = |config: &mut convoke_node::Config| {
        config.network.unidentified_links = 8;
        config.network.handshake_timeout = std::time::Duration::from_secs(600);
    };
    let mut cluster = Cluster::start_with(2, patient).await;
    let node = cluster.node(0).handle();
    let mut strangers = Vec::new();
    for _ in 0..20 {
        // All of loopback is this machine, so the strangers have an address of their own.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        strangers.push(socket.connect(node.local_address()).await.unwrap());
    }
    eventually("the strangers have taken all they can get", async || {
        node.counters().await.unwrap().network.links_unidentified_rejected == 16
    })
    .await;
    assert_serves(&mut cluster).await;
    drop(strangers);
}
