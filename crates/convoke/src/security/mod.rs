//! `convoke init` and `convoke tls`: certificates, keys and ready configurations.

mod directory;
mod init;
mod issue;
mod nodes;

pub(crate) use init::init;
pub(crate) use issue::tls;
