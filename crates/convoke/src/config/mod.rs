//! Configuration: a file, then the environment, then flags; one table of keys for all three, for printing and for the docs.

mod build;
mod file;
pub(crate) mod keys;
mod load;
pub(crate) mod print;
mod settings;
mod suggest;
pub(crate) mod value;

pub(crate) use build::{LOG_DIRECTORY, Parts, build, part_ports};
pub(crate) use load::{Flag, Loaded};
pub(crate) use settings::{LogFormat, Settings};
