//! Elections: locks with one permit in a namespace of their own, whose holder is the leader.

use super::ambassador::Shared;
use super::core::{Body, Issuing};
use super::following::{Ended, Follower, next_message, open_stream, run, send};
use super::kv::Handle;
use super::locks::{Acquire, Listing, LockPage, Locks};
use super::places::Place;
use super::read::Consistency;
use super::{Kv, LockInfo, Write};
use crate::{Error, ErrorCode};
use convoke_proto::v1::key_event::Change;
use convoke_proto::v1::key_watch_response::Message;
use convoke_proto::v1::lock_event::Kind;
use convoke_proto::v1::{self, key_watch::Which};
use prost::bytes::Bytes;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_stream::Stream;

/// Changes that may wait for the application.
const CHANGES_MAX: usize = 64;

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
    locks: Locks,
}

/// The leader of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Identifies the term; higher for every later one.
    pub fence: u64,
    pub value: Bytes,
    pub lease: u64,
}

/// A change of the leader, or of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderChange {
    /// `None` if the election has no leader now.
    pub leader: Option<Leader>,
    /// Revision of the change.
    pub revision: u64,
    /// Earlier changes may be missing: the history no longer contained them, or the log was replaced. Also set for the first
    /// one, which is the state at the start.
    pub reset: bool,
}

impl Kv {
    /// Returns the elections. Candidates hold leases of 10 s. They share the log session of this handle.
    pub fn elections(&self) -> Elections {
        Elections { locks: self.locks() }
    }
}

impl Elections {
    pub(crate) fn new(locks: Locks) -> Elections {
        Elections { locks }
    }

