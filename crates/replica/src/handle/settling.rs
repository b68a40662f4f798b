//! Who waits for a proposal, and what the gate must be told of it.

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

/// Hands the engine's answer to whoever waits, and settles the admission, whether anybody waits or not.
pub struct Settling<T> {
    reply: oneshot::Sender<T>,
    pending: Option<Pending>,
    proposal: Span,
    /// Waiting to be committed, then to be applied.
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
                state.nudge();
            }
        }
    }
}

impl<T: OptionalSend + 'static> Responder<Types, T> for Settling<T> {
    /// Known where it went. Late enough: a barrier read waits until it is applied anyway.
    fn on_commit(&mut self, log_id: LogId) {
        let index = raft::position(&log_id).index;
        self.stage = traces::apply(&self.proposal, index);
        self.settle(Some(index));
    }

    /// Only a refusal says that it was not appended. Otherwise the admission stays unsettled, and with it every barrier
    /// read of a term that must be over: the entry may yet be committed by another leader (LR4).
    fn on_complete(mut self, result: T) {
        let refused = (&result as &dyn Any)
            .downcast_ref::<WriteResult>()
            .is_some_and(|result| matches!(result, Err(ClientWriteError::ForwardToLeader(_))));
        if refused {
            traces::failed(&self.proposal, "NOT_LEADER");
            self.settle(None);
        }
        // Nobody waits any more: the request was abandoned.
        let _ = self.reply.send(result);
    }
}

impl<T> fmt::Debug for Settling<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settling").finish_non_exhaustive()
    }
}
