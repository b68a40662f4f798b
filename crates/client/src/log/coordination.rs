//! The part of the shell that leases, locks and elections use.

use super::ambassador::Shared;
use super::core::{Ask, AskId, Asked, Issuing, Keep, LaneId, LeaseChange, Output};
use super::pending::gone;
use crate::Error;
use crate::session::ClientTime;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;

/// What is known about a lease.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LeaseStatus {
    /// No keep-alive was confirmed so far.
    Unconfirmed,
    ValidUntil(ClientTime),
    Lost(Error),
}

/// The answer to a question, once it has arrived.
pub(super) type AskedState = Option<Result<Asked, Error>>;

/// Callers that wait for changes of leases and for answers.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    leases: HashMap<u64, watch::Sender<LeaseStatus>>,
    asks: HashMap<AskId, watch::Sender<AskedState>>,
}

impl Listeners {
    /// Passes changes on.
    pub(super) fn notify(&mut self, out: &mut Output) {
        for (lease, change) in out.leases.drain(..) {
            let (status, over) = match change {
                LeaseChange::Valid(until) => (LeaseStatus::ValidUntil(until), false),
                LeaseChange::Lost(error) => (LeaseStatus::Lost(error), true),
            };
            if let Some(listener) = self.leases.get(&lease) {
                listener.send_replace(status);
            }
            if over {
                self.leases.remove(&lease);
            }
        }
        for (ask, answer) in out.asked.drain(..) {
            if let Some(listener) = self.asks.remove(&ask) {
                listener.send_replace(Some(answer));
            }
        }
    }
}

/// A question to the leader. Dropping it ends the interest in the answer.
#[derive(Debug)]
pub(super) struct Asking {
    shared: Arc<Shared>,
    id: AskId,
    answer: watch::Receiver<AskedState>,
}

impl Asking {
    /// Waits for the answer.
    pub(super) async fn answer(&self) -> Result<Asked, Error> {
        let mut answer = self.answer.clone();
        let answered = answer.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
        answered.unwrap_or_else(|| Err(gone()))
    }

    /// Returns the answer if it has arrived.
    pub(super) fn answered(&self) -> AskedState {
        self.answer.borrow().clone()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.listeners.asks.remove(&self.id);
        state.core.stop_asking(self.id);
    }
}

impl Shared {
    /// Asks the leader a question.
    pub(super) fn ask(self: &Arc<Self>, ask: Ask) -> Result<Asking, Error> {
        let (sender, answer) = watch::channel(None);
        let mut state = self.lock();
        let id = self.decide(&mut state, |core, now, out| core.ask(now, ask, out))?;
        state.listeners.asks.insert(id, sender);
        self.search_if_cut_off(state);
        Ok(Asking { shared: self.clone(), id, answer })
    }

    /// Keeps a lease alive until `stop_keeping`.
    pub(super) fn keep(&self, keep: Keep) -> Result<watch::Receiver<LeaseStatus>, Error> {
        let (sender, status) = watch::channel(LeaseStatus::Unconfirmed);
        let mut state = self.lock();
        state.listeners.leases.insert(keep.lease, sender);
        let kept = self.decide(&mut state, |core, now, out| core.keep(now, keep, out));
        if kept.is_err() {
            state.listeners.leases.remove(&keep.lease);
        }
        // The end of a lease may be the next timer.
        self.timers.notify_one();
        self.search_if_cut_off(state);
        kept.map(|()| status)
    }

    pub(super) fn stop_keeping(&self, lease: u64) {
        let mut state = self.lock();
        state.listeners.leases.remove(&lease);
        state.core.stop_keeping(lease);
    }

    /// Issues a request whose answer nobody waits for, such as a release. It is sent as long as the handle exists,
    /// whatever its timeout is.
    pub(super) fn issue_detached(&self, lane: LaneId, issuing: Issuing) {
        let issuing = Issuing { patient: true, ..issuing };
        let mut state = self.lock();
        // A handle that failed has no session; its leases expire.
        let _ = self.decide(&mut state, |core, now, out| core.issue(now, lane, issuing, String::new(), out));
        self.search_if_cut_off(state);
    }
}
