//! Histogram of fsync durations. A slow disk shows here first.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets in seconds.
const BOUNDS: [f64; 12] = [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

/// Fsync durations since the start of the replica.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SyncTimes {
    /// Upper bound in seconds, and the cumulative count.
    pub within: Vec<(f64, u64)>,
    pub count: u64,
    pub sum: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct SyncTiming {
    /// One count per bound, and one for values above all bounds.
    counts: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl SyncTiming {
    pub(crate) fn add(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> SyncTimes {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let mut count = 0;
        let within = BOUNDS.iter().zip(&counts).map(|(bound, here)| {
            count += here;
            (*bound, count)
        });
        let within = within.collect();
        let sum = Duration::from_micros(self.micros.load(Ordering::Relaxed));
        SyncTimes { within, count: counts.iter().sum(), sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_includes_those_below() {
        let timing = SyncTiming::default();
        for millis in [1, 3, 3, 60_000] {
            timing.add(Duration::from_millis(millis));
        }
        let times = timing.read();
        let within = |seconds: f64| times.within.iter().find(|(bound, _)| *bound == seconds).unwrap().1;
        assert_eq!((within(0.000_5), within(0.001), within(0.005), within(5.0)), (0, 1, 3, 3));
        assert_eq!((times.count, times.sum), (4, Duration::from_millis(60_007)));
    }
}
