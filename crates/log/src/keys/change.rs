//! Changes of keys. All checks precede the change, so a rejected change modifies nothing.

use super::{KeyRecord, Keys, RECORD_BYTES};
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

impl Keys {
    pub(crate) fn put(&mut self, limits: &LogLimits, put: &Put) -> Result<Changed, Reason> {
        check_key(limits, &put.key)?;
        let found = put.value.len() as u64;
        if found > limits.value_bytes {
            return Err(Reason::TooLarge { field: Field::Value, found, limit: limits.value_bytes });
        }
        let held = self.compare(&put.key, put.if_revision)?;
        let freed = held.map_or(0, |record| record.bytes());
        let taken = put.key.len() as u64 + found + RECORD_BYTES;
        let total = self.bytes - freed + taken;
        if total > limits.store_bytes && taken > freed {
            return Err(Reason::TooLarge { field: Field::Store, found: total, limit: limits.store_bytes });
        }
        let revision = self.revision + 1;
        let (created, version) = held.map_or((revision, 1), |record| (record.create_revision, record.version + 1));
        let record = KeyRecord::new(&put.key, &put.value, [created, revision, version]);
        self.revision = revision;
        let previous = self.store(Arc::new(record));
        Ok(changed(limits, put.previous, 1, previous))
    }

    pub(crate) fn delete(&mut self, limits: &LogLimits, delete: &Delete) -> Result<Changed, Reason> {
        check_key(limits, &delete.key)?;
        self.compare(&delete.key, delete.if_revision)?;
        let removed = self.remove(&delete.key);
        let keys = u64::from(removed.is_some());
        self.revision += keys;
        Ok(changed(limits, delete.previous, keys, removed))
    }

    pub(crate) fn delete_range(&mut self, limits: &LogLimits, delete: &DeleteRange) -> Result<Changed, Reason> {
        let limit = limits.range_keys;
        let bound = usize::try_from(limit).unwrap_or(usize::MAX);
        let records: Vec<Arc<KeyRecord>> = self.records(&delete.range).take(bound.saturating_add(1)).cloned().collect();
        if records.len() > bound {
            return Err(Reason::TooMany { field: Field::Range, limit });
        }
        for record in &records {
            self.remove(record.key());
        }
        self.revision += u64::from(!records.is_empty());
        Ok(changed(limits, delete.previous, records.len() as u64, records))
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

fn check_key(limits: &LogLimits, key: &[u8]) -> Result<(), Reason> {
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
