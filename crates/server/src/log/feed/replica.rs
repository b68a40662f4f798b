//! Watches at the replica of this node: pages of its history, and the end of watches without a leader (H7).

use super::wanted::{WantedWatch, wire_position};
use super::{EVENTS_MAX, Miss, Page};
use crate::log::txn::check_level;
use crate::log::{LogService, lock_event, record};
use convoke_log::command::LockSpace;
use convoke_log::history::{EventChange, EventPosition, LockEvent, WatchEvent, WatchScope};
use convoke_log::{Level, Machine};
use convoke_proto::v1::key_event::Change;
use convoke_proto::{Error, ErrorCode, PART_BYTES, v1};
use convoke_replica::LogRejection;
use std::sync::Arc;
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct ReplicaSource {
    service: Arc<LogService>,
    pub(super) log: u128,
    stale: bool,
    /// Since when the checks find no leader.
    leaderless_since: Option<Instant>,
}

impl ReplicaSource {
    pub(super) fn new(service: &Arc<LogService>, log: u128, stale: bool) -> ReplicaSource {
        ReplicaSource { service: service.clone(), log, stale, leaderless_since: None }
    }

    pub(super) fn machine(&self) -> Result<Arc<Machine>, Error> {
        self.service.handle.local().map_err(|why| self.service.rejected(&why))
    }

    /// Returns the revision once it has reached a position, which another replica may have reported. A new replica has no state
    /// before its first entry, or the snapshot of the leader: its watches would start with an empty store.
    pub(super) async fn reached(&self, revision: u64) -> Result<u64, Error> {
        let machine = loop {
            let machine = self.machine()?;
            if machine.applied().index > 0 && revision <= machine.keys().revision() + 1 {
                break machine;
            }
            let index = machine.applied().index;
            drop(machine);
            self.applied_after(index).await?;
        };
        check_level(&machine, Level::COORDINATION)?;
        Ok(machine.keys().revision())
    }

    pub(super) fn revision(&self) -> u64 {
        self.machine().map_or(0, |machine| machine.keys().revision())
    }

    async fn applied_after(&self, index: u64) -> Result<(), Error> {
        let applied = self.service.handle.applied_after(index).await;
        applied.map_err(|why| self.service.rejected(&no_replica(why)))
    }

    /// Waits for an applied entry after an index, at most until a time. Fails if there is no leader for too long.
    pub(super) async fn changed(&mut self, index: u64, until: Instant) -> Result<(), Error> {
        let check_at = Instant::now() + self.service.handle.election_timeout() / 2;
        match tokio::time::timeout_at(until.min(check_at), self.applied_after(index)).await {
            Ok(applied) => {
                // A leader committed the entry.
                self.leaderless_since = None;
                applied
            }
            Err(_) => self.check_leader(),
        }
    }

    fn check_leader(&mut self) -> Result<(), Error> {
        if self.stale || self.service.handle.is_available() {
            self.leaderless_since = None;
            return Ok(());
        }
        let since = *self.leaderless_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= 2 * self.service.handle.election_timeout() {
            let group = self.service.handle.group();
            return Err(self.service.rejected(&LogRejection::NoQuorum(group)));
        }
        Ok(())
    }
}

/// A watch needs a replica, not a leader.
pub(super) fn no_replica(why: LogRejection) -> LogRejection {
    match why {
        LogRejection::NotLeader(group) => LogRejection::NoReplica(group),
        why => why,
    }
}

/// Reads a page of history.
pub(super) fn page(machine: &Machine, watch: &WantedWatch, from: EventPosition) -> Result<Page, Miss> {
    if from.revision > machine.keys().revision() {
        return Ok(Page { events: Vec::new(), next: from, more: false });
    }
    let found = machine.watch(&watch.filter, from, EVENTS_MAX, PART_BYTES as u64);
    let found = found.map_err(|compacted| Miss::Compacted(compacted, machine.keys().revision()))?;
    let events = found.events.iter().map(|found| event(watch, found)).collect();
    Ok(Page { events, next: found.next, more: found.more })
}

fn event(watch: &WantedWatch, WatchEvent { event, last }: &WatchEvent) -> v1::KeyEvent {
    let (change, previous) = match &event.change {
        EventChange::Put { record: found, previous } => (Change::Put(record(found)), previous.as_ref()),
        EventChange::Delete { previous } => (Change::Delete(previous.key().to_vec().into()), Some(previous)),
        EventChange::Lock(event) => (Change::Lock(shown_lock(watch, event)), None),
    };
    let previous = previous.filter(|_| watch.previous).map(|found| record(found));
    v1::KeyEvent { position: Some(wire_position(event.position)), last: *last, change: Some(change), previous }
}

/// A watch of one lock knows its name.
fn shown_lock(watch: &WantedWatch, event: &LockEvent) -> v1::LockEvent {
    match watch.filter.scope {
        WatchScope::Union(_) => {
            let election = event.name.space == LockSpace::Election;
            v1::LockEvent { name: event.name.name.clone(), election, ..lock_event(event) }
        }
        WatchScope::Keys(_) | WatchScope::Lock(_) => lock_event(event),
    }
}

/// The error of a watch whose position was not reached in time.
pub(super) fn not_reached(revision: u64, current: u64) -> Error {
    let message = format!(
        "this node has not reached revision {revision} (its current revision is {current}); continue at another node"
    );
    Error::new(ErrorCode::NotReady, message).field("from")
}
