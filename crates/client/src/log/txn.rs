//! Transactions.

use super::core::{Body, Decided, Issuing};
use super::kv::Handle;
use super::read::{self, Consistency};
use super::{KeyValue, Kv, PendingWrite, Query};
use crate::{Error, ErrorCode};
use convoke_proto::json::{self, TXN_OPERATIONS_MAX};
use convoke_proto::v1::{self, Fate, RequestId, compare, txn_delete, txn_operation, txn_result};
use prost::bytes::Bytes;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Room that a message needs besides its transaction.
const OVERHEAD: usize = 64 * 1024;

/// A transaction: if all compares hold, the operations of `then` are executed, otherwise those of `otherwise`.
///
/// At most 128 compares and operations in all; a branch changes no key twice. All changes have one revision. Nothing is
/// changed if one of them fails.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Txn {
    txn: v1::Txn,
    deadline: Option<Duration>,
    last: bool,
}

/// A transaction of a handle that is being built. [`commit`](Self::commit) issues it.
#[derive(Clone, Debug)]
#[must_use = "a transaction does nothing until it is committed"]
pub struct TxnBuilder {
    kv: Kv,
    txn: Txn,
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Compare(v1::Compare);

/// Relation between the field of a key and the given operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Equal,
    NotEqual,
    Less,
    Greater,
}

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Op(v1::TxnOperation);

/// The result of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum OpResult {
    Put {
        /// The previous record, if the put asked for it and the key existed.
        previous: Option<KeyValue>,
    },
    Delete {
        keys: u64,
        /// The deleted records, if the delete asked for them.
        previous: Vec<KeyValue>,
    },
    Read {
        records: Vec<KeyValue>,
        /// Number of records; of a [`Query::count_only`] the number of selected records.
        count: u64,
        /// Whether the selection contains more records.
        more: bool,
    },
}

/// The answer to a transaction that was executed.
#[derive(Clone, Debug, PartialEq)]
pub struct TxnAnswer {
    /// Whether all compares held.
    pub succeeded: bool,
    /// Revision of the store after the transaction.
    pub revision: u64,
    /// Results of the executed branch, one per operation, in order. Fails with `COMPACTED` if the answer was lost and
    /// the history no longer contains the results when the SDK sent the transaction again. The transaction took effect
    /// nevertheless.
    pub results: Result<Vec<OpResult>, Error>,
    /// Id of the request; `None` for a read-only transaction, which is not part of the log.
    pub request: Option<RequestId>,
    /// The last request abandoned before this one, with its final fate.
    pub abandoned: Option<(RequestId, Fate)>,
}

impl Txn {
    pub fn new() -> Txn {
        Txn::default()
    }

    /// Adds a condition. All conditions must hold.
    pub fn compare(mut self, compare: Compare) -> Txn {
        self.txn.compares.push(compare.0);
        self
    }

    /// Adds an operation for the case that all compares hold.
    pub fn then(mut self, op: Op) -> Txn {
        self.txn.then.push(op.0);
        self
    }

    /// Adds an operation for the case that a compare does not hold.
    pub fn otherwise(mut self, op: Op) -> Txn {
        self.txn.otherwise.push(op.0);
        self
    }

    /// Sets a deadline, measured in log time. After it the transaction is never applied and fails with `TIMEOUT`.
    pub fn deadline(mut self, deadline: Duration) -> Txn {
        self.deadline = Some(deadline);
        self
    }

    /// Ends the session of the handle with this transaction (see [`Write::last`](super::Write::last)). No effect on a
    /// read-only transaction.
    pub fn last(mut self) -> Txn {
        self.last = true;
        self
    }

    /// Returns whether neither branch changes a key.
    pub fn is_read_only(&self) -> bool {
        self.txn.is_read_only()
    }

    fn check(&self) -> Result<(), Error> {
        let count = self.txn.compares.len() + self.txn.then.len() + self.txn.otherwise.len();
        if count == 0 || count > TXN_OPERATIONS_MAX {
            let message = format!("a transaction has 1 to {TXN_OPERATIONS_MAX} compares and operations, not {count}");
            let error = Error::new(ErrorCode::InvalidArgument, message);
            return Err(error.field("operations").limit(TXN_OPERATIONS_MAX as u64));
        }
        let (bytes, limit) = (prost::Message::encoded_len(&self.txn), convoke_proto::MESSAGE_BYTES_MAX - OVERHEAD);
        if bytes > limit {
            let message = format!("the transaction has {bytes} bytes; the limit is {limit}");
            return Err(Error::new(ErrorCode::TooLarge, message).field("txn").limit(limit as u64));
        }
        Ok(())
    }
}

impl From<v1::Txn> for Txn {
    fn from(txn: v1::Txn) -> Txn {
        Txn { txn, ..Txn::default() }
    }
}

