//! Primitive values as bytes: the codec of peer messages, log entries, snapshots and resume tokens.
//!
//! Integers are varints with one encoding per value; strings and byte strings have their length in front. Nothing is allocated
//! for a count or length that the bytes at hand could not hold.

mod reader;
mod writer;

pub use reader::{COUNTER_MAX, CodecError, Reader};
pub use writer::Writer;

#[cfg(test)]
mod tests;
