//! Elections: locks with one permit in a namespace of their own, whose holder is the leader.

use super::core::{Body, Issuing};
use super::kv::Handle;
use super::locks::{Acquire, Listing, LockPage, Locks};
use super::observer::{ElectionPosition, Observer};
use super::places::Place;
use super::read::Consistency;
use super::{Kv, LockInfo, Write};
use crate::Error;
use convoke_proto::v1;
use prost::bytes::Bytes;
use std::sync::Arc;

/// Elections of a leader among candidates.
///
/// ```no_run
/// # async fn lead(client: convoke_client::Client) -> Result<(), convoke_client::Error> {
/// let elections = client.elections();
/// let leadership = elections.campaign("workers", "10.0.0.1:8080").await?;
/// println!("leader with fence {}", leadership.fence());
/// leadership.lost().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Elections {
    pub(super) locks: Locks,
    pub(super) ends_without_quorum: bool,
}

/// The leader of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Identifies the term; higher for every later one.
    pub fence: u64,
    pub value: Bytes,
    pub lease: u64,
}

impl Kv {
    /// Returns the elections. Candidates hold leases of 10 s. They share the log session of this handle.
    pub fn elections(&self) -> Elections {
        Elections::new(self.locks())
    }
}

impl Elections {
    pub(crate) fn new(locks: Locks) -> Elections {
        Elections { locks, ends_without_quorum: false }
    }

    /// Sets the leases that candidates hold.
    #[must_use]
    pub fn with_terms(self, terms: super::LeaseTerms) -> Elections {
        Elections { locks: self.locks.with_terms(terms), ..self }
    }

    /// Observers of this handle end with `NO_QUORUM` or `TIMEOUT` when no node has a quorum. Otherwise they wait for it.
    #[must_use]
    pub fn end_without_quorum(self) -> Elections {
        Elections { ends_without_quorum: true, ..self }
    }

    /// Waits until this candidate is the leader. Dropping the future ends the candidacy.
    pub async fn campaign(&self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<Leadership, Error> {
        self.campaign_with(Acquire::new(name).value(value)).await
    }

    /// Becomes the leader with options: a limited wait, or another lease.
    pub async fn campaign_with(&self, candidacy: Acquire) -> Result<Leadership, Error> {
        let candidacy = Acquire::of_election(candidacy.permits(1));
        Ok(Leadership { place: self.locks.place(candidacy).await? })
    }

    /// Revokes the leases of this handle and waits for that. Leaderships that are still held are lost.
    pub async fn close(self) -> Result<(), Error> {
        self.locks.close().await
    }

    /// Returns the leader.
    pub async fn leader(&self, name: impl Into<Bytes>) -> Result<Option<Leader>, Error> {
        Ok(self.show(name, Consistency::Linearizable).await?.as_ref().and_then(Leader::of))
    }

    /// Returns an election with its candidates; `None` if there are none.
    pub async fn show(&self, name: impl Into<Bytes>, consistency: Consistency) -> Result<Option<LockInfo>, Error> {
        Ok(self.show_page(name, consistency).await?.locks.into_iter().next())
    }

    /// Returns a page with one election, or none, and the log time of the state.
    pub async fn show_page(&self, name: impl Into<Bytes>, consistency: Consistency) -> Result<LockPage, Error> {
        self.all().one(name.into(), consistency).await
    }

    /// Returns elections after a name, in the order of their names. 0 as the limit means 1,000.
    pub async fn list(&self, after: impl Into<Bytes>, limit: u64, consistency: Consistency) -> Result<LockPage, Error> {
        self.all().page(after.into(), limit, consistency).await
    }

    pub(super) fn all(&self) -> Listing<'_> {
        Listing { leases: &self.locks.leases, election: true }
    }

    /// Ends the term with this fence, whoever leads.
    pub async fn resign(&self, name: impl Into<Bytes>, fence: u64) -> Result<(), Error> {
        self.all().release(name.into(), fence).await
    }

    /// Replaces the value of the leader with this fence. Fails with `FAILED_PRECONDITION` or `NOT_FOUND` if it does not
    /// lead any more.
    pub async fn proclaim(&self, name: impl Into<Bytes>, fence: u64, value: impl Into<Bytes>) -> Result<(), Error> {
        proclaim(&self.locks.leases.handle, name.into(), fence, value.into()).await
    }

    /// Observes an election: the current leader first, then exactly one change per change of the leader or its value.
    pub fn observe(&self, name: impl Into<Bytes>) -> Observer {
        Observer::start(self.clone(), name.into(), None)
    }

    /// Continues at a [position](Observer::position) of an earlier observer, at whatever node. Every later change is
    /// returned once. If the history no longer contains the position, the current leader is returned first, with `reset`.
    pub fn resume(&self, name: impl Into<Bytes>, position: ElectionPosition) -> Observer {
        Observer::start(self.clone(), name.into(), Some(position))
    }
}

async fn proclaim(handle: &Arc<Handle>, name: Bytes, fence: u64, value: Bytes) -> Result<(), Error> {
    let proclaim = Body::Proclaim(v1::Proclaim { name, election: true, fence, value });
    Kv::of(handle).issue(Issuing::new(proclaim)).decided().await.map(drop)
}

/// The leadership of this process. Dropping it resigns without waiting.
#[derive(Debug)]
#[must_use = "dropping the leadership resigns"]
pub struct Leadership {
    place: Place,
}

impl Leadership {
    /// Returns the fencing token of this term. Pass it to everything that only the leader may change.
    pub fn fence(&self) -> u64 {
        self.place.fence()
    }

    /// Returns the id of the lease that the leadership depends on.
    pub fn lease(&self) -> u64 {
        self.place.lease_id()
    }

    /// Returns whether this process is certain to lead (see [`LockGuard::is_held`](super::LockGuard::is_held)).
    pub fn is_leader(&self) -> bool {
        self.place.is_held()
    }

    /// Waits until the leadership is lost, or may be.
    pub async fn lost(&self) -> Error {
        self.place.lost().await
    }

    /// Replaces the value that observers see.
    pub async fn proclaim(&self, value: impl Into<Bytes>) -> Result<(), Error> {
        proclaim(self.place.handle(), self.place.name().clone(), self.fence(), value.into()).await
    }

    /// Requires that this process still leads when the write is applied.
    pub fn guard(&self, write: Write) -> Write {
        write.if_leader(self.place.name().clone(), self.fence())
    }

    /// Resigns and waits for the answer.
    pub async fn resign(self) -> Result<(), Error> {
        self.place.release().await
    }

    /// Leaves the leadership to its lease: dropping does not resign. Returns the fence.
    pub fn detach(self) -> u64 {
        self.place.detach()
    }
}

impl Leader {
    pub(super) fn of(election: &LockInfo) -> Option<Leader> {
        let holder = election.holders.first()?;
        Some(Leader { fence: holder.fence, value: holder.value.clone(), lease: holder.lease })
    }
}
