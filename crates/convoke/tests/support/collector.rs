//! A trace collector: OTLP over HTTP on loopback, decoded with the types of the OpenTelemetry project.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A span with the id of its node.
#[derive(Clone, Debug)]
pub struct Seen {
    pub node: String,
    pub span: Span,
}

impl Seen {
    pub fn attribute(&self, key: &str) -> Option<String> {
        text(&self.span.attributes, key)
    }

    pub fn trace(&self) -> String {
        hex(&self.span.trace_id)
    }

    pub fn id(&self) -> String {
        hex(&self.span.span_id)
    }

    pub fn parent(&self) -> String {
        hex(&self.span.parent_span_id)
    }
}

/// Accepts all spans while the test runs.
pub struct Collector {
    pub endpoint: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Collector {
    pub fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let taken = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let taken = taken.clone();
                std::thread::spawn(move || serve(stream, &taken));
            }
        });
        Collector { endpoint, seen }
    }

    pub fn spans(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits for a span.
    #[track_caller]
    pub fn find(&self, what: &str, wanted: impl Fn(&Seen) -> bool) -> Seen {
        let mut found = None;
        convoke_testkit::until(what, || {
            found = self.spans().into_iter().find(&wanted);
            found.is_some()
        });
        found.unwrap()
    }
}

/// Serves the requests of one connection.
fn serve(stream: TcpStream, seen: &Mutex<Vec<Seen>>) -> Option<()> {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            (reader.read_until(b'\n', &mut head).ok()? > 0).then_some(())?;
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
        assert!(head.contains("content-type: application/x-protobuf\r\n"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body).ok()?;
        let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        for spans in request.resource_spans {
            let resource = spans.resource.unwrap().attributes;
            assert_eq!(text(&resource, "service.name").as_deref(), Some("convoke"));
            let node = text(&resource, "service.instance.id").unwrap();
            let spans = spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
            seen.lock().unwrap().extend(spans.map(|span| Seen { node: node.clone(), span }));
        }
        writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    Some(match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(flag) => flag.to_string(),
        other => panic!("{other:?}"),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
