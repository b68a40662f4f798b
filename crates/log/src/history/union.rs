//! What several watches select together. A node without a replica follows a replica with it (H10).

use crate::command::LockName;
use crate::keys::KeyRange;
use bytes::Bytes;
use std::collections::BTreeSet;

/// A set of keys and locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchUnion {
    /// Sorted, without empty ranges. Between two of them there is a gap.
    ranges: Vec<KeyRange>,
    locks: BTreeSet<LockName>,
}

impl WatchUnion {
    /// Ranges that overlap or touch each other become one range. If more than `ranges_max` remain, one range from the
    /// first to the last key replaces them.
    pub fn new(
        ranges: impl IntoIterator<Item = KeyRange>,
        locks: impl IntoIterator<Item = LockName>,
        ranges_max: usize,
    ) -> Self {
        let mut sorted: Vec<KeyRange> = ranges.into_iter().filter(|range| !is_empty(range)).collect();
        sorted.sort_by(|a, b| a.from.cmp(&b.from));
        let mut ranges: Vec<KeyRange> = Vec::new();
        for range in sorted {
            match ranges.last_mut() {
                Some(last) if !ends_before(last, &range.from) => last.until = later(last.until.take(), range.until),
                _ => ranges.push(range),
            }
        }
        if ranges.len() > ranges_max
            && let (Some(first), Some(last)) = (ranges.first(), ranges.last())
        {
            ranges = vec![KeyRange { from: first.from.clone(), until: last.until.clone() }];
        }
        WatchUnion { ranges, locks: locks.into_iter().collect() }
    }

    pub fn ranges(&self) -> &[KeyRange] {
        &self.ranges
    }

    pub fn locks(&self) -> impl Iterator<Item = &LockName> {
        self.locks.iter()
    }

    pub fn contains_key(&self, key: &[u8]) -> bool {
        self.range_at(key).is_some_and(|range| range.contains(key))
    }

    pub fn contains_lock(&self, name: &LockName) -> bool {
        self.locks.contains(name)
    }

    /// Returns whether every key of a range is in the union.
    pub fn contains_range(&self, range: &KeyRange) -> bool {
        let within = |found: &KeyRange| match (&found.until, &range.until) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(end), Some(until)) => until <= end,
        };
        is_empty(range) || self.range_at(&range.from).is_some_and(within)
    }

    /// Returns the last range that begins at a key or before it.
    fn range_at(&self, key: &[u8]) -> Option<&KeyRange> {
        let after = self.ranges.partition_point(|range| *range.from <= *key);
        self.ranges.get(after.checked_sub(1)?)
    }
}

fn is_empty(range: &KeyRange) -> bool {
    range.until.as_ref().is_some_and(|until| *until <= range.from)
}

fn ends_before(range: &KeyRange, key: &[u8]) -> bool {
    range.until.as_ref().is_some_and(|until| **until < *key)
}

/// `None` is the end of all keys.
fn later(a: Option<Bytes>, b: Option<Bytes>) -> Option<Bytes> {
    Some(a?.max(b?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 9] = ["", "a", "a\0", "ab", "b", "bb", "c", "d", "z"];

    fn union(ranges: &[KeyRange]) -> WatchUnion {
        WatchUnion::new(ranges.iter().cloned(), [], usize::MAX)
    }

    #[test]
    fn h10_a_union_contains_exactly_what_its_parts_contain() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..2_000 {
            let mut key = || KEYS[rng.usize(..KEYS.len())];
            let mut parts: Vec<KeyRange> = (0..4).map(|_| KeyRange::new(key(), key())).collect();
            if rng.u8(..4) == 0 {
                parts[0].until = None;
            }
            let whole = union(&parts);
            for key in KEYS {
                let expected = parts.iter().any(|part| part.contains(key.as_bytes()));
                assert_eq!(whole.contains_key(key.as_bytes()), expected, "{parts:?} {key:?}");
            }
            assert!(parts.iter().all(|part| whole.contains_range(part)), "{parts:?}");
            for pair in whole.ranges.windows(2) {
                assert!(ends_before(&pair[0], &pair[1].from), "a gap: {pair:?}");
            }
            let few = WatchUnion::new(parts.iter().cloned(), [], 1);
            assert!(few.ranges.len() <= 1 && parts.iter().all(|part| few.contains_range(part)));
        }
    }

    #[test]
    fn h10_a_range_is_contained_only_as_a_whole() {
        let whole = union(&[KeyRange::new("b", "d"), KeyRange::new("f", "h"), KeyRange::new("d", "e")]);
        assert_eq!(whole.ranges(), [KeyRange::new("b", "e"), KeyRange::new("f", "h")]);
        assert!(whole.contains_range(&KeyRange::new("c", "e")));
        assert!(!whole.contains_range(&KeyRange::new("d", "g")), "e is missing");
        assert!(!whole.contains_range(&KeyRange { from: "f".into(), until: None }));
        assert!(!whole.contains_range(&KeyRange::new("a", "c")));
        let locks = WatchUnion::new([], [LockName::election("a")], 1);
        assert!(locks.contains_lock(&LockName::election("a")) && !locks.contains_lock(&LockName::lock("a")));
        assert!(!locks.contains_key(b"a"));
    }
}
