//! A plain HTTP client with a new connection for each request unless stated otherwise.

use super::Served;
use bytes::Bytes;
use convoke_proto::json::ErrorBody;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::VecDeque;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    #[track_caller]
    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn ok(self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{self:?}");
        self.json()
    }

    /// Checks the format of a rejection and returns status, code and field.
    #[track_caller]
    pub fn rejection(&self) -> (u16, String, Option<String>) {
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/json");
        let error = self.json::<ErrorBody>().error;
        assert!(!error.message.is_empty());
        (self.status.as_u16(), error.code.to_string(), error.field)
    }

    #[track_caller]
    pub fn rejected(&self, status: u16, code: &str) -> Option<String> {
        let (found, name, field) = self.rejection();
        assert_eq!((found, name.as_str()), (status, code), "{self:?}");
        field
    }
}

/// Fills the parameters of a path of the tables of routes.
pub fn concrete(path: &str) -> String {
    let path = path.replace("/sessions/{session}", "/sessions/nobody").replace("{session}", "1");
    let path = path.replace("{*key}", "a/b").replace("{*name}", "nobody").replace("{number}", "1");
    let path = path.replace("{resource}", "status").replace("{file}", "app.js");
    ["{id}", "{check}", "{name}", "{node}", "{state}", "{service}"]
        .iter()
        .fold(path, |path, name| path.replace(name, "nobody"))
}

pub async fn open(address: SocketAddr) -> http1::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap()).uri(path);
    request = request.header(header::HOST, "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body.into())).unwrap()
}

pub async fn answer(response: hyper::Response<Incoming>) -> Answer {
    let (parts, body) = response.into_parts();
    Answer { status: parts.status, headers: parts.headers, body: body.collect().await.unwrap().to_bytes() }
}

impl Served {
    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        let mut sender = open(self.address()).await;
        answer(sender.send_request(request(method, path, headers, body)).await.unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub async fn put(&self, path: &str, body: &str) -> Answer {
        self.send("PUT", path, &[], body.to_owned()).await
    }

    pub async fn patch(&self, path: &str, body: &str) -> Answer {
        self.send("PATCH", path, &[], body.to_owned()).await
    }

    pub async fn post(&self, path: &str, body: &str) -> Answer {
        self.send("POST", path, &[], body.to_owned()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], "").await
    }

    /// Creates a session and returns its path.
    pub async fn session(&self, body: &str) -> String {
        let created = self.post("/api/v1/sessions", body).await.ok();
        format!("/api/v1/sessions/{}", created["session"].as_str().unwrap())
    }

    /// Sends bytes and reads one response with a body.
    pub async fn raw_one(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address()).await.unwrap();
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        while !answer.ends_with(b"}}") && stream.read_buf(&mut answer).await.is_ok_and(|count| count > 0) {}
        answer
    }

    /// Sends bytes and reads until the connection ends.
    pub async fn raw(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address()).await.unwrap();
        // The server may have closed the connection before everything was sent.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answer
    }
}

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SseEvent {
    pub event: String,
    pub id: String,
    pub data: Value,
}

impl SseEvent {
    pub fn member(&self) -> &str {
        self.data["member"]["id"].as_str().or(self.data["id"].as_str()).unwrap_or_default()
    }

    pub fn version(&self) -> &str {
        self.data["member"]["version"].as_str().or(self.data["version"].as_str()).unwrap_or_default()
    }

    /// Returns event name and member id.
    pub fn brief(&self) -> String {
        format!("{} {}", self.event, self.member()).trim().to_owned()
    }
}

/// A minimal reader of server-sent events.
pub struct Sse {
    body: Incoming,
    text: String,
    ready: VecDeque<SseEvent>,
    /// The last id, as a browser stores it.
    pub last_id: String,
    pub comments: usize,
}

impl Sse {
    pub async fn open(served: &Served, query: &str, last_id: &str) -> Sse {
        Sse::open_at(served, &format!("/api/v1/watch{query}"), last_id).await
    }

    /// Opens the stream at this path.
    pub async fn open_at(served: &Served, path: &str, last_id: &str) -> Sse {
        let mut sender = open(served.address()).await;
        let headers: &[(&str, &str)] = if last_id.is_empty() { &[] } else { &[("Last-Event-ID", last_id)] };
        let response = sender.send_request(request("GET", path, headers, "")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        // Keeps the connection open as long as the body is read.
        tokio::spawn(async move {
            let _ = sender.ready().await;
            std::future::pending::<()>().await;
        });
        Sse {
            body: response.into_body(),
            text: String::new(),
            ready: VecDeque::new(),
            last_id: last_id.to_owned(),
            comments: 0,
        }
    }

    /// Returns the next event; `None` when the stream has ended.
    pub async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.last_id.clone_from(&event.id);
                return Some(event);
            }
            self.read().await?;
        }
    }

    /// Waits for a comment.
    pub async fn comment(&mut self) {
        let before = self.comments;
        while self.comments == before {
            self.read().await.expect("the stream continues");
        }
    }

    async fn read(&mut self) -> Option<()> {
        let frame = self.body.frame().await?.ok()?;
        if let Ok(data) = frame.into_data() {
            self.text.push_str(std::str::from_utf8(&data).unwrap());
        }
        while let Some(end) = self.text.find("\n\n") {
            let block: String = self.text.drain(..end + 2).collect();
            self.block(&block);
        }
        Some(())
    }

    fn block(&mut self, block: &str) {
        let mut event = SseEvent::default();
        let mut has_data = false;
        for line in block.lines().filter(|line| !line.is_empty()) {
            match line.split_once(": ").unwrap() {
                ("event", name) => event.event = name.to_owned(),
                ("id", id) => event.id = id.to_owned(),
                ("data", data) => {
                    assert!(!has_data, "data is one line");
                    has_data = true;
                    event.data = serde_json::from_str(data).unwrap();
                }
                ("", _) => self.comments += 1,
                other => panic!("unexpected line {other:?}"),
            }
        }
        if has_data {
            assert!(!event.id.is_empty(), "every event has an id");
            self.ready.push_back(event);
        } else if !event.id.is_empty() {
            match self.ready.back_mut() {
                // The id that a browser would have stored by then.
                Some(_) => self.ready.push_back(SseEvent { event: "mark".into(), ..event }),
                None => self.last_id = event.id,
            }
        }
    }

    /// Returns the next event that is not only a position.
    pub async fn event(&mut self) -> SseEvent {
        loop {
            let event = self.next().await.expect("the stream continues");
            if event.event != "mark" {
                return event;
            }
        }
    }

    /// Reads up to the next event of this name and returns all events up to it in short form.
    pub async fn until(&mut self, name: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            let event = self.event().await;
            seen.push(event.brief());
            if event.event == name {
                return seen;
            }
        }
    }
}
