//! HTTP/1.1 requests to the cluster manager, a node, or another registry.

use bytes::Bytes;
use convoke_tls::{ClientTls, Stream};
use http_body_util::{BodyExt, Full};
use hyper::HeaderMap;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Largest body that is read as a whole.
const BODY_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub enum HttpClientError {
    /// The connection was rejected.
    Refused,
    /// The connection broke, or the answer is not HTTP.
    Broken(String),
}

impl From<io::Error> for HttpClientError {
    fn from(error: io::Error) -> HttpClientError {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => HttpClientError::Refused,
            _ => HttpClientError::Broken(error.to_string()),
        }
    }
}

impl From<hyper::Error> for HttpClientError {
    fn from(error: hyper::Error) -> HttpClientError {
        HttpClientError::Broken(error.to_string())
    }
}

/// An answer whose body has not been read. Dropping it closes the connection.
#[derive(Debug)]
pub struct HttpAnswer {
    response: Response<Incoming>,
    rest: Vec<u8>,
    _connection: JoinSet<()>,
}

/// A connection for several requests, one after the other.
#[derive(Debug)]
pub struct HttpConnection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    driving: JoinSet<()>,
}

impl HttpConnection {
    /// Connects to `HOST:PORT`, with TLS if it is given.
    pub async fn open(address: &str, tls: Option<&ClientTls>) -> Result<HttpConnection, HttpClientError> {
        let socket = TcpStream::connect(address).await?;
        let stream = match tls {
            Some(tls) => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                tls.connect(socket, host, "http/1.1")
                    .await
                    .map_err(|error| HttpClientError::Broken(error.to_string()))?
            }
            None => Stream::Plain(socket),
        };
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let mut driving = JoinSet::new();
        driving.spawn(async move {
            // The request itself returns the error.
            let _ = connection.await;
        });
        Ok(HttpConnection { sender, host: address.to_owned(), driving })
    }

    /// Sends a request without a body, and reads the whole answer within `timeout`.
    pub async fn get(
        &mut self,
        path: &str,
        headers: &HeaderMap,
        timeout: Duration,
    ) -> Result<(StatusCode, Vec<u8>), HttpClientError> {
        let request = Request::builder().method(Method::GET).uri(path).header(HOST, &self.host);
        let mut request =
            request.body(Full::new(Bytes::new())).map_err(|error| HttpClientError::Broken(error.to_string()))?;
        request.headers_mut().extend(headers.clone());
        let reading = async {
            self.sender.ready().await?;
            let response = self.sender.send_request(request).await?;
            let status = response.status();
            let body = read(&mut { response }.into_body()).await?;
            Ok((status, body))
        };
        match tokio::time::timeout(timeout, reading).await {
            Ok(answer) => answer,
            Err(_) => Err(HttpClientError::Broken(format!("no answer within {:.1} s", timeout.as_secs_f64()))),
        }
    }
}

async fn read(body: &mut Incoming) -> Result<Vec<u8>, HttpClientError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > BODY_MAX {
            return Err(HttpClientError::Broken(format!("the answer is longer than {BODY_MAX} bytes")));
        }
    }
    Ok(bytes)
}

/// Sends one request on a new connection; a body is JSON.
pub async fn request(
    address: &str,
    method: Method,
    path: &str,
    body: Option<Vec<u8>>,
) -> Result<HttpAnswer, HttpClientError> {
    request_with(address, method, path, body, None).await
}

/// Like [`request`], with TLS if it is given.
pub async fn request_with(
    address: &str,
    method: Method,
    path: &str,
    body: Option<Vec<u8>>,
    tls: Option<&ClientTls>,
) -> Result<HttpAnswer, HttpClientError> {
    let HttpConnection { mut sender, driving, .. } = HttpConnection::open(address, tls).await?;
    let mut request = Request::builder().method(method).uri(path).header(HOST, address);
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let request = request
        .body(Full::new(Bytes::from(body.unwrap_or_default())))
        .map_err(|error| HttpClientError::Broken(error.to_string()))?;
    let response = sender.send_request(request).await?;
    Ok(HttpAnswer { response, rest: Vec::new(), _connection: driving })
}

impl HttpAnswer {
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// The whole body.
    pub async fn body(mut self) -> Result<Vec<u8>, HttpClientError> {
        while let Some(bytes) = self.more().await? {
            self.rest.extend_from_slice(&bytes);
            if self.rest.len() > BODY_MAX {
                return Err(HttpClientError::Broken(format!("the answer is longer than {BODY_MAX} bytes")));
            }
        }
        Ok(self.rest)
    }

    /// The next line of the body, without its end; `None` after the last.
    pub async fn line(&mut self) -> Result<Option<Vec<u8>>, HttpClientError> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.rest.drain(..=end).collect();
                line.pop();
                return Ok(Some(line));
            }
            match self.more().await? {
                Some(bytes) if self.rest.len() < BODY_MAX => self.rest.extend_from_slice(&bytes),
                Some(_) => return Err(HttpClientError::Broken("a line is too long".to_owned())),
                None => return Ok(None),
            }
        }
    }

    async fn more(&mut self) -> Result<Option<Bytes>, HttpClientError> {
        while let Some(frame) = self.response.body_mut().frame().await {
            if let Ok(bytes) = frame?.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}
