//! HTTP by hand: tests here need one request at a time, and sometimes a wrong one.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// Sends bytes, and returns what came back when the other side has closed.
pub fn raw(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // It may be closed before all is sent.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// Status and body.
pub fn request(address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    let answer = String::from_utf8(raw(address, format!("{head}{body}").as_bytes())).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// The body of an answer that must be 200, as JSON.
#[track_caller]
pub fn json(address: &str, method: &str, path: &str, body: &str) -> Value {
    let (status, body) = request(address, method, path, body);
    assert_eq!(status, 200, "{method} {path}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// A figure of `/metrics`, with its labels or the sum over all of them; 0 if it is not there yet.
pub fn metric(address: &str, name: &str) -> f64 {
    let (_, text) = request(address, "GET", "/metrics", "");
    let family = name.split('{').next().unwrap().trim_end_matches("_total");
    assert!(text.contains(&format!("# TYPE {family} ")), "no {name} in {text}");
    let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
    let named = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
    text.lines().filter(named).map(value).sum()
}

/// The name in queries of a metric family in the OpenMetrics format: samples of some types have a suffix.
pub fn series(family: &str, kind: &str) -> String {
    match kind {
        "counter" => format!("{family}_total"),
        "info" => format!("{family}_info"),
        _ => family.to_owned(),
    }
}
