//! The wire format of peer messages: versioned, bounded, and validated before anything is allocated or changed (P7).
//!
//! Integers are varints; strings are length-prefixed; every frame that carries records has one table of its origins
//! and clients. Decoding borrows from the frame: a message is checked to its last byte before the first record is
//! applied.

mod checks;
mod items;
mod message;

pub use convoke_base::codec::CodecError;
pub(crate) use convoke_base::codec::{COUNTER_MAX, Reader, Writer};
pub(crate) use items::{
    EvidenceItem, InferredItem, Item, Items, ItemsWriter, MaintenanceItem, RecordItem, decode_origin, encode_origin,
};
pub(crate) use message::{
    Chunk, Context, Hello, LinkState, Message, Ping, REVOCATIONS_PER_FRAME, RejectReason, decode_clock, encode_clock,
};

/// Version of this format, sent in every Hello. Peers of another version are rejected.
pub const PROTOCOL_VERSION: u32 = 6;

/// Hard bounds of the format; no configuration may allow more.
pub(crate) const TEXT_BYTES_MAX: u64 = 64 * 1024;
pub(crate) const ID_BYTES_MAX: u64 = 1024;
pub(crate) const ADDRESS_BYTES_MAX: u64 = 1024;
pub(crate) const PAIRS_MAX: u64 = 4 * 1024;

/// Claims, sequences and counters above these cannot be reached by counting; they are rejected as hostile.
pub(crate) const MAX_CLAIM: u64 = 1 << 48;

/// Highest claim floor. Records may carry higher claims: the floor of all other keys stays below, so that one client
/// cannot use up the claims of everybody.
pub(crate) const CLAIM_FLOOR_MAX: u64 = MAX_CLAIM / 2;

pub(crate) const MAX_DRAIN: u32 = u32::MAX / 2;

/// The next owner of a member increments its sequence and its drain counter. Received values are therefore accepted
/// only up to half of the range: the other half cannot be used up by counting. Values above the range could not be
/// encoded.
pub(crate) const SEQ_MAX: u64 = 2 * crate::version::MAX_SEQ_TAKEN;
pub(crate) const MAX_DRAIN_TAKEN: u32 = MAX_DRAIN / 2;

/// The claim with which a node outranks another. At the maximum it stays the same: peers would reject a higher one,
/// and the sequence decides then (D3).
pub(crate) fn next_claim(claim: u64) -> u64 {
    claim.saturating_add(1).min(MAX_CLAIM)
}

#[cfg(test)]
mod tests;
