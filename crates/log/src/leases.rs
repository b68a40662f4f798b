//! The table of leases and the keys attached to them (LE).

use crate::command::{EndBehavior, LeaseId, LeaseTerm};
use crate::keys::{KeyChange, KeyRecord, Keys};
use crate::limits::LogLimits;
use crate::machine::{Field, Reason};
use crate::time::LogTime;
use crate::tree::{Iter, Keyed, Tree};
use smol_str::SmolStr;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A lease (LE1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub id: LeaseId,
    pub term: LeaseTerm,
    pub end: EndBehavior,
    pub granted_at: LogTime,
    /// The principal whose session granted it; empty if that session has none (LE8).
    pub owner: SmolStr,
    /// Number of attached keys. Derived from the keys.
    pub keys: u64,
}

/// All leases. A copy is cheap (LH5).
#[derive(Clone, Debug, Default)]
pub(crate) struct Leases {
    all: Tree<Lease>,
    /// Attached keys by lease. Derived from the keys.
    attached: Tree<Attached>,
}

impl Leases {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn contains(&self, id: LeaseId) -> bool {
        self.all.contains(&id)
    }

    pub(crate) fn get(&self, id: LeaseId) -> Option<&Arc<Lease>> {
        self.all.get(&id)
    }

    pub(crate) fn iter(&self) -> Iter<'_, Lease> {
        self.all.iter()
    }

    pub(crate) fn iter_from(&self, from: LeaseId) -> Iter<'_, Lease> {
        self.all.iter_from(&from)
    }

    pub(crate) fn insert(&mut self, lease: Lease) {
        self.all.insert(Arc::new(lease));
    }

    /// Removes a lease. Its keys must be detached or deleted in the same entry.
    pub(crate) fn remove(&mut self, id: LeaseId) -> Option<Arc<Lease>> {
        self.all.remove(&id)
    }

    /// Returns the keys of a lease in order.
    pub(crate) fn keys_of(&self, id: LeaseId) -> Vec<Arc<KeyRecord>> {
        let from = AttachedKey { lease: id, named: Arc::new(KeyRecord::new(&[], &[], [0; 3])) };
        let attached = self.attached.iter_from(&from).take_while(|attached| attached.0.lease == id);
        attached.map(|attached| attached.0.named.clone()).collect()
    }

    /// Checks that no lease gets more keys than it may have (Q1).
    pub(crate) fn check_changes(&self, limits: &LogLimits, changes: &[KeyChange]) -> Result<(), Reason> {
        let mut grown: BTreeMap<LeaseId, i64> = BTreeMap::new();
        for change in changes {
            for (record, by) in [(&change.record, 1), (&change.previous, -1)] {
                if let Some(lease) = record.as_ref().and_then(|record| record.lease()) {
                    *grown.entry(lease).or_default() += by;
                }
            }
        }
        let limit = limits.coordination.keys_per_lease;
        for (lease, by) in grown {
            let keys = self.get(lease).map_or(0, |lease| lease.keys);
            if by > 0 && keys.saturating_add_signed(by) > limit {
                return Err(Reason::Full { field: Field::KeysOfLease, limit });
            }
        }
        Ok(())
    }

    /// Follows changes of keys.
    pub(crate) fn changed(&mut self, changes: &[KeyChange]) {
        for change in changes {
            if let Some(previous) = change.previous.as_ref().filter(|record| record.lease().is_some()) {
                self.detach(previous);
            }
            if let Some(record) = change.record.as_ref().filter(|record| record.lease().is_some()) {
                self.attach(record);
            }
        }
    }

    /// Attaches the keys of a restored snapshot. Returns false if a key names a lease that does not exist.
    pub(crate) fn restore_keys(&mut self, keys: &Keys) -> bool {
        let attached: Vec<Arc<KeyRecord>> = keys.iter().filter(|record| record.lease().is_some()).cloned().collect();
        attached.iter().all(|record| self.attach(record))
    }

    fn attach(&mut self, record: &Arc<KeyRecord>) -> bool {
        let Some(lease) = record.lease() else { return true };
        let Some(state) = self.all.get_mut(&lease) else { return false };
        state.keys += 1;
        self.attached.insert(Arc::new(Attached(AttachedKey { lease, named: record.clone() })));
        true
    }

    fn detach(&mut self, record: &Arc<KeyRecord>) {
        let Some(lease) = record.lease() else { return };
        if let Some(state) = self.all.get_mut(&lease) {
            state.keys -= 1;
        }
        self.attached.remove(&AttachedKey { lease, named: record.clone() });
    }
}

impl Keyed for Lease {
    type Key = LeaseId;
    type Bound = LeaseId;

    fn key(&self) -> &LeaseId {
        &self.id
    }

    fn bound(&self) -> LeaseId {
        self.id
    }
}

#[derive(Clone, Debug)]
struct Attached(AttachedKey);

/// A key of a lease, ordered by lease first. Any record with the key represents it.
#[derive(Clone, Debug)]
struct AttachedKey {
    lease: LeaseId,
    named: Arc<KeyRecord>,
}

impl PartialEq for AttachedKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for AttachedKey {}

impl PartialOrd for AttachedKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for AttachedKey {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.lease, self.named.key()).cmp(&(other.lease, other.named.key()))
    }
}

impl Keyed for Attached {
    type Key = AttachedKey;
    type Bound = AttachedKey;

    fn key(&self) -> &AttachedKey {
        &self.0
    }

    fn bound(&self) -> AttachedKey {
        AttachedKey { lease: self.0.lease, named: Arc::new(KeyRecord::new(self.0.named.key(), &[], [0; 3])) }
    }
}
