//! The kinds of changes of a member.

use super::Member;

/// The kind of a change of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Registered,
    Updated,
    StatusChanged,
    OwnerChanged,
    Unregistered,
}

impl ChangeKind {
    /// The event name of the HTTP API.
    pub fn as_str(self) -> &'static str {
        match self {
            ChangeKind::Registered => "register",
            ChangeKind::Updated => "update",
            ChangeKind::StatusChanged => "status",
            ChangeKind::OwnerChanged => "owner",
            ChangeKind::Unregistered => "unregister",
        }
    }

    /// Returns the kind of the change from `before` to `after`, as one reader sees them: `None` is a member that does not
    /// exist or that the reader's filter does not match. Another incarnation of the same node is another owner, because
    /// the client attached again.
    pub fn between(before: Option<&Member>, after: Option<&Member>) -> Option<Self> {
        Some(match (before, after) {
            (None, None) => return None,
            (None, Some(_)) => ChangeKind::Registered,
            (Some(_), None) => ChangeKind::Unregistered,
            (Some(before), Some(after)) if before.origin() != after.origin() => ChangeKind::OwnerChanged,
            (Some(before), Some(after)) if before.status() != after.status() => ChangeKind::StatusChanged,
            (Some(_), Some(_)) => ChangeKind::Updated,
        })
    }
}
