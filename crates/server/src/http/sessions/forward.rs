//! Requests of a session that another living node holds are passed on to it.
//!
//! To take the session over instead would be right as well, but from a living node it would claim what this one last heard
//! of its members: an update or an unregistration on its way here would be undone.

use crate::http::body;
use crate::http::failure::Failure;
use crate::service::Tie;
use crate::surface::Surface;
use ::http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use axum::body::Body;
use axum::extract::FromRequest;
use bytes::Bytes;
use convoke_node::core::node::{Feeder, PeerState};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::sync::Arc;
use tokio::net::TcpStream;

/// Set on what one node passes on to another, which does not pass it on any further.
pub(super) const FORWARDED: HeaderName = HeaderName::from_static("convoke-forwarded");
/// Answers to requests of sessions are small.
const ANSWER_BYTES: usize = 1024 * 1024;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) if_match: Option<HeaderValue>,
    pub(crate) body: Bytes,
    /// It was passed on to this node.
    pub(crate) forwarded: bool,
    /// The connection it came on.
    pub(crate) tie: Option<Arc<Tie>>,
}

impl Raw {
    /// The heartbeat that any request of a session is.
    pub(super) fn as_heartbeat(&self, session: &str) -> Raw {
        let uri = format!("/api/v1/sessions/{session}/heartbeat");
        let uri = Uri::try_from(uri).unwrap_or_default();
        Raw { method: Method::PUT, uri, if_match: None, body: Bytes::new(), ..self.clone() }
    }
}

impl FromRequest<Arc<Surface>> for Raw {
    type Rejection = Failure;

    async fn from_request(request: axum::extract::Request, surface: &Arc<Surface>) -> Result<Self, Failure> {
        let (parts, body) = request.into_parts();
        Ok(Raw {
            tie: parts.extensions.get::<Arc<Tie>>().cloned(),
            method: parts.method,
            uri: parts.uri,
            if_match: parts.headers.get(header::IF_MATCH).cloned(),
            forwarded: parts.headers.contains_key(FORWARDED),
            body: body::read(surface, body).await?,
        })
    }
}

/// Whether the node is known to be there.
pub(super) fn reachable(feeder: &Feeder) -> bool {
    matches!(feeder.state, PeerState::Up | PeerState::Distant) && !feeder.client_address.is_empty()
}

/// Asks the other node; `None` if it does not answer, or does not take clients any more.
pub(super) async fn forward(surface: &Surface, feeder: &Feeder, raw: &Raw) -> Option<Response<Body>> {
    let asking = ask_node(surface, &feeder.client_address, raw);
    match tokio::time::timeout(surface.config.timeouts.forward, asking).await {
        Ok(Ok(response)) if response.status() != StatusCode::SERVICE_UNAVAILABLE => {
            surface.metrics.sessions_forwarded.add(1);
            Some(response)
        }
        Ok(Ok(_)) => None,
        Ok(Err(error)) => {
            tracing::debug!(node = %feeder.node, "did not take a session's request: {error}");
            None
        }
        Err(_) => None,
    }
}

/// Asks a node at this address, in any time it takes.
pub(crate) async fn ask_node(
    surface: &Surface,
    address: &str,
    raw: &Raw,
) -> Result<Response<Body>, Box<dyn Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = AbortOnDrop(tokio::spawn(connection));
    let path = raw.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::builder().method(raw.method.clone()).uri(path).header(header::HOST, address);
    request = request.header(FORWARDED, surface.node.id().as_str());
    // What the other node does is part of the same trace.
    if let Some(here) = convoke_trace::current() {
        request = request.header(convoke_trace::TRACEPARENT, here.to_string());
    }
    if let Some(expected) = &raw.if_match {
        request = request.header(header::IF_MATCH, expected);
    }
    let response = sender.send_request(request.body(Full::new(raw.body.clone()))?).await?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES).collect().await?.to_bytes();
    drop(connection);
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = parts.status;
    if let Some(kind) = parts.headers.get(header::CONTENT_TYPE) {
        answer.headers_mut().insert(header::CONTENT_TYPE, kind.clone());
    }
    Ok(answer)
}

struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
