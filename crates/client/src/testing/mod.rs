//! For tests: a few real nodes in virtual time, and what a server does between them and the wire.

pub(crate) mod cluster;
pub(crate) mod convert;
