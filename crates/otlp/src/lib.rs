//! Exports spans with the target [`convoke_trace::TARGET`] to an OpenTelemetry collector: OTLP over HTTP, as protobuf.
//!
//! A span that ends is put in a bounded queue; a task of its own takes batches out of it and posts them. If the queue is
//! full or the collector does not take a batch, the spans are lost and counted. Nothing waits for any of it, except a
//! process that ends, and that not for long.
//!
//! docs/decisions/0017-own-otlp-exporter.md says why this is not the OpenTelemetry SDK.

mod endpoint;
mod exporter;
mod layer;
mod record;
mod wire;

pub use endpoint::{Endpoint, EndpointError};
pub use exporter::{Exporter, Running};
pub use layer::Traces;

use tokio::sync::mpsc;

/// Spans that may wait to be exported.
pub const QUEUE: usize = 8_192;

/// What to export, whereto, and of whom.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub endpoint: Endpoint,
    /// Share of the traces begun here that are recorded, from 0 to 1. Whoever asks with a trace of its own has decided
    /// for it.
    pub sample_ratio: f64,
    /// `service.instance.id`: which node this is.
    pub instance: String,
    /// `service.version`.
    pub version: String,
}

/// What notices spans, to be part of the subscriber, and what exports them, to be [spawned](Exporter::spawn) in a
/// runtime. Filter the first so that it gets no other spans.
pub fn traces(config: Config) -> (Traces, Exporter) {
    let (queue, queued) = mpsc::channel(QUEUE);
    (Traces::new(queue, config.sample_ratio), Exporter::new(config, queued))
}
