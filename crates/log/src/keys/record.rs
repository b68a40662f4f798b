//! A key with its value and revisions.

use crate::command::LeaseId;
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
    /// Numbers of level 2. Most records have none.
    extras: Option<Box<KeyExtras>>,
    /// Key, then value, in one allocation, because most keys and values are small.
    data: Box<[u8]>,
}

/// Numbers of a record that most keys do not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyExtras {
    /// A number of the client, not interpreted by the log.
    pub flags: u64,
    /// The lease that the key is attached to, 0 for none (LE5).
    pub lease: u64,
    /// A number of the client that counts acquisitions of the key, not interpreted by the log.
    pub lock_index: u64,
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
            extras: None,
            data: [key, value].concat().into_boxed_slice(),
        }
    }

    #[must_use]
    pub(crate) fn with_extras(self, extras: KeyExtras) -> Self {
        // Equal records have equal hashes, so numbers that are all zero are not stored.
        let extras = (extras != KeyExtras::default()).then(|| Box::new(extras));
        KeyRecord { extras, ..self }
    }

    /// Returns the record without its value.
    pub(crate) fn without_value(&self) -> Self {
        KeyRecord { data: self.key().into(), ..self.clone() }
    }

    pub fn extras(&self) -> KeyExtras {
        self.extras.as_deref().copied().unwrap_or_default()
    }

    /// Returns the lease that the key is attached to (LE5).
    pub fn lease(&self) -> Option<LeaseId> {
        Some(LeaseId(self.extras().lease)).filter(|lease| lease.0 > 0)
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
        let mut numbers = [0; 52];
        numbers[..8].copy_from_slice(&self.create_revision.to_le_bytes());
        numbers[8..16].copy_from_slice(&self.modify_revision.to_le_bytes());
        numbers[16..24].copy_from_slice(&self.version.to_le_bytes());
        numbers[24..28].copy_from_slice(&self.key_bytes.to_le_bytes());
        let Some(extras) = &self.extras else {
            // As at level 1, so that replicas of both versions agree (V4).
            return xxh3_128_with_seed(&self.data, xxh3_64(&numbers[..28]));
        };
        numbers[28..36].copy_from_slice(&extras.flags.to_le_bytes());
        numbers[36..44].copy_from_slice(&extras.lease.to_le_bytes());
        numbers[44..].copy_from_slice(&extras.lock_index.to_le_bytes());
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
}

impl fmt::Debug for KeyRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRecord")
            .field("key", &self.key().escape_ascii().to_string())
            .field("value", &self.value().escape_ascii().to_string())
            .field("create_revision", &self.create_revision)
            .field("modify_revision", &self.modify_revision)
            .field("version", &self.version)
            .field("extras", &self.extras())
            .finish()
    }
}