    /// Sets the leases that candidates hold.
    #[must_use]
    pub fn with_terms(self, terms: super::LeaseTerms) -> Elections {
        Elections { locks: self.locks.with_terms(terms) }
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

    fn all(&self) -> Listing<'_> {
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
        let (sender, changes) = mpsc::channel(CHANGES_MAX);
        let (elections, name, fold) = (self.clone(), name.into(), Fold::default());
        let follower = ElectionFollower { elections, name, log: None, next: None, fold, sender };
        Observer { changes, task: tokio::spawn(run(follower)) }
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

/// A stream of changes of an election. Dropping it ends it.
#[derive(Debug)]
#[must_use = "dropping an observer ends it"]
pub struct Observer {
    changes: mpsc::Receiver<Result<LeaderChange, Error>>,
    task: tokio::task::JoinHandle<()>,
}

impl Observer {
    /// Returns the next change; `None` after an error.
    pub async fn next(&mut self) -> Option<Result<LeaderChange, Error>> {
        self.changes.recv().await
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stream for Observer {
    type Item = Result<LeaderChange, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.changes.poll_recv(context)
    }
}

impl Leader {
    fn of(election: &LockInfo) -> Option<Leader> {
        let holder = election.holders.first()?;
        Some(Leader { fence: holder.fence, value: holder.value.clone(), lease: holder.lease })
    }
}

/// Turns events of one revision into at most one change: a hand-over is a release and a grant at one revision.
#[derive(Debug, Default)]
struct Fold {
    leader: Option<Leader>,
    /// The leader that was reported last.
    reported: Option<Leader>,
}

impl Fold {
    /// Applies an event, and returns a change after the last event of its revision.
    fn apply(&mut self, event: v1::LockEvent, revision: u64, last: bool) -> Option<LeaderChange> {
        match event.kind() {
            Kind::Granted => {
                let v1::LockEvent { fence, lease, value, .. } = event;
                self.leader = Some(Leader { fence, value, lease });
            }
            Kind::Proclaimed => {
                if let Some(leader) = self.leader.as_mut().filter(|leader| leader.fence == event.fence) {
                    leader.value = event.value;
                }
            }
            Kind::Released => self.leader = self.leader.take().filter(|leader| leader.fence != event.fence),
            Kind::Unspecified => {}
        }
        if !last || self.leader == self.reported {
            return None;
        }
        self.reported.clone_from(&self.leader);
        Some(LeaderChange { leader: self.leader.clone(), revision, reset: false })
    }

    /// Starts again with the current state.
    fn reset(&mut self, leader: Option<Leader>, revision: u64) -> LeaderChange {
        self.leader.clone_from(&leader);
        self.reported.clone_from(&leader);
        LeaderChange { leader, revision, reset: true }
    }
}

struct ElectionFollower {
    elections: Elections,
    name: Bytes,
    log: Option<v1::LogId>,
    /// Where the watch continues; `None` to start with the current state.
    next: Option<v1::EventPosition>,
    fold: Fold,
    sender: mpsc::Sender<Result<LeaderChange, Error>>,
}

impl Follower for ElectionFollower {
    fn shared(&self) -> &Shared {
        self.elections.locks.leases.handle.shared()
    }

    fn position(&self) -> Option<v1::EventPosition> {
        self.next
    }

    async fn follow(&mut self, address: &str) -> Ended {
        match self.try_follow(address).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn failed(self, error: Error) {
        let _ = self.sender.send(Err(error)).await;
    }
}

impl ElectionFollower {
    async fn try_follow(&mut self, address: &str) -> Result<std::convert::Infallible, Ended> {
        let from = match self.next {
            Some(next) => next,
            None => self.start().await?,
        };
        let guard = v1::LockGuard { name: self.name.clone(), fence: 0, election: true };
        let watch =
            v1::KeyWatch { id: 1, which: Some(Which::Lock(guard)), from: Some(from), ..v1::KeyWatch::default() };
        let mut stream = match open_stream(self.shared(), address, watch, self.log, false).await {
            Err(error) if matches!(error.code, ErrorCode::SessionGone | ErrorCode::Compacted) => {
                return Err(self.start_again());
            }
            opened => opened?.1,
        };
        loop {
            match next_message(&mut stream, address).await? {
                Message::Started(started) => self.log = started.log,
                Message::Progress(progress) => self.next = progress.next.or(self.next),
                Message::Events(events) => {
                    for event in events.events {
                        let at = event.position.unwrap_or_default();
                        if let Some(Change::Lock(change)) = event.change
                            && let Some(change) = self.fold.apply(change, at.revision, event.last)
                        {
                            self.send(change).await?;
                        }
                        self.next = Some(v1::EventPosition { index: at.index + 1, ..at });
                    }
                    self.next = events.next.or(self.next);
                }
                Message::Compacted(_) => return Err(self.start_again()),
            }
        }
    }

    /// Forgets the position: the next stream starts with the current leader.
    fn start_again(&mut self) -> Ended {
        (self.next, self.log) = (None, None);
        Ended::start_again()
    }

    /// Reads the current state. The events after its revision follow.
    async fn start(&mut self) -> Result<v1::EventPosition, Ended> {
        let page = self.elections.all().one(self.name.clone(), Consistency::Linearizable).await?;
        let leader = page.locks.first().and_then(Leader::of);
        let change = self.fold.reset(leader, page.revision);
        self.send(change).await?;
        let next = v1::EventPosition { revision: page.revision + 1, index: 0 };
        self.next = Some(next);
        Ok(next)
    }

    async fn send(&self, change: LeaderChange) -> Result<(), Ended> {
        send(self.shared(), &self.sender, Ok(change)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: Kind, fence: u64, value: &'static str) -> v1::LockEvent {
        v1::LockEvent { kind: kind.into(), fence, lease: fence + 100, value: value.into() }
    }

    fn leader(fence: u64, value: &'static str) -> Option<Leader> {
        Some(Leader { fence, value: value.into(), lease: fence + 100 })
    }

    #[test]
    fn el1_a_hand_over_is_one_change_and_a_repeated_state_is_none() {
        let mut fold = Fold::default();
        assert!(fold.reset(leader(3, "a"), 3).reset);
        assert_eq!(fold.apply(event(Kind::Released, 3, ""), 7, false), None, "the grant of revision 7 follows");
        let change = fold.apply(event(Kind::Granted, 7, "b"), 7, true).unwrap();
        assert_eq!((change.leader, change.revision, change.reset), (leader(7, "b"), 7, false));
        let change = fold.apply(event(Kind::Proclaimed, 7, "c"), 8, true).unwrap();
        assert_eq!(change.leader, leader(7, "c"));
        assert_eq!(fold.apply(event(Kind::Proclaimed, 7, "c"), 9, true), None);
        assert_eq!(fold.apply(event(Kind::Released, 3, ""), 10, true), None, "the fence of an earlier term");
        let change = fold.apply(event(Kind::Released, 7, ""), 11, true).unwrap();
        assert_eq!(change.leader, None);
    }
}
