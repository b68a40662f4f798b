//! Reads (LR).

use super::LogHandle;
use crate::counters::add;
use crate::engine::Engine;
use crate::raft;
use crate::rejection::LogRejection;
use convoke_log::machine::Fate;
use convoke_log::{Epoch, LogSessionId, Machine, Position, RequestId};
use openraft::LinearizerOption;
use openraft::error::{LinearizableReadError, RaftError};
use std::sync::Arc;
use std::time::Duration;

/// Consistency of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// The state of this replica at some index (LR1).
    Local,
    /// Every write acknowledged before the read began (LR2).
    Linearizable,
    /// Linearizable, and no request of the session below `below` can change the result later (LR4). The client has
    /// abandoned those requests and will not send them again.
    Barrier { session: LogSessionId, epoch: Epoch, below: u64 },
}

impl LogHandle {
    /// Returns the state to read from. It is immutable, so all pages of a list can come from it.
    pub async fn read(&self, consistency: Consistency) -> Result<Arc<Machine>, LogRejection> {
        match consistency {
            Consistency::Local => self.local(),
            Consistency::Linearizable => self.engine()?.read_linearizable().await,
            Consistency::Barrier { session, epoch, below } => {
                self.engine()?.read_behind_barrier(session, epoch, below).await
            }
        }
    }

    /// Returns the applied state of this replica, whether or not there is a leader.
    pub fn local(&self) -> Result<Arc<Machine>, LogRejection> {
        let engine = self.engine().map_err(|why| match why {
            LogRejection::NotLeader(group) => LogRejection::NoReplica(group),
            other => other,
        })?;
        add(&engine.counting.reads_local, 1);
        Ok(engine.state.machine())
    }

    /// Returns the fate of a request without a log entry (A5).
    pub async fn peek(&self, id: RequestId, consistency: Consistency) -> Result<Fate, LogRejection> {
        Ok(self.read(consistency).await?.peek(id))
    }
}

impl Engine {
    pub(super) async fn read_linearizable(&self) -> Result<Arc<Machine>, LogRejection> {
        let _permit = self.permit()?;
        let index = self.confirm(None).await?;
        self.reach(index).await
    }

    async fn read_behind_barrier(
        &self,
        session: LogSessionId,
        epoch: Epoch,
        below: u64,
    ) -> Result<Arc<Machine>, LogRejection> {
        let _permit = self.permit()?;
        // The order matters (LR4): floor, read index and confirmation, wait.
        let raised = self.state.term().barrier(session, epoch, below, &self.state.machine());
        let barrier = raised.map_err(|_| self.not_leading())??;
        let read_index = self.confirm(Some(epoch)).await?;
        let mut progress = self.state.progress();
        loop {
            let wait_for = self.state.term().wait_for(epoch, &barrier, read_index);
            if let Some(index) = wait_for.map_err(|_| self.not_leading())? {
                return self.reach(index).await;
            }
            progress.changed().await.map_err(|_| LogRejection::Stopped)?;
        }
    }

    pub(super) fn permit(&self) -> Result<tokio::sync::SemaphorePermit<'_>, LogRejection> {
        self.reads.try_acquire().map_err(|_| {
            add(&self.counting.requests_rejected_busy, 1);
            LogRejection::Busy { what: "reads", limit: self.config.limits.reads as u64 }
        })
    }

    /// Confirms the leadership of this replica and returns the read index.
    async fn confirm(&self, expected: Option<Epoch>) -> Result<u64, LogRejection> {
        let read = self.confirm_leadership().await?;
        if expected.is_some_and(|expected| expected != read.epoch) {
            return Err(LogRejection::StaleEpoch { current: read.epoch });
        }
        add(&self.counting.reads_confirmed, 1);
        Ok(read.index)
    }

    /// Confirms the leadership of this replica with a majority, after this call. Returns the position of the last
    /// committed entry, but at least the first entry of the term.
    pub(crate) async fn confirm_leadership(&self) -> Result<Position, LogRejection> {
        let fresh = LinearizerOption::new(Some(Duration::ZERO), true)
            .with_wait_timeout(2 * self.config.timers.election_timeout_max);
        let confirmed = match self.raft.get_read_linearizer(fresh).await {
            Ok(confirmed) => confirmed,
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(_))) => return Err(self.not_leading()),
            Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => {
                return Err(LogRejection::NoQuorum(self.group()));
            }
            Err(RaftError::Fatal(_)) => return Err(LogRejection::Stopped),
        };
        Ok(raft::position(confirmed.read_log_id().log_id()))
    }

    /// Waits until an index is applied.
    pub(crate) async fn reach(&self, index: u64) -> Result<Arc<Machine>, LogRejection> {
        let mut progress = self.state.progress();
        while *progress.borrow_and_update() < index {
            if self.failed() {
                return Err(LogRejection::Stopped);
            }
            progress.changed().await.map_err(|_| LogRejection::Stopped)?;
        }
        Ok(self.state.machine())
    }
}
