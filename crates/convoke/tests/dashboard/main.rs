//! The dashboard in a real browser, served by real nodes.
//!
//! Screenshots for the documentation: `CONVOKE_SCREENSHOTS=docs/images cargo test -p convoke --test dashboard`.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod access;
mod browser;
mod faults;
mod http;
mod large;
mod other_sites;
mod pages;
#[path = "../support/mod.rs"]
mod support;

use convoke_testkit::TestNode;
use http::Http;
use serde_json::json;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const HEARTBEAT: Duration = Duration::from_secs(2);

/// Members of one HTTP session at a node, with its heartbeats.
struct Members {
    http: Http,
    session: String,
    _alive: mpsc::Sender<()>,
}

impl Members {
    fn at(node: &TestNode) -> Members {
        let mut http = Http::connect(&node.clients);
        let (status, answer) = http.request("POST", "/api/v1/sessions", &json!({"timeout_ms": 20_000}).to_string());
        assert_eq!(status, 200, "{answer}");
        let session = format!("/api/v1/sessions/{}", answer["session"].as_str().unwrap());
        let (alive, ended) = mpsc::channel();
        let (address, path) = (node.clients.clone(), format!("{session}/heartbeat"));
        thread::spawn(move || {
            let mut http = Http::connect(&address);
            while ended.recv_timeout(HEARTBEAT) == Err(mpsc::RecvTimeoutError::Timeout) {
                http.request("PUT", &path, "");
            }
        });
        Members { http, session, _alive: alive }
    }

    #[track_caller]
    fn put(&mut self, id: &str, member: &serde_json::Value) {
        let path = format!("{}/members/{}", self.session, encoded(id));
        let (status, answer) = self.http.request("PUT", &path, &member.to_string());
        assert_eq!(status, 200, "{answer}");
    }

    #[track_caller]
    fn delete(&mut self, id: &str) {
        let path = format!("{}/members/{}", self.session, encoded(id));
        assert_eq!(self.http.request("DELETE", &path, "").0 / 100, 2);
    }
}

/// Encodes a text as one segment of a path.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(byte).collect()
}

/// Returns the address of a page.
fn page(node: &TestNode, path: &str) -> String {
    format!("http://{}/ui/#/{path}", node.clients)
}
