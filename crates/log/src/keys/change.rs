//! Changes of keys. All checks precede the change, so a rejected change modifies nothing.

use super::{KeyExtras, KeyRange, KeyRecord, Keys, RECORD_BYTES};
use crate::command::{Delete, DeleteRange, Put};
use crate::limits::LogLimits;
use crate::machine::{Field, Reason};
use std::sync::Arc;

/// The effect of a request on the keys (K4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Keys put or deleted.
    pub keys: u64,
    /// The previous records in key order, if the request asked for them.
    pub previous: Vec<Arc<KeyRecord>>,
    /// Number of previous records that were omitted because of their size.
    pub omitted: u64,
}

/// A changed key, for history: the new record, none after a deletion, and the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyChange {
    pub(crate) record: Option<Arc<KeyRecord>>,
    pub(crate) previous: Option<Arc<KeyRecord>>,
}

/// Changes of one request, in order.
pub(crate) type KeyChanges = Vec<KeyChange>;

/// What a put continues: the creation and the version of the record that it replaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextVersion {
    created: Option<u64>,
    version: u64,
}

impl NextVersion {
    fn after(held: Option<&KeyRecord>) -> Self {
        let version = held.map_or(1, |record| record.version + 1);
        NextVersion { created: held.map(|record| record.create_revision), version }
    }

    pub(crate) fn record(self, revision: u64, key: &[u8], value: &[u8]) -> KeyRecord {
        KeyRecord::new(key, value, [self.created.unwrap_or(revision), revision, self.version])
    }
}

impl Keys {
    pub(crate) fn put(&mut self, limits: &LogLimits, put: &Put, changes: &mut KeyChanges) -> Result<Changed, Reason> {
        self.check_put(limits, &put.key, &put.value)?;
        self.compare(&put.key, put.if_revision)?;
        let next = self.check_room(limits, &put.key, &put.value)?;
        self.revision += 1;
        let record = next.record(self.revision, &put.key, &put.value);
        let previous = self.write(record, changes);
        Ok(changed(limits, put.previous, 1, previous))
    }

    /// Checks the sizes of a key and its value (K5).
    pub(crate) fn check_put(&self, limits: &LogLimits, key: &[u8], value: &[u8]) -> Result<(), Reason> {
        check_key(limits, key)?;
        let found = value.len() as u64;
        if found > limits.value_bytes {
            return Err(Reason::TooLarge { field: Field::Value, found, limit: limits.value_bytes });
        }
        Ok(())
    }

    /// Checks that a put finds room, and returns the number of its version. A put that does not make the store larger always
    /// finds room (K5, Q1).
    pub(crate) fn check_room(&self, limits: &LogLimits, key: &[u8], value: &[u8]) -> Result<NextVersion, Reason> {
        let held = self.get(key);
        let freed = held.map_or(0, |record| record.bytes());
        let taken = (key.len() + value.len()) as u64 + RECORD_BYTES;
        let total = self.bytes - freed + taken;
        if total > limits.store_bytes && taken > freed {
            return Err(Reason::TooLarge { field: Field::Store, found: total, limit: limits.store_bytes });
        }
        let limit = limits.coordination.keys;
        if held.is_none() && self.len() as u64 >= limit {
            return Err(Reason::Full { field: Field::Keys, limit });
        }
        Ok(NextVersion::after(held.map(|record| &**record)))
    }

    /// Stores a record and returns the previous one. The caller has checked everything.
    pub(crate) fn write(&mut self, record: KeyRecord, changes: &mut KeyChanges) -> Option<Arc<KeyRecord>> {
        let record = Arc::new(record);
        let previous = self.store(record.clone());
        changes.push(KeyChange { record: Some(record), previous: previous.clone() });
        previous
    }

    /// Detaches a key from its lease.
    pub(crate) fn detach(&mut self, revision: u64, held: &KeyRecord, changes: &mut KeyChanges) {
        let extras = KeyExtras { lease: 0, ..held.extras() };
        let record = NextVersion::after(Some(held)).record(revision, held.key(), held.value()).with_extras(extras);
        self.write(record, changes);
    }

    /// Removes a key and returns its record.
    pub(crate) fn erase(&mut self, key: &[u8], changes: &mut KeyChanges) -> Option<Arc<KeyRecord>> {
        let previous = self.remove(key)?;
        changes.push(KeyChange { record: None, previous: Some(previous.clone()) });
        Some(previous)
    }

    /// Reverts changes, the last one first.
    pub(crate) fn undo(&mut self, changes: KeyChanges) {
        for change in changes.into_iter().rev() {
            match (change.previous, change.record) {
                (Some(previous), _) => drop(self.store(previous)),
                (None, Some(record)) => drop(self.remove(record.key())),
                (None, None) => {}
            }
        }
    }

    pub(crate) fn delete(
        &mut self,
        limits: &LogLimits,
        delete: &Delete,
        changes: &mut KeyChanges,
    ) -> Result<Changed, Reason> {
        check_key(limits, &delete.key)?;
        self.compare(&delete.key, delete.if_revision)?;
        let removed = self.erase(&delete.key, changes);
        let keys = u64::from(removed.is_some());
        self.revision += keys;
        Ok(changed(limits, delete.previous, keys, removed))
    }

    pub(crate) fn delete_range(
        &mut self,
        limits: &LogLimits,
        delete: &DeleteRange,
        changes: &mut KeyChanges,
    ) -> Result<Changed, Reason> {
        let records = self.erase_range(limits, &delete.range, changes)?;
        self.revision += u64::from(!records.is_empty());
        Ok(changed(limits, delete.previous, records.len() as u64, records))
    }

    /// Removes all keys of a range, if they are not too many (K5).
    pub(crate) fn erase_range(
        &mut self,
        limits: &LogLimits,
        range: &KeyRange,
        changes: &mut KeyChanges,
    ) -> Result<Vec<Arc<KeyRecord>>, Reason> {
        let limit = limits.range_keys;
        let bound = usize::try_from(limit).unwrap_or(usize::MAX);
        let records: Vec<Arc<KeyRecord>> = self.records(range).take(bound.saturating_add(1)).cloned().collect();
        if records.len() > bound {
            return Err(Reason::TooMany { field: Field::Range, limit });
        }
        for record in &records {
            self.erase(record.key(), changes);
        }
        Ok(records)
    }

    /// Returns the current record of a key if its revision is the expected one (K3).
    fn compare(&self, key: &[u8], if_revision: Option<u64>) -> Result<Option<&Arc<KeyRecord>>, Reason> {
        let held = self.get(key);
        let revision = held.map_or(0, |record| record.modify_revision);
        match if_revision {
            Some(expected) if expected != revision => Err(Reason::Precondition { revision }),
            _ => Ok(held),
        }
    }
}

pub(crate) fn check_key(limits: &LogLimits, key: &[u8]) -> Result<(), Reason> {
    let found = key.len() as u64;
    if found == 0 {
        return Err(Reason::Invalid { field: Field::Key });
    }
    if found > limits.key_bytes {
        return Err(Reason::TooLarge { field: Field::Key, found, limit: limits.key_bytes });
    }
    Ok(())
}

fn changed(limits: &LogLimits, wanted: bool, keys: u64, records: impl IntoIterator<Item = Arc<KeyRecord>>) -> Changed {
    let mut changed = Changed { keys, ..Changed::default() };
    if !wanted {
        return changed;
    }
    let mut bytes = 0;
    for record in records {
        if bytes + record.bytes() > limits.response_bytes {
            changed.omitted += 1;
        } else {
            bytes += record.bytes();
            changed.previous.push(record);
        }
    }
    changed
}
