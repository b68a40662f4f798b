//! Connecting to a peer. Names are resolved with every attempt, because their addresses may change.

use super::{Connected, REGISTRY_PREAMBLE, node_of, send_input, socket};
use crate::counters::add;
use crate::event_loop::Input;
use crate::shared::Shared;
use convoke_core::node::{DialId, SeedFailure, dial_order};
use convoke_tls::{Accepted, DialTarget, HandshakeError, Stream};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Connects within `dial_timeout` and sends the result to the event loop. `generation` identifies the core that
/// requested it, and `turn` says which of several addresses is tried first.
pub(crate) async fn dial(generation: u64, dial: DialId, address: String, turn: u32, shared: Arc<Shared>) {
    add(&shared.counting.dials, 1);
    let connecting = async {
        let found = resolve(&address).await?;
        Ok::<_, io::Error>((found.len(), connect(&address, dial_order(found, turn), &shared).await?))
    };
    let result = tokio::time::timeout(shared.network.dial_timeout, connecting).await;
    let input = match result.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())) {
        Ok((addresses, connected)) => {
            shared.handshake_permits.add_known(connected.address.ip());
            Input::Dialled { generation, dial, addresses, connected: Box::new(connected) }
        }
        Err(error) => {
            add(&shared.counting.dials_failed, 1);
            if error.kind() == ErrorKind::PermissionDenied && shared.log_throttle.is_new(&format!("dial {address}")) {
                tracing::warn!(node = %shared.id, %address, %error, "peer refused");
            }
            tracing::debug!(node = %shared.id, %address, %error, "peer dial failed");
            Input::DialFailed { generation, dial, failure: seed_failure(&error) }
        }
    };
    send_input(&shared, input).await;
}

/// Why a dial failed, for operators. An error of the resolver has no kind of its own.
fn seed_failure(error: &io::Error) -> SeedFailure {
    match error.kind() {
        ErrorKind::ConnectionRefused => SeedFailure::Refused,
        ErrorKind::TimedOut => SeedFailure::TimedOut,
        ErrorKind::PermissionDenied => SeedFailure::Certificate,
        ErrorKind::NotFound | ErrorKind::InvalidInput => SeedFailure::Unresolvable,
        _ => SeedFailure::Unreachable,
    }
}

/// Returns the addresses behind a name, the preferred one first.
async fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    let found = tokio::net::lookup_host(address).await;
    Ok(found.map_err(|error| io::Error::new(ErrorKind::NotFound, error))?.collect())
}

/// Connects to the first address that accepts.
async fn connect(name: &str, addresses: Vec<SocketAddr>, shared: &Shared) -> io::Result<Connected> {
    let mut last = ErrorKind::NotFound.into();
    for address in addresses {
        let connected = match &shared.tls {
            // Whoever answers is checked against what it says in the handshake of the protocol (TS3).
            Some(tls) => {
                let dialled = tls.dial_peer(name, DialTarget::AnyNode, || open(address, shared.local_address)).await;
                dialled.map_err(HandshakeError::into_io)
            }
            None => open(address, shared.local_address)
                .await
                .map(|socket| Accepted { stream: Stream::Plain(socket), identity: None }),
        };
        match connected {
            Ok(Accepted { mut stream, identity }) => {
                stream.write_all(&REGISTRY_PREAMBLE).await?;
                stream.flush().await?;
                let authenticated = node_of(identity.as_ref());
                return Ok(Connected { stream, address, authenticated, unidentified: None });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn open(address: SocketAddr, local: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket(address)?;
    if let Some(source) = source(local, address.ip()) {
        socket.bind(source)?;
    }
    socket.connect(address).await
}

/// The source address for a dial. A node that listens on one address also dials from it, so that firewalls see one
/// address per node. Returns `None` where that address has no route: from loopback to another machine, or the reverse.
fn source(mut local: SocketAddr, peer: IpAddr) -> Option<SocketAddr> {
    let leads_there = local.is_ipv4() == peer.is_ipv4() && local.ip().is_loopback() == peer.is_loopback();
    local.set_port(0);
    (!local.ip().is_unspecified() && leads_there).then_some(local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_dials_from_its_listen_address_if_that_has_a_route() {
        let from = |local: &str, peer: &str| {
            source(SocketAddr::new(local.parse().unwrap(), 7701), peer.parse().unwrap())
                .map(|source| source.ip().to_string())
        };
        assert_eq!(from("127.0.0.2", "127.0.0.3").as_deref(), Some("127.0.0.2"));
        assert_eq!(from("10.0.0.2", "10.9.0.3").as_deref(), Some("10.0.0.2"));
        assert_eq!(from("::1", "::1").as_deref(), Some("::1"));
        assert_eq!(from("0.0.0.0", "10.0.0.3"), None);
        assert_eq!(from("::", "::1"), None);
        assert_eq!(from("127.0.0.1", "10.0.0.3"), None);
        assert_eq!(from("10.0.0.2", "127.0.0.1"), None);
        assert_eq!(from("10.0.0.2", "::1"), None);
    }
}
