//! Limits repeated log lines to one per window.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(60);
const KEPT_MAX: usize = 1_024;

/// Keys that were logged within the last window.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<HashMap<String, Instant>>);

impl LogThrottle {
    /// Returns whether `what` was not logged within the last window, and records it.
    pub(crate) fn is_new(&self, what: &str) -> bool {
        let now = Instant::now();
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.get(what).is_some_and(|at| now.duration_since(*at) < WINDOW) {
            return false;
        }
        if recent.len() >= KEPT_MAX {
            recent.retain(|_, at| now.duration_since(*at) < WINDOW);
        }
        // The table is full: suppress further keys until the window has passed.
        if recent.len() >= KEPT_MAX {
            return false;
        }
        recent.insert(what.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_suppressed_and_memory_is_bounded() {
        let log_throttle = LogThrottle::default();
        assert!(log_throttle.is_new("a"));
        assert!(!log_throttle.is_new("a"));
        assert!(log_throttle.is_new("b"));
        let recent = (0..5000).filter(|i| log_throttle.is_new(&i.to_string())).count();
        assert_eq!(recent, KEPT_MAX - 2);
    }
}
