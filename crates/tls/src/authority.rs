//! A small certificate authority: what `convoke init` and `convoke tls issue` write (TS9).

use crate::identity::{Identity, IdentityRole};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType,
};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};
use time::OffsetDateTime;

/// Certificates begin an hour before they are issued, because clocks differ.
const BACKDATED: Duration = Duration::from_secs(3_600);
/// Names in one certificate.
const HOSTS_MAX: usize = 64;

/// Why a certificate cannot be issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    #[error("{0:?} is not a host name or an address")]
    Host(String),
    #[error("a certificate has at most {HOSTS_MAX} host names")]
    TooManyHosts,
    #[error("the certificate authority cannot be used: {0}")]
    Authority(rcgen::Error),
    #[error("the key belongs to no certificate of the authority: use the ca.key that `convoke init` wrote with it")]
    OtherKey,
    #[error("the certificate cannot be created: {0}")]
    Create(rcgen::Error),
    #[error("the time is out of range")]
    Time,
}

/// When a certificate is issued and for how long it is valid.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    pub now: SystemTime,
    pub lasts: Duration,
}

impl Validity {
    fn bounds(self) -> Result<(OffsetDateTime, OffsetDateTime), IssueError> {
        let from = self.now.checked_sub(BACKDATED).ok_or(IssueError::Time)?;
        let to = self.now.checked_add(self.lasts).ok_or(IssueError::Time)?;
        Ok((from.into(), to.into()))
    }
}

/// A certificate with its key, in PEM.
pub struct Issued {
    pub certificate: String,
    pub key: String,
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// What a certificate is issued for.
#[derive(Clone, Debug)]
pub struct CertificateRequest {
    pub identity: Identity,
    /// Host names and addresses that clients dial. Clients need none.
    pub hosts: Vec<String>,
}

/// A certificate authority.
pub struct CertificateAuthority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateAuthority").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// Creates an authority for a cluster. Also returns its key, which must stay with the operator.
    pub fn create(cluster: &str, validity: Validity) -> Result<(CertificateAuthority, Issued), IssueError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(IssueError::Create)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("Convoke CA of {cluster}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        (params.not_before, params.not_after) = validity.bounds()?;
        let certificate = params.self_signed(&key).map_err(IssueError::Create)?.pem();
        let key = key.serialize_pem();
        let authority = CertificateAuthority::open(&certificate, &key)?;
        Ok((authority, Issued { certificate, key }))
    }

    /// Opens an authority. If the file holds several certificates, the first one that belongs to the key issues.
    pub fn open(certificates: &str, key: &str) -> Result<CertificateAuthority, IssueError> {
        let key_pair = || KeyPair::from_pem(key).map_err(IssueError::Authority);
        let found = crate::material::certificates(certificates.as_bytes())
            .map_err(|_| IssueError::Authority(rcgen::Error::CouldNotParseCertificate))?;
        let fits = |certificate: &&rustls_pki_types::CertificateDer<'static>| {
            crate::material::certified(vec![(*certificate).clone()], key.as_bytes()).is_ok()
        };
        let own = found.iter().find(fits).ok_or(IssueError::OtherKey)?;
        let issuer = Issuer::from_ca_cert_der(own, key_pair()?).map_err(IssueError::Authority)?;
        Ok(CertificateAuthority { certificate: certificates.to_owned(), issuer })
    }

    /// The certificates of the file, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate with a new key.
    pub fn issue(&self, request: &CertificateRequest, validity: Validity) -> Result<Issued, IssueError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(IssueError::Create)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, request.identity.name.clone());
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match request.identity.role {
            IdentityRole::Node => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
            // Without the right to serve, a client cannot pose as a node.
            IdentityRole::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = validity.bounds()?;
        params.subject_alt_names = names(request)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(IssueError::Create)?.pem();
        Ok(Issued { certificate, key: key.serialize_pem() })
    }
}

fn names(request: &CertificateRequest) -> Result<Vec<SanType>, IssueError> {
    if request.hosts.len() > HOSTS_MAX {
        return Err(IssueError::TooManyHosts);
    }
    let uri = request.identity.to_string();
    let mut names = vec![SanType::URI(uri.clone().try_into().map_err(|_| IssueError::Host(uri))?)];
    for host in &request.hosts {
        let invalid = || IssueError::Host(host.clone());
        names.push(match host.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) if is_host_name(host) => SanType::DnsName(host.clone().try_into().map_err(|_| invalid())?),
            Err(_) => return Err(invalid()),
        });
    }
    Ok(names)
}

fn is_host_name(host: &str) -> bool {
    rustls_pki_types::DnsName::try_from(host.strip_prefix("*.").unwrap_or(host)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::material::inspect;

    const DAY: Duration = Duration::from_secs(24 * 3_600);

    #[test]
    fn ts9_certificates_name_cluster_role_and_hosts_and_are_backdated() {
        let validity = Validity { now: SystemTime::UNIX_EPOCH + 100 * DAY, lasts: 10 * DAY };
        let (authority, own) = CertificateAuthority::create("prod", validity).unwrap();
        let request = CertificateRequest {
            identity: Identity::node("prod", "n1"),
            hosts: vec!["n1.example".to_owned(), "10.0.0.1".to_owned(), "::1".to_owned()],
        };
        let issued = authority.issue(&request, validity).unwrap();
        let info = inspect(issued.certificate.as_bytes()).unwrap().remove(0);
        assert_eq!(info.identity.as_deref(), Some("convoke://prod/node/n1"));
        assert_eq!(info.hosts, ["n1.example", "10.0.0.1", "::1"]);
        assert_eq!(
            (info.not_before.as_str(), info.not_after.as_str()),
            ("1970-04-10 23:00 UTC", "1970-04-21 00:00 UTC")
        );
        assert!(!info.authority && info.issuer.contains("Convoke CA of prod"), "{info:?}");
        assert!(inspect(own.certificate.as_bytes()).unwrap()[0].authority);
    }

    #[test]
    fn ts9_an_authority_finds_its_certificate_among_two() {
        let validity = Validity { now: SystemTime::now(), lasts: DAY };
        let (_, old) = CertificateAuthority::create("c", validity).unwrap();
        let (_, new) = CertificateAuthority::create("c", validity).unwrap();
        let both = format!("{}{}", old.certificate, new.certificate);
        for own in [&old, &new] {
            CertificateAuthority::open(&both, &own.key).unwrap();
        }
        assert!(CertificateAuthority::open(&old.certificate, &new.key).is_err(), "the key of another authority");
    }

    #[test]
    fn hosts_are_checked() {
        let validity = Validity { now: SystemTime::now(), lasts: DAY };
        let (authority, _) = CertificateAuthority::create("c", validity).unwrap();
        for host in ["", "a b", "a:1", "http://a"] {
            let request = CertificateRequest { identity: Identity::node("c", "n"), hosts: vec![host.to_owned()] };
            assert!(matches!(authority.issue(&request, validity), Err(IssueError::Host(_))), "{host:?}");
        }
        assert!(!format!("{authority:?}").contains("PRIVATE"), "a key is never shown");
    }
}
