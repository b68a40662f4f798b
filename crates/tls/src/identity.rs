//! Who a certificate belongs to: a URI in its subject alternative names (TS1).

use rustls_pki_types::CertificateDer;
use std::fmt;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

const SCHEME: &str = "convoke://";
/// Longest URI that is read. Node ids and cluster names are far shorter.
const URI_BYTES_MAX: usize = 1_024;

/// What the holder of a certificate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdentityRole {
    /// A node of the cluster. Only nodes speak the protocols of the peer port.
    Node,
    /// A client of the cluster.
    Client,
}

impl IdentityRole {
    pub fn as_str(self) -> &'static str {
        match self {
            IdentityRole::Node => "node",
            IdentityRole::Client => "client",
        }
    }
}

/// The identity in a certificate: `convoke://CLUSTER/node/ID` or `convoke://CLUSTER/client/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub cluster: String,
    pub role: IdentityRole,
    /// Id of the node, or name of the client.
    pub name: String,
}

/// Why a certificate has no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidIdentity {
    #[error("the certificate cannot be read")]
    Unreadable,
    #[error(
        "the certificate has no identity: it needs one URI convoke://CLUSTER/node/ID or convoke://CLUSTER/client/NAME"
    )]
    Missing,
    #[error("the certificate has several identities")]
    Several,
    #[error("{0:?} is not an identity: use convoke://CLUSTER/node/ID or convoke://CLUSTER/client/NAME")]
    Malformed(String),
}

impl Identity {
    pub fn node(cluster: &str, id: &str) -> Identity {
        Identity { cluster: cluster.to_owned(), role: IdentityRole::Node, name: id.to_owned() }
    }

    pub fn client(cluster: &str, name: &str) -> Identity {
        Identity { cluster: cluster.to_owned(), role: IdentityRole::Client, name: name.to_owned() }
    }

    /// Parses a URI. Every identity has exactly one spelling, so that comparing URIs compares identities.
    pub fn parse(uri: &str) -> Result<Identity, InvalidIdentity> {
        let malformed = || InvalidIdentity::Malformed(uri.chars().take(100).collect());
        let rest = uri.strip_prefix(SCHEME).filter(|_| uri.len() <= URI_BYTES_MAX).ok_or_else(malformed)?;
        let mut parts = rest.split('/');
        let (Some(cluster), Some(role), Some(name), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed());
        };
        let role = match role {
            "node" => IdentityRole::Node,
            "client" => IdentityRole::Client,
            _ => return Err(malformed()),
        };
        let (cluster, name) = (decode(cluster).ok_or_else(malformed)?, decode(name).ok_or_else(malformed)?);
        let identity = Identity { cluster, role, name };
        if identity.cluster.is_empty() || identity.name.is_empty() || identity.to_string() != uri {
            return Err(malformed());
        }
        Ok(identity)
    }

    /// Returns the identity in a certificate. A certificate has at most one.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Identity, InvalidIdentity> {
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| InvalidIdentity::Unreadable)?;
        let names = parsed.subject_alternative_name().map_err(|_| InvalidIdentity::Unreadable)?;
        let mut found = None;
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            if let GeneralName::URI(uri) = name
                && uri.starts_with(SCHEME)
                && found.replace(Identity::parse(uri)?).is_some()
            {
                return Err(InvalidIdentity::Several);
            }
        }
        found.ok_or(InvalidIdentity::Missing)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}/{}", encode(&self.cluster), self.role.as_str(), encode(&self.name))
    }
}

/// Percent-encodes all bytes that are not unreserved in URIs.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ts1_identities_survive_their_uri() {
        for (identity, uri) in [
            (Identity::node("convoke", "n1"), "convoke://convoke/node/n1"),
            (Identity::client("a b/ü%", "ops@x"), "convoke://a%20b%2F%C3%BC%25/client/ops%40x"),
        ] {
            assert_eq!(identity.to_string(), uri);
            assert_eq!(Identity::parse(uri), Ok(identity));
        }
    }

    #[test]
    fn ts1_an_identity_has_one_spelling() {
        for uri in [
            "convoke://c/node/",
            "convoke:///node/a",
            "convoke://c/node",
            "convoke://c/node/a/b",
            "convoke://c/operator/a",
            "convoke://c/Node/a",
            "CONVOKE://c/node/a",
            "spiffe://c/node/a",
            "convoke://c/node/%61",
            "convoke://c/node/%2f",
            "convoke://c/node/a%",
            "convoke://c/node/a b",
            "convoke://c/node/%FF",
            "convoke://c/node/a?x",
        ] {
            assert!(matches!(Identity::parse(uri), Err(InvalidIdentity::Malformed(_))), "{uri}");
        }
        assert!(Identity::parse(&format!("convoke://c/node/{}", "a".repeat(2_000))).is_err());
    }

    /// A stranger chooses the certificate that he shows.
    #[test]
    fn fuzz_identities_have_one_spelling() {
        convoke_fuzz::texts(&["convoke://convoke/node/n1", "convoke://a%20b%2F/client/ops%40x"], |uri| {
            if let Ok(identity) = Identity::parse(uri) {
                assert_eq!(identity.to_string(), uri);
            }
        });
    }

    #[test]
    fn fuzz_certificates_have_an_identity_or_an_error() {
        use rustls_pki_types::pem::PemObject;
        let validity = crate::Validity { now: std::time::SystemTime::now(), lasts: std::time::Duration::from_secs(60) };
        let (authority, _) = crate::CertificateAuthority::create("prod", validity).unwrap();
        let request =
            crate::CertificateRequest { identity: Identity::node("prod", "n1"), hosts: vec!["localhost".to_owned()] };
        let issued = authority.issue(&request, validity).unwrap();
        let valid = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap().to_vec();
        assert_eq!(Identity::of(&CertificateDer::from(valid.clone())), Ok(Identity::node("prod", "n1")));
        convoke_fuzz::bytes(&[valid], |bytes| {
            if let Ok(identity) = Identity::of(&CertificateDer::from(bytes.to_vec())) {
                assert_eq!(Identity::parse(&identity.to_string()), Ok(identity));
            }
        });
    }

    #[test]
    fn bytes_that_are_no_certificate_are_unreadable() {
        assert_eq!(Identity::of(&CertificateDer::from(vec![0x30, 0x82, 0xff])), Err(InvalidIdentity::Unreadable));
    }
}
