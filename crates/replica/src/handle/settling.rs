//! The responder of a proposal, which also settles its admission.

use crate::raft::{self, LogId, Types, WriteResult};
use crate::state::State;
use crate::traces;
use convoke_log::Epoch;
use convoke_log::leader::Admission;
use openraft::OptionalSend;
use openraft::error::ClientWriteError;
use openraft::raft::responder::Responder;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::Span;

/// Delivers the engine's answer to the caller and settles the admission, even if no caller waits.
pub struct Settling<T> {
    reply: oneshot::Sender<T>,
    pending: Option<Pending>,
    proposal: Span,
    /// Span of the current stage: until commit, then until apply.
    stage: Span,
    _permit: OwnedSemaphorePermit,
}

struct Pending {
    state: Arc<State>,
    epoch: Epoch,
    admission: Admission,
}

impl<T> Settling<T> {
    pub(crate) fn new(
        reply: oneshot::Sender<T>,
        state: Arc<State>,
        epoch: Epoch,
        admission: Admission,
        permit: OwnedSemaphorePermit,
        proposal: Span,
    ) -> Self {
        let stage = traces::commit(&proposal);
        let pending = Some(Pending { state, epoch, admission });
        Settling { reply, pending, proposal, stage, _permit: permit }
    }

    fn settle(&mut self, index: Option<u64>) {
        if let Some(Pending { state, epoch, admission }) = self.pending.take() {
            state.term().settle(epoch, admission, index);
            if index.is_none() {
                state.wake_waiting();
            }
        }
    }
}

impl<T: OptionalSend + 'static> Responder<Types, T> for Settling<T> {
    /// The position is known. This is early enough, because a barrier read waits for apply anyway.
    fn on_commit(&mut self, log_id: LogId) {
        let index = raft::position(&log_id).index;
        self.stage = traces::apply(&self.proposal, index);
        self.settle(Some(index));
    }

    /// Only a rejection proves that the command was not appended. Otherwise the admission stays unsettled, and with it
    /// every barrier read of this term: another leader may still commit the entry (LR4).
    fn on_complete(mut self, result: T) {
        let rejected = (&result as &dyn Any)
            .downcast_ref::<WriteResult>()
            .is_some_and(|result| matches!(result, Err(ClientWriteError::ForwardToLeader(_))));
        if rejected {
            traces::failed(&self.proposal, "NOT_LEADER");
            self.settle(None);
        }
        // The caller may have abandoned the request.
        let _ = self.reply.send(result);
    }
}

impl<T> fmt::Debug for Settling<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settling").finish_non_exhaustive()
    }
}
