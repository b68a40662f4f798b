//! Leases: promises of this process to be alive, on which keys and places in locks can depend.

use super::coordination::LeaseStatus;
use super::core::{Ask, Asked, Body, Issuing, Keep};
use super::kv::Handle;
use super::read::{self, Consistency};
use super::{Kv, LeaseInfo};
use crate::session::ClientTime;
use crate::{Error, ErrorCode};
use convoke_proto::v1::{self, grant_lease::EndBehavior, grant_lease::Term, read_request::What};
use prost::bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Leases of a handle. They outlive its log session.
#[derive(Clone, Debug)]
pub struct Leases {
    pub(super) handle: Arc<Handle>,
}

/// What a lease depends on, and what happens to its keys when it ends.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct LeaseTerms {
    term: Term,
    /// For a member: the longest time without a confirmation of the log.
    confirmed_within: Duration,
    release_keys: bool,
}

impl LeaseTerms {
    /// The lease ends when it was not kept alive for this time.
    pub fn ttl(ttl: Duration) -> LeaseTerms {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        LeaseTerms { term: Term::TtlMs(ttl_ms), confirmed_within: ttl, release_keys: false }
    }

    /// The lease ends with this registration of a member. `confirmed_within` is the heartbeat timeout of the client.
    ///
    /// No ttl protects its holder, only the fence does: the cluster may end the lease at any time after the member was
    /// reported down.
    pub fn member(member: MemberBinding, confirmed_within: Duration) -> LeaseTerms {
        LeaseTerms { term: Term::Member(member), confirmed_within, release_keys: false }
    }

    /// Keeps the keys of the lease when it ends. By default they are deleted.
    pub fn release_keys(mut self) -> LeaseTerms {
        self.release_keys = true;
        self
    }

    fn body(&self) -> Body {
        let end = if self.release_keys { EndBehavior::Release } else { EndBehavior::Delete };
        Body::Grant(v1::GrantLease { term: Some(self.term.clone()), end: end.into() })
    }

    fn is_member(&self) -> bool {
        matches!(self.term, Term::Member(_))
    }
}

pub use convoke_proto::v1::MemberBinding;

/// A page of leases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeasePage {
    pub leases: Vec<LeaseInfo>,
    /// Whether further leases follow the last one.
    pub more: bool,
    /// Log time of the state, microseconds.
    pub log_time_us: u64,
}

impl Kv {
    /// Returns the leases of this handle. They share its log session.
    pub fn leases(&self) -> Leases {
        Leases { handle: self.handle().clone() }
    }
}

impl Leases {
    /// Grants a lease and keeps it alive until the returned value is dropped. Dropping the last clone revokes the lease.
    pub async fn grant(&self, terms: LeaseTerms) -> Result<Lease, Error> {
        let decided = Kv::of(&self.handle).issue(Issuing::new(terms.body())).decided().await?;
        let log = decided.request.log.unwrap_or_default();
        let (lease, granted) = (decided.fate.lease, Some(decided.sent));
        let keep = Keep { lease, log, ttl: terms.confirmed_within, member: terms.is_member(), granted };
        Lease::keep(self.handle.clone(), keep).await
    }

    /// Grants a lease that this process does not keep alive, and returns its id.
    pub async fn create(&self, terms: LeaseTerms) -> Result<u64, Error> {
        Ok(Kv::of(&self.handle).issue(Issuing::new(terms.body())).decided().await?.fate.lease)
    }

    /// Keeps a lease alive that another process or [`create`](Self::create) granted, until the returned value is dropped.
    /// Dropping it does not revoke the lease.
    pub async fn hold(&self, lease: u64) -> Result<Lease, Error> {
        let info = self.get(lease, Consistency::Linearizable).await?.ok_or_else(|| no_lease(lease))?;
        if info.member.is_some() {
            let message = format!("lease {lease} is bound to a member, whose registration keeps it alive");
            return Err(Error::new(ErrorCode::FailedPrecondition, message).field("lease"));
        }
        let log = self.handle.shared().with(|core, _, _| core.log()).ok_or_else(read::no_leader)?;
        let ttl = Duration::from_millis(info.ttl_ms);
        let keep = Keep { lease, log, ttl, member: false, granted: None };
        let held = Lease::keep(self.handle.clone(), keep).await?;
        held.detach();
        Ok(held)
    }

    /// Sends one keep-alive and returns the time left after it. Fails with `NOT_FOUND` if there is no such lease.
    pub async fn keep_alive(&self, lease: u64) -> Result<Duration, Error> {
        let asking = self.handle.ambassador_shared().ask(Ask::Renew { lease })?;
        match read::within(self.handle.timeout, read::no_leader, asking.answer()).await? {
            Asked::Renewed { left } => Ok(left),
            Asked::Place { .. } => Err(Error::new(ErrorCode::Internal, "the leader answered another question")),
        }
    }

    /// Ends a lease, its keys and its places in locks, at one revision. Returns the number of its keys. Fails with
    /// `NOT_FOUND` if there is no such lease.
    pub async fn revoke(&self, lease: u64) -> Result<u64, Error> {
        let revoke = Body::Revoke(v1::RevokeLease { lease });
        Ok(Kv::of(&self.handle).issue(Issuing::new(revoke)).decided().await?.fate.keys)
    }

    /// Returns one lease with its keys and places.
    pub async fn get(&self, lease: u64, consistency: Consistency) -> Result<Option<LeaseInfo>, Error> {
        Ok(self.get_at(lease, consistency).await?.0)
    }

