//! How connections are opened: over TCP, to a node in the same process, or by a simulation.

use crate::token::{AuthorizedChannel, TokenSource};
use convoke_proto::v1;
use convoke_tls::ClientTls;
use hyper_util::rt::TokioIo;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::{Channel, Endpoint, Error};
use tower::service_fn;

/// The future that [`Connect::connect`] returns.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Channel, Error>> + Send + 'a>>;

/// The future that [`InProcessNode::call`] returns.
pub type Responding = Pin<Box<dyn Future<Output = http::Response<Body>> + Send>>;

/// The answers to the requests of a submit stream.
pub type Answers = Pin<Box<dyn Stream<Item = Result<v1::SubmitResponse, Status>> + Send>>;

/// Opens connections for an [`Ambassador`](crate::log::Ambassador).
pub trait Connect: Debug + Send + Sync + 'static {
    /// Connects to the endpoint with all its settings.
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> Connecting<'a>;

    /// Returns the token that calls over the connections carry.
    fn token(&self) -> Option<TokenSource> {
        None
    }

    /// Whether the connections are encrypted.
    fn is_secure(&self) -> bool {
        false
    }

    /// Returns the node at this address (`host:port`) if it runs in this process. No connection is opened to it.
    fn local(&self, address: &str) -> Option<Arc<dyn InProcessNode>> {
        let _ = address;
        None
    }
}

/// A node in this process. Its gRPC services are called without a socket and without HTTP/2.
pub trait InProcessNode: Debug + Send + Sync + 'static {
    /// Serves one gRPC request.
    fn call(&self, request: http::Request<Body>) -> Responding;

    /// Opens a submit stream. Its messages stay values: nothing is encoded.
    fn submit(&self, requests: mpsc::UnboundedReceiver<v1::SubmitRequest>) -> Result<Answers, Status>;
}

/// Connections over TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpConnect;

impl Connect for TcpConnect {
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> Connecting<'a> {
        Box::pin(endpoint.connect())
    }
}

/// Connections over TCP or TLS, whose calls carry a token if there is one. Connections with TLS never fall back to TCP.
#[derive(Clone, Debug)]
struct RemoteConnect {
    tls: Option<ClientTls>,
    token: Option<TokenSource>,
}

impl Connect for RemoteConnect {
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> Connecting<'a> {
        let Some(tls) = self.tls.clone() else { return TcpConnect.connect(endpoint) };
        Box::pin(endpoint.connect_with_connector(service_fn(move |uri: http::Uri| open(tls.clone(), uri))))
    }

    fn token(&self) -> Option<TokenSource> {
        self.token.clone()
    }

    fn is_secure(&self) -> bool {
        self.tls.is_some()
    }
}

/// Opens a connection for HTTP/2.
async fn open(tls: ClientTls, uri: http::Uri) -> std::io::Result<TokioIo<convoke_tls::Stream>> {
    let missing = || std::io::Error::from(std::io::ErrorKind::InvalidInput);
    let address = uri.authority().ok_or_else(missing)?.as_str();
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let stream = tls.connect(socket, uri.host().ok_or_else(missing)?, "h2").await;
    Ok(TokioIo::new(stream.map_err(convoke_tls::HandshakeError::into_io)?))
}

/// Returns a channel that connects with the first call, and again when needed.
pub fn connect_lazy(endpoint: &Endpoint, tls: Option<ClientTls>, token: Option<TokenSource>) -> AuthorizedChannel {
    let channel = match tls {
        Some(tls) => endpoint.connect_with_connector_lazy(service_fn(move |uri: http::Uri| open(tls.clone(), uri))),
        None => endpoint.connect_lazy(),
    };
    AuthorizedChannel::new(channel, token)
}

/// Returns the connector of a client, with or without TLS and a token.
pub fn connector(tls: Option<ClientTls>, token: Option<TokenSource>) -> Arc<dyn Connect> {
    Arc::new(RemoteConnect { tls, token })
}

/// A channel to a node of the log.
#[derive(Clone, Debug)]
pub(crate) enum LogChannel {
    Remote(AuthorizedChannel),
    Local(Arc<dyn InProcessNode>),
}

impl Service<http::Request<Body>> for LogChannel {
    type Response = http::Response<Body>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match self {
            LogChannel::Remote(channel) => channel.poll_ready(context),
            LogChannel::Local(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        match self {
            LogChannel::Remote(channel) => Box::pin(channel.call(request)),
            LogChannel::Local(node) => {
                let responding = node.call(request);
                Box::pin(async { Ok(responding.await) })
            }
        }
    }
}
