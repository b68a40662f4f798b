//! `GET /api/v1/nodes/{id}/{what}`: another node's own account, asked through this one. A browser may talk to one node only, and the other
//! may not be reachable from where its user is.

use super::extract::Segments;
use super::failure::Failure;
use super::peer_client::PeerErrorKind;
use super::sessions::{Raw, ask_node};
use crate::error::{invalid, rejected};
use crate::surface::Surface;
use ::http::{HeaderValue, Method, Response, Uri, header};
use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use convoke_core::node::PeerState;
use convoke_proto::{Error, ErrorCode};
use std::sync::Arc;
use tokio::time::Instant;

/// What may be asked: nothing that changes anything, has no end, or would be passed on again.
const QUESTIONS: [(&str, &str); 3] =
    [("status", "/api/v1/status"), ("nodes", "/api/v1/nodes"), ("watchers", "/api/v1/watchers")];

pub(crate) async fn ask(
    State(surface): State<Arc<Surface>>,
    Segments((id, what)): Segments<(String, String)>,
) -> Result<Response<Body>, Failure> {
    let Some((_, path)) = QUESTIONS.iter().find(|(name, _)| *name == what) else {
        let known = QUESTIONS.map(|(name, _)| name).join(", ");
        return Err(invalid("what", format!("a node cannot be asked for {what:?} through another: {known}")).into());
    };
    let address = address(&surface, &id).await?;
    let uri = Uri::from_static(path);
    let question = Raw { method: Method::GET, uri, if_match: None, body: Bytes::new(), forwarded: false, tie: None };
    let deadline = Instant::now() + surface.config.timeouts.forward;
    let mut answer = ask_node(&surface, &address, &question, deadline).await.map_err(|error| {
        let code = match error.kind {
            PeerErrorKind::Timeout => ErrorCode::Timeout,
            PeerErrorKind::Other(_) => ErrorCode::NotReady,
        };
        Error::new(code, format!("cannot reach node {id} at {address}: {error}"))
    })?;
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}

/// Where clients of this node connect.
async fn address(surface: &Surface, id: &str) -> Result<String, Error> {
    if surface.node.id().as_str() == id {
        return Ok(surface.address.to_string());
    }
    let nodes = surface.node.nodes().await.map_err(rejected)?;
    let Some(node) = nodes.into_iter().find(|node| node.node.as_str() == id) else {
        return Err(Error::new(ErrorCode::NotFound, format!("no node {id:?} is known here")).field("id"));
    };
    match node.state {
        PeerState::Up | PeerState::Distant if !node.client_address.is_empty() => Ok(node.client_address),
        PeerState::Up | PeerState::Distant => {
            Err(Error::new(ErrorCode::NotReady, format!("node {id} does not say where clients connect")))
        }
        state => Err(Error::new(ErrorCode::NotReady, format!("node {id} is {}, as this node sees it", state.as_str()))),
    }
}
