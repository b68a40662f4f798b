//! Accepting peers: a bounded number of them may be undecided, for a bounded time.

use super::{Connected, framing, tell};
use crate::counters::add;
use crate::owner::Input;
use crate::shared::Shared;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// Pause after the system could not accept, for example for want of file descriptors.
const TROUBLE_PAUSE: Duration = Duration::from_millis(100);

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
        let undecided = Arc::new(Semaphore::new(self.shared.network.unidentified_links));
        let mut waiting = JoinSet::new();
        loop {
            while waiting.try_join_next().is_some() {}
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let Ok(permit) = undecided.clone().try_acquire_owned() else {
                        add(&self.shared.counting.links_unidentified_rejected, 1);
                        continue;
                    };
                    add(&self.shared.counting.links_accepted, 1);
                    waiting.spawn(welcome(stream, address, permit, self.shared.clone()));
                }
                Err(error) => {
                    tracing::warn!(node = %self.shared.id, "cannot accept a peer: {error}");
                    tokio::time::sleep(TROUBLE_PAUSE).await;
                }
            }
        }
    }
}

/// Waits for the first bytes; they tell a peer from anything else that may have found this port.
async fn welcome(mut stream: TcpStream, address: SocketAddr, permit: OwnedSemaphorePermit, shared: Arc<Shared>) {
    let mut preamble = [0; framing::PREAMBLE.len()];
    let read = stream.read_exact(&mut preamble);
    match tokio::time::timeout(shared.network.handshake_timeout, read).await {
        Err(_) => add(&shared.counting.handshakes_timed_out, 1),
        // Somebody looked whether the port is open.
        Ok(Err(_)) => {}
        Ok(Ok(_)) if preamble == framing::LOG_PREAMBLE => shared.hand_over(stream, address),
        Ok(Ok(_)) if preamble != framing::PREAMBLE => shared.garbage(address, "does not speak the peer protocol"),
        Ok(Ok(_)) => {
            let connected = Connected { stream, address, unidentified: Some(permit) };
            tell(&shared, Input::Accepted(Box::new(connected))).await;
        }
    }
}
