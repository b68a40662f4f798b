//! The members that a reader of a watch holds, as short hashes in its position.
//!
//! A resume token finds every member that changed, and cannot tell whether it matched the filter before. With the hashes,
//! a resumed stream reports as gone only members that the reader has.

use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Largest number of members in a position. A reader of more members ignores ids that it does not have.
pub(super) const HELD_MAX: usize = 64;
/// Bytes of a hash. Two ids of one position have the same hash with a probability of about 10^-11.
const HASH_BYTES: usize = 6;
/// In place of the number of members.
const MANY: u8 = u8::MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// Watchers that share chunks share it too.
    Known(Arc<BTreeSet<[u8; HASH_BYTES]>>),
    /// There are too many.
    Many,
}

impl Default for Held {
    fn default() -> Self {
        Held::Known(Arc::default())
    }
}

impl Held {
    /// The reader received this member.
    pub(super) fn insert(&mut self, id: &str) {
        let Held::Known(hashes) = self else { return };
        let hash = hash(id);
        if hashes.contains(&hash) {
            return;
        }
        Arc::make_mut(hashes).insert(hash);
        if hashes.len() > HELD_MAX {
            *self = Held::Many;
        }
    }

    /// The reader received that this member is gone.
    pub(super) fn remove(&mut self, id: &str) {
        if let Held::Known(hashes) = self {
            Arc::make_mut(hashes).remove(&hash(id));
        }
    }

    /// Returns whether the reader may hold this member.
    pub(super) fn may_contain(&self, id: &str) -> bool {
        match self {
            Held::Known(hashes) => hashes.contains(&hash(id)),
            Held::Many => true,
        }
    }

    pub(super) fn write(&self, into: &mut Vec<u8>) {
        match self {
            Held::Known(hashes) => {
                into.push(u8::try_from(hashes.len()).unwrap_or(MANY));
                hashes.iter().for_each(|hash| into.extend_from_slice(hash));
            }
            Held::Many => into.push(MANY),
        }
    }

    pub(super) fn read(from: &mut &[u8]) -> Option<Held> {
        let (count, rest) = from.split_first()?;
        let count = usize::from(*count);
        if count == usize::from(MANY) {
            *from = rest;
            return Some(Held::Many);
        }
        let (hashes, rest) = rest.split_at_checked(count * HASH_BYTES)?;
        *from = rest;
        let (hashes, []) = hashes.as_chunks() else { return None };
        (count <= HELD_MAX).then(|| Held::Known(Arc::new(hashes.iter().copied().collect())))
    }
}

fn hash(id: &str) -> [u8; HASH_BYTES] {
    let digest: [u8; 32] = Sha256::digest(id.as_bytes()).into();
    std::array::from_fn(|index| digest[index])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn round_trip(held: &Held) -> Held {
        let mut bytes = Vec::new();
        held.write(&mut bytes);
        let mut rest = bytes.as_slice();
        let read = Held::read(&mut rest).unwrap();
        assert!(rest.is_empty());
        read
    }

    #[test]
    fn members_are_found_after_a_round_trip_until_there_are_too_many() {
        let mut held = Held::default();
        for number in 0..HELD_MAX {
            held.insert(&format!("m{number}"));
            held.insert("m0");
            assert_eq!(round_trip(&held), held);
        }
        assert!((0..HELD_MAX).all(|number| held.may_contain(&format!("m{number}"))));
        assert!(!(0..1_000).any(|number| held.may_contain(&format!("stranger-{number}"))));
        held.remove("m7");
        held.remove("unknown");
        assert!(!held.may_contain("m7"));
        held.insert("m7");
        held.insert("one more");
        assert_eq!((round_trip(&held), held.may_contain("anything")), (Held::Many, true));
    }

    #[test]
    fn incomplete_sets_are_not_read() {
        for bytes in [&[][..], &[2], &[1, 1, 2, 3, 4, 5], &[65; 1_000]] {
            assert_eq!(Held::read(&mut &*bytes), None, "{bytes:?}");
        }
    }
}
