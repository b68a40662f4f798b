//! The handle: everything that can be asked of a replica, from any task. Cloning it is cheap.

mod backup;
mod members;
mod operator;
mod read;
mod settling;
mod status;
mod submit;

pub use backup::Backup;
pub use members::Edit;
pub use read::Consistency;
pub use settling::Settling;
pub use submit::{Answered, OpenAnswered};

use crate::engine::Engine;
use crate::plane::Plane;
use crate::refusal::Refusal;
use std::sync::Arc;

/// Asks a replica. A handle of a node that is no replica of any log refuses everything with what it knows of the group.
#[derive(Clone, Debug)]
pub struct LogHandle {
    pub(crate) plane: Arc<Plane>,
}

impl LogHandle {
    /// The replica, if this node is one.
    pub(crate) fn engine(&self) -> Result<Arc<Engine>, Refusal> {
        self.plane.engine.load_full().ok_or_else(|| self.plane.outside())
    }
}
