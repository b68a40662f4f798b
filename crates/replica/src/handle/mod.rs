//! The handle: the interface of a replica, usable from any task and cheap to clone.

mod backup;
mod leases;
mod members;
mod operator;
mod read;
mod settling;
mod status;
mod submit;
mod watch;

pub use backup::Backup;
pub use leases::LeaseKept;
pub use members::Edit;
pub use read::Consistency;
pub use settling::Settling;
pub use submit::{Answered, OpenAnswered};

use crate::engine::Engine;
use crate::plane::Plane;
use crate::rejection::LogRejection;
use std::sync::Arc;

/// A handle of a node's log. If the node is not a replica, all requests are rejected with the known group.
#[derive(Clone, Debug)]
pub struct LogHandle {
    pub(crate) plane: Arc<Plane>,
}

impl LogHandle {
    /// Returns the replica, if this node is one.
    pub(crate) fn engine(&self) -> Result<Arc<Engine>, LogRejection> {
        self.plane.engine.load_full().ok_or_else(|| self.plane.outside())
    }
}
