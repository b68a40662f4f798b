//! Connections to peers: accepting, dialling, reading and writing frames (P7). This module handles bytes and limits; it
//! must not interpret messages.

mod accept;
mod dial;
mod handshake_permits;
mod log_throttle;
mod reader;
mod writer;

pub(crate) use accept::Acceptor;
pub(crate) use dial::dial;
pub(crate) use handshake_permits::HandshakePermits;
pub(crate) use log_throttle::LogThrottle;
pub(crate) use reader::Reading;
pub(crate) use writer::{Full, Queue};

use crate::event_loop::Input;
use crate::shared::Shared;
use convoke_base::framing::Preamble;
use convoke_core::node::LinkId;
use convoke_core::version::NodeId;
use convoke_tls::{Identity, Stream};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

/// Kernel buffers for received and unsent bytes of a peer. They are small, so that pings do not wait behind much data
/// and slow peers are detected. The receive buffer also limits throughput: 5 MB/s at a round-trip time of 100 ms.
const RECEIVE_BUFFER_BYTES: u32 = 512 * 1024;
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 64 * 1024;

/// Identifies connections between nodes of the registry.
const REGISTRY_PREAMBLE: Preamble = *b"CONVOKER";

/// A connection that is ready to carry frames.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) stream: Stream,
    pub(crate) address: SocketAddr,
    /// Node that the certificate of the connection names; `None` without TLS.
    pub(crate) authenticated: Option<NodeId>,
    /// Held by inbound connections until the handshake is complete.
    pub(crate) unidentified: Option<OwnedSemaphorePermit>,
}

/// A link as the event loop holds it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) queue: Arc<Queue>,
    pub(crate) address: SocketAddr,
}

impl Link {
    /// Starts the reader and the writer. Frames and the end of the connection go to the inbox.
    pub(crate) fn open(id: LinkId, connected: Connected, shared: &Arc<Shared>, tasks: &mut LinkTasks) -> Self {
        let Connected { stream, address, unidentified, .. } = connected;
        let queue = Arc::new(Queue::new(shared.network.link_queue_bytes));
        prepare(stream.socket());
        let (read, write) = stream.into_split();
        let reading = Reading { id, address, unidentified, queue: queue.clone(), shared: shared.clone() };
        tasks.readers.spawn(reader::read(read, reading));
        tasks.writers.spawn(writer::write(write, id, queue.clone(), shared.clone()));
        Link { queue, address }
    }
}

/// The tasks of all links. Dropping them ends every connection immediately.
#[derive(Debug, Default)]
pub(crate) struct LinkTasks {
    pub(crate) readers: JoinSet<()>,
    pub(crate) writers: JoinSet<()>,
}

impl LinkTasks {
    /// Removes tasks that have ended.
    pub(crate) fn reap(&mut self) {
        while self.readers.try_join_next().is_some() {}
        while self.writers.try_join_next().is_some() {}
    }
}

/// Creates a socket with the receive buffer of peer connections. Accepted connections inherit it from the listener.
pub(crate) fn socket(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    Ok(socket)
}

/// Disables Nagle's algorithm and limits unsent bytes in the kernel. Errors are ignored: both are optimisations.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES);
}

/// Returns the node that a certificate names. The handshake has checked its cluster and role, and an id that is not valid
/// is that of no node.
fn node_of(identity: Option<&Identity>) -> Option<NodeId> {
    identity.and_then(|identity| NodeId::new(&identity.name).ok())
}

/// Sends an input to the event loop. Returns false if the event loop has ended.
async fn send_input(shared: &Shared, input: Input) -> bool {
    shared.peer_inbox.send(input).await.is_ok()
}
