//! Handles to the key-value store.

use super::ambassador::{Ambassador, Shared};
use super::core::{Body, Issuing, LaneId};
use super::read::{self, Consistency};
use super::{KeyPage, KeyValue, Options, PendingWrite, Query};
use crate::Error;
use convoke_proto::v1::{self, compare::Subject, txn_operation::Operation};
use prost::bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// A handle to the key-value store, with its own log session.
///
/// Requests take effect in the order of the calls, each at most once. Clones share the session. Create handles that
/// should not wait for each other with [`Client::kv`](crate::Client::kv). Dropping the last clone ends the session;
/// [`close`](Self::close) waits for that.
#[derive(Clone, Debug)]
pub struct Kv {
    handle: Arc<Handle>,
}

/// Ends the session when the last clone is dropped. Pending requests keep it alive.
#[derive(Debug)]
pub(super) struct Handle {
    ambassador: Ambassador,
    pub(super) lane: LaneId,
    pub(super) timeout: Option<Duration>,
}

impl Handle {
    pub(super) fn shared(&self) -> &Shared {
        &self.ambassador.shared
    }

    pub(super) fn ambassador_shared(&self) -> &Arc<Shared> {
        &self.ambassador.shared
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // No effect if the handle was closed.
        self.shared().close(self.lane, None);
    }
}

/// A change of keys with its options.
#[derive(Clone, Debug)]
#[must_use]
pub struct Write {
    change: Change,
    conditions: Conditions,
    lease: u64,
    previous: bool,
    deadline: Option<Duration>,
    last: bool,
}

/// What must hold for a write to take effect.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    pub(super) if_revision: Option<u64>,
    pub(super) guard: Option<v1::LockGuard>,
}

#[derive(Clone, Debug)]
enum Change {
    Put(Bytes, Bytes),
    Delete(Bytes),
    DeleteRange(v1::KeyRange),
}

impl Write {
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Write {
        Write::new(Change::Put(key.into(), value.into()))
    }

    pub fn delete(key: impl Into<Bytes>) -> Write {
        Write::new(Change::Delete(key.into()))
    }

    /// Deletes every key that begins with `prefix`.
    pub fn delete_prefix(prefix: impl Into<Bytes>) -> Write {
        Write::new(Change::DeleteRange(v1::KeyRange::prefix(prefix)))
    }

    fn new(change: Change) -> Write {
        Write { change, conditions: Conditions::default(), lease: 0, previous: false, deadline: None, last: false }
    }

    /// Requires that the key has this modify revision, or does not exist if it is 0. Otherwise the write fails with
    /// `FAILED_PRECONDITION`, and [`Error::known`](crate::Error) is the revision found. Not supported for prefixes.
    pub fn if_revision(mut self, revision: u64) -> Write {
        self.conditions.if_revision = Some(revision);
        self
    }

    /// Attaches the key of a put to a lease: it is deleted when the lease ends. A put without a lease detaches its key. No
    /// effect on deletes.
    pub fn lease(mut self, lease: u64) -> Write {
        self.lease = lease;
        self
    }

    /// Requires that a lock is held with this fence when the write is applied. Otherwise the write fails with
    /// `FAILED_PRECONDITION` and field `fence`, however late it arrives.
    pub fn if_lock(mut self, name: impl Into<Bytes>, fence: u64) -> Write {
        self.conditions.guard = Some(v1::LockGuard { name: name.into(), fence, election: false });
        self
    }

    /// Requires that the leader of an election has this fence when the write is applied (see [`if_lock`](Self::if_lock)).
    pub fn if_leader(mut self, election: impl Into<Bytes>, fence: u64) -> Write {
        self.conditions.guard = Some(v1::LockGuard { name: election.into(), fence, election: true });
        self
    }

    /// Returns the previous records.
    pub fn previous(mut self) -> Write {
        self.previous = true;
        self
    }

    /// Sets a deadline, measured in log time. After it the write is never applied and fails with `TIMEOUT`.
    pub fn deadline(mut self, deadline: Duration) -> Write {
        self.deadline = Some(deadline);
        self
    }

    /// End the session of the handle with this write, in the same entry of the log. For programs that write once: nothing is left for
    /// [`Kv::close`] to do. Wait for the answer before you issue another request: it then opens a new session, and fails with
    /// `SESSION_GONE` if it was sent earlier.
    pub fn last(mut self) -> Write {
        self.last = true;
        self
    }

    pub(super) fn body(self) -> Body {
        if self.lease > 0 || self.conditions.guard.is_some() {
            return self.txn();
        }
        let Write { change, conditions: Conditions { if_revision, .. }, previous, .. } = self;
        let delete = |which| Body::Delete(v1::DeleteKeys { which: Some(which), if_revision, previous });
        match change {
            Change::Put(key, value) => Body::Put(v1::PutKey { key, value, if_revision, previous }),
            Change::Delete(key) => delete(v1::delete_keys::Which::Key(key)),
            Change::DeleteRange(range) => delete(v1::delete_keys::Which::Range(range)),
        }
    }

