//! Slow and silent handshakes (TS6).

use crate::cluster::{PATIENCE, TestCa, call};
use convoke_tls::{Identity, Mode, NodeTls, Settings};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn serve(tls: NodeTls) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let Ok((socket, _)) = listener.accept().await else { return };
            let tls = tls.clone();
            tokio::spawn(async move {
                if let Ok(mut accepted) = tls.accept_client(socket, PATIENCE).await {
                    let _ = accepted.stream.write_all(b"served").await;
                    let _ = accepted.stream.shutdown().await;
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn ts6_handshakes_that_never_end_keep_nobody_out() {
    let ca = TestCa::new();
    let tls = NodeTls::load(Settings { handshakes: 4, ..ca.settings("n1", Mode::Required) }).unwrap();
    let address = serve(tls.clone()).await;
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut socket = TcpStream::connect(address).await.unwrap();
        // The beginning of a record, and nothing more.
        socket.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00]).await.unwrap();
        slow.push(socket);
    }
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while tls.counters().client_handshakes_displaced < 16 {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", tls.counters());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Connections that send nothing at all.
    for _ in 0..20 {
        slow.push(TcpStream::connect(address).await.unwrap());
    }
    let own = ca.issue(Identity::client("prod", "app"));
    let mut served = call(address, Some(&own)).await.unwrap();
    let mut answer = String::new();
    served.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "served");
    assert!(tls.pending() <= 4, "{} handshakes are pending", tls.pending());
}

#[tokio::test]
async fn ts6_a_handshake_has_a_time_limit() {
    let ca = TestCa::new();
    let settings = ca.settings("n1", Mode::Required);
    let tls = NodeTls::load(Settings { handshake_timeout: Duration::from_millis(50), ..settings }).unwrap();
    let address = serve(tls.clone()).await;
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(&[0x16, 0x03, 0x01]).await.unwrap();
    let mut rest = Vec::new();
    // The end of the connection, with or without a reset.
    let _ = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(tls.counters().client_handshakes_timed_out, 1);
}
