//! A minimal HTTP/1.1 client: the load generator shares the machine with the measured nodes.

use super::super::members::PATIENCE;
use super::super::tls;
use convoke_cli::{CommandError, Result};
use convoke_proto::json::ErrorBody;
use convoke_proto::{Error, ErrorCode};
use convoke_tls::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    buffer: Vec<u8>,
    /// Consumed bytes of the buffer.
    taken: usize,
}

/// One request with a body in JSON, if any.
pub(super) fn request(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: node\r\ncontent-type: application/json\r\n{}content-length: {}\r\n\r\n",
        tls::authorization(),
        body.len()
    );
    [head.as_bytes(), body].concat()
}

impl Connection {
    pub(super) async fn open(address: &str) -> Result<Connection> {
        let unreachable =
            |cause: String| CommandError::unreachable(format!("cannot reach a node at {address}: {cause}"));
        let connecting = tokio::time::timeout(PATIENCE, TcpStream::connect(address));
        let socket = match connecting.await {
            Ok(socket) => socket.map_err(|error| unreachable(error.to_string()))?,
            Err(_) => return Err(unreachable(format!("no answer within {PATIENCE:?}"))),
        };
        socket.set_nodelay(true).map_err(|error| broken(&error))?;
        let stream = match tls::current() {
            Some(tls) => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                tls.connect(socket, host, "http/1.1").await.map_err(|error| unreachable(error.to_string()))?
            }
            None => Stream::Plain(socket),
        };
        Ok(Connection { stream, buffer: Vec::new(), taken: 0 })
    }

    /// Sends a request and waits for a successful answer.
    pub(super) async fn call(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        self.send(request).await?;
        Ok(self.receive().await??.to_vec())
    }

    pub(super) async fn send(&mut self, request: &[u8]) -> Result {
        self.stream.write_all(request).await.map_err(|error| broken(&error))?;
        self.stream.flush().await.map_err(|error| broken(&error))
    }

    /// The body of the next answer, or the error in it.
    pub(super) async fn receive(&mut self) -> Result<Result<&[u8], Error>> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        loop {
            if let Some((status, head, length)) = head(&self.buffer)?
                && self.buffer.len() >= head + length
            {
                self.taken = head + length;
                let body = &self.buffer[head..self.taken];
                return Ok(if (200..300).contains(&status) { Ok(body) } else { Err(error(status, body)) });
            }
            let count = self.stream.read_buf(&mut self.buffer).await.map_err(|error| broken(&error))?;
            if count == 0 {
                return Err(CommandError::failed("a node closed an HTTP connection"));
            }
        }
    }
}

/// A response of server-sent events.
#[derive(Debug)]
pub(super) struct Events {
    stream: Stream,
    /// Raw bytes, including the chunk sizes on lines of their own.
    buffer: Vec<u8>,
    taken: usize,
}

impl Events {
    pub(super) async fn open(address: &str, request: &[u8]) -> Result<Events> {
        let Connection { mut stream, .. } = Connection::open(address).await?;
        stream.write_all(request).await.map_err(|error| broken(&error))?;
        stream.flush().await.map_err(|error| broken(&error))?;
        Ok(Events { stream, buffer: Vec::new(), taken: 0 })
    }

    /// The name and the data of the next event.
    pub(super) async fn next(&mut self) -> Result<(&str, &str)> {
        loop {
            let rest = &self.buffer[self.taken..];
            // An event ends with an empty line; its data is one line and its last field.
            if let Some(end) = rest.windows(2).position(|two| two == b"\n\n") {
                let (from, to) = (self.taken, self.taken + end);
                self.taken = to + 2;
                if is_event(&self.buffer[from..to]) {
                    return event(&self.buffer[from..to]);
                }
                continue;
            }
            self.buffer.drain(..self.taken);
            self.taken = 0;
            let count = self.stream.read_buf(&mut self.buffer).await.map_err(|error| broken(&error))?;
            if count == 0 {
                return Err(CommandError::failed("a node ended a watch"));
            }
        }
    }
}

/// Whether it has data: a comment or an id alone has none.
fn is_event(bytes: &[u8]) -> bool {
    bytes.windows(7).any(|part| part == b"\ndata: ")
}

fn event(bytes: &[u8]) -> Result<(&str, &str)> {
    let text = std::str::from_utf8(bytes).map_err(|_| CommandError::failed("a node sent an event that is not text"))?;
    let field = |name: &str| text.split('\n').find_map(|line| line.strip_prefix(name));
    Ok((field("event: ").unwrap_or_default(), field("data: ").unwrap_or_default()))
}

/// Status, length of the head and length of the body, once the head is complete.
fn head(bytes: &[u8]) -> Result<Option<(u16, usize, usize)>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let strange = || CommandError::failed("a node sent a response that is not HTTP/1.1 with a length");
    let text = std::str::from_utf8(&bytes[..end]).map_err(|_| strange())?;
    let status = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok()).ok_or_else(strange)?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    // 204 has no body and no length.
    let length = if status == 204 { Some(0) } else { length };
    Ok(Some((status, end + 4, length.ok_or_else(strange)?)))
}

fn error(status: u16, body: &[u8]) -> Error {
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) => body.error,
        Err(_) => Error::new(ErrorCode::Internal, format!("status {status} without an error")),
    }
}

fn broken(error: &std::io::Error) -> CommandError {
    CommandError::failed(format!("an HTTP connection to a node broke: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[test]
    fn answers_are_separated() {
        assert_eq!(head(b"HTTP/1.1 200 OK\r\nContent-").unwrap(), None);
        let answer = b"HTTP/1.1 200 OK\r\nx: y\r\nContent-Length: 12\r\n\r\n{";
        assert_eq!(head(answer).unwrap(), Some((200, answer.len() - 1, 12)));
        assert_eq!(head(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap(), Some((204, 27, 0)));
        assert!(head(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
        assert!(head(b"SSH-2.0\r\n\r\n").is_err());
    }

    #[test]
    fn events_are_read_between_the_sizes_of_chunks() {
        assert_eq!(event(b"\r\n1f\r\nevent: update\nid: x\ndata: {}").unwrap(), ("update", "{}"));
        assert!(is_event(b"event: update\nid: x\ndata: {}") && !is_event(b": still here") && !is_event(b"id: x"));
    }

    #[test]
    fn errors_are_read() {
        let body = br#"{"error":{"code":"SESSION_GONE","message":"gone"}}"#;
        assert_eq!(error(404, body).code, ErrorCode::SessionGone);
        assert_eq!(error(502, b"<html>").code, ErrorCode::Internal);
    }
}