impl TxnBuilder {
    pub(super) fn new(kv: Kv) -> TxnBuilder {
        TxnBuilder { kv, txn: Txn::new() }
    }

    /// Adds a condition. All conditions must hold.
    pub fn compare(self, compare: Compare) -> TxnBuilder {
        TxnBuilder { txn: self.txn.compare(compare), ..self }
    }

    /// Adds an operation for the case that all compares hold.
    pub fn then(self, op: Op) -> TxnBuilder {
        TxnBuilder { txn: self.txn.then(op), ..self }
    }

    /// Adds an operation for the case that a compare does not hold.
    pub fn otherwise(self, op: Op) -> TxnBuilder {
        TxnBuilder { txn: self.txn.otherwise(op), ..self }
    }

    /// Issues the transaction. Its order is fixed when this returns (see [`Kv::commit`]).
    pub fn commit(self) -> PendingTxn {
        self.kv.commit(self.txn)
    }
}

impl Compare {
    fn key(key: impl Into<Bytes>, relation: Relation, operand: compare::Operand) -> Compare {
        let relation = match relation {
            Relation::Equal => compare::Relation::Equal,
            Relation::NotEqual => compare::Relation::NotEqual,
            Relation::Less => compare::Relation::Less,
            Relation::Greater => compare::Relation::Greater,
        };
        let subject = Some(compare::Subject::Key(key.into()));
        Compare(v1::Compare { subject, relation: relation.into(), operand: Some(operand) })
    }

    /// Compares the value. False for a key that does not exist, except with [`Relation::NotEqual`].
    pub fn value(key: impl Into<Bytes>, relation: Relation, value: impl Into<Bytes>) -> Compare {
        Compare::key(key, relation, compare::Operand::Value(value.into()))
    }

    /// Compares the version. It is 0 for a key that does not exist.
    pub fn version(key: impl Into<Bytes>, relation: Relation, version: u64) -> Compare {
        Compare::key(key, relation, compare::Operand::Version(version))
    }

    /// Compares the create revision. It is 0 for a key that does not exist.
    pub fn create_revision(key: impl Into<Bytes>, relation: Relation, revision: u64) -> Compare {
        Compare::key(key, relation, compare::Operand::CreateRevision(revision))
    }

    /// Compares the modify revision. It is 0 for a key that does not exist.
    pub fn mod_revision(key: impl Into<Bytes>, relation: Relation, revision: u64) -> Compare {
        Compare::key(key, relation, compare::Operand::ModRevision(revision))
    }

    /// Compares the lease that the key is attached to; 0 for none.
    pub fn lease(key: impl Into<Bytes>, relation: Relation, lease: u64) -> Compare {
        Compare::key(key, relation, compare::Operand::Lease(lease))
    }

    pub fn exists(key: impl Into<Bytes>) -> Compare {
        Compare::key(key, Relation::Equal, compare::Operand::Exists(true))
    }

    pub fn missing(key: impl Into<Bytes>) -> Compare {
        Compare::key(key, Relation::Equal, compare::Operand::Exists(false))
    }

    /// Requires that a lock is held with this fence now.
    pub fn lock(name: impl Into<Bytes>, fence: u64) -> Compare {
        Compare::guard(v1::LockGuard { name: name.into(), fence, election: false })
    }

    /// Requires that the leader of an election has this fence now.
    pub fn election(name: impl Into<Bytes>, fence: u64) -> Compare {
        Compare::guard(v1::LockGuard { name: name.into(), fence, election: true })
    }

    fn guard(lock: v1::LockGuard) -> Compare {
        Compare(v1::Compare { subject: Some(compare::Subject::Lock(lock)), ..v1::Compare::default() })
    }

    /// Uses the key as a prefix: the compare must hold for every key that begins with it. `exists` holds if there is
    /// such a key, `missing` if there is none.
    pub fn prefix(mut self) -> Compare {
        if let Some(compare::Subject::Key(key)) = self.0.subject {
            self.0.subject = Some(compare::Subject::Range(v1::KeyRange::prefix(key)));
        }
        self
    }
}

impl Op {
    fn new(operation: txn_operation::Operation) -> Op {
        Op(v1::TxnOperation { operation: Some(operation) })
    }

    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Op {
        let put = v1::TxnPut { key: key.into(), value: value.into(), ..v1::TxnPut::default() };
        Op::new(txn_operation::Operation::Put(put))
    }

    pub fn delete(key: impl Into<Bytes>) -> Op {
        let which = Some(txn_delete::Which::Key(key.into()));
        Op::new(txn_operation::Operation::Delete(v1::TxnDelete { which, previous: false }))
    }

