//! Garbage and oversized frames on every port: the process keeps running, serves others and counts them.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_base::framing::header;
use convoke_testkit::until;
use support::http::{metric, raw, request};
use support::{patient_plan, registered};

const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PEER: &[u8] = b"CONVOKER";

fn noise(len: usize) -> Vec<u8> {
    let mut state = 7_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn garbage_on_every_port_is_rejected_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = patient_plan(dir.path()).environment("CONVOKE_CLIENT_TIMEOUTS_HEADERS", "1s").start(2).unwrap();
    let _web = registered(cluster.clients(0), "web-1");
    let (clients, peers) = (cluster.clients(0), cluster.peers(0));
    let noise = noise(200_000);
    let counted = |name: &str, send: &dyn Fn()| {
        let before = metric(clients, name);
        send();
        let after = || metric(clients, name);
        until(&format!("{name} increases"), || after() > before);
    };

    // HTTP on the client port.
    for bytes in [b"nonsense\r\n\r\n".to_vec(), b"GET /\0 HTTP/1.1\r\n\r\n".to_vec(), noise.clone()] {
        counted("convoke_client_connections_malformed_total", &|| drop(raw(clients, &bytes)));
    }
    counted("convoke_http_requests_total{method=\"POST\",path=\"/api/v1/sessions\",code=\"TOO_LARGE\"}", &|| {
        let (status, body) = request(clients, "POST", "/api/v1/sessions", &"x".repeat(5_000_000));
        assert!(status == 413 && body.contains("TOO_LARGE"), "{status} {body}");
    });
    // gRPC on the client port: not HTTP/2, a frame larger than allowed, a headers frame that cannot be decoded.
    for frames in [
        noise.as_slice(),
        b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
        b"\x00\x00\x04\x01\x04\x00\x00\x00\x01\xff\xff\xff\xff",
    ] {
        counted("convoke_client_connections_malformed_total", &|| drop(raw(clients, &joined(&[HTTP2, frames]))));
    }
    // The peer port: another protocol, a frame of 4 GiB, a wrong checksum, a frame without a message, a truncated
    // frame.
    let header = header(&[&noise]);
    let mut damaged = header;
    damaged[7] ^= 1;
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        noise.clone(),
        joined(&[PEER, &[0xff; 8]]),
        joined(&[PEER, &damaged, &noise]),
    ] {
        counted("convoke_network_connections_malformed_total", &|| drop(raw(peers, &bytes)));
    }
    counted("convoke_registry_frames_malformed_total", &|| drop(raw(peers, &joined(&[PEER, &header, &noise]))));
    counted("convoke_network_links_accepted_total", &|| {
        let mut stream = std::net::TcpStream::connect(peers).unwrap();
        std::io::Write::write_all(&mut stream, &joined(&[PEER, &header, b"cut"])).unwrap();
    });

    cluster.wait_meshed();
    assert_eq!(cluster.ask(1, &["member", "web-1"]).unwrap()["status"], "up");
    assert_eq!(cluster.ask(0, &["status"]).unwrap()["incarnation"], 1, "the same incarnation as before");
}

/// A message in an attach or watch stream that is too large, or not a message.
#[tokio::test(flavor = "multi_thread")]
async fn bad_grpc_messages_end_their_call_only() {
    use convoke_proto::v1;
    let dir = tempfile::tempdir().unwrap();
    let cluster = patient_plan(dir.path()).start(1).unwrap();
    let channel = tonic::transport::Channel::from_shared(format!("http://{}", cluster.clients(0)))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut client = v1::registry_client::RegistryClient::new(channel.clone());
    let large = v1::WatchRequest { filter: "x".repeat(10_000_000), ..Default::default() };
    let rejected = client.watch(large).await.unwrap_err();
    assert!([tonic::Code::OutOfRange, tonic::Code::InvalidArgument].contains(&rejected.code()), "{rejected:?}");
    let empty = v1::ClientMessage::default();
    let mut answers = client.attach(tokio_stream::iter([empty])).await.unwrap().into_inner();
    let rejected = answers.message().await.unwrap_err();
    assert_eq!(rejected.code(), tonic::Code::InvalidArgument, "{rejected:?}");
    let list = client.list(v1::ListRequest::default()).await.unwrap().into_inner();
    assert_eq!(list.members.len(), 1, "the same connection still works");
    assert!(metric(cluster.clients(0), "convoke_grpc_requests_total") >= 3.0);
}
