//! `GET /api/v1/nodes/{id}/{resource}`: the status of another node, requested through this one. A browser may be limited to
//! one node by its same-origin policy, and the other node may not be reachable from the browser's network.

use super::extract::Segments;
use super::http_error::HttpError;
use super::peer_client::PeerErrorKind;
use super::sessions::{ForwardedCredentials, OrderHeaders, Raw, ask_node};
use crate::access::Caller;
use crate::error::{invalid, rejected};
use crate::service::ClientConnection;
use crate::surface::Surface;
use ::http::{HeaderMap, HeaderValue, Method, Response, Uri, header};
use axum::body::Body;
use axum::extract::{Extension, State};
use bytes::Bytes;
use convoke_core::node::PeerState;
use convoke_proto::{Error, ErrorCode};
use std::sync::Arc;
use tokio::time::Instant;

/// Resources that can be requested. They only read, they end, and they are not forwarded again.
const RESOURCES: [(&str, &str); 3] =
    [("status", "/api/v1/status"), ("nodes", "/api/v1/nodes"), ("watchers", "/api/v1/watchers")];

pub(crate) async fn read_node(
    State(surface): State<Arc<Surface>>,
    Segments((id, resource)): Segments<(String, String)>,
    caller: Caller,
    connection: Option<Extension<Arc<ClientConnection>>>,
    headers: HeaderMap,
) -> Result<Response<Body>, HttpError> {
    let Some((_, path)) = RESOURCES.iter().find(|(name, _)| *name == resource) else {
        let known = RESOURCES.map(|(name, _)| name).join(", ");
        return Err(invalid("resource", format!("{resource:?} is not available through another node: {known}")).into());
    };
    let address = address(&surface, &id).await?;
    let uri = Uri::from_static(path);
    let request = Raw {
        method: Method::GET,
        uri,
        if_match: None,
        order: OrderHeaders::default(),
        body: Bytes::new(),
        forwarded: false,
        credentials: ForwardedCredentials::new(&headers, connection.as_deref().map(Arc::as_ref)),
        connection: None,
        caller,
    };
    let deadline = Instant::now() + surface.config.timeouts.forward;
    let mut answer = ask_node(&surface, &address, &request, deadline).await.map_err(|error| {
        let code = match error.kind {
            PeerErrorKind::Timeout => ErrorCode::Timeout,
            PeerErrorKind::Other(_) => ErrorCode::NotReady,
        };
        Error::new(code, format!("cannot reach node {id} at {address}: {error}"))
    })?;
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}

/// Returns the address at which clients connect to the node.
async fn address(surface: &Surface, id: &str) -> Result<String, Error> {
    if surface.node.id().as_str() == id {
        return Ok(surface.address.to_string());
    }
    let nodes = surface.node.nodes().await.map_err(rejected)?;
    let Some(node) = nodes.into_iter().find(|node| node.node.as_str() == id) else {
        return Err(Error::new(ErrorCode::NotFound, format!("this node knows no node {id:?}")).field("id"));
    };
    match node.state {
        PeerState::Up | PeerState::Distant if !node.client_address.is_empty() => Ok(node.client_address),
        PeerState::Up | PeerState::Distant => {
            Err(Error::new(ErrorCode::NotReady, format!("node {id} advertises no client address")))
        }
        state => Err(Error::new(ErrorCode::NotReady, format!("node {id} is {} as seen by this node", state.as_str()))),
    }
}
