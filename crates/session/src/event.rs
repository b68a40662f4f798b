//! Events of a watch.

use crate::Member;
use convoke_proto::v1;
use std::sync::Arc;
use v1::watch_event::reset::Reason;

/// One event of a watch.
///
/// A watch starts with a `Snapshot` for each member and one `CaughtUp`. Then it reports changes, each once and in order
/// per member, across connections and nodes. After a `Reset` it starts again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A member of the initial view.
    Snapshot(Arc<Member>),
    /// The view is complete.
    CaughtUp,
    /// New in the view: registered, or matching the filter from now on.
    Registered(Arc<Member>),
    /// The metadata, drain mark or attributes changed.
    Updated(Arc<Member>),
    StatusChanged(Arc<Member>),
    /// The client moved to another node.
    OwnerChanged(Arc<Member>),
    /// No longer in the view: unregistered, or no longer matching the filter.
    Unregistered {
        /// The last known state.
        member: Arc<Member>,
        version: String,
    },
    /// Changes may have been missed: discard everything. A new snapshot follows.
    Reset(ResetReason),
}

impl Event {
    /// Returns the member concerned.
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

/// The reason of a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetReason {
    /// The application read too slowly.
    SlowReader,
    /// Disconnected for longer than nodes keep the history.
    TooOld,
    /// The node had not yet received changes that this watch had already seen.
    NodeBehind,
    /// The connection was lost during the snapshot, or the view is too large for a comparison of versions.
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
