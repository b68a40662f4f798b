//! Other planes on the peer port: connections that begin with their preamble are passed on unread.

use convoke_base::framing::Preamble;
use convoke_tls::{Identity, Stream};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc;

/// Connections of one plane that may wait.
const WAITING_MAX: usize = 64;

/// An inbound connection of another plane. Its preamble has been read.
#[derive(Debug)]
pub struct Inbound {
    pub stream: Stream,
    /// What the certificate of the connection names: a node of this cluster. `None` without TLS.
    pub identity: Option<Identity>,
    pub address: SocketAddr,
    /// Whether a peer of the registry was connected from or at this IP address before. Places can be reserved for such
    /// connections.
    pub known: bool,
}

/// The receivers of connections, by preamble.
#[derive(Debug, Default)]
pub(crate) struct Dispatch {
    planes: Mutex<BTreeMap<Preamble, mpsc::Sender<Inbound>>>,
}

impl Dispatch {
    /// Returns the receiver of all future connections with this preamble.
    pub(crate) fn receive(&self, preamble: Preamble) -> mpsc::Receiver<Inbound> {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        self.planes.lock().unwrap_or_else(PoisonError::into_inner).insert(preamble, sender);
        receiver
    }

    /// Passes a connection on. Closes it and returns false if the preamble has no receiver, or if its queue is full.
    pub(crate) fn send(&self, preamble: Preamble, connection: Inbound) -> bool {
        let receiver = self.planes.lock().unwrap_or_else(PoisonError::into_inner).get(&preamble).cloned();
        receiver.is_some_and(|receiver| receiver.try_send(connection).is_ok())
    }
}
