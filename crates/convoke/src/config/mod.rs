//! Configuration from a file, the environment and flags, with one table of keys for all of them and for the reference.

mod build;
mod file;
pub(crate) mod keys;
mod load;
pub(crate) mod print;
mod secure;
mod settings;
mod suggest;
mod value;

pub(crate) use build::{LOG_DIRECTORY, Parts, build, resolve_port_conflicts};
pub(crate) use load::{Flag, Loaded};
pub(crate) use settings::{DEV_CONSUL_PORT, LogFormat, Settings};
