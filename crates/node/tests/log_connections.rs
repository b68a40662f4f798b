//! Connections of the log plane, which a node only hands over.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_node::{Config, Node};
use convoke_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn dial(node: &Node) -> TcpStream {
    let mut stream = TcpStream::connect(node.local_address()).await.unwrap();
    stream.write_all(b"CONVOKELhello").await.unwrap();
    stream
}

#[tokio::test]
async fn they_are_handed_over_with_what_follows_the_preamble() {
    let node = Node::start(Config::new("a").unwrap()).await.unwrap();
    let mut connections = node.log_connections();
    let mut dialed = dial(&node).await;
    let mut taken = connections.recv().await.unwrap();
    assert_eq!(taken.address, dialed.local_addr().unwrap());
    let mut said = [0; 5];
    taken.stream.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"hello");
    taken.stream.write_all(b"yes").await.unwrap();
    let mut answer = [0; 3];
    dialed.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"yes");
    let counters = node.counters().await.unwrap().network;
    assert_eq!((counters.log_connections, counters.connections_malformed), (1, 0));
}

#[tokio::test]
async fn without_a_log_plane_they_are_closed() {
    let node = Node::start(Config::new("a").unwrap()).await.unwrap();
    let mut dialed = dial(&node).await;
    let mut nothing = [0; 1];
    assert!(!matches!(dialed.read(&mut nothing).await, Ok(1..)));
    eventually("it was counted", async || node.counters().await.unwrap().network.log_connections_rejected == 1).await;
}
