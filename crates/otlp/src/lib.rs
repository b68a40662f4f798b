//! Exports spans with the target [`convoke_trace::TARGET`] to an OpenTelemetry collector: OTLP over HTTP, as protobuf.
//!
//! A finished span goes into a bounded queue. A separate task posts the queued spans in batches. If the queue is full
//! or the collector does not accept a batch, the spans are dropped and counted. The export never blocks the traced
//! code; only a stopping process waits for it, for at most two seconds.
//!
//! docs/decisions/0017-own-otlp-exporter.md explains why this crate does not use the OpenTelemetry SDK.

mod endpoint;
mod exporter;
mod layer;
mod record;
mod wire;

pub use endpoint::{Endpoint, EndpointError};
pub use exporter::{Exporter, Running};
pub use layer::Traces;

use tokio::sync::mpsc;

/// Maximum number of spans that wait for export.
pub const QUEUE: usize = 8_192;

/// Configuration of the export.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub endpoint: Endpoint,
    /// Share of the traces begun in this process that are recorded, from 0 to 1. For other traces, the caller decides.
    pub sample_ratio: f64,
    /// `service.instance.id`: the node id.
    pub instance: String,
    /// `service.version`.
    pub version: String,
}

/// Creates a layer that records spans, and the exporter that sends them.
///
/// Add the layer to the subscriber with a filter for [`convoke_trace::TARGET`], and [spawn](Exporter::spawn) the
/// exporter in a runtime.
pub fn traces(config: Config) -> (Traces, Exporter) {
    let (queue, queued) = mpsc::channel(QUEUE);
    (Traces::new(queue, config.sample_ratio), Exporter::new(config, queued))
}
