//! Locks and semaphores.

use super::core::{Body, Issuing};
use super::leases::{Lease, LeaseTerms};
use super::places::{LeaseRef, Patience, Place, Wanted};
use super::read::{self, Consistency};
use super::{Kv, Leases, LockInfo, Write};
use crate::{Error, ErrorCode};
use convoke_proto::v1::{self, read_request::What};
use prost::bytes::Bytes;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Ttl of the leases that locks use if none is given.
const TTL: Duration = Duration::from_secs(10);

/// Locks and semaphores. Each lock is held with a lease, so it is released when its holder dies.
///
/// Leases are shared by locks of different names. Two places in one lock never share a lease, so two tasks of one process
/// exclude each other, too.
///
/// ```no_run
/// # async fn nightly(client: convoke_client::Client) -> Result<(), convoke_client::Error> {
/// let locks = client.locks();
/// let guard = locks.lock("jobs/nightly").await?;
/// tokio::select! {
///     error = guard.lost() => return Err(error),
///     () = async { /* the work; pass guard.fence() to everything that it changes */ } => {}
/// }
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Locks {
    pub(super) leases: Leases,
    pub(super) terms: Arc<dyn Fn() -> LeaseTerms + Send + Sync>,
    pool: Arc<Mutex<Vec<(LeaseTerms, Lease)>>>,
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("leases", &self.leases).finish_non_exhaustive()
    }
}

/// A lock to acquire, with options.
#[derive(Clone, Debug)]
#[must_use]
pub struct Acquire {
    pub(super) wanted: Wanted,
    pub(super) patience: Patience,
    lease: Option<LeaseRef>,
}

impl Acquire {
    /// Waits for the lock without a limit.
    pub fn new(name: impl Into<Bytes>) -> Acquire {
        let (value, delay) = (Bytes::new(), Duration::ZERO);
        let wanted = Wanted { name: name.into(), election: false, permits: 1, value, delay, waits_with: None };
        Acquire { wanted, patience: Patience::Wait(None), lease: None }
    }

    /// Fails with `LOCK_HELD` if no permit is free.
    pub fn no_wait(mut self) -> Acquire {
        self.patience = Patience::Try;
        self
    }

    /// Waits at most for this time, and fails with `LOCK_HELD` after it. Zero does not wait.
    pub fn wait(mut self, timeout: Duration) -> Acquire {
        self.patience = if timeout.is_zero() { Patience::Try } else { Patience::Wait(Some(timeout)) };
        self
    }

    /// Sets the number of permits: a semaphore. Everybody who uses the lock must name the same number.
    pub fn permits(mut self, permits: u64) -> Acquire {
        self.wanted.permits = permits;
        self
    }

    /// Sets the value that others see.
    pub fn value(mut self, value: impl Into<Bytes>) -> Acquire {
        self.wanted.value = value.into();
        self
    }

    /// Sets how long the lock stays free after the lease of this holder ended. A release does not wait for it.
    pub fn delay(mut self, delay: Duration) -> Acquire {
        self.wanted.delay = delay;
        self
    }

    /// Uses this lease. It must not have another place in this lock.
    pub fn lease(mut self, lease: &Lease) -> Acquire {
        self.lease = Some(LeaseRef::Held(lease.inner.clone()));
        self
    }

    /// Uses a lease that another process keeps alive. Asking again with it returns the same place.
    pub fn lease_id(mut self, lease: u64) -> Acquire {
        self.lease = Some(LeaseRef::Id(lease));
        self
    }

    /// Gives the place in the queue up when this lease ends, too. For a process that waits with a lease that another one keeps
    /// alive. A granted permit does not depend on it.
    pub fn waits_with(mut self, lease: &Lease) -> Acquire {
        self.wanted.waits_with = Some(lease.clone());
        self
    }

    /// Asks for an election, whose names are separate from those of locks.
    #[doc(hidden)]
    pub fn of_election(mut self) -> Acquire {
        self.wanted.election = true;
        self
    }
}

