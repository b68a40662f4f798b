//! Signed tokens: JSON Web Tokens in compact form (RFC 7515, RFC 7519).

use crate::grant::{GrantError, GrantList};
use crate::keys::{KeySet, SigningKey};
use crate::{LEEWAY, OWN_ISSUER, TOKEN_BYTES_MAX};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Longest subject.
const SUBJECT_BYTES_MAX: usize = 384;
const TOKEN_ID_BYTES_MAX: usize = 128;

/// The text of a token: a secret. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenText(String);

impl TokenText {
    /// Takes the content of a token file or variable. White space around it is removed.
    pub fn new(text: &str) -> TokenText {
        TokenText(text.trim().to_owned())
    }

    /// The secret itself, for the one place that sends or stores it.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenText(secret)")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub alg: String,
    #[serde(default)]
    pub kid: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typ: Option<String>,
    /// Extensions that a verifier must understand. None is understood here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crit: Option<serde_json::Value>,
}

/// What a token states. Other issuers may add claims, which are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    pub iss: String,
    pub sub: String,
    #[serde(deserialize_with = "one_or_many")]
    pub aud: Vec<String>,
    /// Seconds since 1970, as all times of a token.
    #[serde(deserialize_with = "seconds")]
    pub iat: u64,
    #[serde(deserialize_with = "seconds")]
    pub exp: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbf: Option<u64>,
    #[serde(default)]
    pub jti: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
}

/// Some issuers write times with a fraction.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = serde_json::Number::deserialize(deserializer)?;
    let whole = number.as_u64().or_else(|| {
        let fraction = number.as_f64().filter(|number| (0.0..=1e15).contains(number));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked above")]
        fraction.map(|number| number as u64)
    });
    whole.ok_or_else(|| serde::de::Error::custom("a time is not a number of seconds since 1970"))
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}

/// Why a token is not accepted. No variant contains a part of the token that its issuer did not sign, except names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the token is larger than {TOKEN_BYTES_MAX} bytes")]
    TooLarge,
    #[error("the token is not a JSON Web Token: {0}")]
    Malformed(&'static str),
    #[error("the token names the issuer {0:?}, which this node does not accept")]
    Issuer(String),
    #[error("the token is signed with the key {kid:?}, which issuer {issuer:?} does not have at this node")]
    Key { issuer: String, kid: String },
    #[error("the token has the algorithm {found:?}, but its key has {expected}")]
    Algorithm { found: String, expected: &'static str },
    #[error("the signature of the token is wrong")]
    Signature,
    #[error("the token is for {found:?}, but this cluster accepts only {expected:?}")]
    Audience { found: Vec<String>, expected: String },
    #[error("the token expired {0} s ago: get a new one")]
    Expired(u64),
    #[error("the token becomes valid in {0} s; compare the clocks of this node and the issuer")]
    NotYet(u64),
    #[error("the token is valid for {found} s, but this node accepts at most {limit} s (max_token_ttl)")]
    Ttl { found: u64, limit: u64 },
    #[error("the claim {0:?} of the token is missing or too long")]
    Claim(&'static str),
    #[error("the token was revoked")]
    Revoked,
    #[error("no rule of the policy applies to subject {0:?}")]
    NoRule(String),
}

/// A token in parts. Nothing in it is verified.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) header: Header,
    pub(crate) claims: Claims,
    signed: &'a [u8],
    signature: Vec<u8>,
}

impl<'a> Parts<'a> {
    pub(crate) fn read(text: &'a str) -> Result<Parts<'a>, TokenError> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLarge);
        }
        let malformed = TokenError::Malformed;
        let (signed, signature) = text.rsplit_once('.').ok_or(malformed("it does not have three parts"))?;
        let (header, claims) = signed.split_once('.').ok_or(malformed("it does not have three parts"))?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed("a part is not base64url"));
        let header: Header =
            serde_json::from_slice(&decode(header)?).map_err(|_| malformed("the header is not a JSON object"))?;
        if header.crit.is_some() {
            return Err(malformed("the header has critical extensions"));
        }
        let claims = serde_json::from_slice(&decode(claims)?);
        let claims: Claims =
            claims.map_err(|_| malformed("iss, sub, aud, iat or exp is missing or has the wrong type"))?;
        Ok(Parts { header, claims, signed: signed.as_bytes(), signature: decode(signature)? })
    }

    /// Checks the signature with the key that the issuer has under the id in the header.
    pub(crate) fn verify(&self, keys: &KeySet) -> Result<(), TokenError> {
        let Header { alg, kid, .. } = &self.header;
        let unknown = || TokenError::Key { issuer: self.claims.iss.clone(), kid: kid.clone() };
        let key = keys.find(kid).ok_or_else(unknown)?;
        if alg != key.algorithm() {
            return Err(TokenError::Algorithm { found: alg.clone(), expected: key.algorithm() });
        }
        if key.verifies(self.signed, &self.signature) { Ok(()) } else { Err(TokenError::Signature) }
    }

    /// Checks times, audience and the size of names. `now` is in seconds.
    pub(crate) fn validate(&self, audience: &str, max_ttl: u64, now: u64) -> Result<(), TokenError> {
        let Claims { sub, aud, iat, exp, nbf, jti, .. } = &self.claims;
        if sub.is_empty() || sub.len() > SUBJECT_BYTES_MAX || sub.chars().any(char::is_control) {
            return Err(TokenError::Claim("sub"));
        }
        if jti.len() > TOKEN_ID_BYTES_MAX || jti.chars().any(char::is_control) {
            return Err(TokenError::Claim("jti"));
        }
        if !aud.iter().any(|audience_of_token| audience_of_token == audience) {
            return Err(TokenError::Audience { found: aud.clone(), expected: audience.to_owned() });
        }
        let valid_for = exp.saturating_sub(*iat);
        if valid_for > max_ttl {
            return Err(TokenError::Ttl { found: valid_for, limit: max_ttl });
        }
        let begins = nbf.unwrap_or(0).max(*iat);
        if begins > now.saturating_add(LEEWAY) {
            return Err(TokenError::NotYet(begins - now));
        }
        if exp.saturating_add(LEEWAY) <= now {
            return Err(TokenError::Expired(now - exp));
        }
        Ok(())
    }
}

