//! Files that change while a node runs (TS7, TS12).

use crate::cluster::{CLUSTER, PATIENCE, Port, TestCa, call, lasting, listen, request, settings};
use convoke_tls::{CertificateAuthority, DialTarget, Identity, Issued, Mode, NodeTls, Validity};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn connects(from: &NodeTls, to: &NodeTls) -> bool {
    let (address, accepting) = listen(to, Port::Peer).await;
    let dialled = from.dial_peer("n2", DialTarget::AnyNode, || TcpStream::connect(address)).await;
    let accepted = accepting.await.unwrap();
    dialled.is_ok() && accepted.is_ok()
}

#[tokio::test]
async fn ts7_a_renewed_certificate_is_used_and_a_broken_one_is_not() {
    let ca = TestCa::new();
    let tls = ca.node("n1", Mode::Required);
    let following = tokio::spawn(tls.clone().follow());
    let before = tls.status().expiry.certificate;
    let renewed = ca.authority.issue(&request(Identity::node(CLUSTER, "n1")), lasting(200)).unwrap();
    ca.write("n1", ca.authority.certificate(), &renewed);
    until("the renewed certificate is used", || tls.status().expiry.certificate > before).await;
    let used = tls.status().expiry;
    std::fs::write(ca.files("n1").cert, "not a certificate").unwrap();
    until("the broken file is reported", || tls.status().reload_error.is_some()).await;
    assert_eq!(tls.status().expiry, used, "the earlier certificate stays in use");
    assert!(tls.status().degraded(std::time::SystemTime::now()).iter().any(|why| why.contains("are not used")));
    assert!(connects(&tls, &ca.node("n2", Mode::Required)).await);
    ca.write("n1", ca.authority.certificate(), &renewed);
    until("a repaired file is used", || tls.status().reload_error.is_none()).await;
    following.abort();
}

/// The steps of docs/guides/secure.md: trust both, renew, trust the new one only. Nodes connect at every step.
#[tokio::test]
async fn ts7_a_certificate_authority_is_rotated_without_an_interruption() {
    let old = TestCa::new();
    let nodes = [old.node("n1", Mode::Required), old.node("n2", Mode::Required)];
    let following: Vec<_> = nodes.iter().map(|tls| tokio::spawn(tls.clone().follow())).collect();
    let (new, _) = CertificateAuthority::create(CLUSTER, lasting(2_000)).unwrap();
    let both = format!("{}{}", old.authority.certificate(), new.certificate());
    for (trusted, authority) in [(both.as_str(), &old.authority), (&both, &new), (new.certificate(), &new)] {
        for (tls, id) in nodes.iter().zip(["n1", "n2"]) {
            let reloads = tls.counters().reloads;
            let issued = authority.issue(&request(Identity::node(CLUSTER, id)), lasting(100)).unwrap();
            old.write(id, trusted, &issued);
            let stable = || tls.counters().reloads > reloads && tls.status().reload_error.is_none();
            until("the node has read its files", stable).await;
            assert!(connects(&nodes[0], &nodes[1]).await && connects(&nodes[1], &nodes[0]).await);
        }
    }
    // A certificate of the old authority is worth nothing now.
    let stale = TestCa { authority: old.authority, own: old.own, dir: tempfile::tempdir().unwrap() };
    assert!(!connects(&stale.node("n3", Mode::Required), &nodes[0]).await);
    following.iter().for_each(tokio::task::JoinHandle::abort);
}

/// When an authority is removed, open connections with its certificates end on both ports, and others stay. So do connections
/// whose certificate expires.
#[tokio::test]
async fn ts12_open_connections_end_with_their_certificates() {
    let old = TestCa::new();
    let (new, _) = CertificateAuthority::create(CLUSTER, lasting(2_000)).unwrap();
    let both = format!("{}{}", old.authority.certificate(), new.certificate());
    let own = new.issue(&request(Identity::node(CLUSTER, "n1")), lasting(100)).unwrap();
    let files = old.write("n1", &both, &own);
    let tls = NodeTls::load(settings("n1", files, Mode::Required)).unwrap();
    let following = tokio::spawn(tls.clone().follow());
    let of = |authority: &CertificateAuthority, identity| authority.issue(&request(identity), lasting(100)).unwrap();
    let seconds = |seconds| Validity { now: SystemTime::now(), lasts: Duration::from_secs(seconds) };
    let short = new.issue(&request(Identity::client(CLUSTER, "short")), seconds(4)).unwrap();
    let connect = async |port, issued: &Issued| {
        let (address, accepting) = listen(&tls, port).await;
        let calling = call(address, Some(issued)).await.unwrap();
        (accepting.await.unwrap().unwrap().stream, calling)
    };
    let (mut expiring, _short) = connect(Port::Client, &short).await;
    let mut ending = Vec::new();
    let mut staying = Vec::new();
    for (port, identity) in
        [(Port::Peer, Identity::node(CLUSTER, "n2")), (Port::Client, Identity::client(CLUSTER, "c"))]
    {
        ending.push(connect(port, &of(&old.authority, identity.clone())).await);
        staying.push(connect(port, &of(&new, identity)).await);
    }
    let mut byte = [0];
    let over = tokio::time::timeout(PATIENCE, expiring.read(&mut byte)).await.expect("it ends");
    assert_eq!(over.unwrap_err().kind(), std::io::ErrorKind::ConnectionAborted, "its certificate has expired");
    old.write("n1", new.certificate(), &own);
    for (stream, _caller) in &mut ending {
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut byte)).await.expect("it ends");
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionAborted);
        assert!(stream.write(b"x").await.is_err());
    }
    for (stream, caller) in &mut staying {
        caller.write_all(b"x").await.unwrap();
        caller.flush().await.unwrap();
        assert_eq!(stream.read(&mut byte).await.unwrap(), 1, "the other authority stays");
    }
    following.abort();
}
