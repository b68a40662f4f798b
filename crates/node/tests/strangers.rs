//! Strangers on the peer port: every message of the protocol, before and after a wrong handshake, with every wrong
//! certificate. The cluster does not notice (P7, TS3).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

#[allow(dead_code, reason = "shared with the tests of convoke-tls")]
#[path = "../../tls/tests/connections/cluster.rs"]
mod certificates;

use certificates::{CLUSTER, PATIENCE, TestCa, call, expired, lasting, request};
use convoke_base::framing::header;
use convoke_core::node::RegistryEvent;
use convoke_core::version::OriginId;
use convoke_core::wire::PROTOCOL_VERSION;
use convoke_node::{Config, NodeEvent, NodeHandle};
use convoke_testkit::{Cluster, TestClient, eventually, member};
use convoke_tls::{CertificateAuthority, Identity, Issued, Mode};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

const PREAMBLE: &[u8] = b"CONVOKER";
/// Kinds of messages; their numbers are 0 to 16.
const KINDS: u8 = 17;

/// Writes a frame by hand, as somebody who knows the format does.
#[derive(Clone, Default)]
struct Frame(Vec<u8>);

impl Frame {
    fn of(kind: u8) -> Frame {
        Frame(vec![kind])
    }

    fn number(mut self, mut number: u64) -> Frame {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
        self
    }

    fn text(self, text: &str) -> Frame {
        let mut frame = self.number(text.len() as u64);
        frame.0.extend_from_slice(text.as_bytes());
        frame
    }

    fn bytes(mut self, bytes: &[u8]) -> Frame {
        self.0.extend_from_slice(bytes);
        self
    }

    fn origin(self, origin: &OriginId) -> Frame {
        let frame = self.text(origin.node.as_str()).number(origin.incarnation.number);
        frame.bytes(&origin.incarnation.nonce.to_le_bytes())
    }

    /// A hello, or the answer to one.
    fn hello(kind: u8, cluster: &str, version: u32, origin: &OriginId) -> Frame {
        let frame = Frame::of(kind).number(version.into()).text(cluster).origin(origin).text("default");
        // Addresses, ready, no known incarnation, no other nodes.
        frame.text("127.0.0.1:1").text("").bytes(&[1, 0, 0])
    }

    fn framed(&self) -> Vec<u8> {
        [&header(&[&self.0]), &self.0[..]].concat()
    }
}

/// One message of every kind. They would do harm if they were believed: they speak for `origin`, and end it.
fn every_message(cluster: &str, origin: &OriginId) -> Vec<Frame> {
    let node = origin.node.as_str();
    let clock = |frame: Frame| frame.number(1).origin(origin).number(1_000_000).bytes(&[0, 0, 0, 0]);
    let messages = vec![
        Frame::hello(0, cluster, PROTOCOL_VERSION, origin),
        Frame::hello(1, cluster, PROTOCOL_VERSION, origin),
        // Rejected: the identity is in use, with a far higher incarnation.
        Frame::of(2).bytes(&[2]).text(node).bytes(&[1]).number(1 << 40).bytes(&[7; 8]),
        Frame::of(3).number(1).number(0).number(1 << 40).number(9).bytes(&[7; 8]).bytes(&[0, 1, 0, 0, 0]),
        // A push without items, for numbers that were never written.
        Frame::of(4).origin(origin).number(1).number(1_000_000).bytes(&[0, 0, 0, 0, 0]),
        clock(Frame::of(5).number(7)).bytes(&[0]),
        Frame::of(6).number(1).number(0).bytes(&[1, 0, 0, 0, 0, 0, 0]),
        Frame::of(7).number(7).number(300),
        Frame::of(8).number(7),
        Frame::of(9).number(3).text(node),
        // A report that the link to the node is lost.
        Frame::of(10).number(3).text(node).bytes(&[2, 0]),
        Frame::of(11).text("a").number(1),
        Frame::of(12).bytes(&[1]),
        Frame::of(13).number(3).number(1).origin(origin).number(1),
        Frame::of(14).number(3).bytes(&[1, 0]),
        Frame::of(15).number(1_000_000),
        Frame::of(16).number(1).text("token/operator").number(1).number(1 << 40),
    ];
    let kinds: Vec<u8> = messages.iter().map(|message| message.0[0]).collect();
    assert_eq!(kinds, (0..KINDS).collect::<Vec<u8>>(), "one message of every kind");
    messages
}

/// Sends bytes and waits until the node has closed the connection.
async fn send_until_closed(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: Vec<u8>) {
    // The node may close the connection before everything is sent.
    let _ = stream.write_all(&bytes).await;
    let _ = stream.flush().await;
    let mut answer = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    assert!(closed.is_ok(), "the node keeps the connection of a stranger open");
}

