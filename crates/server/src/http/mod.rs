//! The HTTP/JSON interface: the table of routes and the layers around all of them.

mod body;
mod bounds;
mod discovery;
mod election_watch;
mod event_id;
mod events;
mod extract;
#[cfg(test)]
mod fuzz;
mod http_error;
mod kv;
mod kv_watch;
mod leases;
mod locks;
mod log;
mod named_log;
mod node_reads;
mod observe;
mod peer_client;
mod reads;
mod revocations;
mod routes;
mod sessions;
mod site;
mod sse;
mod txn;
mod ui;
mod watch;
mod watchers;

use crate::surface::Surface;
use ::http::{Method, StatusCode, Uri};
use axum::Router;
use axum::handler::Handler;
use bounds::Bounds;
use convoke_access::{Kind, Verb};
use convoke_proto::{Error, ErrorCode};
use http_error::HttpError;
pub(crate) use observe::requests;
pub(crate) use peer_client::PeerClient;
use routes::routes;
pub(crate) use sessions::Sessions;
pub(crate) use site::{Hosts, check_grpc};
use std::sync::Arc;
pub(crate) use watch::SharedChunks;

/// Returns the method and path of every route.
pub fn served() -> Vec<(String, &'static str)> {
    routes().into_iter().map(|route| (route.method.to_string(), route.path)).collect()
}

/// Any of these permissions.
pub type Needed = &'static [(Verb, Kind)];

/// Returns the method, the path and the permission of every route: any of these. An empty list is a public route.
pub fn route_permissions() -> Vec<(String, &'static str, Needed)> {
    let shown = |(position, route): (usize, routes::Route)| {
        (route.method.to_string(), route.path, route.info(position).permission.needed())
    };
    routes().into_iter().enumerate().map(shown).collect()
}

pub(crate) fn router(surface: &Arc<Surface>) -> Router {
    let bounded = |route| Bounds { surface: surface.clone(), route };
    let mut router = Router::new();
    for (position, route) in routes().into_iter().enumerate() {
        let info = route.info(position);
        // A GET route also answers HEAD requests.
        router = router.route(route.path, route.handler.layer(bounded(Some(info))));
    }
    router
        .fallback(unknown.layer(bounded(None)))
        .method_not_allowed_fallback(wrong_method.layer(bounded(None)))
        .with_state(surface.clone())
}

async fn unknown(uri: Uri) -> HttpError {
    let message = format!("no resource at {}; see /api/v1/openapi.json", uri.path());
    Error::new(ErrorCode::NotFound, message).into()
}

async fn wrong_method(method: Method, uri: Uri) -> HttpError {
    let message = format!("{} does not support {method}; see /api/v1/openapi.json", uri.path());
    HttpError::with_status(StatusCode::METHOD_NOT_ALLOWED, Error::new(ErrorCode::InvalidArgument, message))
}