/// Returns what a token states, without verifying anything.
pub fn inspect(token: &TokenText) -> Result<(Header, Claims), TokenError> {
    let parts = Parts::read(token.secret())?;
    Ok((parts.header, parts.claims))
}

/// A token to sign.
#[derive(Clone, Debug)]
pub struct NewToken<'a> {
    pub subject: &'a str,
    /// The cluster.
    pub audience: &'a str,
    pub grants: &'a [String],
    /// Seconds since 1970.
    pub issued_at: u64,
    pub ttl: u64,
    /// Random; becomes the id of the token.
    pub id: [u8; 16],
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenIssueError {
    #[error("the subject is empty, longer than {SUBJECT_BYTES_MAX} bytes or contains control characters")]
    Subject,
    #[error("the lifetime of a token is at least 1 s")]
    Ttl,
    #[error(transparent)]
    Grant(#[from] GrantError),
    #[error("the token would be larger than {TOKEN_BYTES_MAX} bytes; use fewer or shorter grants")]
    TooLarge,
}

/// Signs a token.
pub fn issue(key: &SigningKey, new: &NewToken<'_>) -> Result<(TokenText, Claims), TokenIssueError> {
    let NewToken { subject, audience, grants, issued_at, ttl, id } = new;
    if subject.is_empty() || subject.len() > SUBJECT_BYTES_MAX || subject.chars().any(char::is_control) {
        return Err(TokenIssueError::Subject);
    }
    if *ttl == 0 {
        return Err(TokenIssueError::Ttl);
    }
    GrantList::parse(grants)?;
    let header = Header { alg: "EdDSA".to_owned(), kid: key.key_id(), typ: Some("JWT".to_owned()), crit: None };
    let claims = Claims {
        iss: OWN_ISSUER.to_owned(),
        sub: (*subject).to_owned(),
        aud: vec![(*audience).to_owned()],
        iat: *issued_at,
        exp: issued_at.saturating_add(*ttl),
        nbf: None,
        jti: URL_SAFE_NO_PAD.encode(id),
        grants: grants.to_vec(),
    };
    let signed = format!("{}.{}", part(&header), part(&claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
    let text = format!("{signed}.{signature}");
    if text.len() > TOKEN_BYTES_MAX { Err(TokenIssueError::TooLarge) } else { Ok((TokenText(text), claims)) }
}

fn part(value: &impl Serialize) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(value).expect("strings and numbers serialize"))
}

/// Signs the token of the operator that `convoke init` writes: every verb on every resource.
pub fn operator_token(key: &SigningKey, cluster: &str, issued_at: u64, id: [u8; 16]) -> (TokenText, Claims) {
    let grants = ["* *".to_owned()];
    let new =
        NewToken { subject: "operator", audience: cluster, grants: &grants, issued_at, ttl: crate::MAX_TOKEN_TTL, id };
    issue(key, &new).expect("the subject, the grant and the lifetime are valid")
}
