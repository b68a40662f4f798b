//! Connections without TLS while it is optional (TS5).

use crate::cluster::{Port, TestCa, listen};
use convoke_tls::{DialTarget, HandshakeError, Mode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A node without TLS: it closes connections that begin with something else than its preamble.
async fn node_without_tls() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let Ok((mut socket, _)) = listener.accept().await else { return };
            tokio::spawn(async move {
                let mut preamble = [0; 8];
                if socket.read_exact(&mut preamble).await.is_ok() && &preamble == b"CONVOKER" {
                    let _ = socket.write_all(b"welcome").await;
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn ts5_only_an_optional_dialer_falls_back() {
    let ca = TestCa::new();
    let address = node_without_tls().await;
    let optional = ca.node("n1", Mode::Optional);
    let dialled = optional.dial_peer(&address, DialTarget::Node("n2"), || TcpStream::connect(&address)).await;
    let mut dialled = dialled.unwrap();
    assert!(!dialled.stream.is_tls() && dialled.identity.is_none());
    dialled.stream.write_all(b"CONVOKER").await.unwrap();
    let mut answer = String::new();
    dialled.stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "welcome");
    let required = ca.node("n2", Mode::Required);
    let dialled = required.dial_peer(&address, DialTarget::AnyNode, || TcpStream::connect(&address)).await;
    assert!(matches!(dialled, Err(HandshakeError::Failed(_))));
    assert_eq!((optional.counters().dials_plain, required.counters().dials_plain), (1, 0));
}

#[tokio::test]
async fn ts5_a_node_once_seen_with_tls_is_never_dialled_without() {
    let ca = TestCa::new();
    let (n1, n2) = (ca.node("n1", Mode::Optional), ca.node("n2", Mode::Required));
    let (address, accepting) = listen(&n2, Port::Peer).await;
    n1.dial_peer(&address.to_string(), DialTarget::AnyNode, || TcpStream::connect(address)).await.unwrap();
    accepting.await.unwrap().unwrap();
    let plain = node_without_tls().await;
    // The same node elsewhere, and the same address.
    for (name, target) in [(plain.clone(), DialTarget::Node("n2")), (address.to_string(), DialTarget::AnyNode)] {
        let dialled = n1.dial_peer(&name, target, || TcpStream::connect(&plain)).await;
        assert!(matches!(dialled, Err(HandshakeError::NoFallback { .. })), "{target:?}");
    }
    assert_eq!(n1.counters().dials_plain_rejected, 2);
    let other = n1.dial_peer(&plain, DialTarget::Node("n3"), || TcpStream::connect(&plain)).await;
    assert!(!other.unwrap().stream.is_tls(), "another node may not use it yet");
}

#[tokio::test]
async fn ts5_a_node_whose_record_says_tls_is_never_dialled_without() {
    let ca = TestCa::new();
    let n1 = ca.node("n1", Mode::Optional);
    n1.set_records(|_, node| node == Some("n2"));
    let plain = node_without_tls().await;
    let dialled = n1.dial_peer(&plain, DialTarget::Node("n2"), || TcpStream::connect(&plain)).await;
    assert!(matches!(dialled, Err(HandshakeError::NoFallback { .. })));
}

#[tokio::test]
async fn ts5_listeners_accept_what_their_mode_says() {
    let ca = TestCa::new();
    for port in [Port::Peer, Port::Client] {
        for (mode, plain, tls) in
            [(Mode::Off, true, false), (Mode::Optional, true, true), (Mode::Required, false, true)]
        {
            let node = ca.node("n1", mode);
            let (address, accepting) = listen(&node, port).await;
            let mut socket = TcpStream::connect(address).await.unwrap();
            socket.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            let accepted = accepting.await.unwrap();
            assert_eq!(accepted.is_ok_and(|accepted| !accepted.stream.is_tls()), plain, "{port:?} {mode} without TLS");
            if port == Port::Client && mode == Mode::Required {
                let mut answer = String::new();
                socket.read_to_string(&mut answer).await.unwrap();
                assert!(answer.starts_with("HTTP/1.1 400") && answer.ends_with("(--ca)\n"), "{answer}");
            }
            let dialler = ca.node("n2", Mode::Required);
            let (address, accepting) = listen(&node, port).await;
            let dialled = dialler.dial_peer("x", DialTarget::AnyNode, || TcpStream::connect(address)).await;
            assert_eq!((dialled.is_ok(), accepting.await.unwrap().is_ok()), (tls, tls), "{port:?} {mode} with TLS");
        }
    }
}
