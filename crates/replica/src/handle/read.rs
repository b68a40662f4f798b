//! Reads (R).

use super::LogHandle;
use crate::counters::add;
use crate::engine::Engine;
use crate::raft;
use crate::refusal::Refusal;
use convoke_log::machine::Fate;
use convoke_log::{Epoch, Machine, RequestId, SessionId};
use openraft::LinearizerOption;
use openraft::error::{LinearizableReadError, RaftError};
use std::sync::Arc;
use std::time::Duration;

/// What a read may miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// The state of the replica asked, as of some index (R1).
    Local,
    /// Everything that was answered before the read began (R2).
    Linearizable,
    /// The same, and nothing of the session below `below` can change it any more (R4). The client has given all of that
    /// up and will not send it again.
    Barrier { session: SessionId, epoch: Epoch, below: u64 },
}

impl LogHandle {
    /// The state to read from. It stays as it is: all pages of a listing can come from it.
    pub async fn read(&self, consistency: Consistency) -> Result<Arc<Machine>, Refusal> {
        match consistency {
            Consistency::Local => self.local(),
            Consistency::Linearizable => self.engine()?.read_linearizable().await,
            Consistency::Barrier { session, epoch, below } => {
                self.engine()?.read_behind_barrier(session, epoch, below).await
            }
        }
    }

    /// The state as of what this replica has applied. Who leads does not matter to it, only whether there is a replica.
    pub fn local(&self) -> Result<Arc<Machine>, Refusal> {
        let engine = self.engine().map_err(|why| match why {
            Refusal::NotLeader(group) => Refusal::NoReplica(group),
            other => other,
        })?;
        add(&engine.counting.reads_local, 1);
        Ok(engine.state.machine())
    }

    /// What became of a request, without an entry (A5).
    pub async fn peek(&self, id: RequestId, consistency: Consistency) -> Result<Fate, Refusal> {
        Ok(self.read(consistency).await?.peek(id))
    }
}

impl Engine {
    async fn read_linearizable(&self) -> Result<Arc<Machine>, Refusal> {
        let _permit = self.permit()?;
        let index = self.confirm(None).await?;
        self.reach(index).await
    }

    async fn read_behind_barrier(&self, session: SessionId, epoch: Epoch, below: u64) -> Result<Arc<Machine>, Refusal> {
        let _permit = self.permit()?;
        // In this order (R4): floor, read index and confirmation, wait.
        let raised = self.state.term().barrier(session, epoch, below, &self.state.machine());
        let barrier = raised.map_err(|_| self.not_leading())??;
        let read_index = self.confirm(Some(epoch)).await?;
        let mut progress = self.state.progress();
        loop {
            let wait_for = self.state.term().wait_for(epoch, &barrier, read_index);
            if let Some(index) = wait_for.map_err(|_| self.not_leading())? {
                return self.reach(index).await;
            }
            progress.changed().await.map_err(|_| Refusal::Stopped)?;
        }
    }

    fn permit(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Refusal> {
        self.reads.try_acquire().map_err(|_| {
            add(&self.counting.requests_rejected_busy, 1);
            Refusal::Busy { what: "reads", limit: self.config.limits.reads as u64 }
        })
    }

    /// Confirms that this replica leads, afresh, and returns the read index: what was committed before, and no less than
    /// the first entry of the term.
    async fn confirm(&self, expected: Option<Epoch>) -> Result<u64, Refusal> {
        let fresh = LinearizerOption::new(Some(Duration::ZERO), true)
            .with_wait_timeout(2 * self.config.timers.election_timeout_max);
        let confirmed = match self.raft.get_read_linearizer(fresh).await {
            Ok(confirmed) => confirmed,
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(_))) => return Err(self.not_leading()),
            Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => {
                return Err(Refusal::NoQuorum(self.group()));
            }
            Err(RaftError::Fatal(_)) => return Err(Refusal::Stopped),
        };
        let read = raft::position(confirmed.read_log_id().log_id());
        if expected.is_some_and(|expected| expected != read.epoch) {
            return Err(Refusal::StaleEpoch { current: read.epoch });
        }
        add(&self.counting.reads_confirmed, 1);
        Ok(read.index)
    }

    /// Waits until an index is applied.
    pub(crate) async fn reach(&self, index: u64) -> Result<Arc<Machine>, Refusal> {
        let mut progress = self.state.progress();
        while *progress.borrow_and_update() < index {
            if self.failed() {
                return Err(Refusal::Stopped);
            }
            progress.changed().await.map_err(|_| Refusal::Stopped)?;
        }
        Ok(self.state.machine())
    }
}
