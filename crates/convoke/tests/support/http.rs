//! A minimal HTTP client for single requests, including malformed ones.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends bytes and returns the response once the server has closed the connection.
pub fn raw(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    // The server may close the connection before everything is sent.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// Sends a request and returns status and body.
pub fn request(address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    request_in("HTTP/1.1", address, method, path, body)
}

/// Sends a request of HTTP/1.0, whose answer has no chunks: those of another server than Convoke may have some.
pub fn unchunked(address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    request_in("HTTP/1.0", address, method, path, body)
}

fn request_in(version: &str, address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let head = format!("{method} {path} {version}\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    let answer = String::from_utf8(raw(address, format!("{head}{body}").as_bytes())).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Returns the JSON body of a response, which must have status 200.
#[track_caller]
pub fn json(address: &str, method: &str, path: &str, body: &str) -> Value {
    let (status, body) = request(address, method, path, body);
    assert_eq!(status, 200, "{method} {path}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// Returns the value of a metric with its labels, or the sum over all labels; 0 if it does not exist yet.
pub fn metric(address: &str, name: &str) -> f64 {
    let (_, text) = request(address, "GET", "/metrics", "");
    let family = name.split('{').next().unwrap().trim_end_matches("_total");
    assert!(text.contains(&format!("# TYPE {family} ")), "no {name} in {text}");
    let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
    let named = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
    text.lines().filter(named).map(value).sum()
}

/// Returns the name of a metric family in queries: samples of some OpenMetrics types have a suffix.
pub fn series(family: &str, kind: &str) -> String {
    match kind {
        "counter" => format!("{family}_total"),
        "info" => format!("{family}_info"),
        _ => family.to_owned(),
    }
}
