//! The whole state as a sequence of frames (LH3).
//!
//! Taking a snapshot copies nothing (LH5), and apply continues while it is written. Frames are small, so neither side
//! needs the whole snapshot in memory. This module creates and checks bytes; it performs no I/O.

mod restore;
mod restore_coordination;
mod write;

pub use restore::{Restore, frame_bytes};
pub use write::Frames;

use crate::codec::CodecError;
use crate::id::Position;
use crate::level::Level;
use crate::machine::Machine;

/// Version of the snapshot format, stored in the first frame.
pub const SNAPSHOT_VERSION: u8 = 3;

/// Version of a snapshot of a log at level 1, whose bytes versions without levels can read (V4).
pub const SNAPSHOT_VERSION_FIRST_LEVEL: u8 = 2;

/// Size of the frame header: length and CRC32C of the content.
pub const FRAME_HEAD_BYTES: usize = 8;

/// Maximum size of the content of a frame. Enough for the largest session and record that the limits allow.
pub const FRAME_CONTENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A frame is closed once its content reaches this size.
const FRAME_CONTENT_BYTES: usize = 128 * 1024;

const MAGIC: &[u8; 7] = b"convoke";

/// Content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Head = 0,
    Sessions = 1,
    Ended = 2,
    Keys = 3,
    End = 4,
    Leases = 5,
    Locks = 6,
    Places = 7,
    History = 8,
}

/// The sections in the order of the snapshot.
const SECTIONS: [Section; 9] = [
    Section::Head,
    Section::Sessions,
    Section::Ended,
    Section::Keys,
    Section::Leases,
    Section::Locks,
    Section::Places,
    Section::History,
    Section::End,
];

impl Section {
    /// Whether a snapshot of a log at a level has the section.
    fn is_of_level(self, level: Level) -> bool {
        let is_new = matches!(self, Section::Leases | Section::Locks | Section::Places | Section::History);
        !is_new || level >= Level::COORDINATION
    }

    fn place(self) -> usize {
        SECTIONS.iter().position(|section| *section == self).unwrap_or(SECTIONS.len())
    }
}

/// A state to be written as a snapshot.
#[derive(Clone, Debug)]
pub struct Snapshot {
    machine: Machine,
}

impl Machine {
    /// Returns a snapshot of the current state without copying it.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { machine: write::as_written(self) }
    }

    /// Reads a complete snapshot from memory.
    pub fn from_snapshot(mut bytes: &[u8]) -> Result<Self, SnapshotError> {
        let mut restore = Restore::new();
        while !bytes.is_empty() {
            let head = bytes.first_chunk().ok_or(SnapshotError::Incomplete)?;
            let len = FRAME_HEAD_BYTES + frame_bytes(head)?;
            let (frame, rest) = bytes.split_at_checked(len).ok_or(SnapshotError::Incomplete)?;
            restore.frame(frame)?;
            bytes = rest;
        }
        restore.finish()
    }
}

impl Snapshot {
    /// Returns the position of the last entry in the snapshot.
    pub fn applied(&self) -> Position {
        self.machine.applied
    }

    pub fn state_hash(&self) -> u128 {
        self.machine.state_hash()
    }

    /// Returns the frames, created one by one.
    pub fn frames(&self) -> Frames<'_> {
        Frames::new(&self.machine)
    }

    /// Returns all frames in one buffer.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.frames().flatten().collect()
    }
}

/// Why a snapshot was rejected. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    #[error("a frame has {found} bytes of content; the limit is {limit}")]
    FrameTooLarge { found: usize, limit: usize },
    #[error("frame {frame} has a wrong checksum")]
    Checksum { frame: u64 },
    #[error("not a snapshot of a log")]
    Magic,
    #[error(transparent)]
    Content(#[from] CodecError),
    #[error("frame {frame} is out of order")]
    OutOfPlace { frame: u64 },
    #[error("{0} are out of order or duplicated")]
    Order(&'static str),
    #[error("{what} contradicts the first frame")]
    Contradiction { what: &'static str },
    #[error("the restored state does not match the hash in the snapshot")]
    Hash,
    #[error("the snapshot is incomplete")]
    Incomplete,
}

#[cfg(test)]
mod tests;
