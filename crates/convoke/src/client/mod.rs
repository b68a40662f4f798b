//! Commands that send requests to a node.

mod child;
mod coordination;
mod emptied;
mod explain;
mod import;
mod log;
mod maintain;
mod members;
mod nodes;
mod register;
mod service;
mod services;
mod status;
mod watch;

pub(crate) use coordination::{elect, lease, lock};
pub(crate) use explain::explain;
pub(crate) use import::import;
pub(crate) use log::{kv, log};
pub(crate) use maintain::{declare_first, drain, forget, undrain};
pub(crate) use members::{member, members};
pub(crate) use nodes::nodes;
pub(crate) use register::register;
pub(crate) use service::service;
pub(crate) use services::services;
pub(crate) use status::status;
pub(crate) use watch::watch;
