//! Observers of elections. They continue at any replica, exactly where they were.

use super::ambassador::Shared;
use super::elections::{Elections, Leader};
use super::following::{Ended, Follower, next_message, open_stream, run, send};
use super::read::Consistency;
use crate::{Error, ErrorCode};
use convoke_proto::v1::key_event::Change;
use convoke_proto::v1::key_watch_response::Message;
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
pub struct Observer {
    reports: mpsc::Receiver<Report>,
    position: Option<ElectionPosition>,
    task: tokio::task::JoinHandle<()>,
}

/// What happened, and where the observer continues after it.
#[derive(Debug)]
struct Report {
    /// `None`: nothing until this position.
    change: Option<Result<LeaderChange, Error>>,
    position: Option<ElectionPosition>,
}

impl Observer {
    pub(super) fn start(elections: Elections, name: Bytes, position: Option<ElectionPosition>) -> Observer {
        let (sender, reports) = mpsc::channel(CHANGES_MAX);
        let next = position.map(|at| (at.log, v1::EventPosition { revision: at.revision.saturating_add(1), index: 0 }));
        let fold = position.map_or_else(Fold::default, |at| Fold::resumed(at.leader));
        let follower = ElectionFollower { elections, name, next, fold, sender };
        Observer { reports, position, task: tokio::spawn(run(follower)) }
    }

    /// Returns the next change; `None` after an error. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<LeaderChange, Error>> {
        std::future::poll_fn(|context| self.poll_change(context)).await
    }

    /// Returns where an observer continues after the last returned change, for [`Elections::resume`]. `None` before the
    /// first one. It also moves while nothing changes and [`next`](Self::next) waits.
    pub fn position(&self) -> Option<ElectionPosition> {
        self.position
    }

    fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<LeaderChange, Error>>> {
        loop {
            let Some(report) = std::task::ready!(self.reports.poll_recv(context)) else { return Poll::Ready(None) };
            self.position = report.position.or(self.position);
            if let Some(change) = report.change {
                return Poll::Ready(Some(change));
            }
        }
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
        self.poll_change(context)
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
    /// Where the watch continues; `None` to start with the current state.
    next: Option<(v1::LogId, v1::EventPosition)>,
    fold: Fold,
    sender: mpsc::Sender<Report>,
}

impl Follower for ElectionFollower {
    fn shared(&self) -> &Shared {
        self.elections.locks.leases.handle.shared()
    }

    fn position(&self) -> Option<v1::EventPosition> {
        self.next.map(|(_, next)| next)
    }

    async fn follow(&mut self, address: &str) -> Ended {
        match self.try_follow(address).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn failed(self, error: Error) {
        let _ = self.sender.send(Report { change: Some(Err(error)), position: None }).await;
    }
}

impl ElectionFollower {
    async fn try_follow(&mut self, address: &str) -> Result<std::convert::Infallible, Ended> {
        let (log, from) = match self.next {
            Some(next) => next,
            None => self.start().await?,
        };
        let guard = v1::LockGuard { name: self.name.clone(), fence: 0, election: true };
        let watch =
            v1::KeyWatch { id: 1, which: Some(Which::Lock(guard)), from: Some(from), ..v1::KeyWatch::default() };
        let mut stream = match open_stream(self.shared(), address, watch, Some(log), false).await {
            Err(error) if matches!(error.code, ErrorCode::SessionGone | ErrorCode::Compacted) => {
                return Err(self.start_again());
            }
            opened => opened?.1,
        };
        loop {
            match next_message(&mut stream, address).await? {
                Message::Started(_) => {}
                Message::Progress(progress) => {
                    self.next = progress.next.map(|next| (log, next)).or(self.next);
                    // Inside of a revision there is nothing to continue at.
                    if let Some(next) = progress.next.filter(|next| next.index == 0) {
                        self.report(None, log, next.revision.saturating_sub(1)).await?;
                    }
                }
                Message::Events(events) => {
                    for event in events.events {
                        let at = event.position.unwrap_or_default();
                        if let Some(Change::Lock(change)) = event.change
                            && let Some(change) = self.fold.apply(change, at.revision, event.last)
                        {
                            self.report(Some(change), log, at.revision).await?;
                        }
                        self.next = Some((log, v1::EventPosition { index: at.index + 1, ..at }));
                    }
                    self.next = events.next.map(|next| (log, next)).or(self.next);
                }
                Message::Compacted(_) => return Err(self.start_again()),
            }
        }
    }

    /// Forgets the position: the next stream starts with the current leader.
    fn start_again(&mut self) -> Ended {
        self.next = None;
        Ended::start_again()
    }

    /// Reads the current state. The events after its revision follow.
    async fn start(&mut self) -> Result<(v1::LogId, v1::EventPosition), Ended> {
        let page = self.elections.all().one(self.name.clone(), Consistency::Linearizable).await?;
        // The leader that answered has this log.
        let log = self.shared().log().unwrap_or_default();
        let change = self.fold.reset(page.locks.first().and_then(Leader::of), page.revision);
        self.report(Some(change), log, page.revision).await?;
        let next = (log, v1::EventPosition { revision: page.revision + 1, index: 0 });
        self.next = Some(next);
        Ok(next)
    }

    /// Reports a change, or that there was none, up to a revision.
    async fn report(&self, change: Option<LeaderChange>, log: v1::LogId, revision: u64) -> Result<(), Ended> {
        let position = Some(ElectionPosition { log, revision, leader: self.fold.known() });
        send(self.shared(), &self.sender, Report { change: change.map(Ok), position }).await
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
