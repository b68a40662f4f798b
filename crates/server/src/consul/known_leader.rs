//! Whether the log has a leader, for `X-Consul-KnownLeader` of every answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long an answer is used again. Reading the whole status of the log costs more than most lookups.
const FRESH: Duration = Duration::from_millis(100);

/// The last answer and its time.
#[derive(Debug)]
pub(crate) struct KnownLeader {
    begun: Instant,
    /// Milliseconds since the begin, and in the lowest bit the answer; 0 if there is none yet.
    last: AtomicU64,
}

impl KnownLeader {
    pub(crate) fn new() -> KnownLeader {
        KnownLeader { begun: Instant::now(), last: AtomicU64::new(0) }
    }

    /// Returns the last answer, or asks again if that is too old.
    pub(crate) fn get(&self, ask: impl FnOnce() -> bool) -> bool {
        self.get_at(self.begun.elapsed(), ask)
    }

    fn get_at(&self, elapsed: Duration, ask: impl FnOnce() -> bool) -> bool {
        // The first millisecond is 1, so that no answer is 0.
        let now = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX >> 1) + 1;
        let last = self.last.load(Ordering::Relaxed);
        if last != 0 && now.saturating_sub(last >> 1) < FRESH.as_millis() as u64 {
            return last & 1 == 1;
        }
        let known = ask();
        self.last.store(now << 1 | u64::from(known), Ordering::Relaxed);
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_asked_for_again_when_it_is_old() {
        let leader = KnownLeader::new();
        let at = |elapsed: u64, answer: bool| leader.get_at(Duration::from_millis(elapsed), || answer);
        assert!(!at(0, false));
        assert!(!at(99, true), "the last answer is fresh");
        assert!(at(100, true));
        assert!(at(150, false));
        assert!(!at(5_000, false));
    }
}
