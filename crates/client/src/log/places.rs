//! A place in a lock or election: asked for, in the queue, or holding.

use super::coordination::Asking;
use super::core::{Ask, Asked, Body, Issuing};
use super::kv::Handle;
use super::leases::{Lease, LeaseInner};
use super::{Kv, read};
use crate::{Error, ErrorCode};
use convoke_proto::v1::{self, release_lock};
use prost::bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// The lease of a place.
#[derive(Clone, Debug)]
pub(super) enum LeaseRef {
    Held(Arc<LeaseInner>),
    /// Another process keeps it alive.
    Id(u64),
}

/// A request for a place.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) name: Bytes,
    pub(super) election: bool,
    pub(super) permits: u64,
    pub(super) value: Bytes,
    pub(super) delay: Duration,
    /// The place in the queue ends with this lease, too.
    pub(super) waits_with: Option<Lease>,
}

/// A place that this process asked for. Dropping it queues the release or the cancel at once, before any later request of
/// its handle, so no grant takes effect afterwards (LO5).
#[derive(Debug)]
pub(super) struct Place {
    /// All requests for places of a lease use one log session, so they take effect in order.
    handle: Arc<Handle>,
    name: Bytes,
    election: bool,
    lease: LeaseRef,
    /// 0 while waiting.
    fence: u64,
    /// Answered when the place is lost.
    change: Option<Asking>,
    over: bool,
}

/// Whether to queue, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Try,
    Wait(Option<Duration>),
}

impl Place {
    /// Asks for a place and waits until it holds a permit. Dropping the future cancels.
    pub(super) async fn acquire(
        handle: &Arc<Handle>,
        lease: LeaseRef,
        wanted: &Wanted,
        patience: Patience,
    ) -> Result<Place, Error> {
        let handle = match &lease {
            LeaseRef::Held(lease) => lease.handle.clone(),
            LeaseRef::Id(_) => handle.clone(),
        };
        let (name, election) = (wanted.name.clone(), wanted.election);
        let mut place = Place { handle, name, election, lease, fence: 0, change: None, over: false };
        match patience {
            Patience::Try => place.ask_for(wanted, false).await.map(|_| ())?,
            Patience::Wait(None) => place.wait(wanted, &mut false).await?,
            Patience::Wait(Some(timeout)) => {
                let mut queued = false;
                let waited = tokio::time::timeout(timeout, place.wait(wanted, &mut queued)).await;
                match waited {
                    Ok(waited) => waited?,
                    Err(_) if queued => return Err(place.not_granted(timeout)),
                    Err(_) => return Err(place.handle.shared().explain(read::no_leader())),
                }
            }
        }
        place.observe()?;
        Ok(place)
    }

    async fn wait(&mut self, wanted: &Wanted, queued: &mut bool) -> Result<(), Error> {
        if self.ask_for(wanted, true).await? {
            return Ok(());
        }
        *queued = true;
        let asking = self.ask()?;
        let lost = async {
            match &self.lease {
                LeaseRef::Held(lease) => Lease { inner: lease.clone() }.lost().await,
                LeaseRef::Id(_) => std::future::pending().await,
            }
        };
        let second_lost = async {
            match &wanted.waits_with {
                Some(lease) => lease.lost().await,
                None => std::future::pending().await,
            }
        };
        let answered = tokio::select! {
            biased;
            answered = asking.answer() => answered?,
            error = lost => return Err(error),
            error = second_lost => return Err(error),
        };
        match answered {
            Asked::Place { fence } if fence > 0 => {
                self.fence = fence;
                Ok(())
            }
            _ => Err(self.removed()),
        }
    }

    /// Sends the acquire until it is decided. Returns whether the place holds a permit. Asking again returns the same
    /// place (LO1), so a session that ended in between does no harm.
    async fn ask_for(&mut self, wanted: &Wanted, wait: bool) -> Result<bool, Error> {
        let acquire = Body::Acquire(v1::AcquireLock {
            name: self.name.clone(),
            election: self.election,
            lease: self.lease_id(),
            permits: wanted.permits,
            value: wanted.value.clone(),
            wait,
            delay_ms: u64::try_from(wanted.delay.as_millis()).unwrap_or(u64::MAX),
            waits_with: wanted.waits_with.as_ref().filter(|_| wait).map_or(0, Lease::id),
        });
        loop {
            match Kv::of(&self.handle).issue(Issuing::new(acquire.clone())).decided().await {
                Ok(decided) => {
                    self.fence = decided.fate.fence;
                    return Ok(self.fence > 0);
                }
                Err(error) if error.code == ErrorCode::SessionGone => {}
                Err(error) => {
                    // Rejected requests have no place. If the outcome is not known, dropping the place cancels it.
                    let unknown = [ErrorCode::OutcomeUnknown, ErrorCode::Compacted, ErrorCode::Superseded];
                    self.over = !unknown.contains(&error.code);
                    return Err(error);
                }
            }
        }
    }

