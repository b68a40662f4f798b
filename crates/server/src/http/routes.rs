//! Every route that is served. `openapi.json` describes the same ones; a test compares.

use super::{ask, discovery, events, kv, log, observe, reads, sessions, ui, watch, watchers};
use crate::surface::Surface;
use ::http::Method;
use axum::extract::{MatchedPath, Request};
use axum::routing::{MethodFilter, MethodRouter, on};
use std::sync::Arc;

pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) handler: MethodRouter<Arc<Surface>>,
    /// Whether the handler looks at the query itself. Where it does not, a query is refused.
    query: bool,
}

/// Finds a route's place in the table.
#[derive(Debug)]
pub(crate) struct Index(Vec<Indexed>);

#[derive(Debug)]
struct Indexed {
    method: Method,
    path: &'static str,
    query: bool,
}

impl Index {
    pub(crate) fn new() -> Self {
        let indexed = |Route { method, path, query, .. }| Indexed { method, path, query };
        Index(routes().into_iter().map(indexed).collect())
    }

    /// The path of a route, with names for its parts.
    pub(crate) fn path(&self, position: usize) -> Option<&'static str> {
        self.0.get(position).map(|route| route.path)
    }

    /// Whether somebody will look at the query of what is asked at this place.
    pub(crate) fn takes_query(&self, position: usize) -> bool {
        self.0.get(position).is_some_and(|route| route.query)
    }

    /// `None` for what is not served.
    pub(crate) fn position(&self, request: &Request) -> Option<usize> {
        let path = request.extensions().get::<MatchedPath>()?.as_str();
        // What answers GET answers HEAD.
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        self.0.iter().position(|route| route.method == method && route.path == path)
    }
}

/// `with query`: the handler looks at it.
macro_rules! routes {
    ($($method:ident $path:literal $(with $query:ident)? => $handler:path,)+) => {
        vec![$(Route {
            method: Method::$method,
            path: $path,
            handler: on(MethodFilter::$method, $handler),
            query: routes!(@query $($query)?),
        },)+]
    };
    (@query query) => { true };
    (@query) => { false };
}

pub(crate) fn routes() -> Vec<Route> {
    routes! {
        // Browsers and proxies add to the addresses of pages what they like.
        GET "/" with query => ui::root,
        GET "/ui" with query => ui::front,
        GET "/ui/" with query => ui::index,
        GET "/ui/{file}" with query => ui::file,
        GET "/healthz" => reads::alive,
        GET "/readyz" with query => reads::ready,
        GET "/metrics" => observe::metrics,
        GET "/api/v1/openapi.json" => observe::openapi,
        GET "/api/v1/status" => reads::status,
        GET "/api/v1/nodes" => reads::nodes,
        GET "/api/v1/nodes/{id}/{what}" => ask::ask,
        GET "/api/v1/services" => reads::services,
        GET "/api/v1/members" with query => reads::members,
        GET "/api/v1/members/{id}" => reads::member,
        GET "/api/v1/members/{id}/explain" => reads::explain,
        GET "/api/v1/sd/prometheus" with query => discovery::prometheus,
        GET "/api/v1/watch" with query => watch::watch,
        GET "/api/v1/events" with query => events::events,
        GET "/api/v1/watchers" with query => watchers::watchers,
        GET "/api/v1/kv" with query => kv::list_all,
        GET "/api/v1/kv/" with query => kv::list_all,
        GET "/api/v1/kv/{*key}" with query => kv::get,
        PUT "/api/v1/kv/{*key}" with query => kv::put,
        DELETE "/api/v1/kv/{*key}" with query => kv::delete,
        GET "/api/v1/log/status" => log::status,
        POST "/api/v1/log/members" => log::members,
        GET "/api/v1/log/requests/{session}/{number}" with query => log::peek,
        POST "/api/v1/log/requests/{session}/{number}/resolve" => log::resolve,
        POST "/api/v1/sessions" => sessions::create,
        // Whatever a session asks is a sign of life, even if it is refused.
        DELETE "/api/v1/sessions/{session}" with query => sessions::close,
        PUT "/api/v1/sessions/{session}/heartbeat" with query => sessions::heartbeat,
        PUT "/api/v1/sessions/{session}/members/{id}" with query => sessions::register,
        PATCH "/api/v1/sessions/{session}/members/{id}" with query => sessions::update,
        DELETE "/api/v1/sessions/{session}/members/{id}" with query => sessions::unregister,
    }
}
