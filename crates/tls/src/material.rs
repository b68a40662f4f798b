//! Certificates and keys, parsed and checked together (TS2).

use crate::error::MaterialError;
use crate::expiry::{CertificateExpiry, format_time};
use crate::files::Contents;
use crate::identity::Identity;
use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use serde::Serialize;
use std::sync::Arc;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Certificates in one file. A rotation needs two authorities.
const CERTIFICATES_MAX: usize = 16;

/// The provider of all cryptography: ring.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Checked certificates and their key.
pub(crate) struct Material {
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) key: Arc<CertifiedKey>,
    pub(crate) identity: Identity,
    pub(crate) expiry: CertificateExpiry,
}

impl std::fmt::Debug for Material {
    /// Never shows the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Material")
            .field("identity", &self.identity)
            .field("expiry", &self.expiry)
            .finish_non_exhaustive()
    }
}

/// Which of the files an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Ca,
    Cert,
    Key,
}

impl Material {
    /// Parses the files and checks that they belong together at this time.
    pub(crate) fn parse(contents: &Contents, now: UnixTime) -> Result<Material, (FileKind, MaterialError)> {
        let of = |kind: FileKind| move |error: MaterialError| (kind, error);
        let (roots, ca_not_after) = authorities(&contents.ca).map_err(of(FileKind::Ca))?;
        let chain = certificates(&contents.cert).map_err(of(FileKind::Cert))?;
        let key = certified(chain.clone(), &contents.key)?;
        let Some(own) = chain.first() else { return Err((FileKind::Cert, MaterialError::NoCertificate)) };
        let not_after = check_own(own, &chain[1..], &roots, now).map_err(of(FileKind::Cert))?;
        let identity = Identity::of(own).map_err(|error| (FileKind::Cert, error.into()))?;
        Ok(Material {
            roots: Arc::new(roots),
            key: Arc::new(key),
            identity,
            expiry: CertificateExpiry { certificate: not_after, authority: ca_not_after },
        })
    }
}

/// Parses a key and checks that it belongs to the certificate.
pub(crate) fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: &[u8],
) -> Result<CertifiedKey, (FileKind, MaterialError)> {
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
        use rustls_pki_types::pem::Error;
        (FileKind::Key, if matches!(error, Error::NoItemsFound) { MaterialError::NoKey } else { MaterialError::Pem })
    })?;
    let signing = rustls::crypto::ring::sign::any_supported_type(&key)
        .map_err(|_| (FileKind::Key, MaterialError::UnsupportedKey))?;
    let certified = CertifiedKey::new(chain, signing);
    certified.keys_match().map_err(|_| (FileKind::Key, MaterialError::KeyMismatch))?;
    Ok(certified)
}

/// Reads certificates in PEM.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, MaterialError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).take(CERTIFICATES_MAX + 1).collect();
    let found = found.map_err(|_| MaterialError::Pem)?;
    match found.len() {
        0 => Err(MaterialError::NoCertificate),
        count if count > CERTIFICATES_MAX => Err(MaterialError::TooMany { count, limit: CERTIFICATES_MAX }),
        _ => Ok(found),
    }
}

/// Reads the trusted authorities. Also returns when the first of them expires that is not replaced by another: the
/// latest end of all, because certificates of the others are renewed during a rotation.
pub(crate) fn authorities(pem: &[u8]) -> Result<(RootCertStore, u64), MaterialError> {
    let (mut roots, mut latest) = (RootCertStore::empty(), 0);
    for (index, certificate) in certificates(pem)?.into_iter().enumerate() {
        let unreadable = MaterialError::Unreadable { number: index + 1 };
        let Ok((_, parsed)) = X509Certificate::from_der(&certificate) else { return Err(unreadable) };
        if !parsed.is_ca() {
            return Err(MaterialError::NotAnAuthority { subject: parsed.subject().to_string() });
        }
        latest = latest.max(seconds(parsed.validity().not_after.timestamp()));
        roots.add(certificate).map_err(|_| unreadable)?;
    }
    Ok((roots, latest))
}

/// Checks the time and the signature of an own certificate. Returns when it expires.
fn check_own(
    own: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    roots: &RootCertStore,
    now: UnixTime,
) -> Result<u64, MaterialError> {
    let (_, parsed) = X509Certificate::from_der(own).map_err(|_| MaterialError::Unreadable { number: 1 })?;
    let validity = parsed.validity();
    let (from, to) = (seconds(validity.not_before.timestamp()), seconds(validity.not_after.timestamp()));
    if to <= now.as_secs() {
        return Err(MaterialError::Expired { at: format_time(to) });
    }
    if from > now.as_secs() {
        return Err(MaterialError::NotYetValid { at: format_time(from) });
    }
    let certificate = ParsedCertificate::try_from(own).map_err(|_| MaterialError::Unreadable { number: 1 })?;
    let algorithms = provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, algorithms)
        .map_err(|error| MaterialError::Untrusted { why: error.to_string() })?;
    Ok(to)
}

/// A time of a certificate. Those before 1970 are as old as 1970.
fn seconds(timestamp: i64) -> u64 {
    u64::try_from(timestamp).unwrap_or(0)
}

/// Returns the end of the validity of a certificate, in seconds since 1970.
pub(crate) fn not_after(certificate: &CertificateDer<'_>) -> Option<u64> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(seconds(parsed.validity().not_after.timestamp()))
}

/// What `convoke tls inspect` shows of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CertificateInfo {
    pub subject: String,
    pub issuer: String,
    pub serial: String,
    /// `convoke://…`, if the certificate has an identity.
    pub identity: Option<String>,
    pub authority: bool,
    /// Host names and addresses that clients may dial.
    pub hosts: Vec<String>,
    /// UNIX milliseconds.
    pub not_before_ms: u64,
    /// UNIX milliseconds.
    pub not_after_ms: u64,
    pub not_before: String,
    pub not_after: String,
}

/// Describes all certificates of a file in PEM.
pub fn inspect(pem: &[u8]) -> Result<Vec<CertificateInfo>, MaterialError> {
    certificates(pem)?.iter().enumerate().map(|(index, certificate)| describe(index, certificate)).collect()
}

fn describe(index: usize, certificate: &CertificateDer<'_>) -> Result<CertificateInfo, MaterialError> {
    let unreadable = || MaterialError::Unreadable { number: index + 1 };
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| unreadable())?;
    let names = parsed.subject_alternative_name().map_err(|_| unreadable())?;
    let hosts = names.iter().flat_map(|names| &names.value.general_names).filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes),
        _ => None,
    });
    let validity = parsed.validity();
    let (from, to) = (seconds(validity.not_before.timestamp()), seconds(validity.not_after.timestamp()));
    Ok(CertificateInfo {
        subject: parsed.subject().to_string(),
        issuer: parsed.issuer().to_string(),
        serial: parsed.raw_serial_as_string(),
        identity: Identity::of(certificate).ok().map(|identity| identity.to_string()),
        authority: parsed.is_ca(),
        hosts: hosts.collect(),
        not_before_ms: from.saturating_mul(1_000),
        not_after_ms: to.saturating_mul(1_000),
        not_before: format_time(from),
        not_after: format_time(to),
    })
}

fn address(bytes: &[u8]) -> Option<String> {
    let four = <[u8; 4]>::try_from(bytes).ok().map(std::net::IpAddr::from);
    four.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(std::net::IpAddr::from)).map(|address| address.to_string())
}
