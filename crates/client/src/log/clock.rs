//! The clock of an ambassador. It counts suspends of the machine, because leases expire during them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Readings of two clocks are not simultaneous. Smaller differences are no suspends, and are counted once they add up.
const NOISE: u64 = 10_000;

#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    /// Microseconds of suspends before the start, and until the last reading.
    base: u64,
    counted: AtomicU64,
}

impl Clock {
    pub(super) fn start() -> Clock {
        let base = (0..3).map(|_| suspended()).max().unwrap_or_default();
        Clock { start: Instant::now(), base, counted: AtomicU64::new(base) }
    }

    /// Returns the time since the start. Tokio's clock stops while the machine is suspended, and simulations advance it;
    /// so the time of suspends is added to it.
    pub(super) fn now(&self) -> Duration {
        self.at(suspended())
    }

    /// The same if the machine has been suspended for `found` microseconds since its start.
    fn at(&self, found: u64) -> Duration {
        let counted = self.counted.load(Ordering::Acquire);
        let counted =
            if found > counted + NOISE { self.counted.fetch_max(found, Ordering::AcqRel).max(found) } else { counted };
        self.start.elapsed() + Duration::from_micros(counted - self.base)
    }
}

/// Returns for how many microseconds the machine has been suspended since its start, never too many.
#[cfg(target_os = "linux")]
fn suspended() -> u64 {
    use rustix::time::{ClockId, Timespec, clock_gettime};
    let micros = |now: Timespec| {
        u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000
    };
    // In this order, a pause between both calls never looks like a suspend.
    let with_suspends = micros(clock_gettime(ClockId::Boottime));
    with_suspends.saturating_sub(micros(clock_gettime(ClockId::Monotonic)))
}

/// Elsewhere the monotonic clock is the only one.
#[cfg(not(target_os = "linux"))]
fn suspended() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_simulated_time_and_adds_suspends() {
        let clock = Clock::start();
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(clock.now(), Duration::from_secs(5), "the machine was not suspended meanwhile");
        let base = clock.base;
        assert_eq!(clock.at(base + NOISE), Duration::from_secs(5), "two readings are not simultaneous");
        assert_eq!(clock.at(base + 7_000_000), Duration::from_secs(12), "suspended for 7 s");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(clock.at(base), Duration::from_secs(13), "a lower reading does not take a suspend back");
        assert_eq!(clock.at(base + 7_000_000 + 2 * NOISE), Duration::from_millis(13_020), "small ones add up");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_time_of_suspends_is_the_difference_of_two_clocks() {
        use rustix::time::{ClockId, clock_gettime};
        let seconds = |clock| clock_gettime(clock).tv_sec;
        let found = i64::try_from(suspended() / 1_000_000).unwrap_or(i64::MAX);
        assert!((seconds(ClockId::Boottime) - seconds(ClockId::Monotonic) - found).abs() <= 1);
    }
}
