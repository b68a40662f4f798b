//! A network that flips bits between nodes. Checksums detect it (P7), and once the network is clean, all nodes show the
//! same.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_core::filter::Filter;
use convoke_node::{Config, Node};
use convoke_testkit::{TestClient, eventually, free_address, member, meshed, patient_timers};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// One chunk in this many is damaged.
const DAMAGED: u64 = 12;
/// Members that each client registers and unregisters while bits flip.
const ROUNDS: usize = 150;

#[derive(Default)]
struct Wire {
    flips: AtomicBool,
    flipped: AtomicU64,
}

/// Passes connections on to `target`. Returns the address.
async fn proxy(target: String, wire: Arc<Wire>, tasks: &mut JoinSet<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        for seed in 0.. {
            let Ok((inbound, _)) = listener.accept().await else { return };
            let Ok(outbound) = TcpStream::connect(&target).await else { continue };
            let ((from, to), (back_from, back_to)) = (inbound.into_split(), outbound.into_split());
            connections.spawn(pass(from, back_to, wire.clone(), fastrand::Rng::with_seed(seed)));
            connections.spawn(pass(back_from, to, wire.clone(), fastrand::Rng::with_seed(seed + 1_000)));
        }
    });
    address
}

/// Passes bytes on in small chunks, and flips a bit of some of them.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, wire: Arc<Wire>, mut random: fastrand::Rng) {
    let mut chunk = vec![0; 2_000];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        if wire.flips.load(Ordering::Relaxed) && random.u64(..DAMAGED) == 0 {
            chunk[random.usize(..count)] ^= 1 << random.u8(..8);
            wire.flipped.fetch_add(1, Ordering::Relaxed);
        }
        if to.write_all(&chunk[..count]).await.is_err() {
            return;
        }
    }
}

/// Registers members, changes some and unregisters others.
async fn churn(node: &Node, name: &str) -> TestClient {
    let mut client = TestClient::attach(node, name, vec![]).await;
    for round in 0..ROUNDS {
        client.register(member(&format!("{name}-{round}"), "s")).await.unwrap();
        if round.is_multiple_of(3) {
            let seq = client.next_seq();
            client.connection.unregister(client.session, seq, &format!("{name}-{round}")).await.unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    client
}

fn shown(node: &Node) -> Vec<String> {
    let page = node.members(&Filter::service("s"), None, 10_000).unwrap();
    page.members.iter().map(|member| format!("{} {:?} {}", member.id(), member.status(), member.version())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_agree_after_a_network_that_flips_bits() {
    let wire = Arc::new(Wire::default());
    let mut tasks = JoinSet::new();
    let mut nodes: Vec<Node> = Vec::new();
    let mut join = Vec::new();
    for index in 0..3 {
        let mut config = Config::new(&format!("n{index}")).unwrap();
        config.timers = patient_timers();
        config.bind = free_address();
        // Every link between two nodes leads through the proxy of one of them.
        let address = proxy(config.bind.clone(), wire.clone(), &mut tasks).await;
        config.advertise = Some(address.clone());
        config.join = join.clone();
        join.push(address);
        let node = Node::start(config).await.unwrap();
        node.ready().await.unwrap();
        nodes.push(node);
    }
    meshed(nodes.iter()).await;
    wire.flips.store(true, Ordering::Relaxed);
    let clients = tokio::join!(churn(&nodes[0], "a"), churn(&nodes[1], "b"), churn(&nodes[2], "c"));
    assert!(wire.flipped.load(Ordering::Relaxed) > 0, "nothing was damaged");
    wire.flips.store(false, Ordering::Relaxed);
    eventually("all nodes show the same", async || {
        let first = shown(&nodes[0]);
        first.len() == 3 * (ROUNDS - ROUNDS.div_ceil(3)) && nodes.iter().all(|node| shown(node) == first)
    })
    .await;
    let mut rejected = 0;
    for node in &nodes {
        let counters = node.counters().await.unwrap();
        rejected += counters.network.connections_malformed;
        // Damage is found by the checksum, before a frame is decoded.
        assert_eq!((counters.registry.frames_malformed, counters.registry.frames_excessive), (0, 0));
    }
    assert!(rejected > 0, "no damaged frame was rejected");
    drop(clients);
}
