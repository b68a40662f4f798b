//! Start of a node.

use crate::client_queue::Lanes;
use crate::config::Config;
use crate::disk::DataDir;
use crate::dispatch::Inbound;
use crate::error::StartError;
use crate::event_loop::{EventLoop, Inputs, Launch};
use crate::handle::NodeHandle;
use crate::links::{self, Acceptor};
use crate::random;
use crate::shared::{Ending, Phase, Shared, Sharing};
use crate::view::{Publisher, View};
use convoke_base::framing::Preamble;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Peer connections that may wait to be accepted.
const LISTEN_BACKLOG: u32 = 1_024;

/// A node on the network. Dropping it aborts it; [`NodeHandle::stop`] stops it gracefully.
#[derive(Debug)]
pub struct Node {
    handle: NodeHandle,
}

impl Node {
    /// Starts a node in the current tokio runtime. Peers can reach it when this returns. It is ready once it holds the
    /// whole registry: see [`NodeHandle::ready`].
    pub async fn start(config: Config) -> Result<Node, StartError> {
        Ok(Node::prepare(config).await?.begin())
    }

    /// Binds the port and opens the data directory, and announces the node to nobody yet. A process that fails to open
    /// something else leaves no trace in the registry then (P2).
    pub async fn prepare(config: Config) -> Result<PreparedNode, StartError> {
        config.validate()?;
        let (nonce, hash_seed, random_seed) = (random::number()?, random::number()?, random::number()?);
        let data_dir = config.data_dir.as_deref().map(|path| DataDir::open(path, &config.id)).transpose()?;
        let listener = bind(&config.bind).await?;
        let local_address = listener.local_addr().map_err(bind_error(&config.bind))?;
        let peer_address = config.peer_address(local_address)?;
        let core_config = config.core(&peer_address, hash_seed, random_seed);
        let (lanes, heartbeats, requests) = Lanes::new();
        let (inbox, inbox_end) = mpsc::channel(config.network.inbox);
        let (peer_inbox, peer_inbox_end) = mpsc::channel(config.network.inbox);
        #[allow(
            clippy::disallowed_methods,
            reason = "each connection or watch that waits or ends sends at most one signal"
        )]
        let (signals, signals_end) = mpsc::unbounded_channel();
        let view = Arc::new(View::new(hash_seed.rotate_left(32)));
        let publisher = Publisher::new(view.clone(), hash_seed.rotate_left(16));
        let sharing = Sharing { config, local_address, peer_address, lanes, inbox, peer_inbox, signals, view };
        let shared = Arc::new(Shared::new(sharing));
        let owner = EventLoop::launch(Launch {
            core_config,
            shared: shared.clone(),
            inputs: Inputs { heartbeats, requests, peers: peer_inbox_end, calls: inbox_end },
            signals: signals_end,
            publisher,
            data_dir: data_dir.map(Arc::new),
            nonce,
        })?;
        Ok(PreparedNode { owner, listener, shared })
    }

    pub fn handle(&self) -> NodeHandle {
        self.handle.clone()
    }
}

/// A node that listens, and has not announced itself: see [`Node::prepare`].
#[derive(Debug)]
pub struct PreparedNode {
    owner: EventLoop,
    listener: TcpListener,
    shared: Arc<Shared>,
}

impl PreparedNode {
    /// The address that other nodes dial.
    pub fn peer_address(&self) -> &str {
        &self.shared.peer_address
    }

    pub fn client_address(&self) -> &str {
        &self.shared.client_address
    }

    /// Returns the receiver of future connections of another plane: see [`NodeHandle::connections`].
    pub fn connections(&self, preamble: Preamble) -> mpsc::Receiver<Inbound> {
        self.shared.dispatch.receive(preamble)
    }

    /// Starts the node in the current tokio runtime.
    pub fn begin(self) -> Node {
        let PreparedNode { mut owner, listener, shared } = self;
        owner.begin();
        let accepting = tokio::spawn(Acceptor::new(listener, shared.clone()).run());
        let owning = tokio::spawn(owner.run());
        let handle = NodeHandle { shared: shared.clone(), owner: owning.abort_handle() };
        tokio::spawn(conclude(owning, accepting, shared));
        Node { handle }
    }
}

impl Deref for Node {
    type Target = NodeHandle;

    fn deref(&self) -> &NodeHandle {
        &self.handle
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// Publishes the end of the node once its port and data directory can be used again.
async fn conclude(owning: JoinHandle<Ending>, accepting: JoinHandle<()>, shared: Arc<Shared>) {
    let ending = owning.await.unwrap_or_else(|error| {
        if error.is_panic() {
            tracing::error!(node = %shared.id, %error, "node failed because of a bug");
        }
        Ending::Aborted
    });
    accepting.abort();
    let _ = accepting.await;
    shared.phase.send_replace(Phase::Stopped(ending));
}

async fn bind(address: &str) -> Result<TcpListener, StartError> {
    let listen = async || {
        let mut last = io::ErrorKind::AddrNotAvailable.into();
        for address in tokio::net::lookup_host(address).await? {
            match listen(address) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    listen().await.map_err(bind_error(address))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = links::socket(address)?;
    // A restarted node can bind its port although old connections are in TIME_WAIT.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(LISTEN_BACKLOG)
}

fn bind_error(address: &str) -> impl FnOnce(io::Error) -> StartError {
    let address = address.to_owned();
    move |source| StartError::Bind { address, source }
}
