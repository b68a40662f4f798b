//! What a watch tells the application.

use crate::Member;
use convoke_proto::v1;
use std::sync::Arc;
use v1::watch_event::reset::Reason;

/// One entry of a watch.
///
/// A watch starts with a `Snapshot` for each member and one `CaughtUp`; from then on it tells changes, each once and per member in
/// order, whatever happens to connections and nodes. After a `Reset` it starts over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A member of the initial view.
    Snapshot(Arc<Member>),
    /// The view is complete.
    CaughtUp,
    /// New in view: registered, or matching the filter from now on.
    Registered(Arc<Member>),
    /// Its metadata, drain mark or attributes changed.
    Updated(Arc<Member>),
    StatusChanged(Arc<Member>),
    /// Its client moved to another node.
    OwnerChanged(Arc<Member>),
    /// No longer in view: unregistered, or no longer matching the filter.
    Unregistered {
        /// As it was last seen.
        member: Arc<Member>,
        version: String,
    },
    /// Changes may have been missed: forget everything; a new snapshot follows.
    Reset(ResetReason),
}

impl Event {
    /// The member this is about.
    pub fn member(&self) -> Option<&Arc<Member>> {
        match self {
            Event::Snapshot(member)
            | Event::Registered(member)
            | Event::Updated(member)
            | Event::StatusChanged(member)
            | Event::OwnerChanged(member)
            | Event::Unregistered { member, .. } => Some(member),
            Event::CaughtUp | Event::Reset(_) => None,
        }
    }
}

/// Why a watch starts over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetReason {
    /// The application read too slowly.
    SlowReader,
    /// Disconnected for longer than nodes remember.
    TooOld,
    /// The node did not know yet what this watch had already seen.
    NodeBehind,
    /// The connection was lost while the snapshot was being loaded, or the view is too large to be compared.
    Interrupted,
}

impl ResetReason {
    pub(crate) fn from_wire(reason: Reason) -> ResetReason {
        match reason {
            Reason::Overflow => ResetReason::SlowReader,
            Reason::TooOld | Reason::Unreadable => ResetReason::TooOld,
            Reason::Ahead => ResetReason::NodeBehind,
            Reason::Unspecified => ResetReason::Interrupted,
        }
    }
}
