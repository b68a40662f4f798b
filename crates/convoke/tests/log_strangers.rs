//! Strangers at the log plane of real nodes: every kind of message, before a handshake and after wrong and right ones, with
//! every wrong certificate. The log does not notice (TS3, TS4).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

#[allow(dead_code, reason = "shared with the tests of convoke-tls")]
#[path = "../../tls/tests/connections/cluster.rs"]
mod certificates;

use certificates::{CLUSTER, PATIENCE, TestCa, call, expired, lasting, request};
use convoke_base::codec::Writer;
use convoke_base::framing::header;
use convoke_testkit::{TestNode, free_address, until};
use convoke_tls::{CertificateAuthority, Identity, Issued};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use support::{convoke, start_on};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

const IDS: [&str; 3] = ["n1", "n2", "n3"];
const PREAMBLE: &[u8] = b"CONVOKEL";
/// Version of the protocol between replicas.
const VERSION: u8 = 3;
/// A term that no election reaches.
const TERM: u64 = 1 << 40;

struct Nodes {
    ca: TestCa,
    clients: Vec<String>,
    peers: Vec<String>,
    _processes: Vec<TestNode>,
}

impl Nodes {
    fn start() -> Nodes {
        let ca = TestCa::new();
        let addresses = || IDS.map(|_| free_address()).to_vec();
        let (clients, peers) = (addresses(), addresses());
        let port = |address: &str| address.rsplit_once(':').unwrap().1.to_owned();
        let start = |(index, id): (usize, &&str)| {
            let files = ca.write(id, ca.authority.certificate(), &ca.issue(Identity::node(CLUSTER, id)));
            let ports = [port(&clients[index]), port(&peers[index])];
            let data = ca.dir.path().join(id);
            let mut command = start_on(
                &data,
                [&ports[0], &ports[1]],
                &["--id", id, "--join", &peers.join(","), "--cluster", CLUSTER],
            );
            command.env("CONVOKE_TLS_CA", files.ca).env("CONVOKE_TLS_CERT", files.cert);
            command
                .env("CONVOKE_TLS_KEY", files.key)
                .env("CONVOKE_TLS_CLIENT", "off")
                .env("CONVOKE_TLS_PEER", "required");
            // A busy machine must not look like a failure.
            command.env("CONVOKE_TIMERS_HEARTBEAT_TIMEOUT", "40s").env("CONVOKE_TIMERS_DEAD_PEER_TIMEOUT", "120s");
            TestNode::spawn(&mut command)
        };
        let processes = IDS.iter().enumerate().map(start).collect();
        Nodes { ca, clients, peers, _processes: processes }
    }

