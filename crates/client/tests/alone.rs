//! The SDK with a node that has reached none of its seeds: it takes registrations and asserts no absence.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::Event;
use convoke_testkit::eventually;
use support::{Served, client, next, orders};

#[tokio::test]
async fn a_view_at_a_node_that_is_alone_is_not_complete() {
    let served = Served::without_seed().await;
    let client = client(served.address()).await;
    let view = client.view("service == \"orders\"").unwrap();
    let mut watch = client.watch("service == \"orders\"").unwrap();
    client.register(orders("orders-1")).await.unwrap();
    eventually("the view has the member", async || view.get("orders-1").is_some()).await;
    assert!(!view.is_caught_up());
    // The node joins nothing, so it stays as it is until an operator decides.
    assert!(!matches!(next(&mut watch).await, Event::CaughtUp));
    served.node.declare_first().await.unwrap();
    view.wait_caught_up().await.unwrap();
    while next(&mut watch).await != Event::CaughtUp {}
    assert!(view.get("orders-1").is_some());
}
