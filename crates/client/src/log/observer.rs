//! Observers of elections. They continue at any replica, exactly where they were.

use super::ambassador::Shared;
use super::elections::{Elections, Leader};
use super::following::{Ended, Follower, Place, Report, Reports, send};
use super::read::Consistency;
use super::watch::ResetReason;
use crate::Error;
use convoke_proto::v1::key_event::Change;
use convoke_proto::v1::lock_event::Kind;
use convoke_proto::v1::{self, key_watch::Which};
use prost::bytes::Bytes;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_stream::Stream;

/// Changes that may wait for the application.
const CHANGES_MAX: usize = 64;

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

/// Where an observer continues: all changes up to a revision were returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionPosition {
    pub log: v1::LogId,
    pub revision: u64,
    /// Fence and lease of the leader after that revision.
    pub leader: Option<(u64, u64)>,
}

/// A stream of changes of an election. Dropping it ends it.
#[derive(Debug)]
#[must_use = "dropping an observer ends it"]
pub struct Observer(Reports<LeaderChange, Option<ElectionPosition>>);

impl Observer {
    pub(super) fn start(elections: Elections, name: Bytes, position: Option<ElectionPosition>) -> Observer {
        let place = position.map_or_else(Place::default, |at| {
            let next = v1::EventPosition { revision: at.revision.saturating_add(1), index: 0 };
            Place { log: Some(at.log), next: Some(next) }
        });
        let fold = position.map_or_else(Fold::default, |at| Fold::resumed(at.leader));
        let follower = |sender| ElectionFollower { elections, name, place, fold, sender };
        Observer(Reports::start(position, CHANGES_MAX, follower))
    }

    /// Returns the next change; `None` after an error. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<LeaderChange, Error>> {
        self.0.next().await
    }

    /// Returns where an observer continues after the last returned change, for [`Elections::resume`]. `None` before the
    /// first one. It also moves while nothing changes and [`next`](Self::next) waits.
    pub fn position(&self) -> Option<ElectionPosition> {
        self.0.position()
    }
}

impl Stream for Observer {
    type Item = Result<LeaderChange, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll(context)
    }
}

/// Turns events of one revision into at most one change: a hand-over is a release and a grant at one revision.
#[derive(Debug, Default)]
struct Fold {
    leader: Option<Leader>,
    /// The leader that was reported last; `None` if its value is not known.
    reported: Option<Option<Leader>>,
    /// The leader or its value changed since then.
    changed: bool,
}

impl Fold {
    /// Continues after a leader whose value is not known.
    fn resumed(leader: Option<(u64, u64)>) -> Fold {
        let leader = leader.map(|(fence, lease)| Leader { fence, lease, value: Bytes::new() });
        Fold { leader, reported: None, changed: false }
    }

    /// Applies an event, and returns a change after the last event of its revision.
    fn apply(&mut self, event: v1::LockEvent, revision: u64, last: bool) -> Option<LeaderChange> {
        match event.kind() {
            Kind::Granted => {
                let v1::LockEvent { fence, lease, value, .. } = event;
                (self.leader, self.changed) = (Some(Leader { fence, value, lease }), true);
            }
            Kind::Proclaimed => {
                if let Some(leader) = self.leader.as_mut().filter(|leader| leader.fence == event.fence) {
                    (leader.value, self.changed) = (event.value, true);
                }
            }
            Kind::Released => {
                if self.leader.take_if(|leader| leader.fence == event.fence).is_some() {
                    self.changed = true;
                }
            }
            Kind::Unspecified => {}
        }
        if !last || !std::mem::take(&mut self.changed) || self.reported.as_ref() == Some(&self.leader) {
            return None;
        }
        self.reported = Some(self.leader.clone());
        Some(LeaderChange { leader: self.leader.clone(), revision, reset: false })
    }

    /// Starts again with the current state.
    fn reset(&mut self, leader: Option<Leader>, revision: u64) -> LeaderChange {
        *self = Fold { leader: leader.clone(), reported: Some(leader.clone()), changed: false };
        LeaderChange { leader, revision, reset: true }
    }

