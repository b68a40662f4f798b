//! Inputs of the event loop.

use super::EventLoop;
use crate::links::Connected;
use crate::watch::{StreamId, WatchHandle};
use bytes::Bytes;
use convoke_core::node::{
    ClientOperation, ConnId, DialId, LinkId, OperationResult, Resume, SeedFailure, WatchSelection,
};
use convoke_core::version::Dot;
use convoke_core::{Rejection, Time};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Returns a function that sends the reply once the turn's changes are published.
pub(crate) type Call = Box<dyn FnOnce(&mut EventLoop, Time) -> Box<dyn FnOnce() + Send> + Send>;

/// An input of a peer or of the application. Requests of clients have queues of their own: see [`crate::client_queue`].
pub(crate) enum Input {
    /// A peer connected.
    Accepted(Box<Connected>),
    Dialled {
        generation: u64,
        dial: DialId,
        /// The number of addresses that the name led to.
        addresses: usize,
        connected: Box<Connected>,
    },
    DialFailed {
        generation: u64,
        dial: DialId,
        failure: SeedFailure,
    },
    Frames(Frames),
    /// A peer's connection ended.
    Closed {
        link: LinkId,
        /// The failure that counts if the link was the dial of a seed.
        failure: SeedFailure,
    },
    Watch(Box<WatchRequest>),
    Call(Call),
    Stop,
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Input::Accepted(_) => "Accepted",
            Input::Dialled { .. } => "Dialled",
            Input::DialFailed { .. } => "DialFailed",
            Input::Frames(_) => "Frames",
            Input::Closed { .. } => "Closed",
            Input::Watch(_) => "Watch",
            Input::Call(_) => "Call",
            Input::Stop => "Stop",
        })
    }
}

/// Frames that were read from a peer at once.
#[derive(Debug)]
pub(crate) struct Frames {
    pub(crate) link: LinkId,
    pub(crate) frames: Vec<Bytes>,
    /// Released when the frames have been handled.
    pub(crate) _room: OwnedSemaphorePermit,
    /// Released with the first frame, which identifies the peer.
    pub(crate) _unidentified: Option<OwnedSemaphorePermit>,
}

/// A batch of operations of a client.
#[derive(Debug)]
pub(crate) struct Operations {
    pub(crate) operations: Vec<ClientOperation>,
    pub(crate) reply: ReplyTo,
}

#[derive(Debug)]
pub(crate) enum ReplyTo {
    Outbox,
    Once(oneshot::Sender<Vec<OperationResult>>),
    /// Answered once another node has the writes, or after a short time (C12).
    Replicated(oneshot::Sender<Executed>),
}

/// Executed operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// One result for each operation.
    pub results: Vec<OperationResult>,
    /// The last write of this node. A node that has received it has the writes of these operations.
    pub last_write: Dot,
    /// Another ready node has received it.
    pub replicated: bool,
}

#[derive(Debug)]
pub(crate) struct WatchRequest {
    pub(crate) interest: WatchSelection,
    pub(crate) resume: Resume,
    /// Send a mark after every batch.
    pub(crate) eager_marks: bool,
    pub(crate) reply: oneshot::Sender<Result<WatchHandle, Rejection>>,
}

/// Sent by a connection or watch that waits or ends; see [`crate::shared::Shared::signals`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    Disconnected(ConnId),
    /// The reader of a watch has taken its batch and requests more.
    MoreRequested(StreamId),
    Unwatched(StreamId),
}