    fn json(&self, index: usize, arguments: &[&str]) -> Option<Value> {
        let output = convoke(arguments).args(["--json", "--addr", &self.clients[index]]).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// What the log is, at every node: its leader, epoch and replicas.
    fn log(&self) -> Option<Vec<String>> {
        let shown = |index| {
            let status = self.json(index, &["log", "status"])?;
            let known = ["available", "leader", "epoch", "log", "replicas"];
            let replicas = status["replicas"].as_array()?.len();
            let shown = known[..4].iter().map(|member| format!("{member}={}", status[member]));
            (status["available"] == true)
                .then(|| format!("{} replicas={replicas}", shown.collect::<Vec<_>>().join(" ")))
        };
        (0..IDS.len()).map(shown).collect()
    }

    /// The node of the leader, the log, and the replica that each node holds.
    fn replicas(&self) -> (u128, Vec<(String, u64)>) {
        let status = self.json(0, &["log", "status"]).unwrap();
        let log = u128::from_str_radix(status["log"].as_str().unwrap(), 16).unwrap();
        let replicas = status["replicas"]
            .as_array()
            .unwrap()
            .iter()
            .map(|replica| (replica["node"].as_str().unwrap().to_owned(), replica["replica"].as_u64().unwrap()));
        (log, replicas.collect())
    }
}

/// A message as a replica would send it.
fn framed(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut key = [0; 9];
    (key[0], key[1]) = (kind, 1);
    [&header(&[&key, content]), &key[..], content].concat()
}

fn written(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
    write(&mut writer);
    writer.into_bytes()
}

fn hello(cluster: &str, node: &str, to: Option<(u128, u64)>) -> Vec<u8> {
    let content = written(|w| {
        w.byte(VERSION);
        w.sized(cluster.as_bytes());
        w.sized(node.as_bytes());
        w.sized(b"");
        w.option(to, |w, (log, replica)| {
            w.fixed128(log);
            w.varint(replica);
        });
    });
    framed(0, &content)
}

/// One message of every kind, in the name of replica `speaker`. Each would do harm if it were believed.
fn every_message(log: u128, speaker: u64) -> Vec<Vec<u8>> {
    let vote = |w: &mut Writer, committed| {
        w.varint(TERM);
        w.varint(speaker);
        w.flag(committed);
    };
    let ballot = written(|w| {
        w.flag(false);
        vote(w, false);
        // The last entry of the candidate is far ahead.
        w.flag(true);
        w.varint(TERM);
        w.varint(speaker);
        w.varint(1 << 40);
        w.flag(true);
    });
    let append = written(|w| {
        // No evidence, not stalled, nobody unreachable, no check.
        [0, 0, 0, 0, 0].into_iter().for_each(|byte| w.byte(byte));
        vote(w, true);
        // Nothing before, nothing committed, no entries.
        [0, 0, 0].into_iter().for_each(|byte| w.byte(byte));
    });
    let transfer = written(|w| {
        vote(w, true);
        w.varint(speaker);
        w.flag(false);
    });
    let snapshot = written(|w| {
        vote(w, true);
        [0, 0, 0, 0].into_iter().for_each(|byte| w.byte(byte));
    });
    let adopt = written(|w| {
        w.fixed128(log ^ 1);
        w.varint(9);
        w.sized(b"n1");
        w.sized(b"");
    });
    let lost = written(|w| {
        w.varint(TERM);
        w.varint(speaker);
        w.flag(false);
    });
    let bodies =
        [&append, &ballot, &ballot, &transfer, &snapshot, &b"x".to_vec(), &Vec::new(), &Vec::new(), &adopt, &lost];
    let known = (1..=10).zip(bodies).map(|(kind, body)| framed(kind, body));
    // Answers to nobody, a rejection, and kinds that do not exist.
    known.chain([11, 0x81, 0x82, 0xff].map(|kind| framed(kind, b"x"))).collect()
}

async fn send_until_closed(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: Vec<u8>) {
    // The node may close the connection before everything is sent.
    let _ = stream.write_all(&bytes).await;
    let _ = stream.shutdown().await;
    let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
    assert!(closed.is_ok(), "the node keeps the connection of a stranger open");
}

/// The certificates of strangers. That of `n9` is valid, and it is none of the replicas.
fn strangers(ca: &TestCa) -> Vec<(&'static str, Option<Arc<Issued>>)> {
    let node = || request(Identity::node(CLUSTER, "n2"));
    let (other, self_signed) = CertificateAuthority::create(CLUSTER, lasting(100)).unwrap();
    let certificates = [
        ("self-signed", self_signed),
        ("other authority", other.issue(&node(), lasting(100)).unwrap()),
        ("expired", ca.authority.issue(&node(), expired()).unwrap()),
        ("other cluster", ca.issue(Identity::node("test", "n2"))),
        ("client", ca.issue(Identity::client(CLUSTER, "n2"))),
        ("other node", ca.issue(Identity::node(CLUSTER, "n9"))),
    ];
    let shown = certificates.into_iter().map(|(what, issued)| (what, Some(Arc::new(issued))));
    [("none", None)].into_iter().chain(shown).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ts4_strangers_at_the_log_plane_are_not_noticed() {
    let nodes = Nodes::start();
    until("the log is available at every node", || nodes.log().is_some());
    let (log, replicas) = nodes.replicas();
    let of = |node: &str| replicas.iter().find(|(name, _)| name == node).unwrap().1;
    let (target, speaker) = ((log, of("n1")), of("n2"));
    let messages = every_message(log, speaker);
    // Without a handshake, after wrong ones, and after those that are right but for the certificate.
    let mut handshakes: Vec<Vec<u8>> = vec![
        Vec::new(),
        hello("another", "n2", Some(target)),
        hello(CLUSTER, "n2", Some((log ^ 1, target.1))),
        hello(CLUSTER, "n2", Some((log, target.1 + 50))),
        hello(CLUSTER, "n2", Some(target)),
        hello(CLUSTER, "n2", None),
    ];
    handshakes.push(hello(CLUSTER, "n9", Some(target)));
    let conversations: Vec<Vec<u8>> = handshakes
        .iter()
        .flat_map(|hello| messages.iter().map(move |message| [PREAMBLE, hello, message].concat()))
        .collect();
    let put = |number: usize| {
        convoke(&["kv", "put", "k", &number.to_string(), "--addr", &nodes.clients[1]])
            .output()
            .unwrap()
            .status
            .success()
    };
    assert!(put(0), "the log serves before the strangers come");
    let before = nodes.log().unwrap();
    let address: SocketAddr = nodes.peers[0].parse().unwrap();
    for (number, (what, certificate)) in strangers(&nodes.ca).into_iter().enumerate() {
        for some in conversations.chunks(16) {
            let sending = some.iter().map(|bytes| {
                let (certificate, bytes) = (certificate.clone(), bytes.clone());
                tokio::spawn(async move {
                    // With TLS 1.3 a caller learns of its refusal only when it reads.
                    if let Ok(stream) = call(address, certificate.as_deref()).await {
                        send_until_closed(stream, bytes).await;
                    }
                })
            });
            for sending in sending.collect::<Vec<_>>() {
                sending.await.unwrap();
            }
        }
        assert_eq!(nodes.log().as_ref(), Some(&before), "{what}");
        assert!(put(number), "{what}: the log does not serve");
    }
    for bytes in &conversations {
        if let Ok(stream) = TcpStream::connect(address).await {
            send_until_closed(stream, bytes.clone()).await;
        }
    }
    assert_eq!(nodes.log().as_ref(), Some(&before), "plain");
    assert!(put(99), "the log serves afterwards");
}