    /// Returns one lease with its keys and places, and the log time of the state in microseconds.
    pub async fn get_at(&self, lease: u64, consistency: Consistency) -> Result<(Option<LeaseInfo>, u64), Error> {
        let what = What::Leases(v1::LeaseQuery { lease, ..v1::LeaseQuery::default() });
        let v1::ReadResponse { leases, log_time_us, .. } = read::read(&self.handle, what, consistency).await?;
        Ok((leases.into_iter().next(), log_time_us))
    }

    /// Returns leases with a higher id than `after`, in the order of their ids. 0 as the limit means 1,000.
    pub async fn list(&self, after: u64, limit: u64, consistency: Consistency) -> Result<LeasePage, Error> {
        let what = What::Leases(v1::LeaseQuery { lease: 0, after, limit });
        let v1::ReadResponse { leases, more, log_time_us, .. } = read::read(&self.handle, what, consistency).await?;
        Ok(LeasePage { leases, more, log_time_us })
    }
}

fn no_lease(lease: u64) -> Error {
    Error::new(ErrorCode::NotFound, format!("no lease {lease}: it has expired or was revoked")).field("lease")
}

/// A lease that this process keeps alive. Dropping the last clone revokes it.
///
/// It is certain to exist until the last confirmed keep-alive was sent, plus the ttl, minus one percent for different
/// clock rates. After that [`lost`](Self::lost) returns, and this is final.
#[derive(Clone, Debug)]
pub struct Lease {
    pub(super) inner: Arc<LeaseInner>,
}

#[derive(Debug)]
pub(super) struct LeaseInner {
    id: u64,
    ttl: Duration,
    member: bool,
    pub(super) handle: Arc<Handle>,
    status: watch::Receiver<LeaseStatus>,
    /// Places of this lease that this process uses: a second use would share the place.
    places: Mutex<BTreeSet<(bool, Bytes)>>,
    detached: std::sync::atomic::AtomicBool,
}

impl Lease {
    async fn keep(handle: Arc<Handle>, keep: Keep) -> Result<Lease, Error> {
        let status = handle.shared().keep(keep)?;
        let inner = LeaseInner {
            id: keep.lease,
            ttl: keep.ttl,
            member: keep.member,
            handle,
            status: status.clone(),
            places: Mutex::default(),
            detached: false.into(),
        };
        let lease = Lease { inner: Arc::new(inner) };
        // The grant may have been answered so late that only a keep-alive confirms the lease.
        let confirmed = async {
            let mut status = status;
            match status.wait_for(|status| *status != LeaseStatus::Unconfirmed).await.map(|status| status.clone()) {
                Ok(LeaseStatus::Lost(error)) => Err(error),
                Ok(_) => Ok(()),
                Err(_) => Err(super::pending::gone()),
            }
        };
        read::within(lease.inner.handle.timeout, read::no_leader, confirmed).await?;
        Ok(lease)
    }

    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// Returns the ttl; of a member lease the longest time without a confirmation of the log.
    pub fn ttl(&self) -> Duration {
        self.inner.ttl
    }

    /// Returns whether the lease is bound to a member.
    pub fn is_member(&self) -> bool {
        self.inner.member
    }

    /// Returns for how long the lease is certain to exist from now on, without a further keep-alive. For a member lease
    /// this is only the time until [`lost`](Self::lost) returns without a further confirmation.
    pub fn valid_for(&self) -> Duration {
        match &*self.inner.status.borrow() {
            LeaseStatus::ValidUntil(until) => until.saturating_sub(self.now()),
            LeaseStatus::Unconfirmed | LeaseStatus::Lost(_) => Duration::ZERO,
        }
    }

    /// Returns whether the lease is certain to exist.
    pub fn is_valid(&self) -> bool {
        !self.valid_for().is_zero()
    }

    /// Waits until the lease has ended, or may have: the log ended it (`NOT_FOUND`), or confirmed no keep-alive in time
    /// (`TIMEOUT`).
    pub async fn lost(&self) -> Error {
        let mut status = self.inner.status.clone();
        let lost = status.wait_for(|status| matches!(status, LeaseStatus::Lost(_))).await;
        match lost.map(|status| status.clone()) {
            Ok(LeaseStatus::Lost(error)) => error,
            // The ambassador has ended, and with it the keep-alives.
            _ => super::pending::gone(),
        }
    }

    /// Revokes the lease and waits for the answer.
    pub async fn revoke(self) -> Result<(), Error> {
        self.detach();
        let (leases, id) = (Leases { handle: self.inner.handle.clone() }, self.id());
        drop(self);
        match leases.revoke(id).await {
            Err(error) if error.code != ErrorCode::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Leaves the lease to others: dropping it only ends the keep-alives.
    pub fn detach(&self) {
        self.inner.detached.store(true, std::sync::atomic::Ordering::Release);
    }

    fn now(&self) -> ClientTime {
        self.inner.handle.shared().now()
    }
}

impl LeaseInner {
    pub(super) fn is_lost(&self) -> bool {
        matches!(&*self.status.borrow(), LeaseStatus::Lost(_))
    }

    /// Takes the place of the lease in a lock for one use. Returns false if it is in use.
    pub(super) fn take_place(&self, election: bool, name: &Bytes) -> bool {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).insert((election, name.clone()))
    }

    pub(super) fn free_place(&self, election: bool, name: &Bytes) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).remove(&(election, name.clone()));
    }
}

impl Drop for LeaseInner {
    fn drop(&mut self) {
        let shared = self.handle.shared();
        shared.stop_keeping(self.id);
        if !*self.detached.get_mut() && !self.is_lost() {
            let revoke = Body::Revoke(v1::RevokeLease { lease: self.id });
            shared.issue_detached(self.handle.lane, Issuing::new(revoke));
        }
    }
}
