//! Watches: a slot for one batch between the event loop and each reader. The core's bounded queue is the only
//! place where events wait, so a slow reader costs what the core allows it, and nobody else waits for it (W5).

use crate::event_loop::Signal;
use crate::shared::Shared;
use convoke_core::node::StreamEvent;
use futures_core::Stream;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Names a watch within this process; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamId(pub(crate) u64);

/// A stream of batches of events: snapshot, caught-up, changes, marks (W1). Ends when the node drops it: it slept, began
/// a new run, or stopped. Then watch again, here or elsewhere, with the last mark.
#[derive(Debug)]
pub struct WatchHandle {
    id: StreamId,
    slot: Arc<Slot>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
pub(crate) struct Slot(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    batch: Vec<StreamEvent>,
    /// There is more at the owner's; whoever empties the slot asks for it.
    more: bool,
    ended: bool,
    reader: Option<Waker>,
}

impl Slot {
    /// Puts a batch in if the slot is empty. `fill` says whether there is more. Returns what it said, or `None` if the
    /// reader has not taken the last batch yet; it will ask then.
    pub(crate) fn offer(&self, fill: impl FnOnce(&mut Vec<StreamEvent>) -> bool) -> Option<bool> {
        let mut state = self.lock();
        if !state.batch.is_empty() {
            state.more = true;
            return None;
        }
        let more = fill(&mut state.batch);
        state.more = more;
        if !state.batch.is_empty()
            && let Some(reader) = state.reader.take()
        {
            drop(state);
            reader.wake();
        }
        Some(more)
    }

    /// Nothing follows.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        if let Some(reader) = state.reader.take() {
            drop(state);
            reader.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchHandle {
    pub(crate) fn new(id: StreamId, slot: Arc<Slot>, shared: Arc<Shared>) -> Self {
        WatchHandle { id, slot, shared }
    }

    /// The next batch; `None` once the node dropped the watch and everything was taken.
    pub async fn next(&mut self) -> Option<Vec<StreamEvent>> {
        std::future::poll_fn(|context| self.poll_batch(context)).await
    }

    fn poll_batch(&self, context: &mut Context<'_>) -> Poll<Option<Vec<StreamEvent>>> {
        let mut state = self.slot.lock();
        if !state.batch.is_empty() {
            let batch = std::mem::take(&mut state.batch);
            let more = std::mem::take(&mut state.more);
            drop(state);
            if more {
                let _ = self.shared.signals.send(Signal::Wanted(self.id));
            }
            return Poll::Ready(Some(batch));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Stream for WatchHandle {
    type Item = Vec<StreamEvent>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_batch(context)
    }
}

impl Drop for WatchHandle {
    fn drop(&mut self) {
        let _ = self.shared.signals.send(Signal::Unwatchd(self.id));
    }
}
