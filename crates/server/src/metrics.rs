//! What is counted.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) connections_accepted: Counter,
    /// Closed because there were too many.
    pub(crate) connections_refused: Counter,
    /// Closed because nothing useful came in time.
    pub(crate) connections_silent: Counter,
}
