//! What reaches the event loop.

use super::EventLoop;
use crate::connection::{ClientOperation, OperationResult, Outbox};
use crate::links::Connected;
use crate::watch::{StreamId, WatchHandle};
use bytes::Bytes;
use convoke_core::node::{ConnId, DialId, Interest, LinkId, Resume, SessionId};
use convoke_core::{Rejection, Time};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Returns what is to be said once the turn's changes are published.
pub(crate) type Call = Box<dyn FnOnce(&mut EventLoop, Time) -> Box<dyn FnOnce() + Send> + Send>;

pub(crate) enum Input {
    /// A peer connected.
    Accepted(Box<Connected>),
    Dialed {
        run: u64,
        dial: DialId,
        connected: Box<Connected>,
    },
    DialFailed {
        run: u64,
        dial: DialId,
    },
    Frames(Frames),
    /// A peer's connection ended.
    Closed {
        link: LinkId,
    },
    Connect {
        conn: ConnId,
        outbox: Outbox,
    },
    Operations(Operations),
    Heartbeat {
        conn: ConnId,
        session: SessionId,
        /// To be brought back by the answer, if one is wanted.
        echo: Option<u64>,
    },
    Watch(Box<WatchRequest>),
    Call(Call),
    Stop,
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Input::Accepted(_) => "Accepted",
            Input::Dialed { .. } => "Dialed",
            Input::DialFailed { .. } => "DialFailed",
            Input::Frames(_) => "Frames",
            Input::Closed { .. } => "Closed",
            Input::Connect { .. } => "Connect",
            Input::Operations(_) => "Operations",
            Input::Heartbeat { .. } => "Heartbeat",
            Input::Watch(_) => "Watch",
            Input::Call(_) => "Call",
            Input::Stop => "Stop",
        })
    }
}

/// What was read from a peer at once.
#[derive(Debug)]
pub(crate) struct Frames {
    pub(crate) link: LinkId,
    pub(crate) frames: Vec<Bytes>,
    /// Given back when the frames have been handled.
    pub(crate) _room: OwnedSemaphorePermit,
    /// With the first frame the peer has said who it is.
    pub(crate) _unidentified: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
pub(crate) struct Operations {
    pub(crate) conn: ConnId,
    pub(crate) operations: Vec<ClientOperation>,
    pub(crate) reply: ReplyTo,
}

#[derive(Debug)]
pub(crate) enum ReplyTo {
    Outbox,
    Once(oneshot::Sender<Vec<OperationResult>>),
}

#[derive(Debug)]
pub(crate) struct WatchRequest {
    pub(crate) interest: Interest,
    pub(crate) resume: Resume,
    /// A mark whenever everything has been told.
    pub(crate) eager_marks: bool,
    pub(crate) reply: oneshot::Sender<Result<WatchHandle, Rejection>>,
}

/// Said by whoever waits or ends; see [`crate::shared::Shared::signals`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    Disconnected(ConnId),
    /// The reader of a watch has taken its batch and wants more.
    Wanted(StreamId),
    Unwatchd(StreamId),
}
