//! Hostile input: it is rejected with an error where a client can read it, resources are limited, and the node
//! survives.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_proto::v1::client_message::Message as ClientMessage;
use convoke_proto::v1::server_message::Message as ServerMessage;
use convoke_proto::{Error, ErrorCode, v1};
use convoke_server::{Server, StartError};
use convoke_testkit::eventually;
use std::time::Duration;
use support::Served;
use support::grpc::{Attachment, attach, registry};
use support::http::{answer, open, request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn assert_alive(served: &Served) {
    served.get("/readyz").await.ok();
    registry(served).await.list(convoke_proto::v1::ListRequest::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_routes_and_wrong_methods_are_rejected_in_json() {
    let served = Served::alone().await;
    for path in ["/", "/api", "/api/v1", "/api/v1/memberz", "/api/v1/members/a/b/c", "/%ff", "//", "/ui/no-such-file"] {
        served.get(path).await.rejected(404, "NOT_FOUND");
    }
    for (method, path) in [
        ("POST", "/healthz"),
        ("DELETE", "/api/v1/members/a"),
        ("GET", "/api/v1/sessions"),
        ("POST", "/api/v1/sessions/x/heartbeat"),
        ("GET", "/api/v1/sessions/x/members/a"),
        ("PUT", "/api/v1/watch"),
        ("OPTIONS", "/api/v1/members"),
        ("BREW", "/api/v1/members"),
    ] {
        let answer = served.send(method, path, &[], "").await;
        answer.rejected(405, "INVALID_ARGUMENT");
        assert!(answer.headers.contains_key("allow"), "{answer:?}");
    }
    let head = served.send("HEAD", "/readyz", &[], "").await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_requests_are_rejected_before_they_are_parsed() {
    let small = |server: &mut convoke_server::Config| {
        server.limits.body_bytes = 1_000;
        server.limits.uri_bytes = 500;
        server.limits.header_bytes = 2_000;
    };
    let served = Served::start("n0", &[], |_| {}, small).await;
    let long = "x".repeat(1_001);
    let field = served.post("/api/v1/sessions", &long).await.rejected(413, "TOO_LARGE");
    assert_eq!(field.as_deref(), Some("body"));
    served.get(&format!("/api/v1/members?filter={long}")).await.rejected(414, "TOO_LARGE");
    served.send("GET", "/healthz", &[("x-long", &long), ("x-longer", &long)], "").await.rejected(431, "TOO_LARGE");
    // A chunked body does not declare its size.
    let mut chunked = b"POST /api/v1/sessions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..3 {
        chunked.extend_from_slice(format!("{:x}\r\n{}\r\n", 500, "y".repeat(500)).as_bytes());
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    let text = String::from_utf8_lossy(&served.raw_one(&chunked).await).into_owned();
    assert!(text.starts_with("HTTP/1.1 413") && text.contains("TOO_LARGE"), "{text}");
    // A body that declares a size above the limit is rejected without waiting for it.
    let claimed = b"POST /api/v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n";
    let text = String::from_utf8_lossy(&served.raw_one(claimed).await).into_owned();
    assert!(text.starts_with("HTTP/1.1 413") && text.contains("TOO_LARGE"), "{text}");
    // A header that exceeds the parser's buffer ends the connection.
    let endless = [b"GET /healthz HTTP/1.1\r\nx: ".as_slice(), &vec![b'x'; 1_000_000]].concat();
    let text = String::from_utf8_lossy(&served.raw(&endless).await).into_owned();
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 431"), "{text}");
    assert_alive(&served).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_ends_its_connection_and_nothing_else() {
    let served = Served::start("n0", &[], |_| {}, |server| server.timeouts.headers = Duration::from_millis(300)).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut noise = Vec::new();
    let mut state = 7_u32;
    for _ in 0..4_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        noise.push((state >> 24) as u8);
    }
    for bytes in [
        b"\r\n\r\n".to_vec(),
        b"nonsense\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"GET /\0 HTTP/1.1\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n".to_vec(),
        noise.clone(),
        [preface.as_slice(), &noise].concat(),
        // A frame larger than allowed, headers without settings, an invalid stream id.
        [preface.as_slice(), b"\xff\xff\xff\x00\x00\x00\x00\x00\x01"].concat(),
        [preface.as_slice(), b"\x00\x00\x04\x01\x04\x00\x00\x00\x01\xff\xff\xff\xff"].concat(),
        [preface.as_slice(), b"\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x01\x25\x00\x00\x00\x02"].concat(),
    ] {
        served.raw(&bytes).await;
    }
    assert_alive(&served).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_nothing_in_time_is_disconnected() {
    let short_timeouts = |server: &mut convoke_server::Config| {
        server.timeouts.headers = Duration::from_millis(100);
        server.timeouts.request = Duration::from_millis(100);
    };
    let served = Served::start("n0", &[], |_| {}, short_timeouts).await;
    for bytes in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n", b"GET /healthz HTTP/1.1\r\nhost:"] {
        // Returns when the server has closed the connection.
        served.raw(bytes).await;
    }
    let slow = b"POST /api/v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{";
    let text = String::from_utf8_lossy(&served.raw_one(slow).await).into_owned();
    assert!(text.starts_with("HTTP/1.1 504") && text.contains("TIMEOUT"), "{text}");
    assert_alive(&served).await;
    assert!(served.get("/metrics").await.body_text().contains("convoke_client_connections_timed_out_total 3"));
}

/// A client that sends requests and never reads a response.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_is_disconnected() {
    let short_timeouts = |server: &mut convoke_server::Config| server.timeouts.stall = Duration::from_millis(200);
    let served = Served::start("n0", &[], |_| {}, short_timeouts).await;
    let mut stream = TcpStream::connect(served.address()).await.unwrap();
    let call = b"GET /api/v1/openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100);
    // Until the server closes the connection.
    while stream.write_all(&call).await.is_ok() {}
    eventually("the connection is gone", async || {
        served.get("/metrics").await.body_text().contains("convoke_client_connections 1\n")
    })
    .await;
    assert_alive(&served).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_and_calls_are_bounded() {
    let few = |server: &mut convoke_server::Config| {
        server.limits.connections = 2;
        server.limits.attaches = 1;
    };
    let served = Served::start("n0", &[], |_| {}, few).await;
    let mut one = open(served.address()).await;
    answer(one.send_request(request("GET", "/readyz", &[], "")).await.unwrap()).await.ok();
    let (attachment, _) = support::grpc::Attachment::attached(&served, support::grpc::attach("c", 1, &["a"])).await;
    // The third connection is closed immediately.
    let mut third = TcpStream::connect(served.address()).await.unwrap();
    let _ = third.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut nothing = Vec::new();
    let _ = third.read_to_end(&mut nothing).await;
    assert!(nothing.is_empty());
    one.ready().await.unwrap();
    let metrics = answer(one.send_request(request("GET", "/metrics", &[], "")).await.unwrap()).await.body_text();
    assert!(metrics.contains("convoke_client_connections_rejected_total 1"), "{metrics}");
    assert!(metrics.contains("convoke_client_attaches 1"));
    drop(one);
    eventually("a connection is accepted again", async || {
        let mut stream = TcpStream::connect(served.address()).await.unwrap();
        let _ = stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text).await;
        text.starts_with(b"HTTP/1.1 200")
    })
    .await;
    eventually("one more attach is rejected", async || {
        let Ok(channel) =
            tonic::transport::Channel::from_shared(format!("http://{}", served.address())).unwrap().connect().await
        else {
            return false;
        };
        let mut client = convoke_proto::v1::registry_client::RegistryClient::new(channel);
        match client.attach(tokio_stream::pending()).await {
            Err(status) => status.code() == tonic::Code::ResourceExhausted,
            Ok(_) => panic!("two attaches"),
        }
    })
    .await;
    drop(attachment);
}

#[tokio::test]
async fn non_loopback_addresses_are_rejected_unless_allowed() {
    let public = convoke_server::Config { bind: "0.0.0.0:0".into(), ..Default::default() };
    let error = Server::bind(public.clone()).await.unwrap_err();
    assert!(matches!(&error, StartError::Public { address } if address == "0.0.0.0:0"));
    assert!(error.to_string().contains("--insecure-public"));
    let bound = Server::bind(convoke_server::Config { insecure_public: true, ..public }).await.unwrap();
    let taken = convoke_server::Config {
        bind: format!("127.0.0.1:{}", bound.address().port()),
        ..convoke_server::Config::default()
    };
    assert!(matches!(Server::bind(taken).await.unwrap_err(), StartError::Bind { .. }));
    let nowhere = convoke_server::Config { bind: "nonsense".into(), ..Default::default() };
    assert!(matches!(Server::bind(nowhere).await.unwrap_err(), StartError::Bind { .. }));
    for host in ["127.0.0.1:0", "localhost:0"] {
        Server::bind(convoke_server::Config { bind: host.into(), ..Default::default() }).await.unwrap();
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

/// Reads until the server closes the connection.
async fn closed(mut stream: TcpStream) {
    let mut bytes = Vec::new();
    let reading = stream.read_to_end(&mut bytes);
    // A reset is an end, too.
    let _ =
        tokio::time::timeout(convoke_testkit::TEST_TIMEOUT, reading).await.expect("the server closes the connection");
}

/// A client machine that lost its power answers no ping.
#[tokio::test(flavor = "multi_thread")]
async fn an_http2_client_that_answers_no_ping_is_disconnected() {
    let short = |server: &mut convoke_server::Config| server.timeouts.keep_alive = Duration::from_millis(50);
    let served = Served::start("n0", &[], |_| {}, short).await;
    let mut stream = TcpStream::connect(served.address()).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    closed(stream).await;
    assert_alive(&served).await;
}

/// The attached client is still served.
async fn assert_attached(client: &mut Attachment) {
    client.send(ClientMessage::Heartbeat(v1::Heartbeat { sent: 7 })).await;
    assert!(matches!(client.receive().await, ServerMessage::HeartbeatAck(ack) if ack.sent == 7 && ack.error.is_none()));
}

/// Clients that answer pings and call nothing, and clients whose calls have ended.
#[tokio::test(flavor = "multi_thread")]
async fn idle_http2_connections_are_closed_and_busy_ones_are_not() {
    let short = |server: &mut convoke_server::Config| server.timeouts.idle = Duration::from_millis(200);
    let served = Served::start("n0", &[], |_| {}, short).await;
    let open = async || {
        let metrics = served.get("/metrics").await.body_text();
        let count =
            metrics.lines().find_map(|line| line.strip_prefix("convoke_client_connections ")).unwrap().to_owned();
        // The scrape has a connection of its own.
        count.parse::<usize>().unwrap() - 1
    };
    // It is older than the idle one, and is still there when that is closed.
    let (mut attached, _) = Attachment::attached(&served, attach("c", 1, &["a"])).await;
    let mut idle = registry(&served).await;
    idle.list(v1::ListRequest::default()).await.unwrap();
    eventually("the idle connection is closed", async || open().await == 1).await;
    assert_attached(&mut attached).await;
    idle.list(v1::ListRequest::default()).await.expect("the client connects again by itself");
}

/// Streams and requests that never send their first message would hold their places for ever.
#[tokio::test(flavor = "multi_thread")]
async fn grpc_calls_without_a_message_end() {
    let short = |server: &mut convoke_server::Config| server.timeouts.request = Duration::from_millis(100);
    let served = Served::start("n0", &[], |_| {}, short).await;
    let (mut attached, _) = Attachment::attached(&served, attach("c", 1, &["a"])).await;
    let mut silent = Attachment::open(&served).await;
    let status = silent.receive.message().await.unwrap_err();
    assert_eq!(Error::from(&status).code, ErrorCode::Timeout, "{status:?}");
    assert_attached(&mut attached).await;

    // A request that is not a stream must be complete: this one never ends.
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", served.address())).unwrap();
    let mut grpc = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/convoke.v1.Registry/List");
    let requests =
        tokio_stream::StreamExt::chain(tokio_stream::iter([v1::ListRequest::default()]), tokio_stream::pending());
    let codec = convoke_proto::LowMemoryCodec::<v1::ListRequest, v1::ListResponse>::default();
    let listed = grpc.client_streaming(tonic::Request::new(requests), path, codec).await;
    assert_eq!(Error::from(&listed.unwrap_err()).code, ErrorCode::Timeout);
    assert_alive(&served).await;
}

/// All of loopback is this machine, so that a test has several addresses.
#[tokio::test(flavor = "multi_thread")]
async fn one_address_cannot_take_all_connections() {
    let few = |server: &mut convoke_server::Config| server.limits.connections_per_address = 3;
    let served = Served::start("n0", &[], |_| {}, few).await;
    let from = async |address: &str| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
        socket.connect(served.address()).await.unwrap()
    };
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(from("127.0.0.2").await);
    }
    closed(from("127.0.0.2").await).await;
    assert_alive(&served).await;
    held.clear();
    eventually("the places are free again", async || {
        let mut stream = from("127.0.0.2").await;
        let _ = stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answer.starts_with(b"HTTP/1.0 200")
    })
    .await;
}
