//! Primitive values as bytes: the codec of peer messages, log entries, snapshots and resume tokens.
//!
//! Integers are varints with one encoding per value; a length precedes strings and byte strings. No memory is reserved
//! for a count or length that exceeds the remaining bytes.

mod reader;
mod writer;

pub use reader::{COUNTER_MAX, CodecError, Reader};
pub use writer::Writer;

#[cfg(test)]
mod tests;
