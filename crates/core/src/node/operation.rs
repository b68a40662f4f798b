//! The operations of clients as values, for callers that queue them.

use super::{Attach, AttachMember, Attached, ConnId, Node, Output, Reattach, SessionId};
use crate::error::Rejection;
use crate::member::MetadataUpdate;
use crate::time::Time;
use crate::version::Version;
use std::sync::Arc;

/// An operation of a client. The client numbers the requests of a session; a number at or below the last one is
/// rejected (C5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientOperation {
    Attach(Box<Attach>),
    /// Re-attaches a client that keeps no state: the registry provides its members (C8).
    Reattach(Box<Reattach>),
    Register {
        session: SessionId,
        seq: u64,
        /// Shared, so that a caller that may submit it again keeps it without a copy.
        member: Arc<AttachMember>,
    },
    /// With `expected`: applies only if the member still has that version.
    Update {
        session: SessionId,
        seq: u64,
        id: String,
        update: Arc<MetadataUpdate>,
        expected: Option<Version>,
    },
    Unregister {
        session: SessionId,
        seq: u64,
        id: String,
    },
    Heartbeat {
        session: SessionId,
    },
    /// Clean close: all members of the session are unregistered at once.
    Close {
        session: SessionId,
    },
    /// An operation with the number that the client gave to its request (C10).
    Numbered {
        request: u64,
        operation: Box<ClientOperation>,
    },
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationResult {
    Attached(Result<Attached, Rejection>),
    /// The answer to `Register` and `Update`: the member's new version.
    Written(Result<Version, Rejection>),
    /// The answer to `Unregister` and `Close`: the number of the node's last write, which includes them (C13).
    Unregistered(Result<u64, Rejection>),
    /// The answer to `Heartbeat`.
    Heartbeat(Result<(), Rejection>),
}

impl ClientOperation {
    /// Returns the result of an operation that is not executed.
    pub fn rejected(&self, rejection: Rejection) -> OperationResult {
        match self {
            ClientOperation::Attach(_) | ClientOperation::Reattach(_) => OperationResult::Attached(Err(rejection)),
            ClientOperation::Register { .. } | ClientOperation::Update { .. } => {
                OperationResult::Written(Err(rejection))
            }
            ClientOperation::Unregister { .. } | ClientOperation::Close { .. } => {
                OperationResult::Unregistered(Err(rejection))
            }
            ClientOperation::Heartbeat { .. } => OperationResult::Heartbeat(Err(rejection)),
            ClientOperation::Numbered { operation, .. } => operation.rejected(rejection),
        }
    }
}

impl Node {
    /// Executes an operation that was received on a connection.
    pub fn execute(
        &mut self,
        now: Time,
        conn: ConnId,
        operation: &ClientOperation,
        out: &mut Output,
    ) -> OperationResult {
        match operation {
            ClientOperation::Attach(attach) => OperationResult::Attached(self.attach(now, conn, attach, out)),
            ClientOperation::Reattach(reattach) => OperationResult::Attached(self.reattach(now, conn, reattach, out)),
            ClientOperation::Register { session, seq, member } => {
                OperationResult::Written(self.register(now, *session, *seq, member, out))
            }
            ClientOperation::Update { session, seq, id, update, expected } => {
                OperationResult::Written(self.update(now, *session, *seq, id, update, *expected, out))
            }
            ClientOperation::Unregister { session, seq, id } => {
                let result = self.unregister(now, *session, *seq, id, out);
                OperationResult::Unregistered(result.map(|()| self.written()))
            }
            ClientOperation::Heartbeat { session } => OperationResult::Heartbeat(self.heartbeat(now, *session, out)),
            ClientOperation::Close { session } => {
                let result = self.close_session(now, *session, out);
                OperationResult::Unregistered(result.map(|()| self.written()))
            }
            ClientOperation::Numbered { request, operation } => {
                self.numbered(*request, |node| node.execute(now, conn, operation, out))
            }
        }
    }
}
