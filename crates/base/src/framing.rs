//! Frames on a connection between nodes.
//!
//! The dialer begins with a [`Preamble`], which identifies the plane of the connection. Then, in both directions, every frame
//! is a header (length of the content and its CRC32C, four bytes each, little-endian) followed by the content. A length
//! is checked before memory is reserved for it. The checksum is checked before the content is decoded: TCP's own
//! checksum misses errors that proxies and faulty hardware introduce, and one wrong record would replicate to every
//! node.

use bytes::{Buf, Bytes, BytesMut};

/// The first bytes of a connection. They identify its plane; each plane has its own.
pub type Preamble = [u8; 8];

/// The beginning of every preamble. Connections that begin otherwise are not from a Convoke node.
pub const PREAMBLE_PREFIX: &[u8] = b"CONVOKE";

/// Length and checksum.
pub const HEADER_BYTES: usize = 8;

/// Memory reserved at a time: a sender may announce a length and never send the bytes.
const RESERVE_BYTES: usize = 256 * 1024;

/// The reason why bytes on a connection are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame has {found} bytes; the limit is {limit}")]
    TooLarge { found: usize, limit: usize },
    #[error("a frame has a wrong checksum")]
    Checksum,
}

/// Returns the header of a frame whose content is the concatenation of `parts`.
///
/// # Panics
/// If the content has 4 GiB or more. The limits of messages are much lower.
pub fn header(parts: &[&[u8]]) -> [u8; HEADER_BYTES] {
    let length = u32::try_from(parts.iter().map(|part| part.len()).sum::<usize>()).expect("frames are below 4 GiB");
    let checksum = parts.iter().fold(0, |checksum, part| crc32c::crc32c_append(checksum, part));
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// Removes the next complete frame from the front of `buffer` and returns its content.
///
/// Returns `None` and reserves memory if the frame is not complete yet.
pub fn next_frame(buffer: &mut BytesMut, limit: usize) -> Result<Option<Bytes>, FrameError> {
    let Some(&[a, b, c, d, e, f, g, h]) = buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    let checksum = u32::from_le_bytes([e, f, g, h]);
    if length > limit {
        return Err(FrameError::TooLarge { found: length, limit });
    }
    let missing = (HEADER_BYTES + length).saturating_sub(buffer.len());
    if missing > 0 {
        buffer.reserve(missing.min(RESERVE_BYTES));
        return Ok(None);
    }
    buffer.advance(HEADER_BYTES);
    let content = buffer.split_to(length).freeze();
    if crc32c::crc32c(&content) != checksum {
        return Err(FrameError::Checksum);
    }
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(contents: &[&[u8]]) -> BytesMut {
        let mut sent = BytesMut::new();
        for content in contents {
            sent.extend_from_slice(&header(&[content]));
            sent.extend_from_slice(content);
        }
        sent
    }

    #[test]
    fn frames_arrive_in_any_pieces() {
        let contents: [&[u8]; 4] = [b"one", b"", b"three", &[7; 700]];
        let sent = frames(&contents);
        for piece in [1, 2, 3, 5, 64, 10_000] {
            let (mut buffer, mut found) = (BytesMut::new(), Vec::new());
            for bytes in sent.chunks(piece) {
                buffer.extend_from_slice(bytes);
                while let Ok(Some(frame)) = next_frame(&mut buffer, 1000) {
                    found.push(frame);
                }
            }
            assert_eq!(found, contents, "in pieces of {piece}");
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let sent = frames(&[b"content"]);
        for bit in 0..8 * sent.len() {
            let mut damaged = sent.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let found = next_frame(&mut damaged, 1000);
            assert!(!matches!(found, Ok(Some(_))), "bit {bit}: {found:?}");
        }
    }

    #[test]
    fn a_header_covers_content_in_parts() {
        assert_eq!(header(&[b"con", b"", b"tent"]), header(&[b"content"]));
    }

    #[test]
    fn a_length_beyond_the_limit_is_rejected_before_memory_is_reserved() {
        let mut buffer = BytesMut::from(&[0xff; HEADER_BYTES][..]);
        let capacity = buffer.capacity();
        let limit = 1000;
        assert_eq!(next_frame(&mut buffer, limit), Err(FrameError::TooLarge { found: u32::MAX as usize, limit }));
        assert_eq!(buffer.capacity(), capacity);
        let mut buffer = BytesMut::from(&4_000_000u64.to_le_bytes()[..]);
        assert_eq!(next_frame(&mut buffer, 4 << 20), Ok(None));
        assert!(buffer.capacity() < 2 * RESERVE_BYTES, "{}", buffer.capacity());
    }
}