    /// Deletes every key that begins with `prefix`.
    pub fn delete_prefix(prefix: impl Into<Bytes>) -> Op {
        let which = Some(txn_delete::Which::Range(v1::KeyRange::prefix(prefix)));
        Op::new(txn_operation::Operation::Delete(v1::TxnDelete { which, previous: false }))
    }

    pub fn get(key: impl Into<Bytes>) -> Op {
        Op::read(Query::key(key))
    }

    pub fn read(query: Query) -> Op {
        Op::new(txn_operation::Operation::Read(query.into()))
    }

    /// Returns the previous records of a put or delete. No effect on a read.
    pub fn previous(mut self) -> Op {
        match &mut self.0.operation {
            Some(txn_operation::Operation::Put(put)) => put.previous = true,
            Some(txn_operation::Operation::Delete(delete)) => delete.previous = true,
            Some(txn_operation::Operation::Read(_)) | None => {}
        }
        self
    }

    /// Attaches the key of a put to a lease. A put without a lease detaches its key. No effect on other operations.
    pub fn lease(mut self, lease: u64) -> Op {
        if let Some(txn_operation::Operation::Put(put)) = &mut self.0.operation {
            put.lease = lease;
        }
        self
    }

    /// Stores a number with the key of a put. No effect on other operations.
    pub fn flags(mut self, flags: u64) -> Op {
        if let Some(txn_operation::Operation::Put(put)) = &mut self.0.operation {
            put.flags = flags;
        }
        self
    }

    /// Stores a second number with the key of a put, with which clients count acquisitions of the key. No effect on other
    /// operations.
    pub fn lock_index(mut self, lock_index: u64) -> Op {
        if let Some(txn_operation::Operation::Put(put)) = &mut self.0.operation {
            put.lock_index = lock_index;
        }
        self
    }
}

impl Kv {
    /// Starts a transaction.
    ///
    /// ```no_run
    /// # use convoke_client::log::{Compare, Kv, Op, Relation};
    /// # async fn transfer(kv: Kv) -> Result<(), convoke_client::Error> {
    /// let answer = kv
    ///     .txn()
    ///     .compare(Compare::value("owner", Relation::Equal, "me"))
    ///     .then(Op::put("state", "done"))
    ///     .then(Op::delete("owner"))
    ///     .otherwise(Op::get("owner"))
    ///     .commit()
    ///     .await?;
    /// assert!(answer.succeeded);
    /// # Ok(())
    /// # }
    /// ```
    pub fn txn(&self) -> TxnBuilder {
        TxnBuilder::new(self.clone())
    }

    /// Issues a transaction. Its order among the requests of this handle is fixed when this returns, before anything is
    /// awaited. A read-only transaction is a read with [`Consistency::Barrier`]: it adds no entry to the log and has
    /// no place in that order.
    ///
    /// Fails with `FAILED_PRECONDITION` and field `level` if the log has not reached feature level 2.
    pub fn commit(&self, txn: Txn) -> PendingTxn {
        if let Err(error) = txn.check() {
            return PendingTxn(State::Failed(Some(error)));
        }
        if txn.is_read_only() {
            let handle = self.handle().clone();
            return PendingTxn(State::Read(Box::pin(read_txn(handle, txn.txn, Consistency::Barrier))));
        }
        let (deadline, last) = (txn.deadline, txn.last);
        PendingTxn(State::Write(self.issue(Issuing { deadline, last, ..Issuing::new(Body::Txn(txn.txn)) })))
    }

    /// Executes a read-only transaction with the given consistency. Fails with `INVALID_ARGUMENT` if it changes keys.
    pub async fn read_txn(&self, txn: Txn, consistency: Consistency) -> Result<TxnAnswer, Error> {
        txn.check()?;
        read_txn(self.handle().clone(), txn.txn, consistency).await
    }

    /// Reads keys, at an older revision if one is given. `COMPACTED` means that the history no longer contains it.
    pub async fn query(
        &self,
        query: Query,
        revision: Option<u64>,
        consistency: Consistency,
    ) -> Result<super::KeyPage, Error> {
        let (revision, counts) = (revision.unwrap_or(0), query.counts());
        let response = read::read_at(self.handle(), query.what(revision), revision, consistency).await?;
        Ok(super::KeyPage::new(response, counts))
    }
}

async fn read_txn(handle: Arc<Handle>, txn: v1::Txn, consistency: Consistency) -> Result<TxnAnswer, Error> {
    let response = read::read(&handle, v1::read_request::What::Txn(txn), consistency).await?;
    Ok(TxnAnswer {
        succeeded: response.succeeded.unwrap_or_default(),
        revision: response.revision,
        results: results(response.results),
        request: None,
        abandoned: None,
    })
}

