//! Every route that is served. `openapi.json` describes the same ones; a test compares.

use super::reads;
use crate::surface::Surface;
use ::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};
use std::sync::Arc;

pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) handler: MethodRouter<Arc<Surface>>,
}

macro_rules! routes {
    ($($method:ident $path:literal => $handler:path,)+) => {
        vec![$(Route { method: Method::$method, path: $path, handler: on(MethodFilter::$method, $handler) },)+]
    };
}

pub(crate) fn routes() -> Vec<Route> {
    routes! {
        GET "/healthz" => reads::alive,
        GET "/readyz" => reads::ready,
        GET "/api/v1/status" => reads::status,
        GET "/api/v1/nodes" => reads::nodes,
        GET "/api/v1/services" => reads::services,
        GET "/api/v1/members" => reads::members,
        GET "/api/v1/members/{id}" => reads::member,
        GET "/api/v1/members/{id}/explain" => reads::explain,
    }
}
