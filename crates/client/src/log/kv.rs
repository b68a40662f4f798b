//! Keys.

use super::ambassador::{Ambassador, Shared};
use super::core::{Body, Issuing, LaneId};
use super::read::{self, Consistency, Page};
use super::{KeyValue, Options, Pending};
use crate::Error;
use convoke_proto::v1;
use prost::bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// A handle to the keys of the log: one session.
///
/// Requests take effect in the order of the calls, each at most once. Clones share the session; handles that should not wait for each other
/// are made with [`Client::kv`](crate::Client::kv). When the last clone is dropped, the session ends; [`close`](Self::close) waits for that.
#[derive(Clone, Debug)]
pub struct Kv {
    handle: Arc<Handle>,
}

/// Ends the session when nobody uses it any more; requests on their way do.
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
        // Already over if it was closed.
        self.shared().close(self.lane, None);
    }
}

/// A change of keys, with all that can be said about it.
#[derive(Clone, Debug)]
#[must_use]
pub struct Write {
    what: What,
    if_revision: Option<u64>,
    previous: bool,
    deadline: Option<Duration>,
    last: bool,
}

#[derive(Clone, Debug)]
enum What {
    Put(Bytes, Bytes),
    Delete(Bytes),
    DeleteRange(v1::KeyRange),
}

impl Write {
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Write {
        Write::new(What::Put(key.into(), value.into()))
    }

    pub fn delete(key: impl Into<Bytes>) -> Write {
        Write::new(What::Delete(key.into()))
    }

    /// Deletes every key that begins with `prefix`.
    pub fn delete_prefix(prefix: impl Into<Bytes>) -> Write {
        Write::new(What::DeleteRange(read::prefix(prefix.into())))
    }

    fn new(what: What) -> Write {
        Write { what, if_revision: None, previous: false, deadline: None, last: false }
    }

    /// Only if the key has this modify revision; 0: only if it does not exist. Otherwise `FAILED_PRECONDITION`, with the revision found in
    /// [`Error::known`](crate::Error). Not for prefixes.
    pub fn if_revision(mut self, revision: u64) -> Write {
        self.if_revision = Some(revision);
        self
    }

    /// Return what was there before.
    pub fn previous(mut self) -> Write {
        self.previous = true;
        self
    }

    /// Do not apply it later than this, measured in the log's own time: afterwards it fails with `TIMEOUT`, for good.
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
        let Write { what, if_revision, previous, .. } = self;
        let delete = |which| Body::Delete(v1::DeleteKeys { which: Some(which), if_revision, previous });
        match what {
            What::Put(key, value) => Body::Put(v1::PutKey { key, value, if_revision, previous }),
            What::Delete(key) => delete(v1::delete_keys::Which::Key(key)),
            What::DeleteRange(range) => delete(v1::delete_keys::Which::Range(range)),
        }
    }
}

impl Kv {
    pub(super) fn new(ambassador: Ambassador, options: Options) -> Kv {
        let timeout = options.timeout;
        let lane = ambassador.shared.lane(options);
        Kv { handle: Arc::new(Handle { ambassador, lane, timeout }) }
    }

    /// Issues a write. Its place is fixed when this returns, before anything is awaited.
    pub fn write(&self, write: Write) -> Pending {
        let issuing = Issuing { deadline: write.deadline, last: write.last, body: write.body() };
        let issued = self.handle.shared().issue(self.handle.lane, issuing);
        Pending::new(self.handle.clone(), issued)
    }

    /// Sets a key.
    pub fn put(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Pending {
        self.write(Write::put(key, value))
    }

    /// Sets a key that has a certain modify revision; 0: that does not exist. Otherwise `FAILED_PRECONDITION`.
    pub fn compare_and_set(&self, key: impl Into<Bytes>, value: impl Into<Bytes>, revision: u64) -> Pending {
        self.write(Write::put(key, value).if_revision(revision))
    }

    /// Deletes a key, if it is there.
    pub fn delete(&self, key: impl Into<Bytes>) -> Pending {
        self.write(Write::delete(key))
    }

    /// Deletes every key that begins with `prefix`.
    pub fn delete_prefix(&self, prefix: impl Into<Bytes>) -> Pending {
        self.write(Write::delete_prefix(prefix))
    }

    /// A key, if it exists; nothing that this handle has abandoned can change it afterwards.
    pub async fn get(&self, key: impl Into<Bytes>) -> Result<Option<KeyValue>, Error> {
        self.get_with(key, Consistency::Barrier).await
    }

    /// A key, read as told.
    pub async fn get_with(&self, key: impl Into<Bytes>, consistency: Consistency) -> Result<Option<KeyValue>, Error> {
        Ok(self.get_revision(key, consistency).await?.0)
    }

    /// The same, and the revision of all keys when it was read.
    pub async fn get_revision(
        &self,
        key: impl Into<Bytes>,
        consistency: Consistency,
    ) -> Result<(Option<KeyValue>, u64), Error> {
        let what = v1::read_request::What::Key(key.into());
        let response = read::read(&self.handle, what, consistency).await?;
        Ok((response.records.into_iter().next(), response.revision))
    }

    /// The first keys that begin with `prefix`, in byte order: at most `limit` of them (0: as many as fit into one answer).
    pub async fn list(&self, prefix: impl Into<Bytes>, limit: u64) -> Result<Page, Error> {
        self.list_after(prefix, None, limit, Consistency::Barrier).await
    }

    /// The same behind a key: the next page, if that was the last key of the page before.
    pub async fn list_after(
        &self,
        prefix: impl Into<Bytes>,
        after: Option<Bytes>,
        limit: u64,
        consistency: Consistency,
    ) -> Result<Page, Error> {
        let range = read::page(read::prefix(prefix.into()), after);
        let what = v1::read_request::What::Range(v1::ReadRange { range: Some(range), limit, keys_only: false });
        let response = read::read(&self.handle, what, consistency).await?;
        Ok(Page { records: response.records, more: response.more, revision: response.revision })
    }

    /// Ends the session and waits until the log has said so, for `patience` at most; then it is left to expire. For programs that end: a
    /// handle that is merely dropped ends its session as well, but nobody waits for that to arrive.
    ///
    /// If there are other clones, or requests on their way, the session is still in use: then this only drops the handle.
    pub async fn close(self, patience: Duration) -> Result<(), Error> {
        let Some(handle) = Arc::into_inner(self.handle) else { return Ok(()) };
        match handle.shared().close(handle.lane, Some(patience)) {
            Some(ended) => ended.await.unwrap_or_else(|_| Err(super::pending::gone())).map(drop),
            None => Ok(()),
        }
    }

    /// The session of this handle, once one is open. Another one after it expired.
    pub fn session(&self) -> Option<u64> {
        self.handle.shared().with(|core, _, _| core.session(self.handle.lane))
    }
}
