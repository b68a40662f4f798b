//! The settings of a listener.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Whether a listener uses TLS (TS5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Connections are not encrypted.
    #[default]
    Off,
    /// Both kinds of connection are accepted: the state between the other two. Only for the conversion of a cluster.
    Optional,
    /// Every connection uses TLS.
    Required,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Optional => "optional",
            Mode::Required => "required",
        }
    }

    pub fn is_on(self) -> bool {
        self != Mode::Off
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether the client port asks clients for a certificate. Peers always need one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificates {
    /// The node asks for none, and learns nothing about the client from the connection.
    Off,
    /// A client may present one. It must be valid.
    #[default]
    Request,
    /// A connection without a valid one is refused.
    Require,
}
