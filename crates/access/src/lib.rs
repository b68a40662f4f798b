//! Who a caller is and what it may do (docs/access-control.md).
//!
//! The crate is pure: time, random bytes and the contents of files are arguments. It decides, and never waits, reads a
//! file or opens a socket. [`Authority::authenticate`] turns a token or a certificate into a [`Principal`];
//! [`Principal::check`] decides whether its grants cover a [`Resource`].

mod authority;
mod grant;
mod keys;
mod pem;
mod policy;
mod principal;
mod resource;
mod revocation;
mod token;
mod verb;

pub use authority::{Authority, Credentials, Unauthenticated};
pub use grant::{Grant, GrantError, GrantList, Mismatch, Pattern};
pub use keys::{KeyError, KeySet, PublicKey, SigningKey};
pub use policy::{CertificateRule, Issuer, Policy, PolicyError, SubjectRule};
pub use principal::{ANONYMOUS, CertificateIdentity, CertificateRole, Denied, Principal, TokenDetails};
pub use resource::Resource;
pub use revocation::{
    REVOCATION_MARGIN, Revocation, RevocationLimit, RevocationSet, is_revoked, revoke_principal, revoke_token,
};
pub use token::{Claims, Header, NewToken, TokenError, TokenIssueError, TokenText, inspect, issue, operator_token};
pub use verb::{Kind, Verb};

/// Allowed difference between the clock of a node and the clock of an issuer, in seconds (AU4).
pub const LEEWAY: u64 = 60;
/// Longest lifetime of a token by default, in seconds: 90 days (AU5).
pub const MAX_TOKEN_TTL: u64 = 90 * 24 * 3_600;
/// Largest size of a token.
pub const TOKEN_BYTES_MAX: usize = 8 * 1_024;
/// Largest number of grants of one principal.
pub const GRANTS_MAX: usize = 128;
/// Largest number of public keys of one issuer.
pub const KEYS_MAX: usize = 64;
/// Issuer of the tokens that the keys of the cluster sign.
pub const OWN_ISSUER: &str = "convoke";
