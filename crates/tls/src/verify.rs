//! Checks of certificates during the handshake: the chain by webpki, then the identity (TS3, TS4).

use crate::identity::{Identity, IdentityRole, InvalidIdentity};
use crate::material::provider;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::io;
use std::sync::Arc;

/// Why an identity is refused, although its certificate is valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    Invalid(#[from] InvalidIdentity),
    #[error("its certificate is for cluster {found}, and this is cluster {expected}")]
    Cluster { found: String, expected: String },
    #[error("its certificate is that of client {0}: only nodes may speak to nodes")]
    NotANode(String),
}

/// Checks an identity. With `nodes_only`, clients are refused.
pub(crate) fn check(identity: &Identity, cluster: &str, nodes_only: bool) -> Result<(), Refused> {
    if identity.cluster != cluster {
        return Err(Refused::Cluster { found: identity.cluster.clone(), expected: cluster.to_owned() });
    }
    match identity.role {
        IdentityRole::Client if nodes_only => Err(Refused::NotANode(identity.name.clone())),
        IdentityRole::Client | IdentityRole::Node => Ok(()),
    }
}

fn check_certificate(certificate: &CertificateDer<'_>, cluster: &str, nodes_only: bool) -> Result<(), Error> {
    let checked = Identity::of(certificate).map_err(Refused::from).and_then(|found| check(&found, cluster, nodes_only));
    checked.map_err(|refused| Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(refused)))))
}

/// Checks the certificates of those who connect to a port.
#[derive(Debug)]
pub(crate) struct Callers {
    chain: Arc<dyn ClientCertVerifier>,
    cluster: String,
    nodes_only: bool,
}

impl Callers {
    /// Callers of the peer port: nodes of this cluster, always with a certificate.
    pub(crate) fn peers(roots: Arc<RootCertStore>, cluster: &str) -> Result<Self, Error> {
        Callers::new(roots, cluster, true, true)
    }

    /// Callers of the client port.
    pub(crate) fn clients(roots: Arc<RootCertStore>, cluster: &str, required: bool) -> Result<Self, Error> {
        Callers::new(roots, cluster, required, false)
    }

    fn new(roots: Arc<RootCertStore>, cluster: &str, required: bool, nodes_only: bool) -> Result<Self, Error> {
        let builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
        let builder = if required { builder } else { builder.allow_unauthenticated() };
        let chain = builder.build().map_err(|error| Error::General(error.to_string()))?;
        Ok(Callers { chain, cluster: cluster.to_owned(), nodes_only })
    }
}

impl ClientCertVerifier for Callers {
    fn offer_client_auth(&self) -> bool {
        self.chain.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.chain.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.chain.verify_client_cert(certificate, intermediates, now)?;
        check_certificate(certificate, &self.cluster, self.nodes_only)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// The part of a verifier that checks signatures, for a type with a `provider`.
macro_rules! verify_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

/// Checks the certificate of a dialled node. Its identity counts, not the host name: addresses of nodes change.
#[derive(Debug)]
pub(crate) struct DialledNode {
    roots: Arc<RootCertStore>,
    cluster: String,
    provider: Arc<CryptoProvider>,
}

impl DialledNode {
    pub(crate) fn new(roots: Arc<RootCertStore>, cluster: &str) -> Self {
        DialledNode { roots, cluster: cluster.to_owned(), provider: provider() }
    }
}

impl ServerCertVerifier for DialledNode {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        check_certificate(certificate, &self.cluster, true)?;
        Ok(ServerCertVerified::assertion())
    }

    verify_signatures!();
}

/// Accepts every certificate of a server, and requires that its signatures are valid: for checks that do not verify.
#[derive(Debug)]
pub struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl AnyCertificate {
    pub fn new(provider: Arc<CryptoProvider>) -> Self {
        AnyCertificate { provider }
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    verify_signatures!();
}

/// Replaces the error of a handshake by a sentence that operators understand.
pub(crate) fn explain(error: io::Error) -> io::Error {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else { return error };
    let text = match tls {
        Error::InvalidCertificate(CertificateError::Other(OtherError(why))) => match why.downcast_ref::<Refused>() {
            Some(refused) => refused.to_string(),
            None => format!("its certificate is not valid: {why}"),
        },
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "its certificate is not signed by a trusted certificate authority".to_owned()
        }
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "its certificate has expired".to_owned()
        }
        Error::InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) => {
            "its certificate is not valid yet: check the clocks".to_owned()
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "its certificate is for another host name: use a name or address in the certificate, or issue one for this name"
            .to_owned(),
        Error::NoCertificatesPresented => "it presented no certificate".to_owned(),
        Error::AlertReceived(alert) => format!("it refused this side with the alert {alert:?}"),
        Error::InvalidMessage(_) => "it does not use TLS".to_owned(),
        other => other.to_string(),
    };
    io::Error::new(error.kind(), text)
}

/// Whether the other end does not use TLS: it answered with something else, or closed the connection at once.
pub(crate) fn speaks_plain(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match tls {
        Some(error) => matches!(error, Error::InvalidMessage(_)),
        None => matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ts3_another_cluster_and_the_role_of_a_client_are_refused() {
        let (node, client) = (Identity::node("a", "n1"), Identity::client("a", "app"));
        assert_eq!(check(&node, "a", true), Ok(()));
        assert_eq!(check(&client, "a", false), Ok(()));
        assert_eq!(check(&client, "a", true), Err(Refused::NotANode("app".to_owned())));
        for identity in [node, client] {
            assert!(matches!(check(&identity, "b", false), Err(Refused::Cluster { .. })));
        }
    }
}