    /// Asks for the next change of the place.
    fn ask(&self) -> Result<Asking, Error> {
        let (name, election, lease, fence) = (self.name.clone(), self.election, self.lease_id(), self.fence);
        self.handle.ambassador_shared().ask(Ask::Place { name, election, lease, fence })
    }

    fn observe(&mut self) -> Result<(), Error> {
        self.change = Some(self.ask()?);
        Ok(())
    }

    pub(super) fn lease_id(&self) -> u64 {
        match &self.lease {
            LeaseRef::Held(lease) => Lease { inner: lease.clone() }.id(),
            LeaseRef::Id(lease) => *lease,
        }
    }

    pub(super) fn name(&self) -> &Bytes {
        &self.name
    }

    pub(super) fn fence(&self) -> u64 {
        self.fence
    }

    pub(super) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Returns whether the permit is certain to be held: the lease is valid, and no change was reported.
    pub(super) fn is_held(&self) -> bool {
        let unchanged = self.change.as_ref().is_none_or(|change| change.answered().is_none());
        let valid = match &self.lease {
            LeaseRef::Held(lease) => Lease { inner: lease.clone() }.is_valid(),
            LeaseRef::Id(_) => true,
        };
        unchanged && valid
    }

    pub(super) async fn lost(&self) -> Error {
        let lease = async {
            match &self.lease {
                LeaseRef::Held(lease) => Lease { inner: lease.clone() }.lost().await,
                LeaseRef::Id(_) => std::future::pending().await,
            }
        };
        let change = async {
            match &self.change {
                Some(change) => change.answer().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            error = lease => error,
            change = change => match change {
                Ok(_) => self.removed(),
                Err(error) => error,
            },
        }
    }

    /// Releases the permit and waits for the answer.
    pub(super) async fn release(mut self) -> Result<(), Error> {
        self.over = true;
        let released = Kv::of(&self.handle).issue(Issuing { patient: false, ..self.releasing() }).decided().await;
        match released {
            // It was lost before.
            Err(error) if error.code == ErrorCode::NotFound => Ok(()),
            // The end of the session decides nothing: ask again without waiting.
            Err(error) if error.code == ErrorCode::SessionGone => {
                self.over = false;
                Ok(())
            }
            Err(error) => {
                self.over = false;
                Err(error)
            }
            Ok(_) => Ok(()),
        }
    }

    /// Gives the place to the lease: dropping no longer releases it. Returns the fence.
    pub(super) fn detach(mut self) -> u64 {
        self.over = true;
        self.fence
    }

    fn releasing(&self) -> Issuing {
        // A waiter has no fence. Its place may have been granted meanwhile, and is released then.
        let place = match self.fence {
            0 => release_lock::Place::Lease(self.lease_id()),
            fence => release_lock::Place::Fence(fence),
        };
        let (name, election) = (self.name.clone(), self.election);
        Issuing::new(Body::Release(v1::ReleaseLock { name, election, place: Some(place) }))
    }

    fn kind(&self) -> &'static str {
        if self.election { "election" } else { "lock" }
    }

    fn removed(&self) -> Error {
        let (kind, name) = (self.kind(), String::from_utf8_lossy(&self.name));
        let message = match self.fence {
            0 => format!("the place in the queue of {kind} {name:?} is gone: its lease ended, or somebody released it"),
            fence => format!(
                "{kind} {name:?} is no longer held with fence {fence}: its lease ended, or somebody released it"
            ),
        };
        Error::new(ErrorCode::NotFound, message).field("lock")
    }

    fn not_granted(&self, timeout: Duration) -> Error {
        let (kind, name) = (self.kind(), String::from_utf8_lossy(&self.name));
        let message = format!("{kind} {name:?} was not granted within {} s; others hold it", timeout.as_secs_f64());
        Error::new(ErrorCode::LockHeld, message).field("lock")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.over {
            self.handle.shared().issue_detached(self.handle.lane, self.releasing());
        }
        if let LeaseRef::Held(lease) = &self.lease {
            // After the release was issued: the next use of the place comes later in the same session.
            lease.free_place(self.election, &self.name);
        }
    }
}
