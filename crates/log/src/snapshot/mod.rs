//! The whole state as a sequence of frames (LH3).
//!
//! Taking a snapshot copies nothing (LH5); writing it goes on beside applying. Frames are small, so neither side needs the
//! whole in memory. This module makes and checks bytes; it does not know where they go.

mod restore;
mod write;

pub use restore::{Restore, frame_bytes};
pub use write::Frames;

use crate::codec::CodecError;
use crate::id::Position;
use crate::machine::Machine;

/// Version of the form of snapshots, named in the first frame.
pub const SNAPSHOT_VERSION: u8 = 1;

/// Length and CRC32C before the content of each frame.
pub const FRAME_HEAD_BYTES: usize = 8;

/// No frame has more content than this. Enough for the largest session and the largest record that limits may allow.
pub const FRAME_CONTENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A frame is closed once it has this much content.
const FRAME_CONTENT_BYTES: usize = 128 * 1024;

const MAGIC: &[u8; 7] = b"convoke";

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    Head = 0,
    Sessions = 1,
    Ended = 2,
    Keys = 3,
    End = 4,
}

/// A state to be written.
#[derive(Clone, Debug)]
pub struct Snapshot {
    machine: Machine,
}

impl Machine {
    /// The state as it is now, in next to no time. Writing it is what takes long.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { machine: write::as_written(self) }
    }

    /// Reads a whole snapshot that is in memory.
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
    /// The last entry in it.
    pub fn applied(&self) -> Position {
        self.machine.applied
    }

    pub fn state_hash(&self) -> u128 {
        self.machine.state_hash()
    }

    /// The frames, made one by one.
    pub fn frames(&self) -> Frames<'_> {
        Frames::new(&self.machine)
    }

    /// All frames at once, for those that have the room.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.frames().flatten().collect()
    }
}

/// Why a snapshot was refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    #[error("a frame has {found} bytes of content, at most {limit} are allowed")]
    FrameTooLarge { found: usize, limit: usize },
    #[error("the checksum of frame {frame} is wrong")]
    Checksum { frame: u64 },
    #[error("it is not a snapshot of a log")]
    Magic,
    #[error(transparent)]
    Content(#[from] CodecError),
    #[error("frame {frame} is out of place")]
    OutOfPlace { frame: u64 },
    #[error("{0} are out of order, or there are two alike")]
    Order(&'static str),
    #[error("{what} contradicts the first frame")]
    Contradiction { what: &'static str },
    #[error("the restored state does not have the hash that the snapshot names")]
    Hash,
    #[error("it ends too early")]
    Incomplete,
}

#[cfg(test)]
mod tests;