impl From<Decided> for TxnAnswer {
    fn from(decided: Decided) -> TxnAnswer {
        TxnAnswer {
            succeeded: decided.fate.succeeded.unwrap_or_default(),
            revision: decided.fate.revision,
            results: results(decided.results),
            request: Some(decided.request),
            abandoned: decided.abandoned,
        }
    }
}

fn results(results: Option<v1::TxnResults>) -> Result<Vec<OpResult>, Error> {
    let lost = |message: String, oldest| {
        Err(Error { known: oldest, ..Error::new(ErrorCode::Compacted, message).field("results") })
    };
    match results {
        Some(v1::TxnResults { compacted: Some(oldest), .. }) => {
            let message = format!(
                "the transaction took effect, but its results are no longer kept: the history starts at revision {oldest}"
            );
            lost(message, Some(oldest))
        }
        Some(v1::TxnResults { results, compacted: None }) => Ok(results.into_iter().map(OpResult::from).collect()),
        None => lost("the transaction took effect, but its results were not sent".to_owned(), None),
    }
}

impl From<v1::TxnResult> for OpResult {
    fn from(result: v1::TxnResult) -> OpResult {
        match result.result {
            Some(txn_result::Result::Put(put)) => OpResult::Put { previous: put.previous },
            Some(txn_result::Result::Delete(delete)) => {
                OpResult::Delete { keys: delete.keys, previous: delete.previous }
            }
            Some(txn_result::Result::Read(read)) => {
                OpResult::Read { records: read.records, count: read.count, more: read.more }
            }
            // A result of a newer node, to an operation that this version cannot send.
            None => OpResult::Put { previous: None },
        }
    }
}

impl From<TxnAnswer> for json::TxnAnswer {
    fn from(answer: TxnAnswer) -> json::TxnAnswer {
        let (results, compacted) = match answer.results {
            Ok(results) => (results.into_iter().map(json::OpResult::from).collect(), None),
            Err(error) => (Vec::new(), Some(error.known.unwrap_or_default())),
        };
        let TxnAnswer { succeeded, revision, request, .. } = answer;
        json::TxnAnswer { succeeded, revision, results, compacted, request }
    }
}

impl From<OpResult> for json::OpResult {
    fn from(result: OpResult) -> json::OpResult {
        let all = |records: Vec<KeyValue>| records.into_iter().map(json::KeyValue::from).collect();
        match result {
            OpResult::Put { previous } => json::OpResult::Put { previous: previous.map(json::KeyValue::from) },
            OpResult::Delete { keys, previous } => json::OpResult::Delete { deleted: keys, previous: all(previous) },
            OpResult::Read { records, count, more } => json::OpResult::Get { keys: all(records), count, more },
        }
    }
}

/// An issued transaction. Awaiting it returns the answer; dropping it abandons the transaction.
#[must_use = "a transaction whose future is dropped is abandoned"]
pub struct PendingTxn(State);

enum State {
    Write(PendingWrite),
    Read(Pin<Box<dyn Future<Output = Result<TxnAnswer, Error>> + Send>>),
    Failed(Option<Error>),
}

impl PendingTxn {
    /// Abandons the transaction, as dropping it does, and returns its id for `resolve`. Returns `None` if no copy was
    /// sent, if its answer was already taken, or if it is read-only.
    pub fn abandon(self) -> Option<RequestId> {
        match self.0 {
            State::Write(pending) => pending.abandon(),
            State::Read(_) | State::Failed(_) => None,
        }
    }
}

impl Future for PendingTxn {
    type Output = Result<TxnAnswer, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Write(pending) => pending.poll_decided(context).map_ok(TxnAnswer::from),
            State::Read(reading) => reading.as_mut().poll(context),
            State::Failed(error) => Poll::Ready(Err(error.take().unwrap_or_else(super::pending::gone))),
        }
    }
}

impl fmt::Debug for PendingTxn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingTxn").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_beyond_the_limits_is_not_sent() {
        let many = (0..129).fold(Txn::new(), |txn, number| txn.then(Op::put(format!("{number}"), "x")));
        let error = many.check().unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::InvalidArgument, Some("operations")));
        assert_eq!(Txn::new().check().unwrap_err().field.as_deref(), Some("operations"));
        let large = (0..4).fold(Txn::new(), |txn, number| txn.then(Op::put(format!("{number}"), vec![0; 1 << 20])));
        assert_eq!(large.check().unwrap_err().code, ErrorCode::TooLarge);
        assert_eq!(Txn::new().compare(Compare::exists("a")).check(), Ok(()));
    }

    #[test]
    fn a_transaction_of_reads_is_read_only() {
        let reads = Txn::new().compare(Compare::exists("a")).then(Op::get("a")).otherwise(Op::get("b"));
        assert!(reads.is_read_only());
        assert!(!reads.clone().otherwise(Op::delete("b")).is_read_only());
    }
}
