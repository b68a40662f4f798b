//! Every wrong certificate on every port, in both directions (TS3, TS4).

use crate::cluster::{CLUSTER, PATIENCE, Port, TestCa, call, expired, lasting, listen, request, settings};
use convoke_tls::{
    CertificateAuthority, ClientCertificates, ClientTls, DialTarget, HandshakeError, Identity, Issued, MaterialError,
    Mode, NodeTls, TlsError,
};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Certificates that no port of cluster `prod` accepts, and what is wrong with them.
fn wrong(ca: &TestCa) -> Vec<(&'static str, Issued)> {
    let node = || request(Identity::node(CLUSTER, "n2"));
    let (other, of_authority) = CertificateAuthority::create(CLUSTER, lasting(100)).unwrap();
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let self_signed = Issued { certificate: own.cert.pem(), key: own.signing_key.serialize_pem() };
    vec![
        ("not signed by a trusted", other.issue(&node(), lasting(100)).unwrap()),
        ("not signed by a trusted", self_signed),
        ("not valid", of_authority),
        ("has expired", ca.authority.issue(&node(), expired()).unwrap()),
        ("for cluster test, and this is cluster prod", ca.issue(Identity::node("test", "n2"))),
    ]
}

async fn refused(tls: &NodeTls, port: Port, own: Option<&Issued>) -> String {
    let (address, accepting) = listen(tls, port).await;
    // With TLS 1.3 the caller learns of the refusal only when it reads.
    let called = call(address, own).await;
    let accepted = tokio::time::timeout(PATIENCE, accepting).await.unwrap().unwrap();
    drop(called);
    accepted.expect_err("the certificate was accepted").to_string()
}

#[tokio::test]
async fn ts3_the_peer_port_refuses_every_wrong_certificate() {
    let ca = TestCa::new();
    let tls = ca.node("n1", Mode::Required);
    for (why, issued) in wrong(&ca) {
        let error = refused(&tls, Port::Peer, Some(&issued)).await;
        assert!(error.contains(why), "{why}: {error}");
    }
    let client = ca.issue(Identity::client(CLUSTER, "app"));
    let error = refused(&tls, Port::Peer, Some(&client)).await;
    assert!(error.contains("that of client app: only nodes"), "{error}");
    let error = refused(&tls, Port::Peer, None).await;
    assert!(error.contains("presented no certificate"), "{error}");
    assert_eq!((tls.counters().peer_handshakes_failed, tls.counters().peer_accepted), (7, 0));
}

#[tokio::test]
async fn ts3_the_client_port_refuses_every_wrong_certificate_and_accepts_none_if_told() {
    let ca = TestCa::new();
    let settings = ca.settings("n1", Mode::Required);
    let with =
        |client_certificates| NodeTls::load(convoke_tls::Settings { client_certificates, ..settings.clone() }).unwrap();
    for setting in [ClientCertificates::Request, ClientCertificates::Require] {
        let tls = with(setting);
        for (why, issued) in wrong(&ca) {
            let error = refused(&tls, Port::Client, Some(&issued)).await;
            assert!(error.contains(why), "{why}: {error}");
        }
        for identity in [Identity::client(CLUSTER, "app"), Identity::node(CLUSTER, "n2")] {
            let (address, accepting) = listen(&tls, Port::Client).await;
            let _caller = call(address, Some(&ca.issue(identity.clone()))).await.unwrap();
            assert_eq!(accepting.await.unwrap().unwrap().identity, Some(identity));
        }
    }
    let error = refused(&with(ClientCertificates::Require), Port::Client, None).await;
    assert!(error.contains("presented no certificate"), "{error}");
    for setting in [ClientCertificates::Request, ClientCertificates::Off] {
        let (address, accepting) = listen(&with(setting), Port::Client).await;
        let _caller = call(address, None).await.unwrap();
        assert_eq!(accepting.await.unwrap().unwrap().identity, None);
    }
}

/// A server of an attacker with this certificate.
async fn impostor(issued: &Issued) -> String {
    let certificate = rustls_pki_types::CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let socket = listener.accept().await.unwrap().0;
        let _ = TlsAcceptor::from(Arc::new(config)).accept(socket).await;
    });
    address
}

