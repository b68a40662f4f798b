//! Resident memory of a whole node with a million members: the core's records and the view for readers.
//!
//! `cargo bench -p convoke-node --bench memory`

#![allow(clippy::unwrap_used, reason = "in a bench a panic is the message")]

mod support;

use convoke_core::filter::Filter;
use convoke_core::member::Space;
use convoke_core::node::{Resume, WatchSelection};
use convoke_node::{Config, Node};
use support::{attach, resident_mb, scale};

const PER_SESSION: usize = 100;
const WATCHERS: usize = 5_000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let members = scale(1_000_000);
    let before = resident_mb();
    let mut config = Config::new("a").unwrap();
    config.limits.sessions = 2 * members;
    let node = Node::start(config).await.unwrap();
    let connection = node.connect().unwrap();
    for session in 0..members / PER_SESSION {
        let attached = connection.attach(attach(session, PER_SESSION)).await.unwrap();
        assert!(attached.rejected.is_empty());
    }
    let counted: usize = node.services().iter().map(|view| view.up).sum();
    assert_eq!(counted, members + 1, "the members and the node itself");
    let held = resident_mb();
    println!("{members} members, {PER_SESSION} per session: {held} MB resident ({before} MB at the start)");
    let mut streams = Vec::new();
    for index in 0..WATCHERS {
        let filter = Filter::service(&format!("service-of-nobody-{index}"));
        streams.push(node.watch(WatchSelection::new(Space::Member, filter), Resume::Fresh).await.unwrap());
    }
    for stream in &mut streams {
        stream.next().await.unwrap();
    }
    println!("{WATCHERS} idle watchers: {} MB more", resident_mb() - held);
}
