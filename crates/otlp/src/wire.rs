//! The OTLP messages that this crate uses (opentelemetry-proto 1.x, `collector/trace/v1`). A test decodes them with the
//! types of the OpenTelemetry project.

use crate::record::{Kind, Record, Value};
use prost::{Message, Oneof};
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Any", tags = "1, 2, 3, 4")]
    value: Option<Any>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Any {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Flag(bool),
    #[prost(int64, tag = "3")]
    Whole(i64),
    #[prost(double, tag = "4")]
    Float(f64),
}

/// The response of a collector that accepted the request.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}

const ERROR: i32 = 2;

/// Returns the resource that identifies this node.
pub(crate) fn resource(instance: &str, version: &str) -> Resource {
    let attributes = [("service.name", "convoke"), ("service.instance.id", instance), ("service.version", version)];
    Resource {
        attributes: attributes.into_iter().map(|(key, text)| attribute(key, Value::Text(text.to_owned()))).collect(),
    }
}

pub(crate) fn request(resource: &Resource, version: &str, records: Vec<Record>) -> ExportRequest {
    let scope = Scope { name: "convoke".to_owned(), version: version.to_owned() };
    let spans = records.into_iter().map(span).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
    ExportRequest { resource_spans: vec![ResourceSpans { resource: Some(resource.clone()), scope_spans }] }
}

fn span(record: Record) -> Span {
    Span {
        trace_id: record.context.trace.to_be_bytes().to_vec(),
        span_id: record.context.span.to_be_bytes().to_vec(),
        parent_span_id: record.parent.map(|parent| parent.to_be_bytes().to_vec()).unwrap_or_default(),
        name: record.name,
        kind: match record.kind {
            Kind::Internal => 1,
            Kind::Server => 2,
            Kind::Client => 3,
        },
        start_time_unix_nano: nanos(record.began),
        end_time_unix_nano: nanos(record.began + record.took),
        attributes: record.attributes.into_iter().map(|(key, value)| attribute(key, value)).collect(),
        status: record.error.then_some(Status { code: ERROR }),
    }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => Any::Text(text),
        Value::Whole(number) => Any::Whole(number),
        Value::Float(number) => Any::Float(number),
        Value::Flag(flag) => Any::Flag(flag),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_trace::SpanContext;
    use opentelemetry_proto::tonic::collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
    };
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Theirs;
    use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
    use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
    use std::time::Duration;

    #[test]
    fn requests_decode_with_the_official_types() {
        let context = SpanContext { trace: 0x0102, span: 0x0304, sampled: true };
        let mut record = Record::begin(context, Some(0x0506), "name");
        (record.kind, record.error) = (Kind::Server, true);
        (record.began, record.took) = (UNIX_EPOCH + Duration::from_secs(7), Duration::from_nanos(8));
        record.attributes = vec![
            ("text", Value::Text("t".to_owned())),
            ("whole", Value::Whole(-1)),
            ("float", Value::Float(0.5)),
            ("flag", Value::Flag(true)),
        ];
        let root = Record::begin(SpanContext { span: 9, ..context }, None, "root");
        let bytes = request(&resource("n1", "1.2"), "1.2", vec![record, root]).encode_to_vec();

        let read = ExportTraceServiceRequest::decode(bytes.as_slice()).unwrap();
        let resource_spans = &read.resource_spans[0];
        let texts = resource_spans.resource.iter().flat_map(|resource| &resource.attributes).map(|attribute| {
            let value = attribute.value.as_ref().and_then(|value| value.value.clone());
            (attribute.key.as_str(), value)
        });
        let text = |text: &str| Some(Theirs::StringValue(text.to_owned()));
        let expected =
            [("service.name", text("convoke")), ("service.instance.id", text("n1")), ("service.version", text("1.2"))];
        assert_eq!(texts.collect::<Vec<_>>(), expected);
        let spans = &resource_spans.scope_spans[0].spans;
        let span = &spans[0];
        assert_eq!(span.trace_id, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(
            (span.span_id.as_slice(), span.parent_span_id.as_slice()),
            (&[0, 0, 0, 0, 0, 0, 3, 4][..], &[0, 0, 0, 0, 0, 0, 5, 6][..])
        );
        assert_eq!((span.name.as_str(), span.kind()), ("name", SpanKind::Server));
        assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (7_000_000_000, 7_000_000_008));
        assert_eq!(span.status.clone().unwrap().code(), StatusCode::Error);
        let values: Vec<_> =
            span.attributes.iter().filter_map(|a| Some((a.key.as_str(), a.value.clone()?.value?))).collect();
        let expected = [
            ("text", Theirs::StringValue("t".to_owned())),
            ("whole", Theirs::IntValue(-1)),
            ("float", Theirs::DoubleValue(0.5)),
            ("flag", Theirs::BoolValue(true)),
        ];
        assert_eq!(values, expected);
        assert_eq!(
            (spans[1].parent_span_id.len(), spans[1].status.clone(), spans[1].kind()),
            (0, None, SpanKind::Internal)
        );
    }

    #[test]
    fn responses_of_the_official_types_decode() {
        let partial = ExportTracePartialSuccess { rejected_spans: 3, error_message: "no".to_owned() };
        let bytes = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        let read = ExportResponse::decode(bytes.as_slice()).unwrap();
        assert_eq!(read.partial_success, Some(PartialSuccess { rejected_spans: 3, error_message: "no".to_owned() }));
        assert_eq!(ExportResponse::decode(&[][..]), Ok(ExportResponse::default()));
    }
}
