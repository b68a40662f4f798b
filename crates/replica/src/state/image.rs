//! A snapshot in the hands of the engine.

use crate::raft::{EngineSnapshot, SnapshotMeta};
use convoke_log::Machine;
use std::sync::Arc;

/// The state as of one entry, and the engine's membership then. A copy costs nothing.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) meta: SnapshotMeta,
    pub(crate) machine: Arc<Machine>,
}

impl Image {
    pub(crate) fn into_engine(self) -> EngineSnapshot {
        EngineSnapshot { meta: self.meta.clone(), snapshot: self }
    }
}
