//! How frames are told apart on a connection.
//!
//! The dialer begins with eight bytes that say which plane the connection is for. Then, in both directions, every frame
//! is preceded by its length as four bytes, little-endian.

use bytes::{Buf, Bytes, BytesMut};

/// First bytes of a connection of the registry plane.
pub(super) const PREAMBLE: [u8; 8] = *b"CONVOKER";
/// First bytes of a connection of the log plane, which is none of this crate's business.
pub(super) const LOG_PREAMBLE: [u8; 8] = *b"CONVOKEL";
pub(super) const PREFIX_BYTES: usize = 4;
/// How much is made room for at a time: a length is only believed as far as bytes follow it.
const RESERVE_BYTES: usize = 256 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {found} bytes, at most {limit} are allowed")]
pub(super) struct FrameTooLarge {
    pub(super) found: usize,
    pub(super) limit: usize,
}

/// Takes the next complete frame out of what was read; if there is none yet, makes room for more of it.
pub(super) fn next_frame(buffer: &mut BytesMut, limit: usize) -> Result<Option<Bytes>, FrameTooLarge> {
    let Some(prefix) = buffer.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes(*prefix) as usize;
    if length > limit {
        return Err(FrameTooLarge { found: length, limit });
    }
    let missing = (PREFIX_BYTES + length).saturating_sub(buffer.len());
    if missing > 0 {
        buffer.reserve(missing.min(RESERVE_BYTES));
        return Ok(None);
    }
    buffer.advance(PREFIX_BYTES);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// The prefix of a frame. The core's frames are far below 4 GiB.
pub(super) fn prefix(frame: &Bytes) -> [u8; PREFIX_BYTES] {
    u32::try_from(frame.len()).unwrap_or(u32::MAX).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_in_any_pieces() {
        let frames: [&[u8]; 4] = [b"one", b"", b"three", &[7; 700]];
        let mut sent = Vec::new();
        for frame in frames {
            sent.extend(prefix(&Bytes::copy_from_slice(frame)));
            sent.extend(frame);
        }
        for piece in [1, 2, 3, 5, 64, 10_000] {
            let (mut buffer, mut found) = (BytesMut::new(), Vec::new());
            for bytes in sent.chunks(piece) {
                buffer.extend_from_slice(bytes);
                while let Ok(Some(frame)) = next_frame(&mut buffer, 1000) {
                    found.push(frame);
                }
            }
            assert_eq!(found, frames, "in pieces of {piece}");
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_room_is_made() {
        let mut buffer = BytesMut::from(&u32::MAX.to_le_bytes()[..]);
        let capacity = buffer.capacity();
        assert_eq!(next_frame(&mut buffer, 1000), Err(FrameTooLarge { found: u32::MAX as usize, limit: 1000 }));
        assert_eq!(buffer.capacity(), capacity);
        let mut buffer = BytesMut::from(&4_000_000u32.to_le_bytes()[..]);
        assert_eq!(next_frame(&mut buffer, 4 << 20), Ok(None));
        assert!(buffer.capacity() < 2 * RESERVE_BYTES, "{}", buffer.capacity());
    }
}
