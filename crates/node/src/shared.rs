//! What all parts of a node share: the way to the owner task, the view, the timeline, counts and bounds.

use crate::changes::Changes;
use crate::config::NetworkLimits;
use crate::counters::{Counting, add};
use crate::events::{Happening, Timeline};
use crate::links::Quiet;
use crate::owner::{Input, Signal};
use crate::view::View;
use convoke_core::node::StopReason;
use convoke_core::version::NodeId;
use convoke_core::{Code, Refusal};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

/// Connections that may wait for the log plane to take them.
const LOG_CONNECTIONS_WAITING: usize = 64;

/// A connection that began with the log plane's preamble, which has been read.
#[derive(Debug)]
pub struct LogConnection {
    pub stream: TcpStream,
    pub address: SocketAddr,
}

/// Where a node is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not yet sure to hold the whole registry (N3).
    Starting,
    Ready,
    /// Handing its clients over (N6).
    Stopping,
    Stopped(Ending),
}

/// Why a node is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Stopped as asked, after handing over.
    Graceful,
    /// Another live process uses this node id (N4).
    IdentityConflict,
    /// Aborted, or failed because of a bug; then the log says so.
    Aborted,
}

impl From<StopReason> for Ending {
    fn from(reason: StopReason) -> Self {
        match reason {
            StopReason::Graceful => Ending::Graceful,
            StopReason::IdentityConflict => Ending::IdentityConflict,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: NodeId,
    pub(crate) cluster: String,
    pub(crate) region: String,
    pub(crate) local_address: SocketAddr,
    pub(crate) peer_address: String,
    pub(crate) client_address: String,
    pub(crate) network: NetworkLimits,
    pub(crate) frame_bytes: usize,
    /// Bounded; the one way to the owner task.
    pub(crate) inbox: mpsc::Sender<Input>,
    /// Said at most once by each connection or subscription that waits or ends, and so bounded by their number.
    pub(crate) signals: mpsc::UnboundedSender<Signal>,
    pub(crate) view: Arc<View>,
    pub(crate) timeline: Timeline,
    pub(crate) changes: Changes,
    pub(crate) counting: Counting,
    pub(crate) quiet: Quiet,
    pub(crate) phase: watch::Sender<Phase>,
    /// Who takes connections of the log plane.
    log: Mutex<Option<mpsc::Sender<LogConnection>>>,
    next: AtomicU64,
}

/// What a new node shares.
#[derive(Debug)]
pub(crate) struct Sharing {
    pub(crate) config: crate::Config,
    pub(crate) local_address: SocketAddr,
    pub(crate) peer_address: String,
    pub(crate) inbox: mpsc::Sender<Input>,
    pub(crate) signals: mpsc::UnboundedSender<Signal>,
    pub(crate) view: Arc<View>,
}

impl Shared {
    pub(crate) fn new(sharing: Sharing) -> Self {
        let Sharing { config, local_address, peer_address, inbox, signals, view } = sharing;
        Shared {
            timeline: Timeline::new(config.id.to_string(), config.network.events_kept),
            changes: Changes::new(config.network.changes_kept),
            id: config.id,
            cluster: config.cluster,
            region: config.region,
            local_address,
            peer_address,
            client_address: config.client_address,
            frame_bytes: config.limits.frame_bytes,
            network: config.network,
            inbox,
            signals,
            view,
            counting: Counting::default(),
            quiet: Quiet::default(),
            phase: watch::Sender::new(Phase::Starting),
            log: Mutex::default(),
            next: AtomicU64::new(1),
        }
    }

    /// A number that was never used before: for links, connections and subscriptions.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands something to the owner task, or refuses because too much is waiting already.
    pub(crate) fn submit(&self, input: Input) -> Result<(), Refusal> {
        self.inbox.try_send(input).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                add(&self.counting.inbox_full, 1);
                let message = "this node is busy; try again in a moment, or another node";
                Refusal::new(Code::ResourceExhausted, message).limit(self.network.inbox)
            }
            mpsc::error::TrySendError::Closed(_) => stopped(),
        })
    }

    /// Sends connections of the log plane somewhere else from now on.
    pub(crate) fn log_connections(&self) -> mpsc::Receiver<LogConnection> {
        let (sender, receiver) = mpsc::channel(LOG_CONNECTIONS_WAITING);
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }

    /// A connection of the log plane. Without one, or if it does not keep up, the connection is closed.
    pub(crate) fn hand_over(&self, stream: TcpStream, address: SocketAddr) {
        let taker = self.log.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let taken = taker.is_some_and(|taker| taker.try_send(LogConnection { stream, address }).is_ok());
        add(if taken { &self.counting.log_connections } else { &self.counting.log_connections_rejected }, 1);
    }

    /// A connection turned out not to be a peer's.
    pub(crate) fn garbage(&self, address: SocketAddr, what: &str) {
        add(&self.counting.connections_malformed, 1);
        if self.quiet.is_new(&address.ip().to_string()) {
            self.timeline.record(Happening::Garbage { address: address.to_string(), what: what.to_owned() });
        }
    }
}

pub(crate) fn stopped() -> Refusal {
    Refusal::new(Code::NotReady, "this node has stopped; use another")
}
