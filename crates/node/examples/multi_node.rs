//! Three nodes in one process; one crashes and restarts. Prints what the others observe.
//!
//! `cargo run -p convoke-node --example multi_node`

use convoke_core::node::PeerState;
use convoke_node::{Config, Node, NodeHandle};
use std::error::Error;
use std::time::{Duration, Instant};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let a = Node::start(config("a", None)?).await?;
    let seed = a.peer_address().to_owned();
    let b = Node::start(config("b", Some(&seed))?).await?;
    let c = Node::start(config("c", Some(&seed))?).await?;
    for node in [&a, &b, &c] {
        node.ready().await?;
        println!("{} is ready at {}", node.id(), node.peer_address());
    }
    for node in [&a, &b] {
        until("c is linked", || async { state(node, "c").await == Some(PeerState::Up) }).await?;
    }

    c.register("cache/primary", "c/slot-1").await?;
    for node in [&a, &b] {
        until("the name has arrived", || async { node.lookup("cache/primary").is_some() }).await?;
    }
    println!("c registered cache/primary; a and b know it");

    println!("c crashes");
    let (address, died) = (c.peer_address().to_owned(), Instant::now());
    c.abort();
    until("a has detected it", || async { state(&a, "c").await != Some(PeerState::Up) }).await?;
    println!("  a detected the end of its connection after {:?}", died.elapsed());
    until("a and b agree", || async { state(&a, "c").await == Some(PeerState::Failed) }).await?;
    println!("  a queried b, and both agree that c has failed");
    let name = a.lookup("cache/primary").ok_or("the names of a lost node stay")?;
    println!("  its names stay: cache/primary is still at {}", name.location);

    println!("c restarts at its old address without a data directory");
    c.stopped().await;
    let mut again = config("c", Some(&seed))?;
    again.bind = address;
    let c = Node::start(again).await?;
    c.ready().await?;
    println!("  it learnt the registry from a peer, and has incarnation {}", c.status().await?.incarnation);
    c.register("cache/primary", "c/slot-2").await?;
    for node in [&a, &b] {
        let moved = || async { node.lookup("cache/primary").is_some_and(|name| name.location == "c/slot-2") };
        until("the name has moved", moved).await?;
    }
    println!("  cache/primary is at c/slot-2 at all nodes");

    println!("the timeline of b:");
    for event in b.events_after(0) {
        println!("  {:>3}. {}", event.sequence, event.what);
    }
    for node in [a, b, c] {
        node.stop().await;
    }
    Ok(())
}

fn config(id: &str, join: Option<&str>) -> Result<Config, Box<dyn Error>> {
    let mut config = Config::new(id)?;
    config.join.extend(join.map(str::to_owned));
    // Shorter than the default, so that the example runs quickly.
    config.timers.peer_retry_interval = Duration::from_millis(200);
    config.timers.ping_interval = Duration::from_millis(200);
    config.timers.ping_timeout = Duration::from_secs(1);
    Ok(config)
}

async fn state(node: &NodeHandle, peer: &str) -> Option<PeerState> {
    let nodes = node.nodes().await.ok()?;
    nodes.iter().find(|view| view.node.as_str() == peer).map(|view| view.state)
}

/// Waits for a condition with a time limit.
async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) -> Result<(), String> {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting)
        .await
        .map_err(|_| format!("condition not met in time: {what}"))
}
