//! Encoding of commands and state in log entries and snapshots: versioned, bounded, one encoding per value.
//!
//! Integers are varints, strings and byte strings are length-prefixed, maps are in key order. Nothing is allocated for
//! a count or length that exceeds the bytes present. Tags are added, never changed: old logs must stay readable.

use crate::id::{Epoch, ReplicaId};

mod command;
pub(crate) mod coordination;
pub(crate) mod coordination_state;
mod outcome;
pub(crate) mod state;
mod txn;

pub use command::COMMAND_VERSION;
pub use convoke_base::codec::{CodecError, Reader, Writer};
pub(crate) use coordination::encode_lock_event;

pub fn put_epoch(w: &mut Writer, epoch: Epoch) {
    w.varint(epoch.term);
    w.varint(epoch.leader.0);
}

pub fn epoch(r: &mut Reader<'_>) -> Result<Epoch, CodecError> {
    let term = r.counter("epoch.term")?;
    Ok(Epoch { term, leader: ReplicaId(r.varint("epoch.leader")?) })
}

#[cfg(test)]
mod tests;
