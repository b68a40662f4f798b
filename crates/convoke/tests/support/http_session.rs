//! A client with an HTTP session: it numbers its requests, shows the last token, and repeats requests at the next node.

use convoke_testkit::TEST_TIMEOUT;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two requests.
const PACE: Duration = Duration::from_millis(20);
/// Each so many requests, one is a heartbeat.
const HEARTBEAT_EACH: u32 = 5;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// A thread that writes the metadata of one member all the time.
#[derive(Debug)]
pub struct HttpSession {
    tls: Arc<AtomicBool>,
    stop: Sender<()>,
    thread: JoinHandle<Written>,
}

/// The requests of a session, all of which were executed.
#[derive(Debug)]
pub struct Written {
    pub writes: u32,
    /// Requests that a node did not answer, or answered with 503.
    pub retries: u32,
}

impl HttpSession {
    /// Creates a session without TLS and registers a member of service `orders`.
    pub fn start(nodes: Vec<String>, ca: &Path, member: &str) -> HttpSession {
        let tls = Arc::new(AtomicBool::new(false));
        let mut requests = Requests::new(nodes, ca, tls.clone());
        let created = requests.send("POST", "/api/v1/sessions", &json!({}));
        let session = format!("/api/v1/sessions/{}", created["session"].as_str().unwrap());
        let path = format!("{session}/members/{member}");
        requests.send("PUT", &path, &json!({"service": "orders"}));
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            let mut writes = 0;
            while stopped.recv_timeout(PACE) == Err(RecvTimeoutError::Timeout) {
                if requests.number.is_multiple_of(HEARTBEAT_EACH) {
                    requests.send("PUT", &format!("{session}/heartbeat"), &json!({}));
                } else {
                    writes += 1;
                    requests.send("PATCH", &path, &json!({"writes": writes.to_string()}));
                }
            }
            Written { writes, retries: requests.retries }
        });
        HttpSession { tls, stop, thread }
    }

    /// Makes all further requests use TLS.
    pub fn use_tls(&self) {
        self.tls.store(true, Ordering::Relaxed);
    }

    /// Ends the requests. The session and its member remain until the heartbeat timeout.
    pub fn finish(self) -> Written {
        drop(self.stop);
        self.thread.join().unwrap()
    }
}

struct Requests {
    nodes: Vec<String>,
    /// Index of the node that gets the next request.
    at: usize,
    config: Arc<ClientConfig>,
    tls: Arc<AtomicBool>,
    number: u32,
    token: Option<String>,
    retries: u32,
}

impl Requests {
    fn new(nodes: Vec<String>, ca: &Path, tls: Arc<AtomicBool>) -> Requests {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
        let config = Arc::new(versions.unwrap().with_root_certificates(roots).with_no_client_auth());
        Requests { nodes, at: 0, config, tls, number: 0, token: None, retries: 0 }
    }

    /// Sends a request with the next number until a node executes it. Panics if a node rejects it.
    fn send(&mut self, method: &str, path: &str, body: &Value) -> Value {
        self.number += 1;
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            assert!(Instant::now() < deadline, "no node executed {method} with number {}", self.number);
            // A connection that ends within an answer is no answer.
            let answer = self.exchange(method, path, &body.to_string()).ok();
            match answer.as_deref().and_then(parsed) {
                Some((200 | 201, token, body)) => {
                    self.token = token.or(self.token.take());
                    return body;
                }
                Some((503, ..)) | None => {
                    self.retries += 1;
                    self.at = (self.at + 1) % self.nodes.len();
                    std::thread::park_timeout(PACE);
                }
                Some((status, _, body)) => panic!("{method} with number {}: {status} {body}", self.number),
            }
        }
    }

    fn exchange(&self, method: &str, path: &str, body: &str) -> std::io::Result<String> {
        let address = &self.nodes[self.at];
        let token = self.token.iter().map(|token| format!("convoke-session-token: {token}\r\n")).collect::<String>();
        let (number, length) = (self.number, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             convoke-session-request: {number}\r\n{token}content-length: {length}\r\n\r\n{body}"
        );
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        if !self.tls.load(Ordering::Relaxed) {
            return exchanged(&mut stream, &request);
        }
        let host = address.rsplit_once(':').unwrap().0.to_owned();
        let connection = ClientConnection::new(self.config.clone(), ServerName::try_from(host).unwrap());
        exchanged(&mut StreamOwned::new(connection.unwrap(), stream), &request)
    }
}

fn exchanged(stream: &mut (impl Read + Write), request: &str) -> std::io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Status, token and body of a complete answer.
fn parsed(answer: &str) -> Option<(u16, Option<String>, Value)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let token = head.lines().find_map(|line| line.strip_prefix("convoke-session-token: ")).map(str::to_owned);
    Some((status, token, serde_json::from_str(body).ok()?))
}
