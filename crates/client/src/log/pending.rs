//! A request in flight.

use super::ambassador::Shared;
use super::core::{CallId, Decided};
use super::kv::{Conditions, Handle};
use crate::{Error, ErrorCode};
use convoke_proto::v1::{Fate, KeyValue, RequestId, txn_result};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;

/// An issued request. Its order among the requests of its handle is fixed; awaiting it returns the answer.
///
/// Dropping it abandons the request: it is not sent again, and it never takes effect after a later request of the
/// handle. The answer to the next request carries its fate ([`Written::abandoned`]).
#[must_use = "a request whose future is dropped is abandoned"]
pub struct PendingWrite {
    state: State,
    conditions: Conditions,
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
    /// Id of the request.
    pub request: RequestId,
    /// Index of its log entry.
    pub index: u64,
    /// Revision of the store after the write, which is the modify revision of the keys it put.
    pub revision: u64,
    /// Keys put or deleted.
    pub keys: u64,
    /// The previous records, if the write asked for them.
    pub previous: Vec<KeyValue>,
    /// Number of previous records omitted because of their size.
    pub omitted: u64,
    /// The last request abandoned before this one, with its final fate.
    pub abandoned: Option<(RequestId, Fate)>,
}

impl Written {
    /// Returns the answer to a write, which was a transaction if it had a lease or a guard.
    fn of(decided: Decided, conditions: &Conditions) -> Result<Written, Error> {
        if decided.fate.succeeded == Some(false) {
            return Err(conditions.failure(decided));
        }
        let Decided { request, fate, abandoned, results, .. } = decided;
        let Fate { index, revision, keys, mut previous, omitted, .. } = fate;
        for result in results.into_iter().flat_map(|results| results.results) {
            match result.result {
                Some(txn_result::Result::Put(put)) => previous.extend(put.previous),
                Some(txn_result::Result::Delete(delete)) => previous.extend(delete.previous),
                Some(txn_result::Result::Read(_)) | None => {}
            }
        }
        Ok(Written { request, index, revision, keys, previous, omitted, abandoned })
    }
}

impl Conditions {
    /// Returns the error of a transaction whose compares did not hold.
    fn failure(&self, decided: Decided) -> Error {
        let results = decided.results.into_iter().flat_map(|results| results.results);
        let found = results.into_iter().find_map(|result| match result.result {
            Some(txn_result::Result::Read(read)) => Some(read.records.first().map_or(0, |record| record.mod_revision)),
            _ => None,
        });
        let error = match (self.if_revision, found, &self.guard) {
            (Some(required), Some(found), _) if required != found => {
                let message = format!("the key has modify revision {found}, not {required}");
                Error { known: Some(found), ..Error::new(ErrorCode::FailedPrecondition, message) }
            }
            (_, _, Some(guard)) => {
                let kind = if guard.election { "election" } else { "lock" };
                let (name, fence) = (String::from_utf8_lossy(&guard.name), guard.fence);
                let message = format!("{kind} {name:?} is not held with fence {fence} any more; nothing was changed");
                Error::new(ErrorCode::FailedPrecondition, message).field("fence")
            }
            _ => Error::new(ErrorCode::FailedPrecondition, "the condition of the write does not hold"),
        };
        error.request(decided.request)
    }
}

impl PendingWrite {
    pub(super) fn new(
        handle: Arc<Handle>,
        issued: Result<(CallId, oneshot::Receiver<Result<Decided, Error>>), Error>,
    ) -> PendingWrite {
        let state = match issued {
            Ok((call, answer)) => State::Waiting { call, answer },
            Err(error) => State::Answered(Box::new(Err(error))),
        };
        PendingWrite { state, conditions: Conditions::default(), handle }
    }

    pub(super) fn under(mut self, conditions: Conditions) -> PendingWrite {
        self.conditions = conditions;
        self
    }

    /// Abandons the request, as dropping it does, and returns its id for `resolve`. Returns `None` if no copy was sent,
    /// so that it never takes effect, or if its answer was already taken.
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

