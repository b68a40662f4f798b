//! Every route that is served. `openapi.json` describes the same ones; a test compares.

use super::{ask, discovery, events, kv, log, observe, reads, sessions, subscribers, ui, watch};
use crate::surface::Surface;
use ::http::Method;
use axum::extract::{MatchedPath, Request};
use axum::routing::{MethodFilter, MethodRouter, on};
use std::sync::Arc;

pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) handler: MethodRouter<Arc<Surface>>,
}

/// Finds a route's place in the table.
#[derive(Debug)]
pub(crate) struct Index(Vec<(Method, &'static str)>);

impl Index {
    pub(crate) fn new() -> Self {
        Index(routes().into_iter().map(|route| (route.method, route.path)).collect())
    }

    /// The path of a route, with names for its parts.
    pub(crate) fn path(&self, position: usize) -> Option<&'static str> {
        self.0.get(position).map(|(_, path)| *path)
    }

    /// `None` for what is not served.
    pub(crate) fn position(&self, request: &Request) -> Option<usize> {
        let path = request.extensions().get::<MatchedPath>()?.as_str();
        // What answers GET answers HEAD.
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        self.0.iter().position(|(known, template)| known == method && *template == path)
    }
}

macro_rules! routes {
    ($($method:ident $path:literal => $handler:path,)+) => {
        vec![$(Route { method: Method::$method, path: $path, handler: on(MethodFilter::$method, $handler) },)+]
    };
}

pub(crate) fn routes() -> Vec<Route> {
    routes! {
        GET "/" => ui::root,
        GET "/ui" => ui::front,
        GET "/ui/" => ui::index,
        GET "/ui/{file}" => ui::file,
        GET "/healthz" => reads::alive,
        GET "/readyz" => reads::ready,
        GET "/metrics" => observe::metrics,
        GET "/api/v1/openapi.json" => observe::openapi,
        GET "/api/v1/status" => reads::status,
        GET "/api/v1/nodes" => reads::nodes,
        GET "/api/v1/nodes/{id}/{what}" => ask::ask,
        GET "/api/v1/services" => reads::services,
        GET "/api/v1/members" => reads::members,
        GET "/api/v1/members/{id}" => reads::member,
        GET "/api/v1/members/{id}/explain" => reads::explain,
        GET "/api/v1/sd/prometheus" => discovery::prometheus,
        GET "/api/v1/watch" => watch::watch,
        GET "/api/v1/events" => events::events,
        GET "/api/v1/subscribers" => subscribers::subscribers,
        GET "/api/v1/kv" => kv::list_all,
        GET "/api/v1/kv/{*key}" => kv::get,
        PUT "/api/v1/kv/{*key}" => kv::put,
        DELETE "/api/v1/kv/{*key}" => kv::delete,
        GET "/api/v1/log/status" => log::status,
        POST "/api/v1/log/members" => log::members,
        GET "/api/v1/log/requests/{session}/{number}" => log::peek,
        POST "/api/v1/log/requests/{session}/{number}/resolve" => log::resolve,
        POST "/api/v1/sessions" => sessions::create,
        DELETE "/api/v1/sessions/{session}" => sessions::close,
        PUT "/api/v1/sessions/{session}/heartbeat" => sessions::heartbeat,
        PUT "/api/v1/sessions/{session}/members/{id}" => sessions::register,
        PATCH "/api/v1/sessions/{session}/members/{id}" => sessions::update,
        DELETE "/api/v1/sessions/{session}/members/{id}" => sessions::unregister,
    }
}
