//! A request on its way.

use super::ambassador::Shared;
use super::core::{CallId, Decided};
use super::kv::Handle;
use crate::Error;
use convoke_proto::v1::{Fate, KeyValue, RequestId};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;

/// A request that was issued. Its place among the requests of its handle is fixed already; awaiting it gives the answer.
///
/// Dropping it abandons the request: it is not sent (again), and it never takes effect after a later request of the handle. The answer to
/// the next one tells what became of it ([`Written::abandoned`]).
#[must_use = "a request whose future is dropped is abandoned"]
pub struct Pending {
    state: State,
    handle: Arc<Handle>,
}

enum State {
    Waiting { call: CallId, answer: oneshot::Receiver<Result<Decided, Error>> },
    Answered(Box<Result<Decided, Error>>),
    Over,
}

/// A write that took effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// Which request it was.
    pub request: RequestId,
    /// Its place in the log.
    pub index: u64,
    /// Revision of the keys after it: the modify revision of what it put.
    pub revision: u64,
    /// Keys put or deleted.
    pub keys: u64,
    /// The records before, if they were asked for.
    pub previous: Vec<KeyValue>,
    /// How many of those were left out for their size.
    pub omitted: u64,
    /// The last request that was abandoned before this one, and what became of it, for good.
    pub abandoned: Option<(RequestId, Fate)>,
}

impl From<Decided> for Written {
    fn from(decided: Decided) -> Written {
        let Decided { request, fate, abandoned } = decided;
        let Fate { index, revision, keys, previous, omitted, .. } = fate;
        Written { request, index, revision, keys, previous, omitted, abandoned }
    }
}

impl Pending {
    pub(super) fn new(
        handle: Arc<Handle>,
        issued: Result<(CallId, oneshot::Receiver<Result<Decided, Error>>), Error>,
    ) -> Pending {
        let state = match issued {
            Ok((call, answer)) => State::Waiting { call, answer },
            Err(error) => State::Answered(Box::new(Err(error))),
        };
        Pending { state, handle }
    }

    /// Abandons the request, as dropping it does, and tells which one it was, for whoever wants to resolve it. `None`: no copy of it has left,
    /// nor will any; it never takes effect. (Or its answer was taken already.)
    pub fn abandon(mut self) -> Option<RequestId> {
        let answered = match std::mem::replace(&mut self.state, State::Over) {
            State::Waiting { call, mut answer } => match self.shared().abandon(call) {
                Some(request) => return Some(request),
                // Answered before, or not sent.
                None => answer.try_recv().ok()?,
            },
            State::Answered(answered) => *answered,
            State::Over => return None,
        };
        match answered {
            Ok(decided) => Some(decided.request),
            Err(error) => error.log.and_then(|log| log.request),
        }
    }

    fn shared(&self) -> &Shared {
        self.handle.shared()
    }
}

impl Future for Pending {
    type Output = Result<Written, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match std::mem::replace(&mut self.state, State::Over) {
            State::Waiting { call, mut answer } => match Pin::new(&mut answer).poll(context) {
                Poll::Pending => {
                    self.state = State::Waiting { call, answer };
                    return Poll::Pending;
                }
                answered => ready!(answered).unwrap_or_else(|_| Err(gone())),
            },
            State::Answered(answered) => *answered,
            State::Over => Err(gone()),
        };
        Poll::Ready(result.map(Written::from))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let State::Waiting { call, .. } = self.state {
            self.shared().abandon(call);
        }
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

/// The ambassador has ended, with the runtime it lived in; or the answer was taken already.
pub(super) fn gone() -> Error {
    Error::new(
        crate::ErrorCode::FailedPrecondition,
        "the client of this request has ended, or the answer was taken before",
    )
}
