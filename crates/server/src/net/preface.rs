//! Detects HTTP/2 with prior knowledge (gRPC, h2c) or HTTP/1.1 from the first bytes of a connection.

use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// The bytes that were read to detect the protocol. They are part of the connection and must be replayed.
#[derive(Debug)]
pub(super) struct First {
    pub(super) protocol: Protocol,
    bytes: [u8; PREFACE.len()],
    len: usize,
}

impl First {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Reads until the protocol is clear. The end of the stream is an error.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<First> {
    let mut first = First { protocol: Protocol::Http2, bytes: [0; PREFACE.len()], len: 0 };
    while first.len < PREFACE.len() {
        let count = stream.read(&mut first.bytes[first.len..]).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        first.len += count;
        if !PREFACE.starts_with(first.bytes()) {
            first.protocol = Protocol::Http1;
            break;
        }
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[tokio::test]
    async fn the_first_bytes_select_the_protocol() {
        for (bytes, expected) in [
            (&b"GET / HTTP/1.1\r\n"[..], Protocol::Http1),
            (&b"PUT /x HTTP/1.1\r\n"[..], Protocol::Http1),
            (PREFACE, Protocol::Http2),
        ] {
            let first = read(&mut &*bytes).await.unwrap();
            assert_eq!(first.protocol, expected);
            assert!(bytes.starts_with(first.bytes()));
        }
        assert!(read(&mut &b"PRI * HT"[..]).await.is_err());
        assert!(read(&mut &b""[..]).await.is_err());
    }
}
