//! Commands that talk to a running node.

mod connect;
mod explain;
mod maintain;
mod members;
mod nodes;
mod services;
mod status;

pub(crate) use explain::explain;
pub(crate) use maintain::{drain, forget, undrain};
pub(crate) use members::{member, members};
pub(crate) use nodes::nodes;
pub(crate) use services::services;
pub(crate) use status::status;
