//! Accepting peers. The number of unidentified connections and the time they may take are limited.

use super::{Connected, REGISTRY_PREAMBLE, node_of, send_input};
use crate::counters::add;
use crate::dispatch::Inbound;
use crate::event_loop::Input;
use crate::shared::Shared;
use convoke_base::framing::{PREAMBLE_PREFIX, Preamble};
use convoke_tls::{Accepted, HandshakeError, Stream};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

/// Pause after a failed accept, for example when file descriptors run out.
const ERROR_PAUSE: Duration = Duration::from_millis(100);
/// How a TLS connection begins.
const TLS_RECORD: &[u8] = &[0x16, 0x03];

#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    shared: Arc<Shared>,
}

impl Acceptor {
    pub(crate) fn new(listener: TcpListener, shared: Arc<Shared>) -> Self {
        Acceptor { listener, shared }
    }

    /// Accepts until dropped.
    pub(crate) async fn run(self) {
        let mut waiting = JoinSet::new();
        loop {
            while waiting.try_join_next().is_some() {}
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let Some(permit) = self.shared.handshake_permits.acquire(address.ip()) else {
                        add(&self.shared.counting.links_unidentified_rejected, 1);
                        continue;
                    };
                    add(&self.shared.counting.links_accepted, 1);
                    waiting.spawn(read_preamble(stream, address, permit, self.shared.clone()));
                }
                Err(error) => {
                    tracing::warn!(node = %self.shared.id, %error, "peer accept failed");
                    tokio::time::sleep(ERROR_PAUSE).await;
                }
            }
        }
    }
}

/// Reads the preamble, which identifies the plane and rejects other protocols.
///
/// The handshake of TLS comes first, within the same time limit and with the same permit.
async fn read_preamble(socket: TcpStream, address: SocketAddr, permit: OwnedSemaphorePermit, shared: Arc<Shared>) {
    let mut preamble = Preamble::default();
    let read = async {
        let mut accepted = match &shared.tls {
            Some(tls) => tls.accept_peer(socket).await?,
            None => Accepted { stream: Stream::Plain(socket), identity: None },
        };
        accepted.stream.read_exact(&mut preamble).await?;
        Ok::<_, HandshakeError>(accepted)
    };
    let read = tokio::time::timeout(shared.network.handshake_timeout, read).await;
    let (stream, identity) = match read {
        Err(_) => {
            add(&shared.counting.handshakes_timed_out, 1);
            return;
        }
        // A port scan or health check: the connection ended without a preamble.
        Ok(Err(HandshakeError::Connection(_))) => return,
        Ok(Err(error)) => {
            shared.refused(address, &error.to_string());
            return;
        }
        Ok(Ok(Accepted { stream, identity })) => (stream, identity),
    };
    match preamble {
        REGISTRY_PREAMBLE => {
            let authenticated = node_of(identity.as_ref());
            let connected = Connected { stream, address, authenticated, unidentified: Some(permit) };
            send_input(&shared, Input::Accepted(Box::new(connected))).await;
        }
        preamble if preamble.starts_with(PREAMBLE_PREFIX) => {
            let known = shared.handshake_permits.is_known(address.ip());
            let dispatched = shared.dispatch.send(preamble, Inbound { stream, identity, address, known });
            let counting = &shared.counting;
            add(if dispatched { &counting.connections_dispatched } else { &counting.connections_undispatched }, 1);
        }
        preamble if is_http(&preamble) => {
            shared.malformed(address, "it speaks HTTP on the peer port; clients use the client port");
            let answered = answer_http(stream, &shared.client_address);
            let _ = tokio::time::timeout(shared.network.handshake_timeout, answered).await;
        }
        preamble if preamble.starts_with(TLS_RECORD) => shared.refused(address, &HandshakeError::Tls.to_string()),
        _ => shared.malformed(address, "it does not use the peer protocol"),
    }
}

/// Whether a connection begins with an HTTP request, or with the preface of HTTP/2.
fn is_http(preamble: &Preamble) -> bool {
    [&b"GET "[..], b"PUT ", b"POST ", b"HEAD ", b"PATCH ", b"DELETE ", b"OPTIONS ", b"PRI * "]
        .iter()
        .any(|method| preamble.starts_with(method))
}

/// Answers an HTTP request. The rest of the request is read first: a connection that is closed with unread bytes is
/// reset, and the client might not get the answer. Errors mean that the client has gone.
async fn answer_http(mut stream: Stream, client_address: &str) {
    if stream.write_all(misdirected(client_address).as_bytes()).await.is_ok() && stream.shutdown().await.is_ok() {
        let mut rest = [0; 4096];
        while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
    }
}

/// The answer to an HTTP request on the peer port.
fn misdirected(client_address: &str) -> String {
    let port = if client_address.is_empty() { String::new() } else { format!(", {client_address}") };
    let text = format!("this is the peer port of a Convoke node; use its client port{port}\n");
    let length = text.len();
    format!(
        "HTTP/1.1 421 Misdirected Request\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
    )
}
