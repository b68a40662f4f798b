//! Revoked credentials: a set that only grows until its entries expire. Merging is a union, so copies of it converge in
//! any order (P11, AU13). The meaning of a key is not known here.

use std::collections::BTreeMap;

/// Largest number of revocations that a node adds. Merges may exceed it up to [`REVOCATIONS_MAX`], because several nodes
/// may add at the same time.
pub const REVOCATIONS_ADDED_MAX: usize = 10_000;
/// Largest number of revocations that a node holds.
pub const REVOCATIONS_MAX: usize = 4 * REVOCATIONS_ADDED_MAX;
/// Longest key.
pub const REVOCATION_KEY_BYTES_MAX: u64 = 512;

/// One revocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// What is revoked.
    pub key: String,
    /// Credentials issued at this time or before are revoked, in seconds since 1970.
    pub issued_until: u64,
    /// The revocation is kept up to this time, when everything that it concerns has expired.
    pub keep_until: u64,
}

/// A revocation was not added: the set is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this cluster holds {REVOCATIONS_ADDED_MAX} revocations, its limit: revoke by principal, or wait until entries expire"
)]
pub struct RevocationLimit;

/// All revocations that a node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevocationSet(BTreeMap<String, (u64, u64)>);

impl RevocationSet {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = Revocation> + '_ {
        self.0.iter().map(|(key, (issued_until, keep_until))| Revocation {
            key: key.clone(),
            issued_until: *issued_until,
            keep_until: *keep_until,
        })
    }

    /// Returns the time up to which credentials with this key are revoked.
    pub fn issued_until(&self, key: &str) -> Option<u64> {
        self.0.get(key).map(|(issued_until, _)| *issued_until)
    }

    /// Adds a revocation of an operator. Returns whether it was news.
    pub fn add(&mut self, revocation: &Revocation) -> Result<bool, RevocationLimit> {
        if self.len() >= REVOCATIONS_ADDED_MAX && !self.0.contains_key(&revocation.key) {
            return Err(RevocationLimit);
        }
        Ok(self.insert(revocation))
    }

    /// Adds a revocation of another node. Returns whether it was news.
    pub fn merge(&mut self, revocation: &Revocation) -> bool {
        let full = self.len() >= REVOCATIONS_MAX && !self.0.contains_key(&revocation.key);
        !full && self.insert(revocation)
    }

    fn insert(&mut self, Revocation { key, issued_until, keep_until }: &Revocation) -> bool {
        let entry = self.0.entry(key.clone()).or_insert((0, 0));
        let joined = (entry.0.max(*issued_until), entry.1.max(*keep_until));
        std::mem::replace(entry, joined) != joined
    }

    /// Removes what is no longer needed. `now` is in seconds; `margin` covers the difference of the clocks of nodes and
    /// issuers. Returns whether anything was removed.
    pub fn prune(&mut self, now: u64, margin: u64) -> bool {
        let before = self.len();
        self.0.retain(|_, (_, keep_until)| keep_until.saturating_add(margin) > now);
        self.len() < before
    }
}
