//! Counters of exported and dropped spans. They are global, because a process has at most one exporter.

use std::sync::atomic::{AtomicU64, Ordering};

/// Finished spans, by result.
#[derive(Debug, Default)]
pub struct Counters {
    exported: AtomicU64,
    dropped_queue: AtomicU64,
    dropped_collector: AtomicU64,
}

static COUNTERS: Counters =
    Counters { exported: AtomicU64::new(0), dropped_queue: AtomicU64::new(0), dropped_collector: AtomicU64::new(0) };

/// Returns the counters of this process.
pub fn counters() -> &'static Counters {
    &COUNTERS
}

impl Counters {
    /// Returns the number of spans that the collector accepted.
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// Returns the number of spans dropped because the queue was full.
    pub fn dropped_queue(&self) -> u64 {
        self.dropped_queue.load(Ordering::Relaxed)
    }

    /// Returns the number of spans dropped because the collector was unreachable or rejected them.
    pub fn dropped_collector(&self) -> u64 {
        self.dropped_collector.load(Ordering::Relaxed)
    }

    pub fn add_exported(&self, count: u64) {
        self.exported.fetch_add(count, Ordering::Relaxed);
    }

    pub fn add_dropped_queue(&self, count: u64) {
        self.dropped_queue.fetch_add(count, Ordering::Relaxed);
    }

    pub fn add_dropped_collector(&self, count: u64) {
        self.dropped_collector.fetch_add(count, Ordering::Relaxed);
    }
}
