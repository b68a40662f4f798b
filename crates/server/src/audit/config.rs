//! Settings of the audit log.

use std::io;
use std::path::PathBuf;

/// Settings of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    pub target: AuditTarget,
    /// Size at which a file is rotated.
    pub max_bytes: u64,
    /// Files that are kept, with the current one.
    pub files: usize,
}

/// Where the lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditTarget {
    File(PathBuf),
    Stdout,
}

impl AuditConfig {
    /// Size of a file by default: 64 MiB.
    pub const MAX_BYTES: u64 = 64 * 1024 * 1024;
    /// Files by default.
    pub const FILES: usize = 8;

    pub fn new(target: AuditTarget) -> AuditConfig {
        AuditConfig { target, max_bytes: AuditConfig::MAX_BYTES, files: AuditConfig::FILES }
    }
}

/// The audit log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the audit log {}: {source} (set audit.file to a file that the node can write)", path.display())]
pub struct AuditError {
    pub(super) path: PathBuf,
    pub(super) source: io::Error,
}
