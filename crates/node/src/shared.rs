//! State that all parts of a node share: the channels to the event loop, the view, the timeline, counters and limits.

use crate::changes::Changes;
use crate::check_feed::CheckFeed;
use crate::client_queue::Lanes;
use crate::config::NetworkLimits;
use crate::counters::{Counting, add};
use crate::dispatch::Dispatch;
use crate::event_loop::{Input, Signal};
use crate::events::{NodeEvent, Timeline};
use crate::handle::QueueLengths;
use crate::links::{HandshakePermits, LogThrottle};
use crate::view::View;
use arc_swap::ArcSwapOption;
use convoke_core::node::StopReason;
use convoke_core::version::NodeId;
use convoke_core::{ErrorCode, Rejection, RevocationSet};
use convoke_tls::NodeTls;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The phase of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The node does not hold the whole registry yet (N3).
    Starting,
    /// The node serves clients, has reached none of its seeds, and asserts no absence (N7).
    Alone,
    Ready,
    /// Handing its clients over (N6).
    Stopping,
    Stopped(Ending),
}

/// How a node ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Stopped on request, after handover.
    Graceful,
    /// Another live process uses this node id (N4).
    IdentityConflict,
    /// Aborted, or failed because of a bug (which is logged).
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
    pub(crate) tls: Option<NodeTls>,
    pub(crate) frame_bytes: usize,
    pub(crate) session_timeout: Duration,
    /// Requests and heartbeats of clients.
    pub(crate) lanes: Lanes,
    /// Bounded: calls and watches of the application and the server.
    pub(crate) inbox: mpsc::Sender<Input>,
    /// Bounded: connections and frames of peers.
    pub(crate) peer_inbox: mpsc::Sender<Input>,
    /// Unbounded, but each connection or watch that waits or ends sends at most one signal.
    pub(crate) signals: mpsc::UnboundedSender<Signal>,
    pub(crate) view: Arc<View>,
    pub(crate) timeline: Timeline,
    pub(crate) changes: Changes,
    pub(crate) checks: CheckFeed,
    pub(crate) panic_share: f64,
    pub(crate) counting: Counting,
    pub(crate) log_throttle: LogThrottle,
    pub(crate) handshake_permits: HandshakePermits,
    pub(crate) phase: watch::Sender<Phase>,
    /// While the node is alone: the rejection of requests whose answer would assert an absence (N7).
    pub(crate) absence_unknown: ArcSwapOption<Rejection>,
    pub(crate) dispatch: Dispatch,
    /// Revoked credentials (P11).
    pub(crate) revocations: watch::Sender<Arc<RevocationSet>>,
    next: AtomicU64,
}

/// Parts of [`Shared`] that a new node provides.
#[derive(Debug)]
pub(crate) struct Sharing {
    pub(crate) config: crate::Config,
    pub(crate) local_address: SocketAddr,
    pub(crate) peer_address: String,
    pub(crate) lanes: Lanes,
    pub(crate) inbox: mpsc::Sender<Input>,
    pub(crate) peer_inbox: mpsc::Sender<Input>,
    pub(crate) signals: mpsc::UnboundedSender<Signal>,
    pub(crate) view: Arc<View>,
}

impl Shared {
    pub(crate) fn new(sharing: Sharing) -> Self {
        let Sharing { config, local_address, peer_address, lanes, inbox, peer_inbox, signals, view } = sharing;
        Shared {
            timeline: Timeline::new(config.id.to_string(), config.network.events_kept),
            changes: Changes::new(config.network.changes_kept),
            checks: CheckFeed::default(),
            panic_share: config.panic_share,
            id: config.id,
            cluster: config.cluster,
            region: config.region,
            local_address,
            peer_address,
            client_address: config.client_address,
            frame_bytes: config.limits.frame_bytes,
            session_timeout: config.timers.heartbeat_timeout,
            handshake_permits: HandshakePermits::new(config.network.unidentified_links),
            network: config.network,
            tls: config.tls,
            lanes,
            inbox,
            peer_inbox,
            signals,
            view,
            counting: Counting::default(),
            log_throttle: LogThrottle::default(),
            phase: watch::Sender::new(Phase::Starting),
            absence_unknown: ArcSwapOption::empty(),
            dispatch: Dispatch::default(),
            revocations: watch::Sender::default(),
            next: AtomicU64::new(1),
        }
    }

    /// Returns a number that was never used before, for links, connections and watches.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the lengths of the queues of the event loop.
    pub(crate) fn queue_lengths(&self) -> QueueLengths {
        let length = |queue: &mpsc::Sender<Input>| queue.max_capacity() - queue.capacity();
        QueueLengths {
            client_requests: self.lanes.waiting_requests(),
            calls: length(&self.inbox),
            peer_inputs: length(&self.peer_inbox),
            link_bytes_max: 0,
        }
    }

    /// Sends an input to the event loop, or rejects it if the queue is full.
    pub(crate) fn submit(&self, input: Input) -> Result<(), Rejection> {
        self.inbox.try_send(input).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                add(&self.counting.inbox_full, 1);
                let message = "this node is overloaded; try again later or use another node";
                Rejection::new(ErrorCode::ResourceExhausted, message).limit(self.network.inbox)
            }
            mpsc::error::TrySendError::Closed(_) => stopped(),
        })
    }

    /// Records a connection that TLS refused. Its counters are those of [`NodeTls`].
    pub(crate) fn refused(&self, address: SocketAddr, why: &str) {
        if self.log_throttle.is_new(&format!("tls {}", address.ip())) {
            self.timeline.record(NodeEvent::Malformed { address: address.to_string(), what: why.to_owned() });
        }
    }

    /// Records a connection that does not belong to a peer.
    pub(crate) fn malformed(&self, address: SocketAddr, what: &str) {
        add(&self.counting.connections_malformed, 1);
        if self.log_throttle.is_new(&address.ip().to_string()) {
            self.timeline.record(NodeEvent::Malformed { address: address.to_string(), what: what.to_owned() });
        }
    }
}

pub(crate) fn starting() -> Rejection {
    Rejection::new(ErrorCode::NotReady, "this node has not received the registry yet; try another node")
}

pub(crate) fn stopped() -> Rejection {
    Rejection::new(ErrorCode::NotReady, "this node has stopped; use another node")
}