#[tokio::test]
async fn ts3_a_dialer_refuses_every_wrong_certificate() {
    let ca = TestCa::new();
    let tls = ca.node("n1", Mode::Optional);
    let client_role = ca.issue(Identity::client(CLUSTER, "app"));
    let wrong = wrong(&ca).into_iter().chain([("", client_role)]);
    for (why, issued) in wrong {
        let address = impostor(&issued).await;
        let dialled = tls.dial_peer(&address, DialTarget::AnyNode, || TcpStream::connect(&address)).await;
        let error = dialled.expect_err("the certificate was accepted").to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
    let counters = tls.counters();
    assert_eq!((counters.dials, counters.dials_plain), (0, 0), "a wrong certificate is no reason to fall back");
}

#[tokio::test]
async fn ts3_a_dialer_refuses_another_node_than_the_one_it_dialled() {
    let ca = TestCa::new();
    let (n1, n2) = (ca.node("n1", Mode::Required), ca.node("n2", Mode::Required));
    for (target, fits) in [(DialTarget::Node("n2"), true), (DialTarget::AnyNode, true), (DialTarget::Node("n3"), false)]
    {
        let (address, accepting) = listen(&n2, Port::Peer).await;
        let dialled = n1.dial_peer(&address.to_string(), target, || TcpStream::connect(address)).await;
        let accepted = accepting.await.unwrap();
        match dialled {
            Ok(dialled) => {
                assert!(fits, "{target:?}");
                assert_eq!(dialled.identity, Some(Identity::node(CLUSTER, "n2")));
                assert_eq!(accepted.unwrap().identity, Some(Identity::node(CLUSTER, "n1")));
            }
            Err(error) => assert!(!fits && matches!(error, HandshakeError::OtherNode { .. }), "{target:?} {error}"),
        }
    }
}

#[tokio::test]
async fn ts8_a_client_checks_host_and_authority_and_never_falls_back() {
    let ca = TestCa::new();
    let tls = ca.node("n1", Mode::Required);
    let own = ca.files("n1").ca;
    let other = TestCa::new();
    other.node("x", Mode::Required);
    for (file, host, why) in [
        (own.clone(), "127.0.0.1", None),
        (own.clone(), "localhost", None),
        (own.clone(), "n1.example", Some("another host name")),
        (other.files("x").ca, "127.0.0.1", Some("not signed by a trusted")),
    ] {
        let (address, accepting) = listen(&tls, Port::Client).await;
        let client = ClientTls::load(&file, None).unwrap();
        let connected = client.connect(TcpStream::connect(address).await.unwrap(), host, "h2").await;
        match why {
            None => assert!(connected.unwrap().is_tls()),
            Some(why) => {
                let error = connected.unwrap_err().to_string();
                assert!(error.contains(why), "{error}");
            }
        }
        let _ = accepting.await;
    }
    // A server without TLS.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let closing = tokio::spawn(async move { drop(listener.accept().await.unwrap()) });
    let client = ClientTls::load(&own, None).unwrap();
    let connected = client.connect(TcpStream::connect(address).await.unwrap(), "127.0.0.1", "h2").await;
    assert!(matches!(connected, Err(HandshakeError::Failed(_))));
    closing.await.unwrap();
}

#[test]
fn ts2_files_that_do_not_fit_are_named() {
    let ca = TestCa::new();
    let other = TestCa::new();
    let good = || ca.issue(Identity::node(CLUSTER, "n1"));
    let load = |ca_pem: &str, issued: &Issued| {
        NodeTls::load(settings("n1", ca.write("n1", ca_pem, issued), Mode::Required)).map(drop)
    };
    let trusted = ca.authority.certificate();
    load(trusted, &good()).unwrap();
    let mixed = Issued { key: good().key, ..good() };
    let expired = ca.authority.issue(&request(Identity::node(CLUSTER, "n1")), expired()).unwrap();
    type Expected = fn(&MaterialError) -> bool;
    let cases: [(&str, &Issued, Expected); 8] = [
        (trusted, &mixed, |error| matches!(error, MaterialError::KeyMismatch)),
        (trusted, &expired, |error| matches!(error, MaterialError::Expired { .. })),
        (other.authority.certificate(), &good(), |error| matches!(error, MaterialError::Untrusted { .. })),
        (&good().certificate, &good(), |error| matches!(error, MaterialError::NotAnAuthority { .. })),
        ("", &good(), |error| matches!(error, MaterialError::NoCertificate)),
        (trusted, &ca.issue(Identity::node(CLUSTER, "n9")), |error| matches!(error, MaterialError::OfAnother { .. })),
        (trusted, &ca.issue(Identity::node("test", "n1")), |error| matches!(error, MaterialError::OfAnother { .. })),
        (trusted, &Issued { key: String::new(), ..good() }, |error| matches!(error, MaterialError::NoKey)),
    ];
    for (number, (ca_pem, issued, fits)) in cases.into_iter().enumerate() {
        match load(ca_pem, issued) {
            Err(TlsError::Material { error, .. }) => assert!(fits(&error), "case {number}: {error}"),
            other => panic!("case {number}: {other:?}"),
        }
    }
    assert!(!ca.own.key.is_empty());
}
