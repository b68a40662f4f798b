//! Why a node cannot start.

use convoke_core::ConfigError;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{name} is 0: set it to at least 1")]
    Zero { name: &'static str },
    #[error("link_queue_bytes is {value}, too small for what is sent unasked: set it to at least {needed}")]
    LinkQueue { value: usize, needed: usize },
    #[error(
        "cannot listen for peers on {address}: {source}; is another node running there? choose another bind address or port"
    )]
    Bind { address: String, source: std::io::Error },
    #[error("peers cannot dial {address}: set advertise to an address of this machine that they can reach")]
    Advertise { address: String },
    #[error("data directory {path} is in use by another process: stop it, or give each node a directory of its own")]
    DataDirInUse { path: PathBuf },
    #[error(
        "data directory {path} belongs to node {found}, not to {id}: start with that id, or with another directory"
    )]
    DataDirOfAnother { path: PathBuf, found: String, id: String },
    #[error("{path} is damaged ({what}): remove it; peers know the last incarnation")]
    Damaged { path: PathBuf, what: &'static str },
    #[error("cannot {action} {path}: {source}")]
    Disk { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("the system gives no random numbers: {0}")]
    Randomness(getrandom::Error),
}
