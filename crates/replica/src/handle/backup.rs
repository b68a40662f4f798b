//! Backups: the whole state in checked frames (LH3).

use super::{Consistency, LogHandle};
use crate::rejection::LogRejection;
use convoke_log::{Position, Snapshot};

/// A state to back up. Apply continues while it is written.
#[derive(Clone, Debug)]
pub struct Backup {
    snapshot: Snapshot,
}

impl LogHandle {
    /// Returns the state with every write acknowledged before this call.
    pub async fn backup(&self) -> Result<Backup, LogRejection> {
        let machine = self.read(Consistency::Linearizable).await?;
        Ok(Backup { snapshot: machine.snapshot() })
    }
}

impl Backup {
    /// Returns the position of the last entry in the backup.
    pub fn applied(&self) -> Position {
        self.snapshot.applied()
    }

    /// Returns the hash of the state, which the last frame also contains.
    pub fn state_hash(&self) -> u128 {
        self.snapshot.state_hash()
    }

    /// Returns the frames, to be written one after the other.
    pub fn frames(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.snapshot.frames()
    }
}
