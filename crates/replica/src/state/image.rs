//! A snapshot as the engine handles it.

use crate::raft::{EngineSnapshot, SnapshotMeta};
use convoke_log::Machine;
use std::sync::Arc;

/// The state at one entry, with the engine's membership at that entry. A copy is cheap.
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
