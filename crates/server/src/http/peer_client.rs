//! The HTTP client for requests to other nodes, with a connection pool. Behind a round-robin load balancer most
//! requests of HTTP sessions are forwarded, and a new connection for each of them would exhaust the ports.
//!
//! The caller needs to know whether a failed request may have been executed. hyper-util retries a request only if no
//! byte of it was sent, and [`capture_connection`] shows whether a request got a connection.

use crate::net::NodeConnector;
use ::http::uri::{PathAndQuery, Scheme};
use ::http::{Request, Response, Uri};
use bytes::Bytes;
use convoke_tls::NodeTls;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::error::Error;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Idle connections kept per node. More may be in use.
const IDLE_MAX: usize = 8;
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest response body. Nodes send each other only small ones.
const RESPONSE_BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct PeerClient(Client<NodeConnector, Full<Bytes>>);

/// An error of a request to another node.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub(crate) struct PeerError {
    /// Whether the node may have received and executed the request.
    pub(crate) sent: bool,
    pub(crate) kind: PeerErrorKind,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerErrorKind {
    #[error("no response in time")]
    Timeout,
    #[error(transparent)]
    Other(#[from] Box<dyn Error + Send + Sync>),
}

impl PeerClient {
    pub(crate) fn new(tls: Option<NodeTls>) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_MAX)
            .pool_timer(TokioTimer::new())
            .build(NodeConnector(tls));
        PeerClient(client)
    }

    /// Sends a request to the node at `address` and reads the whole response. The URI of the request is only a path.
    pub(crate) async fn send(
        &self,
        address: &str,
        mut request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<Response<Bytes>, PeerError> {
        *request.uri_mut() = absolute(address, request.uri()).map_err(|error| not_sent(error.into()))?;
        let connection = capture_connection(&mut request);
        let responding = async {
            let (parts, body) =
                self.0.request(request).await.map_err(|error| (error.is_connect(), error.into()))?.into_parts();
            let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await.map_err(|error| (false, error))?;
            Ok(Response::from_parts(parts, body.to_bytes()))
        };
        match timeout_at(deadline, responding).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err((true, error))) => Err(not_sent(error)),
            Ok(Err((false, error))) => Err(PeerError { sent: true, kind: PeerErrorKind::Other(error) }),
            Err(_) => {
                let sent = connection.connection_metadata().is_some();
                Err(PeerError { sent, kind: PeerErrorKind::Timeout })
            }
        }
    }
}

fn absolute(address: &str, path: &Uri) -> Result<Uri, ::http::Error> {
    let path = path.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    Uri::builder().scheme(Scheme::HTTP).authority(address).path_and_query(path).build()
}

fn not_sent(error: Box<dyn Error + Send + Sync>) -> PeerError {
    PeerError { sent: false, kind: PeerErrorKind::Other(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    async fn send(client: &PeerClient, address: &str, timeout: Duration) -> Result<Response<Bytes>, PeerError> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = Uri::from_static("/api/v1/status?x=y");
        client.send(address, request, Instant::now() + timeout).await
    }

    async fn listener() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address)
    }

    /// Reads one request and returns its first line.
    async fn read(stream: &mut TcpStream) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            bytes.push(stream.read_u8().await.unwrap());
        }
        String::from_utf8(bytes).unwrap().lines().next().unwrap().to_owned()
    }

    const TIMEOUT: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_request_to_a_closed_port_is_not_sent() {
        let (listener, address) = listener().await;
        drop(listener);
        let error = send(&PeerClient::new(None), &address, TIMEOUT).await.unwrap_err();
        assert!(!error.sent && matches!(error.kind, PeerErrorKind::Other(_)), "{error:?}");
        let error = send(&PeerClient::new(None), "no address", TIMEOUT).await.unwrap_err();
        assert!(!error.sent, "{error:?}");
    }

    #[tokio::test]
    async fn a_request_without_a_response_may_have_been_executed() {
        let (listener, address) = listener().await;
        let client = PeerClient::new(None);
        let silent = tokio::spawn(async move {
            let mut first = listener.accept().await.unwrap().0;
            read(&mut first).await;
            let mut second = listener.accept().await.unwrap().0;
            read(&mut second).await;
            drop(second);
            first
        });
        let error = send(&client, &address, Duration::from_millis(300)).await.unwrap_err();
        assert!(error.sent && matches!(error.kind, PeerErrorKind::Timeout), "{error:?}");
        let error = send(&client, &address, TIMEOUT).await.unwrap_err();
        assert!(error.sent && matches!(error.kind, PeerErrorKind::Other(_)), "{error:?}");
        silent.await.unwrap();
    }

    #[tokio::test]
    async fn connections_are_reused_and_replaced_when_the_node_closes_them() {
        let (listener, address) = listener().await;
        let serving = tokio::spawn(async move {
            let mut lines = Vec::new();
            for _ in 0..2 {
                let mut stream = listener.accept().await.unwrap().0;
                for connection in ["keep-alive", "close"] {
                    lines.push(read(&mut stream).await);
                    let head = format!("HTTP/1.1 200 OK\r\nconnection: {connection}\r\ncontent-length: 2\r\n\r\n");
                    stream.write_all(format!("{head}ok").as_bytes()).await.unwrap();
                }
            }
            lines
        });
        let client = PeerClient::new(None);
        for _ in 0..4 {
            assert_eq!(send(&client, &address, TIMEOUT).await.unwrap().into_body(), "ok");
        }
        assert_eq!(serving.await.unwrap(), vec!["GET /api/v1/status?x=y HTTP/1.1"; 4]);
    }
}
