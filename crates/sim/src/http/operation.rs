//! What an HTTP client asks for.

use super::Body;
use super::workload::is_contested;
use convoke_http_session::SessionOperation;

/// A request of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Put { id: String, takeover: bool },
    Patch { id: String, key: String, value: String, conditional: bool },
    Delete { id: String },
    Close,
}

impl Op {
    /// Returns the registration that repairs a failed operation.
    pub(super) fn as_put(&self) -> Option<Op> {
        match self {
            Op::Put { id, .. } | Op::Patch { id, .. } => Some(Op::Put { id: id.clone(), takeover: !is_contested(id) }),
            Op::Delete { .. } | Op::Close => None,
        }
    }

    /// Returns the id of its member, if it has one.
    pub(super) fn id(&self) -> Option<&String> {
        match self {
            Op::Put { id, .. } | Op::Patch { id, .. } | Op::Delete { id } => Some(id),
            Op::Close => None,
        }
    }
}

pub(super) fn describe(body: &Body) -> String {
    match body {
        Body::Create(_) => "a new session".to_owned(),
        Body::Request { operation, .. } => match operation {
            SessionOperation::Heartbeat => "a heartbeat".to_owned(),
            SessionOperation::Register(member) => format!("PUT {}", member.spec.id),
            SessionOperation::Update { id, update, expected } => {
                format!("PATCH {id} {:?} if {expected:?}", update.changes)
            }
            SessionOperation::Unregister(id) => format!("DELETE {id}"),
            SessionOperation::Close => "DELETE session".to_owned(),
        },
    }
}
