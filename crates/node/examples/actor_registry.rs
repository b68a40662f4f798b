//! Actors find each other by name in all processes: the registry as a library in each process.
//!
//! `cargo run -p convoke-node --example actor_registry`

use convoke_core::node::{Resume, StreamEvent};
use convoke_node::{Config, Node, NodeHandle};
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Two processes of an application would each start one node like this.
    let left = Node::start(Config::new("left")?).await?;
    let mut config = Config::new("right")?;
    config.join = vec![left.peer_address().to_owned()];
    let right = Node::start(config).await?;
    right.ready().await?;
    println!("nodes left ({}) and right ({}) are one cluster", left.peer_address(), right.peer_address());

    // A watcher receives the existing names, then every change.
    let watching = tokio::spawn(watch(left.handle()));

    println!("right starts two actors");
    right.register("user/4711", "right/mailbox-1").await?;
    right.register("user/4712", "right/mailbox-2").await?;

    // A name is held by one node. While that node is alive, other nodes are rejected.
    known(&left, "user/4711").await;
    match left.register("user/4711", "left/mailbox-9").await {
        Err(rejection) => println!("left cannot take a name of a live node: {rejection}"),
        Ok(_) => return Err("a name of a live node was taken".into()),
    }

    // Lookups are local and never wait.
    let found = left.lookup("user/4711").ok_or("the name is known")?;
    println!("left sends to {} at {}, on node {}", found.name, found.location, found.node);

    println!("the actor moves to another mailbox, the other one ends");
    right.register("user/4711", "right/mailbox-3").await?;
    right.unregister("user/4712").await?;

    println!("right stops gracefully: its names are unregistered");
    right.stop().await;
    watching.await??;
    assert!(left.lookup("user/4711").is_none());
    left.stop().await;
    Ok(())
}

/// Prints changes of names until user/4711 is gone.
async fn watch(node: NodeHandle) -> Result<(), convoke_core::Rejection> {
    let mut names = node.watch_names(Resume::Fresh).await?;
    while let Some(events) = names.next().await {
        for event in events {
            match event {
                StreamEvent::Registered(name) => println!("  left received: {} is at {}", name.id(), name.address()),
                StreamEvent::Updated(name) => println!("  left received: {} is now at {}", name.id(), name.address()),
                StreamEvent::Unregistered { id, .. } => {
                    println!("  left received: {id} is gone");
                    if id == "user/4711" {
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Waits until a name is known at this node.
async fn known(node: &NodeHandle, name: &str) {
    while node.lookup(name).is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}
