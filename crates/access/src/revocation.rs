//! Revoked tokens: a set that only grows until its entries expire. Merging is a union, so replicas of it converge in any
//! order (AU10).

use crate::LEEWAY;
use crate::principal::{Principal, TokenDetails};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Largest number of revocations that a node adds. Merges may exceed it up to [`MERGED_MAX`].
pub const ADDED_MAX: usize = 10_000;
/// Largest number of revocations that a node holds. Several nodes may add at the same time.
pub const MERGED_MAX: usize = 4 * ADDED_MAX;

/// What is revoked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RevocationKey {
    /// One token: `ISSUER/JTI`.
    Token(String),
    /// All tokens of a principal issued up to a time: `ISSUER/SUBJECT`.
    Principal(String),
}

/// One revocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    pub key: RevocationKey,
    /// For a principal: tokens issued at this time or before are revoked. For a token: not used.
    pub issued_until: u64,
    /// The revocation is kept up to this time, when every token that it concerns has expired.
    pub keep_until: u64,
}

/// A revocation was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this cluster holds {ADDED_MAX} revocations, its limit: revoke by principal, or wait until entries expire")]
pub struct RevocationLimit;

/// All revocations that a node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevocationSet(BTreeMap<RevocationKey, (u64, u64)>);

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

    /// Adds a revocation of an operator.
    pub fn add(&mut self, revocation: Revocation) -> Result<bool, RevocationLimit> {
        if self.len() >= ADDED_MAX && !self.0.contains_key(&revocation.key) {
            return Err(RevocationLimit);
        }
        Ok(self.insert(revocation))
    }

    /// Adds a revocation of another node. Returns whether it was news.
    pub fn merge(&mut self, revocation: Revocation) -> bool {
        let full = self.len() >= MERGED_MAX && !self.0.contains_key(&revocation.key);
        !full && self.insert(revocation)
    }

    fn insert(&mut self, Revocation { key, issued_until, keep_until }: Revocation) -> bool {
        let entry = self.0.entry(key).or_insert((0, 0));
        let joined = (entry.0.max(issued_until), entry.1.max(keep_until));
        std::mem::replace(entry, joined) != joined
    }

    /// Removes what is no longer needed. `now` is in seconds. A node whose clock is ahead by the leeway removes nothing that
    /// another one needs.
    pub fn prune(&mut self, now: u64) {
        self.0.retain(|_, (_, keep_until)| keep_until.saturating_add(2 * LEEWAY) > now);
    }

    pub fn revokes(&self, principal: &Principal) -> bool {
        let Some(TokenDetails { id, issued_at, .. }) = principal.token() else { return false };
        if self.0.is_empty() {
            return false;
        }
        self.0.contains_key(&RevocationKey::Token(id.clone()))
            || self
                .0
                .get(&RevocationKey::Principal(principal.name().to_owned()))
                .is_some_and(|(issued_until, _)| issued_at <= issued_until)
    }
}
