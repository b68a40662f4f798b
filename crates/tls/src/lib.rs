//! TLS of Convoke: identities in certificates, checked files, connections, and a small certificate authority.
//!
//! The rules (TS1 …) are in `docs/security-protocol.md`. Files are read and sockets are opened by [`NodeTls`] and
//! [`ClientTls`]; what they decide is in functions of bytes, times and names.

mod authority;
mod client;
mod counters;
mod error;
mod expiry;
mod files;
mod identity;
mod material;
mod mode;
mod node;
mod pending;
mod reload;
mod stream;
mod trust;
mod verify;

pub use authority::{CertificateAuthority, CertificateRequest, IssueError, Issued, Validity};
pub use client::ClientTls;
pub use counters::TlsCounters;
pub use error::{HandshakeError, MaterialError, TlsError};
pub use expiry::{CertificateExpiry, Urgency};
pub use files::{Files, create_private_dir, write_private, write_public};
pub use identity::{Identity, IdentityRole, InvalidIdentity};
pub use material::{CertificateInfo, inspect};
pub use mode::{ClientCertificates, Mode};
pub use node::{Accepted, DialTarget, NodeTls, Settings, TlsStatus};
pub use pending::PendingHandshakes;
pub use stream::{ReadHalf, Stream, WriteHalf};
pub use trust::Watched;
pub use verify::AnyCertificate;