/// Has every conversation on a connection of its own, some of them at once. `connect` returns none if it was refused.
async fn converse<S, F>(sent: &[Vec<u8>], connect: impl Fn() -> F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Option<S>> + Send + 'static,
{
    for some in sent.chunks(16) {
        let sending = some.iter().map(|bytes| {
            let (connecting, bytes) = (connect(), bytes.clone());
            tokio::spawn(async move {
                if let Some(stream) = connecting.await {
                    send_until_closed(stream, bytes).await;
                }
            })
        });
        for sending in sending.collect::<Vec<_>>() {
            sending.await.unwrap();
        }
    }
}

/// Links that a busy machine does not lose: the events of the nodes are compared.
fn patient(config: &mut Config) {
    config.timers.ping_timeout = PATIENCE;
}

/// What a stranger sends: each message alone, and after a handshake that is wrong.
fn conversations(wrong: &[Frame], cluster: &str, origin: &OriginId) -> Vec<Vec<u8>> {
    let messages = every_message(cluster, origin);
    let alone = messages.iter().map(|message| vec![message.clone()]);
    let after = wrong.iter().flat_map(|wrong| messages.iter().map(|message| vec![wrong.clone(), message.clone()]));
    let whole = alone.chain(after).map(|frames| {
        let frames: Vec<u8> = frames.iter().flat_map(Frame::framed).collect();
        [PREAMBLE, &frames].concat()
    });
    whole.collect()
}

/// What the nodes know, and all events but refusals.
async fn known(nodes: &[NodeHandle]) -> Vec<String> {
    let mut known = Vec::new();
    for node in nodes {
        let (status, origin) = (node.status().await.unwrap(), node.origin().await.unwrap());
        let member = node.member("a").unwrap();
        known.push(format!("{origin} {:?} {} {:?}", status.peers, member.version(), member.status()));
        for event in node.events_after(0) {
            // A node reports strangers to its operator.
            let refusal = matches!(
                event.what,
                NodeEvent::Malformed { .. }
                    | NodeEvent::Registry(RegistryEvent::PeerRejected { .. } | RegistryEvent::FrameRejected { .. })
            );
            if !refusal {
                known.push(format!("{:?}", event.what));
            }
        }
    }
    known
}

/// Checks that a new registration spreads over all links.
async fn assert_serves(cluster: &Cluster, nodes: &[NodeHandle]) {
    let _client = TestClient::attach(cluster.node(1), "late", vec![member("late", "s")]).await;
    for node in nodes {
        eventually("a registration spreads", async || node.member("late").is_some()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_without_tls_are_not_noticed() {
    let cluster = Cluster::start_with(3, patient).await;
    let nodes: Vec<NodeHandle> = (0..3).map(|index| cluster.node(index).handle()).collect();
    let _client = TestClient::attach(cluster.node(0), "c", vec![member("a", "s")]).await;
    for node in &nodes {
        eventually("all nodes show the member", async || node.member("a").is_some()).await;
    }
    let before = known(&nodes).await;
    let (name, own, other) = (nodes[0].cluster().to_owned(), nodes[0].origin().await, nodes[1].origin().await);
    let (own, other) = (own.unwrap(), other.unwrap());
    // Another cluster, another version, the node itself.
    let wrong = [
        Frame::hello(0, "another", PROTOCOL_VERSION, &other),
        Frame::hello(0, &name, PROTOCOL_VERSION + 1, &other),
        Frame::hello(0, &name, PROTOCOL_VERSION, &own),
    ];
    // Without TLS nobody can tell whether a complete, correct hello is that of a node: it is left out.
    let sent: Vec<_> = conversations(&wrong, &name, &other).into_iter().skip(1).collect();
    let address = nodes[0].local_address();
    converse(&sent, || async move { TcpStream::connect(address).await.ok() }).await;
    assert_eq!(known(&nodes).await, before);
    assert_serves(&cluster, &nodes).await;
}

/// The certificates of strangers. That of `n9` is valid, and the node is none of those that the messages speak for.
fn strangers(ca: &TestCa) -> Vec<(&'static str, Option<Arc<Issued>>)> {
    let node = || request(Identity::node(CLUSTER, "n1"));
    let (other, self_signed) = CertificateAuthority::create(CLUSTER, lasting(100)).unwrap();
    let certificates = [
        ("self-signed", self_signed),
        ("other authority", other.issue(&node(), lasting(100)).unwrap()),
        ("expired", ca.authority.issue(&node(), expired()).unwrap()),
        ("other cluster", ca.issue(Identity::node("test", "n1"))),
        ("client", ca.issue(Identity::client(CLUSTER, "n1"))),
        ("other node", ca.issue(Identity::node(CLUSTER, "n9"))),
    ];
    let shown = certificates.into_iter().map(|(what, issued)| (what, Some(Arc::new(issued))));
    [("none", None)].into_iter().chain(shown).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_with_wrong_certificates_are_not_noticed() {
    let ca = TestCa::new();
    let cluster = Cluster::start_with(3, |config| {
        patient(config);
        config.cluster = CLUSTER.to_owned();
        config.tls = Some(ca.node(config.id.as_str(), Mode::Required));
    })
    .await;
    let nodes: Vec<NodeHandle> = (0..3).map(|index| cluster.node(index).handle()).collect();
    let _client = TestClient::attach(cluster.node(0), "c", vec![member("a", "s")]).await;
    for node in &nodes {
        eventually("all nodes show the member", async || node.member("a").is_some()).await;
    }
    let before = known(&nodes).await;
    let (address, other): (SocketAddr, OriginId) = (nodes[0].local_address(), nodes[1].origin().await.unwrap());
    // Even a correct hello is wrong here: the certificate is not that of the node that it names.
    let wrong =
        [Frame::hello(0, CLUSTER, PROTOCOL_VERSION, &other), Frame::hello(1, CLUSTER, PROTOCOL_VERSION, &other)];
    let sent = conversations(&wrong, CLUSTER, &other);
    for (what, certificate) in strangers(&ca) {
        let connect = || {
            let certificate = certificate.clone();
            // With TLS 1.3 a caller learns of its refusal only when it reads. An error is a refusal, too.
            async move { call(address, certificate.as_deref()).await.ok() }
        };
        converse(&sent, connect).await;
        assert_eq!(known(&nodes).await, before, "{what}");
    }
    // Without TLS at all.
    converse(&sent, || async move { TcpStream::connect(address).await.ok() }).await;
    assert_eq!(known(&nodes).await, before, "plain");
    assert_serves(&cluster, &nodes).await;
}
