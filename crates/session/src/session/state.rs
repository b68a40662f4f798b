//! What a session remembers, and what it asks of its shell.

use crate::{ConnectionState, Error, Update};
use convoke_proto::json::{Liveness, MemberSpec};
use convoke_proto::{ErrorCode, v1};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time since the client was built.
pub type Time = Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegistrationId(pub u64);

/// Who attaches (C2).
#[derive(Clone, Debug)]
pub struct Identity {
    pub client: String,
    pub nonce: u64,
    pub liveness: Liveness,
    pub timeout: Option<Duration>,
}

/// What the shell has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Connect, with an attach stream or without.
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
    /// An operation is answered: with the version after it, empty after an unregistration.
    Done {
        operation: OperationId,
        result: Result<String, Error>,
    },
    Versioned {
        registration: RegistrationId,
        version: String,
    },
    /// The registration is no more, and not by the wish of the application.
    Ended {
        registration: RegistrationId,
        error: Error,
    },
    /// Closed: everything is unregistered.
    Closed,
}

pub type Effects = Vec<Effect>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Until the next attempt to connect.
    Waiting {
        until: Time,
    },
    Connecting {
        connection: ConnectionId,
        until: Time,
    },
    /// The attach is on its way.
    Attaching {
        connection: ConnectionId,
        sent: Time,
        until: Time,
    },
    Attached {
        connection: ConnectionId,
    },
    /// The close is on its way.
    Closing {
        connection: ConnectionId,
        until: Time,
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
    /// As wanted: with every unconditional update, acknowledged or not.
    pub(super) spec: MemberSpec,
    pub(super) takeover: bool,
    /// Metadata as last acknowledged; `None` if it never was: the application does not have its registration yet.
    pub(super) confirmed: Option<BTreeMap<String, String>>,
    /// Of the last acknowledged write in the present session.
    pub(super) version: Option<String>,
    /// Some node may have heard of it.
    pub(super) sent: bool,
}

/// Unregistered, not yet acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone {
    /// A node has acknowledged the registration once: the id is certainly a valid one.
    pub(super) confirmed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// Of the member.
    pub(super) id: String,
    pub(super) registration: RegistrationId,
    pub(super) kind: Kind,
    /// Number of the request on its way.
    pub(super) seq: Option<u64>,
    /// The attach under way says the same.
    pub(super) covered: bool,
    /// Some node may have heard of it.
    pub(super) sent: bool,
    /// Nobody waits for the answer (any more).
    pub(super) answered: bool,
    pub(super) deadline: Option<Time>,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// With the metadata that was sent.
    Register {
        metadata: BTreeMap<String, String>,
    },
    Update(Update),
    Unregister,
}

impl Operation {
    /// Cannot be repeated: the version it expects may be its own doing.
    pub(super) fn is_conditional(&self) -> bool {
        matches!(&self.kind, Kind::Update(update) if update.if_version.is_some())
    }
}

/// An attach was rejected because of something it names. The next one names less, and the rest is asked for one by one, so that each
/// gets its own answer and one bad member does not keep the others out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Caution {
    None,
    /// Only members that were accepted before, as they were.
    Members,
    /// Also of the unregistered ids only those that were registered for certain.
    Ids,
}

/// What the attach under way names, and the parts of its answer so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Naming {
    pub(super) members: BTreeMap<String, (RegistrationId, BTreeMap<String, String>)>,
    pub(super) unregistered: BTreeSet<String>,
    pub(super) versions: Vec<v1::Versioned>,
    pub(super) rejected: Vec<v1::RejectedMember>,
}

/// What becomes of an operation that nobody waits for any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    TakenBack,
    MayHaveHappened,
}

pub fn not_sent_in_time() -> Error {
    Error::new(ErrorCode::Timeout, "no node could be asked in time; nothing was sent")
}
