//! What is counted here, and how it is shown to Prometheus together with the node's own counts.

mod log;
mod render;
mod requests;

pub(crate) use render::{Text, render};
pub(crate) use requests::Requests;

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

#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) connections_accepted: Counter,
    /// Closed because there were too many.
    pub(crate) connections_refused: Counter,
    /// Closed because nothing useful came in time.
    pub(crate) connections_silent: Counter,
    /// Closed because what came was no HTTP.
    pub(crate) connections_malformed: Counter,
    /// Requests of sessions passed on to the node that holds them.
    pub(crate) sessions_forwarded: Counter,
    /// Sessions over HTTP attached here again.
    pub(crate) sessions_reattached: Counter,
    pub(crate) http: Requests,
    pub(crate) grpc: Requests,
}

impl Metrics {
    pub(crate) fn new(http: Requests, grpc: Requests) -> Self {
        Metrics {
            connections_accepted: Counter::default(),
            connections_refused: Counter::default(),
            connections_silent: Counter::default(),
            connections_malformed: Counter::default(),
            sessions_forwarded: Counter::default(),
            sessions_reattached: Counter::default(),
            http,
            grpc,
        }
    }
}
