//! A key with its value and revisions.

use crate::tree::Keyed;
use std::fmt;
use std::sync::Arc;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

/// Bytes counted per record in addition to key and value. Rounded up from the actual size.
pub const RECORD_BYTES: u64 = 112;

/// A record of the store (K1). Immutable and shared; a change replaces it.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRecord {
    pub create_revision: u64,
    pub modify_revision: u64,
    /// Number of changes, 1 at creation.
    pub version: u64,
    key_bytes: u32,
    /// Key, then value, in one allocation, because most keys and values are small.
    data: Box<[u8]>,
}

impl KeyRecord {
    /// Creates a record. The caller has checked that the key is within the format's limit.
    pub(crate) fn new(key: &[u8], value: &[u8], revisions: [u64; 3]) -> Self {
        let [create_revision, modify_revision, version] = revisions;
        let key_bytes = u32::try_from(key.len()).expect("keys are within KEY_BYTES_MAX");
        KeyRecord {
            create_revision,
            modify_revision,
            version,
            key_bytes,
            data: [key, value].concat().into_boxed_slice(),
        }
    }

    pub fn key(&self) -> &[u8] {
        &self.data[..self.key_bytes as usize]
    }

    pub fn value(&self) -> &[u8] {
        &self.data[self.key_bytes as usize..]
    }

    /// Returns the bytes counted for this record in the store (K5).
    pub(crate) fn bytes(&self) -> u64 {
        self.data.len() as u64 + RECORD_BYTES
    }

    /// Returns this record's contribution to the state hash (LH2).
    pub(crate) fn hash(&self) -> u128 {
        let mut numbers = [0; 28];
        numbers[..8].copy_from_slice(&self.create_revision.to_le_bytes());
        numbers[8..16].copy_from_slice(&self.modify_revision.to_le_bytes());
        numbers[16..24].copy_from_slice(&self.version.to_le_bytes());
        numbers[24..].copy_from_slice(&self.key_bytes.to_le_bytes());
        xxh3_128_with_seed(&self.data, xxh3_64(&numbers))
    }
}

impl Keyed for KeyRecord {
    type Key = [u8];
    type Bound = Arc<[u8]>;

    fn key(&self) -> &[u8] {
        KeyRecord::key(self)
    }

    fn bound(&self) -> Arc<[u8]> {
        KeyRecord::key(self).into()
    }

    fn key_hash(key: &[u8]) -> u64 {
        xxh3_64(key)
    }
}

impl fmt::Debug for KeyRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRecord")
            .field("key", &self.key().escape_ascii().to_string())
            .field("value", &self.value().escape_ascii().to_string())
            .field("create_revision", &self.create_revision)
            .field("modify_revision", &self.modify_revision)
            .field("version", &self.version)
            .finish()
    }
}
