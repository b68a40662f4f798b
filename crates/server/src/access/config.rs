//! Settings of access control.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of access control. Without them every caller may do everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthConfig {
    /// Id of the cluster: the audience of its tokens.
    pub cluster: String,
    /// Directory of the public keys, `*.pub`. It is read again when it changes.
    pub keys: PathBuf,
    /// Policy file for tokens of other issuers and for client certificates. It is read again when it changes.
    pub policy: Option<PathBuf>,
    /// Grants of callers without credentials.
    pub anonymous: Vec<String>,
    /// Longest lifetime of a token.
    pub max_token_ttl: Duration,
    /// File with the token that this node shows to other nodes when they do not use TLS.
    pub node_token: Option<PathBuf>,
    /// File that keeps the revocations of the cluster over a restart.
    pub revocations: Option<PathBuf>,
}
