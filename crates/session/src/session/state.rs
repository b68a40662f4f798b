//! The state of a session and the effects for its shell.

use crate::{ConnectionState, Error, Update};
use convoke_proto::json::{Liveness, MemberSpec};
use convoke_proto::{ErrorCode, v1};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time since the client was built.
pub type ClientTime = Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegistrationId(pub u64);

/// The identity of the client (C2).
#[derive(Clone, Debug)]
pub struct ClientIdentity {
    pub client: String,
    pub nonce: u64,
    pub liveness: Liveness,
    pub timeout: Option<Duration>,
}

/// An effect that the shell must perform.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Connect, with or without an attach stream.
    Connect {
        connection: ConnectionId,
        address: String,
        attach: bool,
    },
    Disconnect {
        connection: ConnectionId,
    },
    Send {
        connection: ConnectionId,
        message: v1::ClientMessage,
    },
    State(ConnectionState),
    /// An operation is answered. The version is the one after it, or empty after an unregistration.
    Done {
        operation: OperationId,
        result: Result<String, Error>,
    },
    Versioned {
        registration: RegistrationId,
        version: String,
    },
    /// The registration ended, and not at the request of the application.
    Ended {
        registration: RegistrationId,
        error: Error,
    },
    /// Closed: all members are unregistered.
    Closed {
        /// False if only one node is known to have the unregistrations (C18).
        replicated: bool,
    },
}

pub type Effects = Vec<Effect>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for the next attempt to connect.
    Waiting {
        until: ClientTime,
    },
    Connecting {
        connection: ConnectionId,
        until: ClientTime,
    },
    /// The attach was sent.
    Attaching {
        connection: ConnectionId,
        sent: ClientTime,
        until: ClientTime,
    },
    Attached {
        connection: ConnectionId,
    },
    /// The close was sent.
    Closing {
        connection: ConnectionId,
        until: ClientTime,
    },
    Observing {
        connection: ConnectionId,
    },
    Closed,
}

impl Phase {
    pub(super) fn connection(self) -> Option<ConnectionId> {
        match self {
            Phase::Connecting { connection, .. }
            | Phase::Attaching { connection, .. }
            | Phase::Attached { connection }
            | Phase::Closing { connection, .. }
            | Phase::Observing { connection } => Some(connection),
            Phase::Waiting { .. } | Phase::Closed => None,
        }
    }
}

/// A member that the application wants registered.
#[derive(Clone, Debug)]
pub(super) struct Holding {
    pub(super) registration: RegistrationId,
    /// The wanted state: includes every unconditional update, acknowledged or not.
    pub(super) spec: MemberSpec,
    pub(super) takeover: bool,
    /// The last acknowledged metadata; `None` if the application does not have its registration yet.
    pub(super) confirmed: Option<BTreeMap<String, String>>,
    /// Version of the last acknowledged write in the current session.
    pub(super) version: Option<String>,
    /// A node may have received it.
    pub(super) sent: bool,
}

/// A member that was unregistered, not yet acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone {
    /// A node has acknowledged the registration before, so the id is certainly valid.
    pub(super) confirmed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// Id of the member.
    pub(super) id: String,
    pub(super) registration: RegistrationId,
    pub(super) kind: Kind,
    /// Sequence number of the request in flight.
    pub(super) seq: Option<u64>,
    /// The pending attach includes this operation.
    pub(super) covered: bool,
    /// A node may have received it.
    pub(super) sent: bool,
    /// No caller waits for the answer, or not any more.
    pub(super) answered: bool,
    pub(super) deadline: Option<ClientTime>,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// Contains the metadata that was sent.
    Register {
        metadata: BTreeMap<String, String>,
    },
    Update(Update),
    Unregister,
}

impl Operation {
    /// A conditional update cannot be repeated: the version it expects may have been replaced by its own first
    /// execution.
    pub(super) fn is_conditional(&self) -> bool {
        matches!(&self.kind, Kind::Update(update) if update.if_version.is_some())
    }
}

/// The members that the next attach names.
///
/// After a rejection because of something that it named, the next attach names less. The rest is requested one by one,
/// so that each operation gets its own answer and one invalid member does not block the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AttachScope {
    Everything,
    /// Only members that were accepted before, unchanged.
    AcceptedMembers,
    /// In addition, only unregistered ids that were certainly registered.
    AcceptedIds,
}

/// The members named by the pending attach, and the parts of its answer so far.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingAttach {
    pub(super) members: BTreeMap<String, (RegistrationId, BTreeMap<String, String>)>,
    pub(super) unregistered: BTreeSet<String>,
    pub(super) versions: Vec<v1::Versioned>,
    pub(super) rejected: Vec<v1::RejectedMember>,
}

/// The fate of an operation whose caller no longer waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    TakenBack,
    OutcomeUnknown,
}

pub fn not_sent_in_time() -> Error {
    Error::new(ErrorCode::Timeout, "no node was reachable in time; nothing was sent")
}
