//! The `tracing` layer that records spans from start to end and queues them for export.

use crate::record::{Caller, Record};
use convoke_trace::{SpanContext, TRACEPARENT, counters};
use std::fmt::Debug;
use tokio::sync::mpsc;
use tracing::Subscriber;
use tracing::span::{Attributes, Id};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Registry};

/// Layer that records spans and queues them for export.
#[derive(Debug)]
pub struct Traces {
    queue: mpsc::Sender<Record>,
    /// A trace is recorded if the lower half of its id is below this value, so that all nodes decide alike.
    threshold: u128,
}

/// Data attached to an open span.
#[derive(Debug)]
enum Traced {
    /// The span and its descendants are not recorded.
    Unsampled(SpanContext),
    Recorded(Box<Record>),
}

impl Traced {
    fn context(&self) -> SpanContext {
        match self {
            Traced::Unsampled(context) => *context,
            Traced::Recorded(record) => record.context,
        }
    }
}

impl Traces {
    pub(crate) fn new(queue: mpsc::Sender<Record>, sample_ratio: f64) -> Traces {
        // A process has one subscriber. In the tests of this crate, another test may have set the function first.
        convoke_trace::provide_current(current);
        let threshold = (sample_ratio.clamp(0.0, 1.0) * 2f64.powi(64)) as u128;
        Traces { queue, threshold }
    }

    /// Creates the context of a root span.
    fn root(&self) -> SpanContext {
        let trace = fastrand::u128(1..);
        SpanContext { trace, span: fastrand::u64(1..), sampled: trace & u128::from(u64::MAX) < self.threshold }
    }
}

impl<S> Layer<S> for Traces
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut caller = Caller::default();
        if attributes.metadata().fields().field(TRACEPARENT).is_some() {
            attributes.record(&mut caller);
        }
        let enclosing = || span.parent().and_then(|parent| Some(parent.extensions().get::<Traced>()?.context()));
        let parent = caller.0.or_else(enclosing);
        let own = match parent {
            Some(parent) => SpanContext { span: fastrand::u64(1..), ..parent },
            None => self.root(),
        };
        let traced = if own.sampled {
            let mut record = Record::begin(own, parent.map(|parent| parent.span), attributes.metadata().name());
            attributes.record(&mut record);
            Traced::Recorded(Box::new(record))
        } else {
            Traced::Unsampled(own)
        };
        span.extensions_mut().insert(traced);
    }

    fn on_record(&self, id: &Id, values: &tracing::span::Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(Traced::Recorded(record)) = span.extensions_mut().get_mut::<Traced>() {
            values.record(&mut **record);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let traced = context.span(&id).and_then(|span| span.extensions_mut().remove::<Traced>());
        if let Some(Traced::Recorded(mut record)) = traced {
            record.end();
            // Never blocks: a full queue drops the span.
            if self.queue.try_send(*record).is_err() {
                counters().add_dropped_queue(1);
            }
        }
    }
}

/// Returns the innermost traced span of this thread.
fn current() -> Option<SpanContext> {
    tracing::dispatcher::get_default(|dispatch| {
        let current = dispatch.current_span();
        let span = dispatch.downcast_ref::<Registry>()?.span(current.id()?)?;
        span.scope().find_map(|span| Some(span.extensions().get::<Traced>()?.context()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Kind, Value};
    use convoke_trace::TARGET;
    use tracing::info_span;
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::layer::SubscriberExt;

    const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// Returns the spans that `within` creates.
    fn recorded(ratio: f64, capacity: usize, within: impl FnOnce()) -> Vec<Record> {
        let (queue, mut queued) = mpsc::channel(capacity);
        let layer = Traces::new(queue, ratio).with_filter(Targets::new().with_target(TARGET, LevelFilter::INFO));
        tracing::subscriber::with_default(Registry::default().with(layer), within);
        std::iter::from_fn(|| queued.try_recv().ok()).collect()
    }

    #[test]
    fn spans_record_parent_name_kind_and_attributes() {
        let spans = recorded(1.0, 8, || {
            let outer = info_span!(target: TARGET, "outer", otel.kind = "server", otel.name = "GET /", otel.status_code = tracing::field::Empty, code = tracing::field::Empty);
            let _outer = outer.enter();
            // A span with another target is neither exported nor a parent.
            let _other = info_span!("other").entered();
            assert_eq!(convoke_trace::current().map(|context| context.sampled), Some(true));
            drop(info_span!(target: TARGET, "inner", otel.began_ago_us = 5_000_000_u64, long = "ä".repeat(300)));
            outer.record("code", 200_u64);
            outer.record("otel.status_code", "ERROR");
        });
        let [inner, outer] = spans.as_slice() else { panic!("{spans:?}") };
        assert_eq!((outer.name.as_str(), outer.kind, outer.error, outer.parent), ("GET /", Kind::Server, true, None));
        assert_eq!(outer.attributes, [("code", Value::Whole(200))]);
        assert_eq!((inner.name.as_str(), inner.kind, inner.error), ("inner", Kind::Internal, false));
        assert_eq!((inner.context.trace, inner.parent), (outer.context.trace, Some(outer.context.span)));
        assert!(inner.took.as_secs() >= 5 && inner.began < outer.began, "{inner:?} {outer:?}");
        assert_eq!(inner.attributes, [("long", Value::Text("ä".repeat(128)))]);
    }

    #[test]
    fn the_sampling_decision_of_the_caller_wins() {
        let begin = |caller: &str| drop(info_span!(target: TARGET, "request", traceparent = caller));
        // The ratio applies only to traces that begin here.
        let spans = recorded(0.0, 8, || {
            begin(CALLER);
            begin("nonsense");
        });
        let [span] = spans.as_slice() else { panic!("{spans:?}") };
        let caller = SpanContext::parse(CALLER).unwrap();
        assert_eq!((span.context.trace, span.parent), (caller.trace, Some(caller.span)));
        assert!(span.attributes.is_empty());
        let unsampled = CALLER.replace("-01", "-00");
        assert!(recorded(1.0, 8, || begin(&unsampled)).is_empty());
    }

    #[test]
    fn sampling_records_whole_traces() {
        let spans = recorded(0.25, 10_000, || {
            for _ in 0..2_000 {
                let _outer = info_span!(target: TARGET, "outer").entered();
                drop(info_span!(target: TARGET, "inner"));
            }
        });
        assert!((300..700).contains(&(spans.len() / 2)), "{}", spans.len());
        assert!(spans.chunks(2).all(|trace| trace[0].parent == Some(trace[1].context.span)));
    }

    #[test]
    fn spans_dropped_by_a_full_queue_are_counted() {
        let before = counters().dropped_queue();
        let spans = recorded(1.0, 3, || (0..10).for_each(|_| drop(info_span!(target: TARGET, "span"))));
        assert_eq!(spans.len(), 3);
        assert!(counters().dropped_queue() >= before + 7);
    }
}
