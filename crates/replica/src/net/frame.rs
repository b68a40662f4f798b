//! Messages between replicas, as the content of frames ([`convoke_base::framing`]): kind, number, body.
//!
//! A response carries the number of its request.

use bytes::{Buf, Bytes, BytesMut};
use convoke_base::framing::{FrameError, HEADER_BYTES, header, next_frame};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Kind and number.
const KEY_BYTES: usize = 9;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) number: u64,
    pub(crate) content: Bytes,
}

/// Why the bytes on a connection are not messages of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MessageError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("a frame has {0} bytes, fewer than a message needs")]
    TooShort(usize),
}

/// Appends a message to the bytes that wait to be written.
pub(crate) fn put(buffer: &mut BytesMut, kind: u8, number: u64, content: &[u8]) {
    let mut key = [0; KEY_BYTES];
    key[0] = kind;
    key[1..].copy_from_slice(&number.to_le_bytes());
    buffer.reserve(HEADER_BYTES + KEY_BYTES + content.len());
    buffer.extend_from_slice(&header(&[&key, content]));
    buffer.extend_from_slice(&key);
    buffer.extend_from_slice(content);
}

/// Removes the next complete message from the front of `buffer`.
pub(crate) fn next(buffer: &mut BytesMut, limit: usize) -> Result<Option<Frame>, MessageError> {
    let Some(mut frame) = next_frame(buffer, limit)? else { return Ok(None) };
    if frame.len() < KEY_BYTES {
        return Err(MessageError::TooShort(frame.len()));
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
    fn messages_arrive_in_any_pieces() {
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
    }

    #[test]
    fn a_frame_that_is_too_short_for_a_message_is_rejected() {
        let mut buffer = BytesMut::new();
        buffer.extend_from_slice(&header(&[b"12345678"]));
        buffer.extend_from_slice(b"12345678");
        assert_eq!(next(&mut buffer, 1000), Err(MessageError::TooShort(8)));
    }
}
