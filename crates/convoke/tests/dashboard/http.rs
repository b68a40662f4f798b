//! A minimal HTTP/1.1 client for tests.

use serde_json::Value;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// One connection. Requests may be pipelined.
pub struct Http {
    address: String,
    stream: BufReader<TcpStream>,
}

impl Http {
    pub fn connect(address: &str) -> Http {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout can be set");
        Http { address: address.to_owned(), stream: BufReader::new(stream) }
    }

    pub fn request(&mut self, method: &str, path: &str, body: &str) -> (u16, Value) {
        self.send([(method, path.to_owned(), body.to_owned())]);
        self.answer()
    }

    /// Sends a request without waiting.
    pub fn send<'a>(&mut self, requests: impl IntoIterator<Item = (&'a str, String, String)>) {
        let mut text = String::new();
        for (method, path, body) in requests {
            let (host, length) = (&self.address, body.len());
            let _ = write!(
                text,
                "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            );
        }
        self.stream.get_mut().write_all(text.as_bytes()).expect("the other side reads");
    }

    /// Reads the next response: its status, and its body if that is JSON.
    pub fn answer(&mut self) -> (u16, Value) {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("an answer comes");
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line).expect("headers come");
            let Some((name, value)) = line.trim().split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("the body comes");
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }
}