    /// Waits for the decision itself.
    pub(super) async fn decided(mut self) -> Result<Decided, Error> {
        std::future::poll_fn(|context| self.poll_decided(context)).await
    }

    pub(super) fn poll_decided(&mut self, context: &mut Context<'_>) -> Poll<Result<Decided, Error>> {
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
        Poll::Ready(result.map_err(|error| self.shared().explain(error)))
    }
}

impl Future for PendingWrite {
    type Output = Result<Written, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let decided = ready!(self.poll_decided(context));
        Poll::Ready(decided.and_then(|decided| Written::of(decided, &self.conditions)))
    }
}

impl Drop for PendingWrite {
    fn drop(&mut self) {
        if let State::Waiting { call, .. } = self.state {
            self.shared().abandon(call);
        }
    }
}

impl fmt::Debug for PendingWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingWrite").finish_non_exhaustive()
    }
}

/// The ambassador ended with its runtime, or the answer was already taken.
pub(super) fn gone() -> Error {
    Error::new(ErrorCode::FailedPrecondition, "the client has been closed, or the answer was already taken")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::core::Body;
    use crate::session::ClientTime;
    use convoke_proto::v1::{self, TxnResult, TxnResults};

    fn decided(succeeded: bool, result: txn_result::Result) -> Decided {
        let results = Some(TxnResults { results: vec![TxnResult { result: Some(result) }], compacted: None });
        let fate = Fate { succeeded: Some(succeeded), revision: 9, keys: 1, ..Fate::default() };
        let request = RequestId { session: 1, number: 2, log: None };
        Decided { request, fate, abandoned: None, results, sent: ClientTime::ZERO }
    }

    fn found(mod_revision: u64) -> txn_result::Result {
        let record = KeyValue { mod_revision, ..KeyValue::default() };
        txn_result::Result::Read(v1::QueryResult { records: vec![record], count: 1, more: false })
    }

    #[test]
    fn lo6_a_guarded_write_names_the_condition_that_did_not_hold() {
        let guard = v1::LockGuard { name: "jobs".into(), fence: 7, election: false };
        let conditions = Conditions { if_revision: Some(5), guard: Some(guard) };
        let error = Written::of(decided(false, found(6)), &conditions).unwrap_err();
        assert_eq!((error.code, error.known, error.field), (ErrorCode::FailedPrecondition, Some(6), None));
        let error = Written::of(decided(false, found(5)), &conditions).unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::FailedPrecondition, Some("fence")));
        assert!(error.message.contains("not held with fence 7"), "{error}");
    }

    #[test]
    fn a_write_with_a_lease_returns_the_previous_record() {
        let previous = KeyValue { value: "old".into(), ..KeyValue::default() };
        let put = txn_result::Result::Put(v1::PutResult { previous: Some(previous.clone()) });
        let written = Written::of(decided(true, put), &Conditions::default()).unwrap();
        assert_eq!((written.revision, written.keys, written.previous), (9, 1, vec![previous]));
    }

    /// Leases and guards exist at feature level 2 only; other writes keep the form of level 1.
    #[test]
    fn only_writes_with_a_lease_or_a_guard_are_transactions() {
        let body = |write: crate::log::Write| write.body();
        assert!(matches!(body(crate::log::Write::put("a", "1").if_revision(3)), Body::Put(_)));
        assert!(matches!(body(crate::log::Write::delete("a")), Body::Delete(_)));
        let Body::Txn(txn) = body(crate::log::Write::put("a", "1").if_revision(3).lease(4).if_lock("jobs", 7)) else {
            panic!("a transaction");
        };
        assert_eq!((txn.compares.len(), txn.then.len(), txn.otherwise.len()), (2, 1, 1));
        let Body::Txn(txn) = body(crate::log::Write::delete_prefix("a").if_leader("workers", 7)) else {
            panic!("a transaction");
        };
        assert_eq!((txn.compares.len(), txn.then.len(), txn.otherwise.len()), (1, 1, 0));
    }
}
