//! Accepting peers. The number of unidentified connections and the time they may take are limited.

use super::{Connected, REGISTRY_PREAMBLE, send_input};
use crate::counters::add;
use crate::dispatch::Inbound;
use crate::event_loop::Input;
use crate::shared::Shared;
use convoke_base::framing::{PREAMBLE_PREFIX, Preamble};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

/// Pause after a failed accept, for example when file descriptors run out.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

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
                    let Some(permit) = self.shared.places.enter(address.ip()) else {
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
async fn read_preamble(mut stream: TcpStream, address: SocketAddr, permit: OwnedSemaphorePermit, shared: Arc<Shared>) {
    let mut preamble = Preamble::default();
    let read = stream.read_exact(&mut preamble);
    match tokio::time::timeout(shared.network.handshake_timeout, read).await {
        Err(_) => add(&shared.counting.handshakes_timed_out, 1),
        // A port scan or health check: the connection ended without a preamble.
        Ok(Err(_)) => {}
        Ok(Ok(_)) if preamble == REGISTRY_PREAMBLE => {
            let connected = Connected { stream, address, unidentified: Some(permit) };
            send_input(&shared, Input::Accepted(Box::new(connected))).await;
        }
        Ok(Ok(_)) if preamble.starts_with(PREAMBLE_PREFIX) => {
            let dispatched = shared.dispatch.send(preamble, Inbound { stream, address });
            let counting = &shared.counting;
            add(if dispatched { &counting.connections_dispatched } else { &counting.connections_undispatched }, 1);
        }
        Ok(Ok(_)) => shared.garbage(address, "it does not use the peer protocol"),
    }
}
