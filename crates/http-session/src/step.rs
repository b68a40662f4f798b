//! What [`RequestFlow`](crate::RequestFlow) asks of its caller, and how it answers.

use convoke_core::node::{ClientOperation, Reattach, SessionOwner};
use convoke_core::version::{Dot, NodeId, OriginId, Version};
use convoke_core::{Rejection, Time};
use std::time::Duration;

/// Claims are raised by a random number up to this. Two nodes that attach one session at once then make different
/// claims, and one of them wins all members.
const RAISE_MAX: u64 = 64;
/// HTTP status of a node that does not accept clients.
const SERVICE_UNAVAILABLE: u16 = 503;

/// The next action of the caller. Each step names the function that takes its result.
///
/// If the caller cannot carry out a step, it continues with `RequestFlow::failed`.
#[derive(Debug)]
pub enum Step {
    /// Find the entry of the session, or make it if `make` is set, and lock it.
    /// Report its notices, then continue with `RequestFlow::entered`, or with `RequestFlow::absent`.
    Enter { make: bool },
    /// Lock the entry that was entered last again, even if it was removed from the table.
    /// Report its notices, then continue with `RequestFlow::entered`.
    Reenter,
    /// Keep the entry locked and attach the session on a new connection. Continue with `RequestFlow::attached`.
    Attach(Attaching),
    /// Submit the calls in this order in one turn of the core, then unlock the entry. Wait until a write is replicated.
    /// Continue with `RequestFlow::answered`.
    Submit([Option<ClientOperation>; 2]),
    /// Unlock the entry, and ask the core for these writes. Continue with `RequestFlow::searched`.
    Search { dots: Vec<Dot>, search: Option<u64> },
    /// Ask the core which other node owns the members of the session. Continue with `RequestFlow::owner`.
    AskOwner { client: String, nonce: u64, creator: OriginId },
    /// Send the request to this node, marked as forwarded. Continue with `RequestFlow::forwarded`.
    Forward { owner: SessionOwner, deadline: Time },
    /// Wait, then continue with `RequestFlow::waited`.
    Wait { until: Time },
    /// Return the answer of the other node to the client.
    Relay,
    /// Unlock the entry, remove it from the table if `remove` is set, and answer.
    Finish { result: Result<SessionAnswer, SessionError>, remove: bool },
}

/// A session to be attached.
#[derive(Debug)]
pub struct Attaching {
    pub(crate) reattach: Reattach,
}

impl Attaching {
    /// Returns the call of the core.
    pub fn with(self, random: u64) -> Reattach {
        Reattach { raise: 1 + random % RAISE_MAX, ..self.reattach }
    }
}

/// Result of forwarding a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarded {
    Answered,
    /// The node does not accept clients any more.
    Declined,
    /// The node did not receive the request.
    Unreached,
    /// The node may have executed the request.
    Unanswered,
}

impl Forwarded {
    /// Returns the result for an answer with this HTTP status.
    pub fn with_status(status: u16) -> Self {
        if status == SERVICE_UNAVAILABLE { Forwarded::Declined } else { Forwarded::Answered }
    }
}

/// The answer to a request that was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionAnswer {
    pub reply: SessionReply,
    /// Another ready node has the write (C12).
    pub replicated: bool,
    /// Members that the session lost: other clients took them over, or they expired at another node (C20).
    pub taken_over: Vec<String>,
    pub heartbeat_interval: Duration,
    pub timeout: Duration,
    /// The members of the session, if it was attached for this request.
    pub members: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionReply {
    Written(Version),
    Done,
}

/// The failure of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionError {
    /// No node has changed anything because of the request.
    Rejected(Rejection),
    /// The node that holds the session received the request and did not answer.
    OutcomeUnknown { node: NodeId },
    /// Writes that the client knows are lost. The request was not executed, and the session has these members (C17).
    WritesLost { members: Vec<(String, Version)> },
}
