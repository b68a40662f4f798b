//! Connections of other planes, which a node only passes on.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_node::{Config, Node};
use convoke_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn dial(node: &Node) -> TcpStream {
    let mut stream = TcpStream::connect(node.local_address()).await.unwrap();
    stream.write_all(b"CONVOKEXhello").await.unwrap();
    stream
}

#[tokio::test]
async fn connections_are_passed_on_with_the_bytes_after_the_preamble() {
    let node = Node::start(Config::new("a").unwrap()).await.unwrap();
    let mut connections = node.connections(*b"CONVOKEX");
    let mut dialled = dial(&node).await;
    let mut connection = connections.recv().await.unwrap();
    assert_eq!(connection.address, dialled.local_addr().unwrap());
    let mut bytes = [0; 5];
    connection.stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"hello");
    connection.stream.write_all(b"yes").await.unwrap();
    let mut answer = [0; 3];
    dialled.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"yes");
    let counters = node.counters().await.unwrap().network;
    assert_eq!((counters.connections_dispatched, counters.connections_malformed), (1, 0));
}

/// Reserved places of another plane need to know which connections come from peers.
#[tokio::test]
async fn connections_from_addresses_of_peers_are_marked() {
    let cluster = convoke_testkit::Cluster::start(2).await;
    let node = cluster.node(0);
    let mut connections = node.connections(*b"CONVOKEX");
    for (source, known) in [("127.0.0.1:0", true), ("127.0.0.2:0", false)] {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(source.parse().unwrap()).unwrap();
        let mut stream = socket.connect(node.local_address()).await.unwrap();
        stream.write_all(b"CONVOKEX").await.unwrap();
        assert_eq!(connections.recv().await.unwrap().known, known, "{source}");
    }
}

#[tokio::test]
async fn connections_without_a_receiver_are_closed() {
    let node = Node::start(Config::new("a").unwrap()).await.unwrap();
    let mut dialled = dial(&node).await;
    let mut nothing = [0; 1];
    assert!(!matches!(dialled.read(&mut nothing).await, Ok(1..)));
    eventually("it was counted", async || node.counters().await.unwrap().network.connections_undispatched == 1).await;
}
