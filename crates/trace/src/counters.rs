//! What became of the spans of this process. As many as there are processes, like the exporter they are about.

use std::sync::atomic::{AtomicU64, Ordering};

/// Spans that ended, by what became of them.
#[derive(Debug, Default)]
pub struct Counters {
    exported: AtomicU64,
    dropped_queue: AtomicU64,
    dropped_collector: AtomicU64,
}

static COUNTERS: Counters =
    Counters { exported: AtomicU64::new(0), dropped_queue: AtomicU64::new(0), dropped_collector: AtomicU64::new(0) };

pub fn counters() -> &'static Counters {
    &COUNTERS
}

impl Counters {
    /// Taken by the collector.
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// Lost because too many were waiting.
    pub fn dropped_queue(&self) -> u64 {
        self.dropped_queue.load(Ordering::Relaxed)
    }

    /// Lost because the collector was not there or refused them.
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
