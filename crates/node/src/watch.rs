//! Watches: a slot for one batch between the event loop and each reader. Events wait only in the core's bounded queue,
//! so a slow reader costs what the core allows and does not delay others (W5).

use crate::event_loop::Signal;
use crate::shared::Shared;
use convoke_core::node::StreamEvent;
use futures_core::Stream;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Identifies a watch in this process; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamId(pub(crate) u64);

/// A stream of batches of events: snapshot, caught-up, changes, marks (W1). It ends when the node drops it: after a
/// pause of the node, a restart or a stop. Resume it at this or another node with the last mark.
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
    /// The core has more events. The reader that empties the slot requests them.
    more: bool,
    ended: bool,
    reader: Option<Waker>,
}

impl Slot {
    /// Puts a batch into the slot if it is empty. `fill` returns whether there is more, which this returns. Returns
    /// `None` if the reader has not taken the last batch yet; it requests the next one when it does.
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

    /// Ends the stream.
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

    /// Returns the next batch; `None` once the node has dropped the watch and all batches were read.
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
                let _ = self.shared.signals.send(Signal::MoreRequested(self.id));
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
        let _ = self.shared.signals.send(Signal::Unwatched(self.id));
    }
}
