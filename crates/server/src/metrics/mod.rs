//! Metrics of a node process in the OpenMetrics text format.
//!
//! Each metric is defined once. Counters are defined where they are raised, with `convoke_counters`; [`scrape`] exports
//! them together with the gauges that it computes. Label values are known at the start: a request cannot add any.

mod log;
mod requests;
mod scrape;

pub(crate) use requests::Requests;
pub(crate) use scrape::encode;

use prometheus_client::registry::Registry;

/// Content type of the response to a scrape.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

convoke_counters::atomic_counters! {
    /// Monotonic counters of the client port.
    pub struct ClientCounters read from ClientCounting {
        /// Client connections accepted.
        connections_accepted,
        /// Client connections closed because too many were open.
        connections_rejected,
        /// Client connections closed because no request arrived in time.
        connections_timed_out,
        /// Client connections closed because they did not carry HTTP.
        connections_malformed,
        /// Requests of HTTP sessions forwarded to the node that holds the session.
        session_requests_forwarded,
        /// HTTP sessions re-attached at this node.
        sessions_reattached,
    }
}

/// Metrics of the client port.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) clients: ClientCounting,
    pub(crate) http: Requests,
    pub(crate) grpc: Requests,
    registry: Registry,
}

impl Metrics {
    pub(crate) fn new(http: Requests, grpc: Requests) -> Self {
        let mut registry = Registry::default();
        http.register(&mut registry, "http");
        grpc.register(&mut registry, "grpc");
        Metrics { clients: ClientCounting::default(), http, grpc, registry }
    }
}