/// A page of locks or elections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LockPage {
    pub locks: Vec<LockInfo>,
    /// Whether further ones follow the last one.
    pub more: bool,
    /// Log time of the state, microseconds. Compare the times of holders with it.
    pub log_time_us: u64,
    /// Revision of the state.
    pub revision: u64,
}

impl Kv {
    /// Returns the locks, acquired with leases of 10 s. They share the log session of this handle.
    pub fn locks(&self) -> Locks {
        Locks::new(self.leases(), Arc::new(Locks::default_terms))
    }
}

impl Locks {
    pub(crate) fn new(leases: Leases, terms: Arc<dyn Fn() -> LeaseTerms + Send + Sync>) -> Locks {
        Locks { leases, terms, pool: Arc::default() }
    }

    pub(crate) fn default_terms() -> LeaseTerms {
        LeaseTerms::ttl(TTL)
    }

    /// Sets the leases that locks are acquired with.
    #[must_use]
    pub fn with_terms(self, terms: LeaseTerms) -> Locks {
        Locks { terms: Arc::new(move || terms.clone()), pool: Arc::default(), ..self }
    }

    /// Acquires a lock if it is free. Fails with `LOCK_HELD` otherwise.
    pub async fn try_lock(&self, name: impl Into<Bytes>) -> Result<LockGuard, Error> {
        self.acquire(Acquire::new(name).no_wait()).await
    }

    /// Waits for a lock. Dropping the future cancels: no guard is returned afterwards, and a grant that crosses the cancel is
    /// released.
    pub async fn lock(&self, name: impl Into<Bytes>) -> Result<LockGuard, Error> {
        self.acquire(Acquire::new(name)).await
    }

    /// Acquires a lock with options. Dropping the future cancels (see [`lock`](Self::lock)).
    pub async fn acquire(&self, acquire: Acquire) -> Result<LockGuard, Error> {
        Ok(LockGuard { place: self.place(acquire).await? })
    }

    pub(super) async fn place(&self, acquire: Acquire) -> Result<Place, Error> {
        let Acquire { wanted, patience, lease } = acquire;
        let lease = match lease {
            None => self.pooled(&wanted).await?,
            Some(LeaseRef::Held(lease)) if !lease.take_place(wanted.election, &wanted.name) => {
                let name = String::from_utf8_lossy(&wanted.name);
                let message = format!("this lease already has a place in {name:?}: use another lease");
                return Err(Error::new(ErrorCode::FailedPrecondition, message).field("lease"));
            }
            Some(lease) => lease,
        };
        Place::acquire(&self.leases.handle, lease, &wanted, patience).await
    }

    /// Returns a lease without a place in this lock, and takes its place.
    async fn pooled(&self, wanted: &Wanted) -> Result<LeaseRef, Error> {
        let terms = (self.terms)();
        if let Some(lease) = self.free_lease(&terms, wanted) {
            return Ok(LeaseRef::Held(lease.inner));
        }
        let lease = self.leases.grant(terms.clone()).await?;
        lease.inner.take_place(wanted.election, &wanted.name);
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).push((terms, lease.clone()));
        Ok(LeaseRef::Held(lease.inner))
    }

    fn free_lease(&self, terms: &LeaseTerms, wanted: &Wanted) -> Option<Lease> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.retain(|(_, lease)| !lease.inner.is_lost());
        let free = |(with, lease): &&(LeaseTerms, Lease)| {
            with == terms && lease.inner.take_place(wanted.election, &wanted.name)
        };
        pool.iter().find(free).map(|(_, lease)| lease.clone())
    }

    /// Revokes the leases of this handle and waits for that, so nothing is left when the process exits. Locks that are still
    /// held are lost. Dropping the handle also revokes them, but does not wait.
    pub async fn close(self) -> Result<(), Error> {
        let leases = std::mem::take(&mut *self.pool.lock().unwrap_or_else(PoisonError::into_inner));
        let mut closed = Ok(());
        for (_, lease) in leases {
            closed = closed.and(lease.revoke().await);
        }
        closed
    }

    /// Returns one lock with its queue; `None` if nobody holds it or waits for it.
    pub async fn show(&self, name: impl Into<Bytes>, consistency: Consistency) -> Result<Option<LockInfo>, Error> {
        Ok(self.show_page(name, consistency).await?.locks.into_iter().next())
    }

    /// Returns a page with one lock, or none, and the log time of the state.
    pub async fn show_page(&self, name: impl Into<Bytes>, consistency: Consistency) -> Result<LockPage, Error> {
        self.all().one(name.into(), consistency).await
    }

    /// Returns locks after a name, in the order of their names. 0 as the limit means 1,000.
    pub async fn list(&self, after: impl Into<Bytes>, limit: u64, consistency: Consistency) -> Result<LockPage, Error> {
        self.all().page(after.into(), limit, consistency).await
    }

    fn all(&self) -> Listing<'_> {
        Listing { leases: &self.leases, election: false }
    }

    /// Releases the permit with this fence, whoever holds it. Fails with `NOT_FOUND` if nobody does.
    pub async fn release(&self, name: impl Into<Bytes>, fence: u64) -> Result<(), Error> {
        self.all().release(name.into(), fence).await
    }
}

