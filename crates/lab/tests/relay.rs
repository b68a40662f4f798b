//! Effects of the network's faults on forwarded bytes (docs/demo-and-clusters.md, rule 3).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_lab::{Direction, Relay, RelayNetwork};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 130, 0, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 130, 0, 2));
const C: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 130, 0, 3));
const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough to detect bytes that are forwarded by mistake.
const WHILE: Duration = Duration::from_millis(150);

/// Host B with its relay.
struct Host {
    network: RelayNetwork,
    relay: Relay,
    listener: TcpListener,
}

impl Host {
    async fn start() -> Host {
        let network = RelayNetwork::default();
        let listener = TcpListener::bind((B, 0)).await.unwrap();
        let relay = Relay::listen(&network, B, SocketAddr::new(B, 0)).unwrap();
        relay.lead_to(Some(listener.local_addr().unwrap()));
        Host { network, relay, listener }
    }

    /// Dials the relay from another host.
    async fn dial(&self, from: IpAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(from, 0)).unwrap();
        socket.connect(self.relay.address()).await.unwrap()
    }

    async fn accept(&self) -> TcpStream {
        timeout(PATIENCE, self.listener.accept()).await.unwrap().unwrap().0
    }

    async fn connected(&self, from: IpAddr) -> (TcpStream, TcpStream) {
        (self.dial(from).await, self.accept().await)
    }
}

async fn arrives(stream: &mut TcpStream, text: &[u8]) {
    let mut found = vec![0; text.len()];
    timeout(PATIENCE, stream.read_exact(&mut found)).await.expect("it arrives").unwrap();
    assert_eq!(found, text);
}

async fn silent(stream: &mut TcpStream) {
    let mut byte = [0];
    assert!(timeout(WHILE, stream.read(&mut byte)).await.is_err(), "bytes were forwarded");
}

#[tokio::test]
async fn bytes_pass_and_the_node_sees_the_dialers_address() {
    let host = Host::start().await;
    let (mut a, mut b) = host.connected(A).await;
    assert_eq!(b.peer_addr().unwrap().ip(), A);
    a.write_all(b"ping").await.unwrap();
    arrives(&mut b, b"ping").await;
    b.write_all(b"pong").await.unwrap();
    drop(b);
    arrives(&mut a, b"pong").await;
    assert_eq!(a.read(&mut [0]).await.unwrap(), 0, "the end of the stream arrives, too");
}

#[tokio::test]
async fn a_cut_is_silent_and_waiting_bytes_arrive_after_it() {
    let host = Host::start().await;
    let ((mut a, mut b), (mut c, mut b_of_c)) = (host.connected(A).await, host.connected(C).await);
    let direction = Direction::new(A, B);
    host.network.cut(direction);
    host.network.cut(direction.back());
    a.write_all(b"from a").await.unwrap();
    b.write_all(b"from b").await.unwrap();
    b.shutdown().await.unwrap();
    silent(&mut a).await;
    silent(&mut b).await;
    c.write_all(b"others are not cut").await.unwrap();
    arrives(&mut b_of_c, b"others are not cut").await;
    host.network.heal_all();
    arrives(&mut b, b"from a").await;
    arrives(&mut a, b"from b").await;
    assert_eq!(a.read(&mut [0]).await.unwrap(), 0, "and then the end");
}

#[tokio::test]
async fn one_direction_can_be_cut_alone() {
    let host = Host::start().await;
    let (mut a, mut b) = host.connected(A).await;
    host.network.cut(Direction::new(A, B));
    a.write_all(b"lost for now").await.unwrap();
    b.write_all(b"heard").await.unwrap();
    arrives(&mut a, b"heard").await;
    silent(&mut b).await;
    // A new connection is not established either: its answer would be lost.
    let _new = host.dial(A).await;
    assert!(timeout(WHILE, host.listener.accept()).await.is_err());
    host.network.heal(Direction::new(A, B));
    arrives(&mut b, b"lost for now").await;
    host.accept().await;
}

#[tokio::test]
async fn a_dialer_that_gave_up_during_a_cut_is_not_connected() {
    let host = Host::start().await;
    host.network.cut(Direction::new(B, A));
    let mut given_up = host.dial(A).await;
    given_up.write_all(b"hello").await.unwrap();
    drop(given_up);
    let mut patient = host.dial(A).await;
    patient.write_all(b"still here").await.unwrap();
    tokio::time::sleep(WHILE).await;
    host.network.heal(Direction::new(B, A));
    arrives(&mut host.accept().await, b"still here").await;
    assert!(timeout(WHILE, host.listener.accept()).await.is_err(), "no other connection");
}

#[tokio::test]
async fn a_delay_keeps_the_order() {
    let host = Host::start().await;
    let (mut a, mut b) = host.connected(A).await;
    let (direction, delay) = (Direction::new(A, B), Duration::from_millis(200));
    host.network.delay(direction, delay);
    let begin = Instant::now();
    a.write_all(b"first ").await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    host.network.delay(direction, Duration::ZERO);
    a.write_all(b"second").await.unwrap();
    arrives(&mut b, b"first second").await;
    assert!(begin.elapsed() >= delay, "{:?}", begin.elapsed());
    b.write_all(b"back").await.unwrap();
    arrives(&mut a, b"back").await;
}

#[tokio::test]
async fn a_reset_ends_connections_and_lets_new_ones_through() {
    let host = Host::start().await;
    let ((mut a, mut b), (mut c, mut b_of_c)) = (host.connected(A).await, host.connected(C).await);
    host.network.reset(Direction::new(B, A));
    let error = timeout(PATIENCE, a.read(&mut [0])).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let error = timeout(PATIENCE, b.read(&mut [0])).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    c.write_all(b"x").await.unwrap();
    arrives(&mut b_of_c, b"x").await;
    let (mut a, mut b) = host.connected(A).await;
    a.write_all(b"again").await.unwrap();
    arrives(&mut b, b"again").await;
}

#[tokio::test]
async fn without_a_node_behind_it_connections_are_reset() {
    let host = Host::start().await;
    host.relay.lead_to(None);
    let mut a = host.dial(A).await;
    let read = timeout(PATIENCE, a.read(&mut [0])).await.expect("an end");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn more_than_all_buffers_passes() {
    let host = Host::start().await;
    let (mut a, mut b) = host.connected(A).await;
    host.network.cut(Direction::new(A, B));
    let sent: Vec<u8> = (0..3_000_000u32).map(|number| number.to_le_bytes()[0]).collect();
    let expected = sent.clone();
    let sending = tokio::spawn(async move {
        a.write_all(&sent).await.unwrap();
        a
    });
    silent(&mut b).await;
    host.network.heal_all();
    arrives(&mut b, &expected).await;
    sending.await.unwrap();
}
