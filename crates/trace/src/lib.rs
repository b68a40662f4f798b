//! Tracing support for Convoke's crates: the span target, the trace context and the export counters.
//!
//! The crates create ordinary spans of the `tracing` crate with the target [`TARGET`], and `convoke-otlp` exports them.
//! This crate exports nothing and must not depend on an exporter. Without one, a span costs one atomic load.
//!
//! The exporter gives these fields a special meaning:
//!
//! | Field | Meaning |
//! |---|---|
//! | `otel.name` | name of the span, if it differs from the static name |
//! | `otel.kind` | `server` or `client`; without it, the span is internal |
//! | `otel.status_code` | `ERROR` if the operation failed |
//! | `otel.began_ago_us` | time between the start of the operation and the creation of the span, in µs |
//! | `traceparent` | trace context of the caller, as in the HTTP header; the span continues that trace |

mod context;
mod counters;

pub use context::{SpanContext, current, provide_current};
pub use counters::{Counters, counters};

/// Target of all spans that the exporter exports.
pub const TARGET: &str = "convoke_trace";

/// Name of the header and of the span field that carry a [`SpanContext`] (W3C Trace Context).
pub const TRACEPARENT: &str = "traceparent";
