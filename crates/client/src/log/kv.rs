//! Handles to the key-value store.

use super::ambassador::{Ambassador, Shared};
use super::core::{Body, Issuing, LaneId};
use super::read::{self, Consistency};
use super::{KeyPage, KeyValue, Options, PendingWrite, Query};
use crate::Error;
use convoke_proto::v1;
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
    if_revision: Option<u64>,
    previous: bool,
    deadline: Option<Duration>,
    last: bool,
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
        Write { change, if_revision: None, previous: false, deadline: None, last: false }
    }

    /// Requires that the key has this modify revision, or does not exist if it is 0. Otherwise the write fails with
    /// `FAILED_PRECONDITION`, and [`Error::known`](crate::Error) is the revision found. Not supported for prefixes.
    pub fn if_revision(mut self, revision: u64) -> Write {
        self.if_revision = Some(revision);
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

    fn body(self) -> Body {
        let Write { change, if_revision, previous, .. } = self;
        let delete = |which| Body::Delete(v1::DeleteKeys { which: Some(which), if_revision, previous });
        match change {
            Change::Put(key, value) => Body::Put(v1::PutKey { key, value, if_revision, previous }),
            Change::Delete(key) => delete(v1::delete_keys::Which::Key(key)),
            Change::DeleteRange(range) => delete(v1::delete_keys::Which::Range(range)),
        }
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
        self.issue(Issuing { deadline: write.deadline, last: write.last, body: write.body() })
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
