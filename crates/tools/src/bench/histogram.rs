//! A histogram of times that many workers record concurrently without locks.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets between one power of two and the next: the error of a time is below 1 %.
const PARTS: u64 = 128;
const BITS: u32 = PARTS.ilog2();
/// Longer times, from two thirds of a day, fall into the last bucket.
const POWERS: u64 = 30;

#[derive(Debug)]
pub(super) struct Histogram {
    buckets: Box<[AtomicU64]>,
    max: AtomicU64,
}

/// In microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Latency {
    pub(super) p50: u64,
    pub(super) p99: u64,
    #[serde(rename = "p99.9")]
    pub(super) p999: u64,
    pub(super) max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let buckets = (0..PARTS * POWERS).map(|_| AtomicU64::new(0)).collect();
        Histogram { buckets, max: AtomicU64::new(0) }
    }
}

impl Histogram {
    pub(super) fn record(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket(micros).min(self.buckets.len() - 1)].fetch_add(1, Ordering::Relaxed);
        self.max.fetch_max(micros, Ordering::Relaxed);
    }

    /// `None` if nothing was recorded.
    pub(super) fn latency(&self) -> Option<Latency> {
        let counts: Vec<u64> = self.buckets.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let all: u64 = counts.iter().sum();
        let max = self.max.load(Ordering::Relaxed);
        let quantile = |per_mille: u64| {
            let wanted = (all * per_mille).div_ceil(1_000).max(1);
            let mut seen = 0;
            let reached = counts.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            reached.map_or(max, |bucket| upper(bucket).min(max))
        };
        (all > 0).then(|| Latency { p50: quantile(500), p99: quantile(990), p999: quantile(999), max })
    }
}

fn bucket(micros: u64) -> usize {
    let power = micros.max(1).ilog2().saturating_sub(BITS);
    let index = if power == 0 { micros } else { u64::from(power) * PARTS + (micros >> power) };
    usize::try_from(index).unwrap_or(usize::MAX)
}

/// The largest time of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * PARTS {
        return bucket;
    }
    let power = bucket / PARTS - 1;
    ((bucket - power * PARTS + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[test]
    fn every_time_is_in_its_bucket() {
        let mut last = 0;
        for micros in (0..5_000).chain([9_999, 65_535, 65_536, 1_000_000, 123_456_789]) {
            let bucket = bucket(micros);
            assert!(bucket >= last, "{micros}");
            last = bucket;
            assert!(upper(bucket) >= micros, "{micros} in {bucket}");
            assert!(upper(bucket) as f64 <= micros as f64 * 1.01 + 1.0, "{micros} in {bucket}: {}", upper(bucket));
        }
    }

    #[test]
    fn shares_of_what_was_recorded() {
        let histogram = Histogram::default();
        assert_eq!(histogram.latency(), None);
        for micros in 1..=1_000 {
            histogram.record(Duration::from_micros(micros));
        }
        histogram.record(Duration::from_secs(100_000));
        let latency = histogram.latency().unwrap();
        assert!((500..=505).contains(&latency.p50), "{latency:?}");
        assert!((990..=999).contains(&latency.p99), "{latency:?}");
        assert_eq!(latency.max, 100_000_000_000);
    }
}
