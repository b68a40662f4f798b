//! Turns credentials into a principal.

use crate::grant::GrantList;
use crate::keys::KeySet;
use crate::policy::Policy;
use crate::principal::{ANONYMOUS, CertificateIdentity, CertificateRole, Principal, TokenDetails};
use crate::token::{Parts, TokenError};
use crate::{MAX_TOKEN_TTL, OWN_ISSUER};

/// What a request shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credentials<'a> {
    /// The text after `Bearer`.
    pub token: Option<&'a str>,
    pub certificate: Option<&'a CertificateIdentity>,
}

/// The credentials were shown and are not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unauthenticated {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("the certificate is of cluster {found:?}, but this node is in {expected:?}")]
    Cluster { found: String, expected: String },
}

/// Everything that authentication needs. It is replaced as a whole when a file changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// The cluster: audience of its own tokens.
    pub cluster: String,
    /// Public keys of the cluster.
    pub keys: KeySet,
    pub policy: Policy,
    /// Grants of callers without credentials.
    pub anonymous: GrantList,
    /// Longest lifetime of the cluster's own tokens, in seconds.
    pub max_token_ttl: u64,
}

impl Authority {
    pub fn new(cluster: impl Into<String>, keys: KeySet) -> Authority {
        Authority {
            cluster: cluster.into(),
            keys,
            policy: Policy::default(),
            anonymous: GrantList::default(),
            max_token_ttl: MAX_TOKEN_TTL,
        }
    }

    /// Returns who shows these credentials. A token counts more than a certificate. Credentials that are not valid are an
    /// error, never `anonymous` (AU3). `now` is in seconds since 1970.
    pub fn authenticate(&self, credentials: Credentials<'_>, now: u64) -> Result<Principal, Unauthenticated> {
        match credentials {
            Credentials { token: Some(token), .. } => Ok(self.of_token(token, now)?),
            Credentials { certificate: Some(certificate), .. } => self.of_certificate(certificate),
            _ => Ok(Principal::new(ANONYMOUS, self.anonymous.clone(), None)),
        }
    }

    fn of_token(&self, text: &str, now: u64) -> Result<Principal, TokenError> {
        let token = Parts::read(text)?;
        // The issuer selects the keys, and only these keys can verify the token.
        if token.claims.iss == OWN_ISSUER {
            token.verify(&self.keys)?;
            token.validate(&self.cluster, self.max_token_ttl, now)?;
            if token.claims.jti.is_empty() {
                return Err(TokenError::Claim("jti"));
            }
            let grants = GrantList::parse_known(&token.claims.grants);
            return Ok(principal("token", &token, grants));
        }
        let issuer = self.policy.issuers.iter().find(|issuer| issuer.issuer == token.claims.iss);
        let issuer = issuer.ok_or_else(|| TokenError::Issuer(token.claims.iss.clone()))?;
        token.verify(&issuer.keys)?;
        token.validate(&issuer.audience, issuer.max_ttl, now)?;
        // Grants inside such a token mean nothing: only the policy maps its subject.
        let grants = issuer.of_subject(&token.claims.sub);
        let grants = grants.ok_or_else(|| TokenError::NoRule(token.claims.sub.clone()))?;
        Ok(principal(&issuer.name, &token, grants))
    }

    fn of_certificate(&self, certificate: &CertificateIdentity) -> Result<Principal, Unauthenticated> {
        let CertificateIdentity { cluster, role, name } = certificate;
        if *cluster != self.cluster {
            return Err(Unauthenticated::Cluster { found: cluster.clone(), expected: self.cluster.clone() });
        }
        Ok(match role {
            CertificateRole::Node => Principal::node(name),
            CertificateRole::Client => {
                Principal::new(format!("certificate/{name}"), self.policy.of_certificate(name), None)
            }
        })
    }
}

fn principal(origin: &str, token: &Parts<'_>, grants: GrantList) -> Principal {
    let claims = &token.claims;
    let details = TokenDetails {
        id: format!("{origin}/{}", claims.jti),
        issued_at: claims.iat,
        expires_at: claims.exp.saturating_add(crate::LEEWAY),
    };
    Principal::new(format!("{origin}/{}", claims.sub), grants, Some(details))
}
