//! Traces over OTLP (docs/monitoring.md), with and without a collector.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_proto::v1;
use convoke_testkit::{TestNode, free_address, until};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde_json::Value;
use std::io::Read;
use std::net::TcpListener;
use support::collector::{Collector, Seen};
use support::http::{metric, raw, request};
use support::start;

const CALLER: &str = "00f067aa0ba902b7";

/// Returns the trace id of a trace that begins elsewhere, and its header.
fn caller(number: u8) -> (String, String) {
    let trace = format!("4bf92f3577b34da6a3ce929d0e0e47{number:02x}");
    let header = format!("00-{trace}-{CALLER}-01");
    (trace, header)
}

/// Sends a request in a trace and returns status and body.
fn traced(address: &str, line: &str, traceparent: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let text = format!(
        "{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntraceparent: {traceparent}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let answer = String::from_utf8(raw(address, text.as_bytes())).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn node(dir: &tempfile::TempDir, id: &str, collector: &str, arguments: &[&str]) -> TestNode {
    let all = [&["--id", id, "--otlp-endpoint", collector], arguments].concat();
    TestNode::spawn(&mut start(&dir.path().join(id), &all)).ready()
}

#[test]
fn http_requests_continue_the_callers_trace() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), Collector::start());
    let node = node(&dir, "n1", &collector.endpoint, &[]);
    let (trace, traceparent) = caller(1);
    assert_eq!(traced(&node.clients, "GET /api/v1/members/nobody", &traceparent, "").0, 404);
    let span = collector.find("the span of the request", |seen| seen.trace() == trace);
    assert_eq!((span.node.as_str(), span.parent().as_str()), ("n1", CALLER));
    assert_eq!((span.span.name.as_str(), span.span.kind()), ("GET /api/v1/members/{id}", SpanKind::Server));
    let attribute = |key: &str| span.attribute(key).unwrap_or_default();
    assert_eq!(attribute("http.request.method"), "GET");
    assert_eq!(attribute("http.route"), "/api/v1/members/{id}");
    assert_eq!(attribute("http.response.status_code"), "404");
    assert_eq!(attribute("error.type"), "NOT_FOUND");
    assert_eq!(span.span.status, None, "a client error is not a server error");
    assert!(span.span.start_time_unix_nano <= span.span.end_time_unix_nano);

    // If the caller does not record its trace, neither does the node.
    let (unsampled, header) = caller(2);
    traced(&node.clients, "GET /api/v1/members", &header.replace("-01", "-00"), "");
    // Sessions are attached in the span of their request. Their secret must not appear.
    let (session, header) = caller(3);
    let (_, body) = traced(&node.clients, "POST /api/v1/sessions", &header, r#"{"client":"shop"}"#);
    let attach = collector.find("the attach", |seen| seen.trace() == session && seen.span.name == "session.attach");
    let posted = collector.find("its request", |seen| seen.trace() == session && seen.parent() == CALLER);
    assert_eq!((attach.parent(), attach.attribute("convoke.client").as_deref()), (posted.id(), Some("shop")));
    let secret = serde_json::from_str::<Value>(&body).unwrap()["session"].as_str().unwrap().to_owned();
    let (heartbeat, header) = caller(4);
    let path = format!("PUT /api/v1/sessions/{secret}/heartbeat");
    assert_eq!(traced(&node.clients, &path, &header, "").0, 200);
    collector.find("the heartbeat", |seen| seen.trace() == heartbeat);
    // The token of Consul's clients may be a parameter.
    let (consul, header) = caller(5);
    let path = "GET /v1/catalog/services?token=a-secret-token&dc=convoke";
    assert_eq!(traced(&node.clients, path, &header, "").0, 200);
    let span = collector.find("the request of a client of Consul", |seen| seen.trace() == consul);
    assert_eq!(span.span.name, "GET /v1/catalog/services");
    let spans = collector.spans();
    assert!(!format!("{spans:?}").contains(&secret));
    assert!(!format!("{spans:?}").contains("a-secret-token"));
    assert!(spans.iter().all(|seen| seen.trace() != unsampled), "{spans:?}");
    assert!(metric(&node.clients, "convoke_trace_spans_exported_total") >= 3.0);
}

#[tokio::test]
async fn grpc_calls_continue_the_callers_trace() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), Collector::start());
    let node = node(&dir, "n1", &collector.endpoint, &[]);
    let channel = tonic::transport::Endpoint::new(format!("http://{}", node.clients)).unwrap().connect().await.unwrap();
    let mut client = v1::registry_client::RegistryClient::new(channel);
    let (trace, traceparent) = caller(1);
    let mut list = tonic::Request::new(v1::ListRequest::default());
    list.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
    client.list(list).await.unwrap();
    let span = collector.find("the span of the call", |seen| seen.trace() == trace);
    assert_eq!((span.span.name.as_str(), span.parent().as_str()), ("convoke.v1.Registry/List", CALLER));
    assert_eq!((span.span.kind(), span.attribute("rpc.grpc.status_code").as_deref()), (SpanKind::Server, Some("0")));

    let mut get = tonic::Request::new(v1::GetRequest { id: "nobody".to_owned() });
    let (rejected, traceparent) = caller(2);
    get.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
    client.get(get).await.unwrap_err();
    let span = collector.find("the span of the rejected call", |seen| seen.trace() == rejected);
    let not_found = (tonic::Code::NotFound as i32).to_string();
    assert_eq!((span.attribute("rpc.grpc.status_code"), span.span.status), (Some(not_found), None));

    // An attach through the SDK begins a trace at the node.
    let web = support::registered(&node.clients, "web-1");
    let attach = collector.find("the attach", |seen| seen.span.name == "session.attach");
    assert_eq!((attach.parent().is_empty(), attach.attribute("convoke.members").is_some()), (false, true));
    drop(web);
}

