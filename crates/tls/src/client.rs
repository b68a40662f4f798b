//! TLS of clients: the SDK and the command line (TS8).

use crate::error::{HandshakeError, MaterialError, TlsError};
use crate::files::read;
use crate::material::{FileKind, authorities, certificates, certified, provider};
use crate::reload::Stamp;
use crate::stream::Stream;
use crate::trust::Watched;
use crate::verify::explain;
use arc_swap::ArcSwap;
use rustls::ClientConfig;
use rustls::sign::SingleCertAndKey;
use rustls_pki_types::ServerName;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// TLS for connections of a client. Cheap to clone. Changed files are read again with the next connection.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ca: PathBuf,
    own: Option<(PathBuf, PathBuf)>,
    current: ArcSwap<(Stamp, Arc<ClientConfig>)>,
}

impl ClientTls {
    /// Reads the trusted authorities, and the own certificate with its key if the client has one.
    pub fn load(ca: &Path, own: Option<(&Path, &Path)>) -> Result<ClientTls, TlsError> {
        let own = own.map(|(cert, key)| (cert.to_owned(), key.to_owned()));
        let stamp = stamp(ca, own.as_ref());
        let config = Arc::new(config(ca, own.as_ref())?);
        let current = ArcSwap::from_pointee((stamp, config));
        Ok(ClientTls(Arc::new(Inner { ca: ca.to_owned(), own, current })))
    }

    /// Completes the handshake with the node at `host`, a name or an address without a port. The certificate must be
    /// valid for this host. Never falls back to a connection without TLS.
    pub async fn connect(&self, socket: TcpStream, host: &str, protocol: &str) -> Result<Stream, HandshakeError> {
        let name = server_name(host).map_err(|error| HandshakeError::Failed(std::io::Error::other(error)))?;
        let connector = TlsConnector::from(self.config());
        let connecting = connector.with_alpn(vec![protocol.as_bytes().to_vec()]);
        let stream = connecting.connect(name, socket).await.map_err(|error| HandshakeError::Failed(explain(error)))?;
        Ok(Stream::Tls(Box::new(Watched::unwatched(stream.into()))))
    }

    /// The current configuration. Files that changed and are not valid are ignored: a renewal may be half done.
    fn config(&self) -> Arc<ClientConfig> {
        let Inner { ca, own, current } = &*self.0;
        let stamp = stamp(ca, own.as_ref());
        let used = current.load();
        if used.0 == stamp {
            return used.1.clone();
        }
        match config(ca, own.as_ref()) {
            Ok(config) => {
                let config = Arc::new(config);
                current.store(Arc::new((stamp, config.clone())));
                config
            }
            Err(error) => {
                tracing::warn!(%error, "changed certificates are not used");
                used.1.clone()
            }
        }
    }
}

fn stamp(ca: &Path, own: Option<&(PathBuf, PathBuf)>) -> Stamp {
    let own = own.into_iter().flat_map(|(cert, key)| [cert.as_path(), key.as_path()]);
    Stamp::of(std::iter::once(ca).chain(own))
}

/// The name that a certificate must be valid for. IPv6 addresses may be in brackets.
fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(bare.to_owned()).map_err(|_| TlsError::Host { host: host.to_owned() })
}

fn config(ca: &Path, own: Option<&(PathBuf, PathBuf)>) -> Result<ClientConfig, TlsError> {
    let wrong = |path: &Path| {
        let path = path.to_owned();
        move |error: MaterialError| TlsError::Material { path, error }
    };
    let (roots, _) = authorities(&read("the certificate authority", ca)?).map_err(wrong(ca))?;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_root_certificates(roots);
    let Some((cert, key)) = own else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(&read("the certificate", cert)?).map_err(wrong(cert))?;
    let certified = certified(chain, &read("the key", key)?).map_err(|(kind, error)| {
        let path = if kind == FileKind::Key { key } else { cert };
        TlsError::Material { path: path.clone(), error }
    })?;
    Ok(builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_or_addresses() {
        for host in ["a.example", "10.0.0.1", "::1", "[::1]", "localhost"] {
            server_name(host).unwrap();
        }
        for host in ["", "a b", "a:1"] {
            assert!(server_name(host).is_err(), "{host:?}");
        }
    }
}
