//! Errors of a node that cannot start.

use convoke_core::ConfigError;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{name} is 0: set it to at least 1")]
    Zero { name: &'static str },
    #[error("link_queue_bytes is {value}; the frames of one exchange need at least {needed}")]
    LinkQueue { value: usize, needed: usize },
    #[error(
        "cannot listen for peers on {address}: {source} (choose another port with --peer-port, or another address with --bind)"
    )]
    Bind { address: String, source: std::io::Error },
    #[error("peers cannot dial {address}: set advertise to an address of this machine that peers can reach")]
    Advertise { address: String },
    #[error("data directory {path} is in use by another process: stop it, or give each node a directory of its own")]
    DataDirInUse { path: PathBuf },
    #[error(
        "data directory {path} belongs to node {found}, not to {id}: start with that id, or with another directory"
    )]
    DataDirOfAnother { path: PathBuf, found: String, id: String },
    #[error("{path} is damaged ({what}): remove the file; the node learns its last incarnation from its peers")]
    Damaged { path: PathBuf, what: &'static str },
    #[error("cannot {action} {path}: {source}")]
    Disk { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("the operating system returned no random numbers: {0}")]
    Randomness(getrandom::Error),
}
