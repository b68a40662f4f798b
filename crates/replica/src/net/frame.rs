//! Frames between replicas: length, checksum, kind, number, content.
//!
//! The number of an answer is that of its question. A length is checked before room is made for it, the checksum before
//! anything is believed: what arrives is going to be stored under a checksum of its own.

use bytes::{Buf, Bytes, BytesMut};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// First bytes of a connection of the log plane, sent by the dialer.
pub const PREAMBLE: [u8; 8] = *b"CONVOKEL";

/// Length and checksum.
const HEAD_BYTES: usize = 8;
/// Kind and number.
const KEY_BYTES: usize = 9;
/// How much is made room for at a time: a length is only believed as far as bytes follow it.
const RESERVE_BYTES: usize = 256 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) number: u64,
    pub(crate) content: Bytes,
}

/// Why the bytes on a connection are not taken for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a frame of {found} bytes, at most {limit} are allowed")]
    TooLarge { found: usize, limit: usize },
    #[error("a frame of {0} bytes is too short to be one")]
    TooShort(usize),
    #[error("the checksum of a frame is wrong")]
    Checksum,
}

/// Puts a frame behind what is waiting to be written.
pub(crate) fn put(buffer: &mut BytesMut, kind: u8, number: u64, content: &[u8]) {
    let length = u32::try_from(KEY_BYTES + content.len()).expect("frames are within the limit, which is below 4 GiB");
    buffer.reserve(HEAD_BYTES + KEY_BYTES + content.len());
    buffer.extend_from_slice(&length.to_le_bytes());
    let checksum = crc32c::crc32c_append(key_checksum(kind, number), content);
    buffer.extend_from_slice(&checksum.to_le_bytes());
    buffer.extend_from_slice(&[kind]);
    buffer.extend_from_slice(&number.to_le_bytes());
    buffer.extend_from_slice(content);
}

fn key_checksum(kind: u8, number: u64) -> u32 {
    let mut key = [0; KEY_BYTES];
    key[0] = kind;
    key[1..].copy_from_slice(&number.to_le_bytes());
    crc32c::crc32c(&key)
}

/// Takes the next complete frame out of what was read; if there is none yet, makes room for more of it.
pub(crate) fn next(buffer: &mut BytesMut, limit: usize) -> Result<Option<Frame>, FrameError> {
    let Some(head) = buffer.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let [a, b, c, d, e, f, g, h] = *head;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    let checksum = u32::from_le_bytes([e, f, g, h]);
    if length > limit {
        return Err(FrameError::TooLarge { found: length, limit });
    }
    if length < KEY_BYTES {
        return Err(FrameError::TooShort(length));
    }
    let missing = (HEAD_BYTES + length).saturating_sub(buffer.len());
    if missing > 0 {
        buffer.reserve(missing.min(RESERVE_BYTES));
        return Ok(None);
    }
    buffer.advance(HEAD_BYTES);
    let mut frame = buffer.split_to(length).freeze();
    if crc32c::crc32c(&frame) != checksum {
        return Err(FrameError::Checksum);
    }
    let kind = frame.get_u8();
    let number = frame.get_u64_le();
    Ok(Some(Frame { kind, number, content: frame }))
}

/// Reads frames from a connection.
#[derive(Debug)]
pub(crate) struct Frames<R> {
    stream: R,
    buffer: BytesMut,
    limit: usize,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(crate) fn new(stream: R, limit: usize) -> Self {
        Frames { stream, buffer: BytesMut::new(), limit }
    }

    /// The next frame; `None` when the connection has ended. Nothing is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            let found = next(&mut self.buffer, self.limit);
            if let Some(frame) = found.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                return Ok(Some(frame));
            }
            if self.buffer.capacity() - self.buffer.len() < 4096 {
                self.buffer.reserve(64 * 1024);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_in_any_pieces_and_damage_is_noticed() {
        let mut sent = BytesMut::new();
        put(&mut sent, 1, 7, b"one");
        put(&mut sent, 2, u64::MAX, b"");
        put(&mut sent, 3, 0, &[7; 700]);
        for piece in [1, 2, 5, 64, 10_000] {
            let (mut buffer, mut found) = (BytesMut::new(), Vec::new());
            for bytes in sent.chunks(piece) {
                buffer.extend_from_slice(bytes);
                while let Some(frame) = next(&mut buffer, 1000).unwrap() {
                    found.push((frame.kind, frame.number, frame.content.len()));
                }
            }
            assert_eq!(found, [(1, 7, 3), (2, u64::MAX, 0), (3, 0, 700)], "in pieces of {piece}");
        }
        for bit in 0..8 * (HEAD_BYTES + KEY_BYTES + 3) {
            let mut damaged = sent.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let found = next(&mut damaged, 1000);
            assert!(!matches!(found, Ok(Some(_))), "bit {bit}: {found:?}");
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_room_is_made() {
        let mut buffer = BytesMut::from(&[0xff; 8][..]);
        assert_eq!(next(&mut buffer, 1000), Err(FrameError::TooLarge { found: u32::MAX as usize, limit: 1000 }));
        let mut buffer = BytesMut::from(&[0; 8][..]);
        assert_eq!(next(&mut buffer, 1000), Err(FrameError::TooShort(0)));
    }
}