    fn known(&self) -> Option<(u64, u64)> {
        self.leader.as_ref().map(|leader| (leader.fence, leader.lease))
    }
}

struct ElectionFollower {
    elections: Elections,
    name: Bytes,
    place: Place,
    fold: Fold,
    sender: mpsc::Sender<Report<LeaderChange, Option<ElectionPosition>>>,
}

impl Follower for ElectionFollower {
    fn shared(&self) -> &Shared {
        self.elections.locks.leases.handle.shared()
    }

    fn place(&mut self) -> &mut Place {
        &mut self.place
    }

    fn wanted(&self) -> (v1::KeyWatch, bool) {
        let guard = v1::LockGuard { name: self.name.clone(), fence: 0, election: true };
        (v1::KeyWatch { which: Some(Which::Lock(guard)), ..v1::KeyWatch::default() }, false)
    }

    /// Reads the current state. The events after its revision follow.
    async fn prepare(&mut self) -> Result<(), Ended> {
        if self.place.next.is_some() {
            return Ok(());
        }
        let page = self.elections.all().one(self.name.clone(), Consistency::Linearizable).await?;
        // The leader that answered has this log. If it is not known yet, the stream names it.
        let log = self.shared().log();
        let change = self.fold.reset(page.locks.first().and_then(Leader::of), page.revision);
        self.place = Place { log, next: Some(v1::EventPosition { revision: page.revision + 1, index: 0 }) };
        self.report(Some(change), page.revision).await
    }

    async fn event(&mut self, event: v1::KeyEvent) -> Result<(), Ended> {
        let revision = event.position.unwrap_or_default().revision;
        let Some(Change::Lock(change)) = event.change else { return Ok(()) };
        match self.fold.apply(change, revision, event.last) {
            Some(change) => self.report(Some(change), revision).await,
            None => Ok(()),
        }
    }

    async fn marked(&mut self, next: v1::EventPosition) -> Result<(), Ended> {
        // Inside of a revision there is nothing to continue at.
        if next.index == 0 { self.report(None, next.revision.saturating_sub(1)).await } else { Ok(()) }
    }

    fn ends_without_quorum(&self) -> bool {
        self.elections.ends_without_quorum
    }

    fn start_again(&mut self, _: ResetReason) {}

    async fn failed(self, error: Error) {
        let _ = self.sender.send(Report { event: Some(Err(error)), position: None }).await;
    }
}

impl ElectionFollower {
    /// Reports a change, or that there was none, up to a revision.
    async fn report(&self, change: Option<LeaderChange>, revision: u64) -> Result<(), Ended> {
        let log = self.place.log.unwrap_or_default();
        let position = ElectionPosition { log, revision, leader: self.fold.known() };
        let report = Report { event: change.map(Ok), position: Some(Some(position)) };
        send(self.elections.locks.leases.handle.shared(), &self.sender, report).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: Kind, fence: u64, value: &'static str) -> v1::LockEvent {
        v1::LockEvent { kind: kind.into(), fence, lease: fence + 100, value: value.into(), ..v1::LockEvent::default() }
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

    /// The position names the leader without its value, which the next event does not need.
    #[test]
    fn el1_a_resumed_observer_misses_and_repeats_no_change() {
        let mut fold = Fold::resumed(Some((7, 107)));
        assert_eq!(fold.apply(event(Kind::Released, 3, ""), 8, true), None, "the fence of an earlier term");
        let change = fold.apply(event(Kind::Proclaimed, 7, ""), 9, true).unwrap();
        assert_eq!(change.leader, leader(7, ""), "an empty value is a change, too");
        assert_eq!(fold.apply(event(Kind::Proclaimed, 7, ""), 10, true), None);
        let mut fold = Fold::resumed(Some((7, 107)));
        assert_eq!(fold.apply(event(Kind::Released, 7, ""), 8, true).unwrap().leader, None);
        let mut fold = Fold::resumed(None);
        assert_eq!(fold.apply(event(Kind::Granted, 8, "d"), 8, true).unwrap().leader, leader(8, "d"));
        assert_eq!(fold.known(), Some((8, 108)));
    }
}
