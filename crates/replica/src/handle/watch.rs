//! Waiting for changes of the applied state.

use super::LogHandle;
use crate::rejection::LogRejection;
use std::time::Duration;

impl LogHandle {
    /// Waits until this replica has applied an entry after `index`. Fails if the replica stops.
    pub async fn applied_after(&self, index: u64) -> Result<(), LogRejection> {
        // Do not hold the engine while waiting: a stop waits until it is released.
        let mut progress = self.engine()?.state.progress();
        while *progress.borrow_and_update() <= index {
            progress.changed().await.map_err(|_| LogRejection::Stopped)?;
        }
        Ok(())
    }

    /// Returns the longest time without a leader before this replica stands for election.
    pub fn election_timeout(&self) -> Duration {
        self.plane.config.timers.election_timeout_max
    }
}
