//! Code that tests and simulators share. No crate that users run depends on it.
//!
//! - [`history`] records the calls and answers of clients and checks that they are linearizable.
//! - [`seeds`] runs many seeds on all cores and keeps panics as findings.

pub mod history;
pub mod seeds;
