//! Backups: the whole state in frames that are checked when they are read (LH3).

use super::{Consistency, LogHandle};
use crate::refusal::Refusal;
use convoke_log::{Position, Snapshot};

/// A state to be written somewhere. Applying goes on meanwhile.
#[derive(Clone, Debug)]
pub struct Backup {
    snapshot: Snapshot,
}

impl LogHandle {
    /// The state with everything that was answered before this call.
    pub async fn backup(&self) -> Result<Backup, Refusal> {
        let machine = self.read(Consistency::Linearizable).await?;
        Ok(Backup { snapshot: machine.snapshot() })
    }
}

impl Backup {
    /// The last entry in it.
    pub fn applied(&self) -> Position {
        self.snapshot.applied()
    }

    /// What a restored state must have; named in the last frame, too.
    pub fn state_hash(&self) -> u128 {
        self.snapshot.state_hash()
    }

    /// Frames to be written one behind the other.
    pub fn frames(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.snapshot.frames()
    }
}
