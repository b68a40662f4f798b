//! Token buckets by key, without clocks: the caller passes the time.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// A caller may use what it gets in this time at once.
pub(crate) const BURST: Duration = Duration::from_secs(10);

/// Buckets of equal size. A bucket is stored as the time at which it will be full again; a full bucket is not stored.
///
/// If there are too many keys, further ones share one bucket. So a stranger with many addresses limits himself, and the
/// memory is bounded.
#[derive(Debug)]
pub(super) struct Buckets<K> {
    per_second: u64,
    keys_max: usize,
    full_at: HashMap<K, Duration>,
    /// The bucket of all keys that have no room.
    shared: Duration,
}

impl<K: Eq + Hash + Clone> Buckets<K> {
    /// `per_second` is above 0.
    pub(super) fn new(per_second: u64, keys_max: usize) -> Self {
        Buckets { per_second: per_second.max(1), keys_max, full_at: HashMap::new(), shared: Duration::ZERO }
    }

    pub(super) fn per_second(&self) -> u64 {
        self.per_second
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.full_at.len()
    }

    /// Takes an amount, unless the bucket of the key is empty. Then it returns the time after which it is not. The amount may
    /// be larger than what is left: the difference must be paid before the next amount.
    pub(super) fn take(&mut self, now: Duration, key: &K, amount: u64) -> Result<(), Duration> {
        let cost = self.cost(amount);
        let full_at = self.slot(now, key);
        let missing = full_at.saturating_sub(now);
        // The last unit must fit into the burst, so that a bucket of one unit per second allows ten of them at once.
        if missing + Duration::from_nanos(1) > BURST {
            return Err(missing + Duration::from_nanos(1) - BURST);
        }
        *full_at = now + missing + cost;
        Ok(())
    }

    fn cost(&self, amount: u64) -> Duration {
        let nanos = u128::from(amount) * 1_000_000_000 / u128::from(self.per_second);
        // An amount that takes longer than a day is none that a caller could pay.
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(Duration::from_secs(24 * 60 * 60))
    }

    fn slot(&mut self, now: Duration, key: &K) -> &mut Duration {
        if !self.full_at.contains_key(key) && self.full_at.len() >= self.keys_max {
            self.full_at.retain(|_, full_at| *full_at > now);
            if self.full_at.len() >= self.keys_max {
                return &mut self.shared;
            }
        }
        self.full_at.entry(key.clone()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_burst_is_allowed_and_then_the_rate() {
        let mut buckets = Buckets::new(2, 10);
        for _ in 0..20 {
            assert_eq!(buckets.take(millis(0), &"a", 1), Ok(()));
        }
        let wait = buckets.take(millis(0), &"a", 1).unwrap_err();
        assert!(wait > Duration::ZERO && wait <= millis(500), "{wait:?}");
        assert_eq!(buckets.take(millis(0), &"b", 1), Ok(()), "others are not affected");
        assert_eq!(buckets.take(wait, &"a", 1), Ok(()), "the time that was named is enough");
        assert!(buckets.take(wait, &"a", 1).is_err());
        assert_eq!(buckets.take(millis(60_000), &"a", 20), Ok(()));
    }

    #[test]
    fn a_large_amount_is_paid_before_the_next_one() {
        let mut buckets = Buckets::new(1_000, 10);
        assert_eq!(buckets.take(millis(0), &"a", 60_000), Ok(()));
        let wait = buckets.take(millis(0), &"a", 0).unwrap_err();
        assert!(wait > millis(49_000) && wait <= millis(50_001), "{wait:?}");
        assert_eq!(buckets.take(wait, &"a", 1), Ok(()));
    }

    #[test]
    fn keys_without_room_share_a_bucket() {
        let mut buckets = Buckets::new(1, 2);
        for key in ["a", "b"] {
            assert_eq!(buckets.take(millis(0), &key, 1), Ok(()));
        }
        for key in 0..10 {
            assert_eq!(buckets.take(millis(0), &["c", "d"][key % 2], 1), Ok(()));
        }
        assert!(buckets.take(millis(0), &"e", 1).is_err(), "the shared bucket is empty");
        assert_eq!(buckets.take(millis(0), &"a", 1), Ok(()), "known keys keep theirs");
        // Full buckets are forgotten, which makes room.
        assert_eq!(buckets.take(millis(60_000), &"e", 1), Ok(()));
        assert_eq!(buckets.len(), 1);
    }

    proptest! {
        /// Whatever the order of the calls, a key gets no more than the burst and the rate, and memory is bounded.
        #[test]
        fn nobody_exceeds_the_rate(steps in prop::collection::vec((0..5u8, 0..2_000u64), 1..200), rate in 1..50u64) {
            let mut buckets = Buckets::new(rate, 3);
            let (mut now, mut taken) = (0, [0u64; 5]);
            for (key, pause) in steps {
                now += pause;
                if buckets.take(millis(now), &key, 1).is_ok() {
                    taken[usize::from(key)] += 1;
                }
                prop_assert!(buckets.len() <= 3);
                let allowed = rate * (10_000 + now) / 1_000 + 1;
                // A key that had no room may have used the shared bucket first.
                prop_assert!(taken.iter().all(|taken| *taken <= 2 * allowed), "{taken:?} of {allowed}");
            }
        }
    }
}
