//! The original request, and how a node forwards it to another node.

use crate::http::body;
use crate::http::http_error::HttpError;
use crate::http::peer_client::PeerError;
use crate::service::ClientConnection;
use crate::surface::Surface;
use ::http::{HeaderName, HeaderValue, Method, Request, Response, Uri, header};
use axum::body::Body;
use axum::extract::FromRequest;
use bytes::Bytes;
use http_body_util::Full;
use std::sync::Arc;
use tokio::time::Instant;

/// Marks a request that another node forwarded. It is not forwarded any further.
pub(super) const FORWARDED: HeaderName = HeaderName::from_static("convoke-forwarded");

/// The original request of a client.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) if_match: Option<HeaderValue>,
    pub(crate) body: Bytes,
    /// Another node forwarded it to this node.
    pub(crate) forwarded: bool,
    /// The connection on which it arrived.
    pub(crate) connection: Option<Arc<ClientConnection>>,
}

impl Raw {
    /// Returns a heartbeat of the same session.
    pub(super) fn as_heartbeat(&self, session: &str) -> Raw {
        let uri = format!("/api/v1/sessions/{session}/heartbeat");
        let uri = Uri::try_from(uri).unwrap_or_default();
        Raw { method: Method::PUT, uri, if_match: None, body: Bytes::new(), ..self.clone() }
    }
}

impl FromRequest<Arc<Surface>> for Raw {
    type Rejection = HttpError;

    async fn from_request(request: axum::extract::Request, surface: &Arc<Surface>) -> Result<Self, HttpError> {
        let (parts, body) = request.into_parts();
        Ok(Raw {
            connection: parts.extensions.get::<Arc<ClientConnection>>().cloned(),
            method: parts.method,
            uri: parts.uri,
            if_match: parts.headers.get(header::IF_MATCH).cloned(),
            forwarded: parts.headers.contains_key(FORWARDED),
            body: body::read(surface, body).await?,
        })
    }
}

/// Sends a request to the node at this address.
pub(crate) async fn ask_node(
    surface: &Surface,
    address: &str,
    raw: &Raw,
    deadline: Instant,
) -> Result<Response<Body>, PeerError> {
    let mut request = Request::new(Full::new(raw.body.clone()));
    *request.method_mut() = raw.method.clone();
    *request.uri_mut() = raw.uri.clone();
    let headers = request.headers_mut();
    let own = HeaderValue::from_str(surface.node.id().as_str());
    headers.insert(FORWARDED, own.unwrap_or_else(|_| HeaderValue::from_static("unknown")));
    // The other node's spans belong to the same trace.
    if let Some(here) = convoke_trace::current()
        && let Ok(here) = HeaderValue::from_str(&here.to_string())
    {
        headers.insert(convoke_trace::TRACEPARENT, here);
    }
    if let Some(expected) = &raw.if_match {
        headers.insert(header::IF_MATCH, expected.clone());
    }
    let (parts, body) = surface.peers.send(address, request, deadline).await?.into_parts();
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = parts.status;
    if let Some(kind) = parts.headers.get(header::CONTENT_TYPE) {
        answer.headers_mut().insert(header::CONTENT_TYPE, kind.clone());
    }
    Ok(answer)
}