/// All locks, or all elections: their names are separate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listing<'a> {
    pub(super) leases: &'a Leases,
    pub(super) election: bool,
}

impl Listing<'_> {
    /// Returns a page with one of them, or none.
    pub(super) async fn one(self, name: Bytes, consistency: Consistency) -> Result<LockPage, Error> {
        self.read(v1::LockQuery { name: Some(name), ..v1::LockQuery::default() }, consistency).await
    }

    /// Returns those after a name.
    pub(super) async fn page(self, after: Bytes, limit: u64, consistency: Consistency) -> Result<LockPage, Error> {
        self.read(v1::LockQuery { after, limit, ..v1::LockQuery::default() }, consistency).await
    }

    async fn read(self, query: v1::LockQuery, consistency: Consistency) -> Result<LockPage, Error> {
        let what = What::Locks(v1::LockQuery { election: self.election, ..query });
        let v1::ReadResponse { locks, more, log_time_us, revision, .. } =
            read::read(&self.leases.handle, what, consistency).await?;
        Ok(LockPage { locks, more, log_time_us, revision })
    }

    /// Releases the permit with a fence, whoever holds it.
    pub(super) async fn release(self, name: Bytes, fence: u64) -> Result<(), Error> {
        let place = Some(v1::release_lock::Place::Fence(fence));
        let release = Body::Release(v1::ReleaseLock { name, election: self.election, place });
        Kv::of(&self.leases.handle).issue(Issuing::new(release)).decided().await.map(drop)
    }
}

/// A held lock. Dropping it releases the lock without waiting.
#[derive(Debug)]
#[must_use = "dropping the guard releases the lock"]
pub struct LockGuard {
    place: Place,
}

impl LockGuard {
    /// Returns the fencing token: a number that is higher for every later holder. Pass it to everything that the lock
    /// protects.
    pub fn fence(&self) -> u64 {
        self.place.fence()
    }

    pub fn name(&self) -> &Bytes {
        self.place.name()
    }

    /// Returns the id of the lease that the lock is held with.
    pub fn lease(&self) -> u64 {
        self.place.lease_id()
    }

    /// Returns whether the lock is certain to be held, as far as time and the leader's reports show. A paused process may
    /// learn of a loss late; only the fence protects against that.
    pub fn is_held(&self) -> bool {
        self.place.is_held()
    }

    /// Waits until the lock is lost, or may be: its lease ended or was not confirmed in time, or somebody released it.
    pub async fn lost(&self) -> Error {
        self.place.lost().await
    }

    /// Requires that this lock is still held when the write is applied.
    pub fn guard(&self, write: Write) -> Write {
        write.if_lock(self.name().clone(), self.fence())
    }

    /// Releases the lock and waits for the answer.
    pub async fn release(self) -> Result<(), Error> {
        self.place.release().await
    }

    /// Leaves the lock to its lease: dropping does not release it. Returns the fence.
    pub fn detach(self) -> u64 {
        self.place.detach()
    }
}
