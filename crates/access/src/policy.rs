//! The policy file: grants of principals whose credentials carry none, that is tokens of other issuers and client
//! certificates.

use crate::MAX_TOKEN_TTL;
use crate::grant::{GrantError, GrantList};
use crate::keys::{KeyError, KeySet};
use serde::Deserialize;

const RULES_MAX: usize = 1_024;
const ISSUERS_MAX: usize = 16;
/// First parts of principal names that are not issuers.
const RESERVED: [&str; 4] = ["token", "node", "certificate", "anonymous"];

/// The parsed policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub issuers: Vec<Issuer>,
    pub certificates: Vec<CertificateRule>,
}

/// Another issuer of tokens, for example Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// First part of the names of its principals.
    pub name: String,
    /// The claim `iss` of its tokens.
    pub issuer: String,
    /// Required in the claim `aud` of its tokens.
    pub audience: String,
    pub keys: KeySet,
    pub max_ttl: u64,
    pub subjects: Vec<SubjectRule>,
}

/// Grants of the subjects that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectRule {
    pub subject: String,
    pub grants: GrantList,
}

/// Grants of the client certificates whose names match a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRule {
    pub name: String,
    pub grants: GrantList,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("the policy is not valid TOML: {0}")]
    Toml(String),
    #[error("issuer name {0:?} is not usable: it needs lower-case letters, digits and `-`, is unique and not reserved")]
    Name(String),
    #[error("issuer {0:?} is listed twice or is the issuer of this cluster's own tokens")]
    Issuer(String),
    #[error("issuer {issuer}: the key file {file}: {why}")]
    Keys { issuer: String, file: String, why: KeyError },
    #[error("issuer {issuer}: cannot read the key file {file}: {why}")]
    KeyFile { issuer: String, file: String, why: String },
    #[error("{place}: {why}")]
    Grant { place: String, why: GrantError },
    #[error("{place}: pattern {pattern:?} may have `*` only at its end and must not be empty")]
    Pattern { place: String, pattern: String },
    #[error("the policy has more than {0} {1}")]
    TooMany(usize, &'static str),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyText {
    #[serde(default)]
    issuer: Vec<IssuerText>,
    #[serde(default)]
    certificate: Vec<CertificateText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IssuerText {
    name: String,
    issuer: String,
    audience: String,
    jwks: String,
    max_token_ttl_ms: Option<u64>,
    #[serde(default)]
    subject: Vec<SubjectText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubjectText {
    name: String,
    grants: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificateText {
    name: String,
    grants: Vec<String>,
}

impl Policy {
    /// Parses a policy. `read` returns the content of a key file that the policy names.
    pub fn parse(text: &str, mut read: impl FnMut(&str) -> Result<String, String>) -> Result<Policy, PolicyError> {
        let parsed: PolicyText = toml::from_str(text).map_err(|error| PolicyError::Toml(error.to_string()))?;
        if parsed.issuer.len() > ISSUERS_MAX {
            return Err(PolicyError::TooMany(ISSUERS_MAX, "issuers"));
        }
        let mut policy = Policy::default();
        for issuer in parsed.issuer {
            let issuer = read_issuer(issuer, &mut read)?;
            if policy.issuers.iter().any(|other| other.name == issuer.name) {
                return Err(PolicyError::Name(issuer.name));
            }
            if issuer.issuer == crate::OWN_ISSUER || policy.issuers.iter().any(|other| other.issuer == issuer.issuer) {
                return Err(PolicyError::Issuer(issuer.issuer));
            }
            policy.issuers.push(issuer);
        }
        if parsed.certificate.len() > RULES_MAX {
            return Err(PolicyError::TooMany(RULES_MAX, "certificate rules"));
        }
        for CertificateText { name, grants } in parsed.certificate {
            let grants = rule(&format!("certificate {name:?}"), &name, &grants)?;
            policy.certificates.push(CertificateRule { name, grants });
        }
        Ok(policy)
    }

    /// Returns the grants of a client certificate: those of the first rule that matches.
    pub(crate) fn of_certificate(&self, name: &str) -> GrantList {
        let rule = self.certificates.iter().find(|rule| matches(&rule.name, name));
        rule.map(|rule| rule.grants.clone()).unwrap_or_default()
    }
}

impl Issuer {
    /// Returns the grants of a subject: those of the first rule that matches.
    pub(crate) fn of_subject(&self, subject: &str) -> Option<GrantList> {
        self.subjects.iter().find(|rule| matches(&rule.subject, subject)).map(|rule| rule.grants.clone())
    }
}

fn read_issuer(text: IssuerText, read: &mut impl FnMut(&str) -> Result<String, String>) -> Result<Issuer, PolicyError> {
    let IssuerText { name, issuer, audience, jwks: file, max_token_ttl_ms, subject } = text;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 32 || !name.chars().all(plain) || RESERVED.contains(&name.as_str()) {
        return Err(PolicyError::Name(name));
    }
    if subject.len() > RULES_MAX {
        return Err(PolicyError::TooMany(RULES_MAX, "subject rules"));
    }
    let content = read(&file).map_err(|why| PolicyError::KeyFile { issuer: name.clone(), file: file.clone(), why })?;
    let keys = KeySet::from_jwks(&content).map_err(|why| PolicyError::Keys { issuer: name.clone(), file, why })?;
    let subjects = subject.into_iter().map(|text| {
        let grants = rule(&format!("issuer {name}, subject {:?}", text.name), &text.name, &text.grants)?;
        Ok(SubjectRule { subject: text.name, grants })
    });
    let subjects = subjects.collect::<Result<_, PolicyError>>()?;
    let max_ttl = max_token_ttl_ms.map_or(MAX_TOKEN_TTL, |ms| ms / 1_000);
    Ok(Issuer { name, issuer, audience, keys, max_ttl, subjects })
}

fn rule(place: &str, pattern: &str, grants: &[String]) -> Result<GrantList, PolicyError> {
    if pattern.is_empty() || pattern.strip_suffix('*').unwrap_or(pattern).contains('*') {
        return Err(PolicyError::Pattern { place: place.to_owned(), pattern: pattern.to_owned() });
    }
    GrantList::parse(grants).map_err(|why| PolicyError::Grant { place: place.to_owned(), why })
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}
