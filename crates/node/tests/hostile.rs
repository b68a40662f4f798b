//! What does not belong on the peer port: closed, counted, said once, and the node lives on (P7).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_node::{Happening, NodeHandle};
use convoke_testkit::{Cluster, TestClient, eventually, member};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PREAMBLE: &[u8] = b"CONVOKER";

async fn dial(node: &NodeHandle) -> TcpStream {
    TcpStream::connect(node.local_address()).await.unwrap()
}

/// Sends bytes and waits until the node has closed the connection.
async fn send_and_be_closed(node: &NodeHandle, bytes: &[u8]) {
    let mut stream = dial(node).await;
    // It may be closed before all is sent.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
}

fn garbage_events(node: &NodeHandle) -> usize {
    node.events_after(0).iter().filter(|event| matches!(event.what, Happening::Garbage { .. })).count()
}

/// The node still serves clients and peers.
async fn is_well(cluster: &mut Cluster) {
    let client = TestClient::attach(cluster.node(0), "c", vec![member("a", "s")]).await;
    let added = cluster.add(|_| {}).await;
    let node = cluster.node(added);
    eventually("a new peer sees the member", async || node.member("a").is_some()).await;
    drop(client);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_is_closed_counted_and_said_once() {
    let mut cluster = Cluster::start(1).await;
    let node = cluster.node(0).handle();
    let mut noise = vec![0; 100_000];
    fastrand::Rng::with_seed(7).fill(&mut noise);
    let framed = |frame: &[u8]| [PREAMBLE, &(frame.len() as u32).to_le_bytes(), frame].concat();
    // Not the preamble.
    send_and_be_closed(&node, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    send_and_be_closed(&node, &noise).await;
    // A length that nobody may send.
    send_and_be_closed(&node, &[PREAMBLE, &u32::MAX.to_le_bytes()].concat()).await;
    send_and_be_closed(&node, &[PREAMBLE, &(8_u32 << 20).to_le_bytes(), &noise].concat()).await;
    let refused = node.counters().await.unwrap().network.connections_malformed;
    assert_eq!(refused, 4);
    assert_eq!(garbage_events(&node), 1, "one address is worth one line");
    // Well framed, but no message; the core refuses these.
    for frame in [&noise[..], b"", &[1], &[255; 40]] {
        send_and_be_closed(&node, &framed(frame)).await;
    }
    assert_eq!(node.counters().await.unwrap().registry.frames_malformed, 4);
    is_well(&mut cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_says_nothing_is_closed_and_does_not_keep_others_out() {
    let mut cluster = Cluster::start_with(1, |config| config.network.unidentified_links = 4).await;
    let node = cluster.node(0).handle();
    let mut silent = Vec::new();
    for round in 0..8 {
        let mut stream = dial(&node).await;
        // Half of them get as far as the preamble.
        if round % 2 == 0 {
            stream.write_all(PREAMBLE).await.unwrap();
        }
        silent.push(stream);
    }
    eventually("beyond the bound they are refused", async || {
        node.counters().await.unwrap().network.links_unidentified_rejected == 4
    })
    .await;
    for mut stream in silent {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(answer, b"");
    }
    is_well(&mut cluster).await;
    assert_eq!(garbage_events(&node), 0, "silence is no garbage");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_cut_short_ends_with_its_connection() {
    let mut cluster = Cluster::start(1).await;
    let node = cluster.node(0).handle();
    for cut in [1, 4, 7, 8, 9, 11, 12, 100] {
        let whole = [PREAMBLE, &1000_u32.to_le_bytes(), &[0; 1000]].concat();
        let mut stream = dial(&node).await;
        stream.write_all(&whole[..cut]).await.unwrap();
        drop(stream);
    }
    eventually("all connections are gone", async || {
        let counters = node.counters().await.unwrap();
        counters.network.links_accepted == 8 && node.status().await.unwrap().sizes.links == 0
    })
    .await;
    is_well(&mut cluster).await;
}