    /// Leases and guards exist in transactions only. The branch for a condition that does not hold reads the key, to find
    /// out which one it was.
    fn txn(self) -> Body {
        let Write { change, conditions: Conditions { if_revision, guard }, lease, previous, .. } = self;
        let (operation, key) = match change {
            Change::Put(key, value) => {
                let put = v1::TxnPut { key: key.clone(), value, lease, previous, ..v1::TxnPut::default() };
                (Operation::Put(put), Some(key))
            }
            Change::Delete(key) => {
                let which = Some(v1::txn_delete::Which::Key(key.clone()));
                (Operation::Delete(v1::TxnDelete { which, previous }), Some(key))
            }
            Change::DeleteRange(range) => {
                let which = Some(v1::txn_delete::Which::Range(range));
                (Operation::Delete(v1::TxnDelete { which, previous }), None)
            }
        };
        let mut compares = Vec::new();
        compares
            .extend(guard.map(|guard| v1::Compare { subject: Some(Subject::Lock(guard)), ..v1::Compare::default() }));
        compares.extend(if_revision.zip(key.clone()).map(|(revision, key)| v1::Compare {
            subject: Some(Subject::Key(key)),
            relation: v1::compare::Relation::Equal.into(),
            operand: Some(v1::compare::Operand::ModRevision(revision)),
        }));
        let wrap = |operation| v1::TxnOperation { operation: Some(operation) };
        let read = key.filter(|_| if_revision.is_some()).map(|key| {
            let query = v1::KeyQuery { which: Some(v1::key_query::Which::Key(key)), ..v1::KeyQuery::default() };
            wrap(Operation::Read(query))
        });
        Body::Txn(v1::Txn { compares, then: vec![wrap(operation)], otherwise: read.into_iter().collect() })
    }
}

impl Kv {
    pub(super) fn new(ambassador: Ambassador, options: Options) -> Kv {
        let timeout = options.timeout;
        let lane = ambassador.shared.lane(options);
        Kv { handle: Arc::new(Handle { ambassador, lane, timeout }) }
    }

    /// Issues a write. Its order is fixed when this returns, before anything is awaited.
    pub fn write(&self, write: Write) -> PendingWrite {
        let (deadline, last, conditions) = (write.deadline, write.last, write.conditions.clone());
        self.issue(Issuing { deadline, last, ..Issuing::new(write.body()) }).under(conditions)
    }

    pub(super) fn of(handle: &Arc<Handle>) -> Kv {
        Kv { handle: handle.clone() }
    }

    pub(super) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    pub(super) fn issue(&self, issuing: Issuing) -> PendingWrite {
        let issued = self.handle.shared().issue(self.handle.lane, issuing);
        PendingWrite::new(self.handle.clone(), issued)
    }

    /// Sets a key.
    pub fn put(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> PendingWrite {
        self.write(Write::put(key, value))
    }

    /// Sets a key that has the given modify revision, or that does not exist if it is 0. Otherwise fails with
    /// `FAILED_PRECONDITION`.
    pub fn compare_and_set(&self, key: impl Into<Bytes>, value: impl Into<Bytes>, revision: u64) -> PendingWrite {
        self.write(Write::put(key, value).if_revision(revision))
    }

    /// Deletes a key if it exists.
    pub fn delete(&self, key: impl Into<Bytes>) -> PendingWrite {
        self.write(Write::delete(key))
    }

    /// Deletes every key that begins with `prefix`.
    pub fn delete_prefix(&self, prefix: impl Into<Bytes>) -> PendingWrite {
        self.write(Write::delete_prefix(prefix))
    }

    /// Returns a key if it exists. No abandoned request of this handle can change the result later.
    pub async fn get(&self, key: impl Into<Bytes>) -> Result<Option<KeyValue>, Error> {
        self.get_with(key, Consistency::Barrier).await
    }

    /// Returns a key, read with the given consistency.
    pub async fn get_with(&self, key: impl Into<Bytes>, consistency: Consistency) -> Result<Option<KeyValue>, Error> {
        Ok(self.get_revision(key, consistency).await?.0)
    }

    /// Returns a key and the revision of the store at the read.
    pub async fn get_revision(
        &self,
        key: impl Into<Bytes>,
        consistency: Consistency,
    ) -> Result<(Option<KeyValue>, u64), Error> {
        let what = v1::read_request::What::Key(key.into());
        let response = read::read(&self.handle, what, consistency).await?;
        Ok((response.records.into_iter().next(), response.revision))
    }

    /// Returns the first keys that begin with `prefix`, in byte order. At most `limit` keys; 0 means as many as fit
    /// into one answer.
    pub async fn list(&self, prefix: impl Into<Bytes>, limit: u64) -> Result<KeyPage, Error> {
        self.list_after(prefix, None, limit, Consistency::Barrier).await
    }

    /// Returns the keys after a given key: the next page, if it was the last key of the previous page.
    pub async fn list_after(
        &self,
        prefix: impl Into<Bytes>,
        after: Option<Bytes>,
        limit: u64,
        consistency: Consistency,
    ) -> Result<KeyPage, Error> {
        let query = Query::prefix(prefix).limit(limit);
        self.query(after.into_iter().fold(query, |query, after| query.after(&after)), None, consistency).await
    }

    /// Ends the session and waits for confirmation, at most for `timeout`; after that the session expires by itself.
    /// Use it before a program exits: dropping a handle also ends its session, but does not wait.
    ///
    /// If other clones or pending requests still use the session, this only drops the handle.
    pub async fn close(self, timeout: Duration) -> Result<(), Error> {
        let Some(handle) = Arc::into_inner(self.handle) else { return Ok(()) };
        match handle.shared().close(handle.lane, Some(timeout)) {
            Some(ended) => ended.await.unwrap_or_else(|_| Err(super::pending::gone())).map(drop),
            None => Ok(()),
        }
    }

    /// Returns the session of this handle, once it is open. It changes after an expiry.
    pub fn session(&self) -> Option<u64> {
        self.handle.shared().with(|core, _, _| core.session(self.handle.lane))
    }
}
