//! The HTTP/JSON interface: the table of routes and the layers around all of them.

mod agentless;
mod body;
mod bounds;
mod discovery;
mod draining;
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
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
pub(crate) use body::read_up_to;
pub(crate) use bounds::Bounds;
use convoke_access::{Kind, Verb};
use convoke_proto::{Error, ErrorCode};
pub(crate) use extract::{Connection, Segments};
pub(crate) use http_error::{Failed, HttpError};
pub(crate) use leases::in_open_session;
pub(crate) use named_log::NamedLog;
pub(crate) use observe::requests;
pub(crate) use peer_client::PeerClient;
pub(crate) use routes::{Body, Dialect, Route, route_table};
use routes::{all_routes, routes};
pub(crate) use sessions::Sessions;
pub(crate) use site::{Hosts, check_grpc};
use std::collections::BTreeMap;
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
    permissions_of(routes())
}

/// Returns the same for the routes of Consul's HTTP API.
pub fn consul_route_permissions() -> Vec<(String, &'static str, Needed)> {
    permissions_of(crate::consul::routes())
}

fn permissions_of(routes: Vec<Route>) -> Vec<(String, &'static str, Needed)> {
    let shown = |(position, route): (usize, routes::Route)| {
        (route.method.to_string(), route.path, route.info(position).permission.needed())
    };
    routes.into_iter().enumerate().map(shown).collect()
}

pub(crate) fn router(surface: &Arc<Surface>) -> Router {
    let bounded = |route| Bounds { surface: surface.clone(), route };
    let mut router = Router::new();
    let mut consul: BTreeMap<&str, (MethodRouter<Arc<Surface>>, Vec<Method>)> = BTreeMap::new();
    for (position, route) in all_routes().into_iter().enumerate() {
        let info = route.info(position);
        let handler = route.handler.layer(bounded(Some(info)));
        match route.dialect {
            // A GET route also answers HEAD requests.
            Dialect::Native => router = router.route(route.path, handler),
            Dialect::Consul => {
                let (all, methods) = consul.entry(route.path).or_default();
                *all = std::mem::take(all).merge(handler);
                methods.push(route.method);
            }
        }
    }
    for (path, (handlers, methods)) in consul {
        router = router.route(path, crate::consul::with_wrong_methods(handlers, &methods, bounded(None)));
    }
    router
        .fallback(unknown.layer(bounded(None)))
        .method_not_allowed_fallback(wrong_method.layer(bounded(None)))
        .with_state(surface.clone())
}

async fn unknown(uri: Uri) -> Response {
    if uri.path().starts_with(crate::consul::PREFIX) {
        return crate::consul::unknown(&uri);
    }
    let message = format!("no resource at {}; see /api/v1/openapi.json", uri.path());
    HttpError::from(Error::new(ErrorCode::NotFound, message)).into_response()
}

async fn wrong_method(method: Method, uri: Uri) -> HttpError {
    let message = format!("{} does not support {method}; see /api/v1/openapi.json", uri.path());
    HttpError::with_status(StatusCode::METHOD_NOT_ALLOWED, Error::new(ErrorCode::InvalidArgument, message))
}
