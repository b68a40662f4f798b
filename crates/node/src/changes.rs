//! The last changes of members, for the event list. A watch delivers every change after a snapshot; this keeps only the
//! most recent ones.

use crate::clock::wall_ms;
use convoke_core::member::{ChangeKind, Member};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use tokio::sync::watch;

/// One change of one member. Cloning shares the member.
#[derive(Clone, Debug)]
pub struct MemberChange {
    /// Counts from 1 without gaps.
    pub sequence: u64,
    /// UNIX milliseconds; when this node learned of the change.
    pub wall_ms: u64,
    pub kind: ChangeKind,
    /// The member after the change; after an unregistration, the last state.
    pub member: Member,
}

/// Limit for the memory that kept changes hold. Large members displace others earlier.
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// The last changes.
#[derive(Debug)]
pub(crate) struct Changes {
    kept: Mutex<Kept>,
    limit: usize,
    last: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Kept {
    changes: VecDeque<MemberChange>,
    bytes: usize,
}

impl Kept {
    fn push(&mut self, change: MemberChange, limit: usize) {
        self.bytes += bytes(&change.member);
        self.changes.push_back(change);
        while self.changes.len() > limit || self.bytes > BYTES_MAX {
            let Some(oldest) = self.changes.pop_front() else { break };
            self.bytes -= bytes(&oldest.member);
        }
    }
}

/// Approximate memory of a member.
fn bytes(member: &Member) -> usize {
    256 + member.metadata().packed_len() + member.endpoints().packed_len()
}

impl Changes {
    pub(crate) fn new(limit: usize) -> Self {
        Changes { kept: Mutex::default(), limit, last: watch::Sender::new(0) }
    }

    /// Keeps the changes of one turn.
    pub(crate) fn record(&self, changes: &mut Vec<(ChangeKind, Member)>) {
        if changes.is_empty() {
            return;
        }
        let now = wall_ms();
        // Changes beyond the limit would only displace each other.
        let from = changes.len().saturating_sub(self.limit);
        let mut sequence = *self.last.borrow() + from as u64;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, member) in changes.drain(..).skip(from) {
            sequence += 1;
            kept.push(MemberChange { sequence, wall_ms: now, kind, member }, self.limit);
        }
        drop(kept);
        self.last.send_replace(sequence);
    }

    /// Kept changes with a sequence above `after`, oldest first.
    pub(crate) fn after(&self, after: u64) -> Vec<MemberChange> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let from = kept.changes.partition_point(|change| change.sequence <= after);
        kept.changes.range(from..).cloned().collect()
    }

    /// The last kept changes of one member, newest first.
    pub(crate) fn of(&self, id: &str, max: usize) -> Vec<MemberChange> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.changes.iter().rev().filter(|change| change.member.id() == id).take(max).cloned().collect()
    }

    pub(crate) fn listen(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }
}
