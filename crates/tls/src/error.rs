//! Errors. Each names what is wrong and what to do.

use crate::identity::{Identity, InvalidIdentity};
use std::io;
use std::path::PathBuf;

/// Why certificates and keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {what} {}: {source}", path.display())]
    Read { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{}: {error}", path.display())]
    Material { path: PathBuf, error: MaterialError },
    #[error("TLS needs {0}: set tls.ca, tls.cert and tls.key, or write them with `convoke init`")]
    Missing(&'static str),
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
    #[error("{host:?} is not a host name or an address")]
    Host { host: String },
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MaterialError {
    #[error("it contains no certificate in PEM (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    #[error("it contains no private key in PEM (-----BEGIN PRIVATE KEY-----)")]
    NoKey,
    #[error("it is not valid PEM")]
    Pem,
    #[error("it contains {count} certificates, and {limit} is the limit")]
    TooMany { count: usize, limit: usize },
    #[error("its certificate {number} cannot be read")]
    Unreadable { number: usize },
    #[error("its certificate {subject:?} is not that of a certificate authority (CA:TRUE)")]
    NotAnAuthority { subject: String },
    #[error("its key is of a kind that is not supported: use ECDSA P-256, ECDSA P-384, Ed25519 or RSA")]
    UnsupportedKey,
    #[error("the key does not belong to the certificate: issue both again with `convoke tls issue`")]
    KeyMismatch,
    #[error("the certificate expired at {at}: renew it with `convoke tls renew`")]
    Expired { at: String },
    #[error("the certificate is not valid before {at}: check the clock of this machine")]
    NotYetValid { at: String },
    #[error("no certificate authority in the ca file has signed this certificate: {why}")]
    Untrusted { why: String },
    #[error(transparent)]
    Identity(#[from] InvalidIdentity),
    #[error(
        "the certificate belongs to {found}, and this node is {expected}: issue one for it with `convoke tls issue`"
    )]
    OfAnother { found: Box<Identity>, expected: Box<Identity> },
}

/// Why a connection was refused.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    #[error("it does not use TLS, and this port requires it")]
    Plain,
    #[error("it uses TLS, which is off on this port")]
    Tls,
    #[error("the TLS handshake failed: {0}")]
    Failed(io::Error),
    #[error("the TLS handshake took too long")]
    TimedOut,
    #[error("too many TLS handshakes are in progress")]
    Displaced,
    #[error("its certificate belongs to {found}, not to node {expected}")]
    OtherNode { found: Identity, expected: String },
    #[error("{address} is known to use TLS and answered without it: the connection does not fall back")]
    NoFallback { address: String },
    #[error(transparent)]
    Connection(#[from] io::Error),
}

impl HandshakeError {
    /// The error for code that expects errors of a socket.
    pub fn into_io(self) -> io::Error {
        match self {
            HandshakeError::Connection(error) => error,
            HandshakeError::TimedOut => io::Error::new(io::ErrorKind::TimedOut, self),
            error => io::Error::new(io::ErrorKind::PermissionDenied, error),
        }
    }
}
