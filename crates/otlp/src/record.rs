//! The data of one span.

use convoke_trace::{SpanContext, TRACEPARENT};
use std::fmt::{Debug, Write};
use std::time::{Duration, Instant, SystemTime};
use tracing::field::{Field, Visit};

/// Maximum number of attributes of a span. Further ones are omitted.
const ATTRIBUTES_MAX: usize = 32;
/// Maximum length of a text attribute. Longer texts are truncated.
const TEXT_BYTES_MAX: usize = 256;

/// A span from its start to its export.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) context: SpanContext,
    pub(crate) parent: Option<u64>,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) error: bool,
    pub(crate) began: SystemTime,
    pub(crate) took: Duration,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    /// Measures the duration, because the wall clock may jump.
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Internal,
    Server,
    Client,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Whole(i64),
    Float(f64),
    Flag(bool),
}

impl Record {
    pub(crate) fn begin(context: SpanContext, parent: Option<u64>, name: &str) -> Record {
        Record {
            context,
            parent,
            name: name.to_owned(),
            kind: Kind::Internal,
            error: false,
            began: SystemTime::now(),
            took: Duration::ZERO,
            attributes: Vec::new(),
            since: Instant::now(),
        }
    }

    pub(crate) fn end(&mut self) {
        self.took += self.since.elapsed();
    }

    fn set(&mut self, name: &'static str, value: Value) {
        match (name, &value) {
            (TRACEPARENT, _) => {}
            ("otel.name", Value::Text(text)) => self.name.clone_from(text),
            ("otel.kind", Value::Text(kind)) => {
                self.kind = match kind.as_str() {
                    "server" => Kind::Server,
                    "client" => Kind::Client,
                    _ => Kind::Internal,
                }
            }
            ("otel.status_code", Value::Text(code)) => self.error = code == "ERROR",
            ("otel.began_ago_us", Value::Whole(micros)) => {
                let earlier = Duration::from_micros(u64::try_from(*micros).unwrap_or(0));
                self.began = self.began.checked_sub(earlier).unwrap_or(self.began);
                self.took += earlier;
            }
            _ if self.attributes.len() < ATTRIBUTES_MAX => self.attributes.push((name, value)),
            _ => {}
        }
    }
}

impl Visit for Record {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), Value::Text(truncate(value).to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), Value::Whole(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), Value::Whole(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field.name(), Value::Float(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), Value::Flag(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        // Writing to a `String` does not fail.
        let _ = write!(text, "{value:?}");
        self.set(field.name(), Value::Text(truncate(&text).to_owned()));
    }
}

fn truncate(text: &str) -> &str {
    let mut ends = (0..=TEXT_BYTES_MAX.min(text.len())).rev();
    ends.find_map(|end| text.get(..end)).unwrap_or_default()
}

/// Extracts the trace context of the caller from the fields of a span.
#[derive(Debug, Default)]
pub(crate) struct Caller(pub(crate) Option<SpanContext>);

impl Visit for Caller {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == TRACEPARENT {
            self.0 = SpanContext::parse(value);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}
