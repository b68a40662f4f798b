//! What Convoke's parts need to be traced. They make ordinary spans of the `tracing` crate with the target [`TARGET`];
//! `convoke-otlp` picks these up and exports them. Without it nobody listens, and a span costs one look at a number.
//!
//! A span may say more than its fields: these names mean something to the exporter.
//!
//! | Field | Means |
//! |---|---|
//! | `otel.name` | name, if it is not the same for all spans of that place |
//! | `otel.kind` | `server` or `client`; without it the span is internal |
//! | `otel.status_code` | `ERROR` |
//! | `otel.began_ago_us` | the span began so many µs before it was made |
//! | `traceparent` | it goes on with the trace of whoever asked, as in the header of that name |

mod context;
mod counters;

pub use context::{SpanContext, current, provide_current};
pub use counters::{Counters, counters};

/// Target of all spans that are meant to be exported.
pub const TARGET: &str = "convoke_trace";

/// Header, and name of the field, that carries a [`SpanContext`] (W3C Trace Context).
pub const TRACEPARENT: &str = "traceparent";
