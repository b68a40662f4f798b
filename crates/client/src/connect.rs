//! How connections are opened: over TCP, to a node in the same process, or by a simulation.

use crate::token::{AuthorizedChannel, TokenSource};
use convoke_proto::v1;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::{Channel, Endpoint, Error};

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

/// Connections over TCP whose calls carry a token.
#[derive(Clone, Debug)]
pub struct TokenConnect(pub Option<TokenSource>);

impl Connect for TokenConnect {
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> Connecting<'a> {
        TcpConnect.connect(endpoint)
    }

    fn token(&self) -> Option<TokenSource> {
        self.0.clone()
    }
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