#[test]
fn a_log_write_is_one_trace_from_the_request_to_the_state_machine() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), Collector::start());
    let node = node(&dir, "n1", &collector.endpoint, &[]);
    until("the log has a leader", || request(&node.clients, "GET", "/readyz?log", "").0 == 200);
    let (trace, traceparent) = caller(1);
    assert_eq!(traced(&node.clients, "PUT /api/v1/kv/app/limit", &traceparent, "10").0, 200);
    let find = |name: &str| collector.find(name, |seen| seen.trace() == trace && seen.span.name == name);
    let parents = |child: &Seen, parent: &Seen| assert_eq!(child.parent(), parent.id(), "{child:?}");
    let put = find("PUT /api/v1/kv/{*key}");
    let (submitted, proposed, committed, applied) =
        (find("log.request"), find("log.propose"), find("log.commit"), find("log.apply"));
    assert_eq!(put.parent(), CALLER);
    parents(&submitted, &put);
    parents(&proposed, &submitted);
    parents(&committed, &proposed);
    parents(&applied, &proposed);
    assert!(committed.span.end_time_unix_nano <= applied.span.end_time_unix_nano);
    assert!(proposed.attribute("convoke.index").unwrap().parse::<u64>().unwrap() > 0);
}

/// Pending spans are exported when a node stops.
#[test]
fn a_full_merge_is_traced_and_a_stopping_node_exports_pending_spans() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), Collector::start());
    let first = node(&dir, "n1", &collector.endpoint, &[]);
    let mut second = node(&dir, "n2", &collector.endpoint, &["--join", &first.peers]);
    let sync = collector.find("the exchange", |seen| seen.node == "n2" && seen.span.name.starts_with("registry."));
    assert_eq!(sync.attribute("convoke.peer").as_deref(), Some("n1"));
    assert!(sync.attribute("convoke.records").unwrap().parse::<u64>().unwrap() > 0, "{sync:?}");
    let (trace, traceparent) = caller(1);
    traced(&second.clients, "GET /api/v1/status", &traceparent, "");
    second.process.terminate();
    assert_eq!(second.process.wait().code(), Some(0));
    assert!(
        collector.spans().iter().any(|seen| seen.trace() == trace),
        "spans that ended before the node are exported"
    );
}

#[test]
fn without_a_collector_a_node_serves_and_counts_dropped_spans() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = format!("http://{}", free_address());
    let mut node = node(&dir, "n1", &endpoint, &[]);
    until("spans are lost", || metric(&node.clients, "convoke_trace_spans_dropped_total{reason=\"collector\"}") > 0.0);
    assert_eq!(metric(&node.clients, "convoke_trace_spans_exported_total"), 0.0);
    assert_eq!(request(&node.clients, "GET", "/readyz", "").0, 200);
    let lost = || metric(&node.clients, "convoke_trace_spans_dropped_total{reason=\"collector\"}");
    let before = lost();
    until("more of them", || lost() > before);
    let printed = node.process.stderr();
    let messages: Vec<&str> = printed.lines().filter(|line| line.contains("span export failed")).collect();
    assert_eq!(messages.len(), 1, "{printed}");
    assert!(messages[0].contains(&endpoint) && messages[0].contains("WARN"), "{printed}");
    node.process.terminate();
    assert_eq!(node.process.wait().code(), Some(0));
}

/// Neither requests nor the stop of the node wait for the collector.
#[test]
fn a_silent_collector_delays_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let mut node = node(&dir, "n1", &endpoint, &[]);
    request(&node.clients, "GET", "/api/v1/members", "");
    let (mut connection, _) = listener.accept().unwrap();
    let mut first = [0; 4];
    connection.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"POST");
    for _ in 0..100 {
        assert_eq!(request(&node.clients, "GET", "/api/v1/members", "").0, 200);
    }
    node.process.terminate();
    assert_eq!(node.process.wait().code(), Some(0));
    assert!(node.process.stderr().contains("remaining spans dropped"), "{}", node.process.stderr());
}

/// A request that the server cannot serve is an error in the trace.
#[test]
fn a_request_to_a_node_without_a_log_is_a_traced_error() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), Collector::start());
    let mut command = start(&dir.path().join("n1"), &["--id", "n1", "--otlp-endpoint", &collector.endpoint]);
    let node = TestNode::spawn(command.env("CONVOKE_LOG_ENABLED", "false")).ready();
    let (trace, traceparent) = caller(1);
    assert_eq!(traced(&node.clients, "GET /api/v1/kv/a", &traceparent, "").0, 503);
    let span = collector.find("the span of the request", |seen| seen.trace() == trace);
    assert_eq!(span.span.status.unwrap().code(), StatusCode::Error);
    assert_eq!(span.span.attributes.iter().filter(|attribute| attribute.key == "error.type").count(), 1);
}
