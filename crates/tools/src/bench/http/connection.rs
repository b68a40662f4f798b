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
    /// Body of the last answer, if it came in chunks.
    body: Vec<u8>,
    /// `X-Consul-Index` of the last answer.
    index: Option<u64>,
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
        Ok(Connection { stream, buffer: Vec::new(), taken: 0, body: Vec::new(), index: None })
    }

    /// Sends a request and waits for a successful answer.
    pub(super) async fn call(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        self.send(request).await?;
        Ok(self.receive().await??.to_vec())
    }

    /// `X-Consul-Index` of the last answer.
    pub(super) fn index(&self) -> Option<u64> {
        self.index
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
            if let Some(head) = head(&self.buffer)?
                && let Some((body, end)) = head.body(&self.buffer)?
            {
                self.taken = end;
                self.index = head.index;
                self.body = body;
                return Ok(if (200..300).contains(&head.status) {
                    Ok(&self.body)
                } else {
                    Err(error(head.status, &self.body))
                });
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

/// The head of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// Where the body begins.
    end: usize,
    /// Length of the body; `None` if it comes in chunks.
    length: Option<usize>,
    index: Option<u64>,
}

fn strange() -> CommandError {
    CommandError::failed("a node sent a response that is not HTTP/1.1 with a length or chunks")
}

/// The head, once it is complete.
fn head(bytes: &[u8]) -> Result<Option<Head>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..end]).map_err(|_| strange())?;
    let status = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok()).ok_or_else(strange)?;
    let field = |wanted: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
    };
    let in_chunks = field("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
    let length = match field("content-length").map(str::parse) {
        Some(Ok(length)) => Some(length),
        // 204 has no body and no length.
        None if status == 204 => Some(0),
        None if in_chunks => None,
        Some(Err(_)) | None => return Err(strange()),
    };
    Ok(Some(Head { status, end: end + 4, length, index: field("x-consul-index").and_then(|index| index.parse().ok()) }))
}

impl Head {
    /// The body and where it ends, once it is complete.
    fn body(&self, bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>> {
        if let Some(length) = self.length {
            let end = self.end + length;
            return Ok(bytes.get(self.end..end).map(|body| (body.to_vec(), end)));
        }
        let (mut body, mut at) = (Vec::new(), self.end);
        loop {
            let Some(line) = bytes[at..].windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
            let size = std::str::from_utf8(&bytes[at..at + line]).ok();
            let size = size.and_then(|size| usize::from_str_radix(size, 16).ok()).ok_or_else(strange)?;
            let begin = at + line + 2;
            // Each chunk ends with an empty line, the last one is empty.
            let Some(chunk) = bytes.get(begin..begin + size + 2) else { return Ok(None) };
            body.extend_from_slice(&chunk[..size]);
            at = begin + size + 2;
            if size == 0 {
                return Ok(Some((body, at)));
            }
        }
    }
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
        let answer = b"HTTP/1.1 200 OK\r\nX-Consul-Index: 7\r\nContent-Length: 2\r\n\r\n{";
        let found = head(answer).unwrap().unwrap();
        assert_eq!((found.status, found.end, found.length, found.index), (200, answer.len() - 1, Some(2), Some(7)));
        assert_eq!(found.body(answer).unwrap(), None);
        let all = [&answer[..], b"}HTTP/1.1"].concat();
        assert_eq!(found.body(&all).unwrap(), Some((b"{}".to_vec(), answer.len() + 1)));
        assert_eq!(head(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap().unwrap().length, Some(0));
        assert!(head(b"HTTP/1.1 200 OK\r\nx: y\r\n\r\n").is_err());
        assert!(head(b"SSH-2.0\r\n\r\n").is_err());
    }

    #[test]
    fn chunks_are_joined() {
        let answer =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\nHTTP";
        let found = head(answer).unwrap().unwrap();
        assert_eq!(found.body(answer).unwrap(), Some((b"abc0123456789".to_vec(), answer.len() - 4)));
        assert_eq!(found.body(&answer[..answer.len() - 6]).unwrap(), None, "the last line is missing");
        assert!(found.body(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n").is_err());
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
