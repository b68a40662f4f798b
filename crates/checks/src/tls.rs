//! TLS of checks.

use convoke_core::member::ProbeTls;
use convoke_tls::AnyCertificate;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Where systems keep the authorities that they trust.
const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Configurations that verify certificates, and that do not.
#[derive(Clone, Debug)]
pub(crate) struct ProbeTlsConfigs {
    verifying: Arc<ClientConfig>,
    accepting: Arc<ClientConfig>,
}

impl ProbeTlsConfigs {
    /// Reads the authorities in a file, or those of the system.
    pub(crate) fn load(ca: Option<&Path>) -> io::Result<ProbeTlsConfigs> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        let system = || SYSTEM_BUNDLES.iter().map(PathBuf::from).find(|path| path.exists());
        if let Some(path) = ca.map(Path::to_owned).or_else(system) {
            let unreadable = |error| io::Error::other(format!("{}: {error}", path.display()));
            let certificates = CertificateDer::pem_file_iter(&path).map_err(|error| unreadable(error.to_string()))?;
            roots.add_parsable_certificates(certificates.filter_map(Result::ok));
        }
        let builder = || {
            let builder = ClientConfig::builder_with_provider(provider.clone());
            builder.with_safe_default_protocol_versions().map_err(io::Error::other)
        };
        let verifying = builder()?.with_root_certificates(roots).with_no_client_auth();
        let verifier = Arc::new(AnyCertificate::new(provider.clone()));
        let accepting = builder()?.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        Ok(ProbeTlsConfigs { verifying: Arc::new(verifying), accepting: Arc::new(accepting) })
    }

    /// Completes the handshake with `host`, a name or an address without a port.
    pub(crate) async fn connect(
        &self,
        socket: TcpStream,
        host: &str,
        tls: &ProbeTls,
        protocol: &str,
    ) -> io::Result<TlsStream<TcpStream>> {
        let config = if tls.skip_verify { &self.accepting } else { &self.verifying };
        let name = if tls.server_name.is_empty() { host } else { &tls.server_name };
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(config.clone());
        connector.with_alpn(vec![protocol.as_bytes().to_vec()]).connect(name, socket).await
    }
}
