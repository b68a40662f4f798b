//! Which checks this node runs, for the task that runs them (HC3). The event loop writes, one task reads.

use convoke_core::member::Checks;
use convoke_core::node::CheckReport;
use smol_str::SmolStr;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Reports of applications that may wait. The application repeats them anyway.
const REPORTS_MAX: usize = 16 * 1024;

/// What changed since the last time.
#[derive(Debug, Default)]
pub struct CheckChanges {
    /// A new incarnation of the node: it owns nothing else than what follows.
    pub reset: bool,
    /// Claim and checks of members that this node owns; `None` if it does not any more. At most one entry for each member.
    pub assigned: BTreeMap<SmolStr, Option<(u64, Arc<Checks>)>>,
    pub reports: VecDeque<CheckReport>,
}

#[derive(Debug, Default)]
pub(crate) struct CheckFeed {
    changes: Mutex<CheckChanges>,
    changed: Notify,
}

impl CheckFeed {
    fn lock(&self) -> MutexGuard<'_, CheckChanges> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn assign(&self, id: SmolStr, checks: Option<(u64, Arc<Checks>)>) {
        self.lock().assigned.insert(id, checks);
        self.changed.notify_one();
    }

    /// Returns false if too many reports wait.
    pub(crate) fn report(&self, report: CheckReport) -> bool {
        let mut changes = self.lock();
        if changes.reports.len() >= REPORTS_MAX {
            return false;
        }
        changes.reports.push_back(report);
        self.changed.notify_one();
        true
    }

    pub(crate) fn reset(&self) {
        *self.lock() = CheckChanges { reset: true, ..CheckChanges::default() };
        self.changed.notify_one();
    }

    /// Waits for changes and takes them.
    pub(crate) async fn take(&self) -> CheckChanges {
        loop {
            let changed = self.changed.notified();
            let changes = std::mem::take(&mut *self.lock());
            if changes.reset || !changes.assigned.is_empty() || !changes.reports.is_empty() {
                return changes;
            }
            changed.await;
        }
    }
}
