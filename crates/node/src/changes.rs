//! What happened to members lately, for whoever wants to know afterwards. A subscription tells everything and begins with what is there;
//! this tells the last of what changed, however it was noticed.

use crate::clock::wall_ms;
use convoke_core::member::Member;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// One change of one member.
#[derive(Clone, Debug)]
pub struct MemberChange {
    /// Counts from 1 without gaps.
    pub sequence: u64,
    /// UNIX milliseconds; when it was noticed here.
    pub wall_ms: u64,
    pub kind: ChangeKind,
    /// As it is since; after unregistration, as it was last.
    pub member: Member,
}

/// What changed, as subscribers are told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Registered,
    Updated,
    StatusChanged,
    OwnerChanged,
    Unregistered,
}

impl ChangeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            ChangeKind::Registered => "register",
            ChangeKind::Updated => "update",
            ChangeKind::StatusChanged => "status",
            ChangeKind::OwnerChanged => "owner",
            ChangeKind::Unregistered => "unregister",
        }
    }

    /// From before to after, of a member that is there now.
    pub(crate) fn of(before: Option<&Member>, after: &Member) -> Self {
        match before {
            None => ChangeKind::Registered,
            Some(before) if before.origin() != after.origin() => ChangeKind::OwnerChanged,
            Some(before) if before.status() != after.status() => ChangeKind::StatusChanged,
            Some(_) => ChangeKind::Updated,
        }
    }
}

/// The records of changes are kept alive for them; large ones push others out earlier.
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
    changes: VecDeque<Arc<MemberChange>>,
    bytes: usize,
}

impl Kept {
    fn push(&mut self, change: MemberChange, limit: usize) {
        self.bytes += bytes(&change.member);
        self.changes.push_back(Arc::new(change));
        while self.changes.len() > limit || self.bytes > BYTES_MAX {
            let Some(oldest) = self.changes.pop_front() else { break };
            self.bytes -= bytes(&oldest.member);
        }
    }
}

/// What the record takes, about.
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
        // More than are kept would only push each other out.
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
    pub(crate) fn after(&self, after: u64) -> Vec<Arc<MemberChange>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let from = kept.changes.partition_point(|change| change.sequence <= after);
        kept.changes.range(from..).cloned().collect()
    }

    pub(crate) fn listen(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }
}
