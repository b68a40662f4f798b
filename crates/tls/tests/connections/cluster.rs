//! A certificate authority with the files of nodes, and a caller that accepts every server.

use convoke_tls::{
    Accepted, CertificateAuthority, CertificateRequest, ClientCertificates, Files, HandshakeError, Identity, Issued,
    Mode, NodeTls, Settings, Validity,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) const CLUSTER: &str = "prod";
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Far longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn lasting(days: u32) -> Validity {
    Validity { now: SystemTime::now(), lasts: days * DAY }
}

/// Over since yesterday.
pub(crate) fn expired() -> Validity {
    Validity { now: SystemTime::now() - 10 * DAY, lasts: 9 * DAY }
}

pub(crate) fn request(identity: Identity) -> CertificateRequest {
    CertificateRequest { identity, hosts: vec!["127.0.0.1".to_owned(), "localhost".to_owned()] }
}

pub(crate) struct TestCa {
    pub(crate) authority: CertificateAuthority,
    pub(crate) own: Issued,
    pub(crate) dir: TempDir,
}

impl TestCa {
    pub(crate) fn new() -> TestCa {
        let (authority, own) = CertificateAuthority::create(CLUSTER, lasting(1_000)).unwrap();
        TestCa { authority, own, dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn issue(&self, identity: Identity) -> Issued {
        self.authority.issue(&request(identity), lasting(100)).unwrap()
    }

    pub(crate) fn files(&self, node: &str) -> Files {
        let file = |name: &str| -> PathBuf { self.dir.path().join(format!("{node}-{name}")) };
        Files { ca: file("ca.pem"), cert: file("cert.pem"), key: file("key.pem") }
    }

    pub(crate) fn write(&self, node: &str, ca: &str, issued: &Issued) -> Files {
        let files = self.files(node);
        convoke_tls::write_public(&files.ca, ca.as_bytes()).unwrap();
        convoke_tls::write_private(&files.key, issued.key.as_bytes()).unwrap();
        convoke_tls::write_private(&files.cert, issued.certificate.as_bytes()).unwrap();
        files
    }

    pub(crate) fn settings(&self, node: &str, mode: Mode) -> Settings {
        let issued = self.issue(Identity::node(CLUSTER, node));
        let files = self.write(node, self.authority.certificate(), &issued);
        settings(node, files, mode)
    }

    pub(crate) fn node(&self, node: &str, mode: Mode) -> NodeTls {
        NodeTls::load(self.settings(node, mode)).unwrap()
    }
}

pub(crate) fn settings(node: &str, files: Files, mode: Mode) -> Settings {
    Settings {
        cluster: CLUSTER.to_owned(),
        node: node.to_owned(),
        files,
        client: mode,
        peer: mode,
        client_certificates: ClientCertificates::Request,
        client_tls12: false,
        handshakes: 16,
        handshake_timeout: PATIENCE,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Peer,
    Client,
}

/// Accepts one connection on a port of a node.
pub(crate) async fn listen(
    tls: &NodeTls,
    port: Port,
) -> (SocketAddr, tokio::task::JoinHandle<Result<Accepted, HandshakeError>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, tls) = (listener.local_addr().unwrap(), tls.clone());
    let accepting = tokio::spawn(async move {
        let socket = listener.accept().await.unwrap().0;
        match port {
            Port::Peer => tls.accept_peer(socket).await,
            Port::Client => tls.accept_client(socket, PATIENCE).await,
        }
    });
    (address, accepting)
}

/// Connects as somebody who trusts everybody, with a certificate if there is one.
pub(crate) async fn call(address: SocketAddr, own: Option<&Issued>) -> std::io::Result<TlsStream<TcpStream>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustsEverybody));
    let config = match own {
        Some(own) => {
            let chain = vec![CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    let socket = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), socket).await
}

#[derive(Debug)]
struct TrustsEverybody;

impl ServerCertVerifier for TrustsEverybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
