//! Encoding of commands and state in log entries and snapshots: versioned, bounded, one encoding per value.
//!
//! Integers are varints, strings and byte strings are length-prefixed, maps are in key order. Nothing is allocated for
//! a count or length that exceeds the bytes present. Tags are added, never changed: old logs must stay readable.

mod command;
mod reader;
pub(crate) mod state;
mod writer;

pub use command::COMMAND_VERSION;
pub use reader::{CodecError, Reader};
pub use writer::Writer;

#[cfg(test)]
mod tests;
