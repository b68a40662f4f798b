//! `GET /metrics` and `GET /api/v1/openapi.json`.

use super::failure::Failure;
use super::routes::{Route, routes};
use crate::error::refused;
use crate::metrics::{self, Requests};
use crate::surface::Surface;
use ::http::{HeaderValue, header};
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use convoke_proto::{Code, Error};
use std::sync::Arc;

const OPENAPI: &str = include_str!("../../openapi.json");

pub(crate) async fn metrics(State(surface): State<Arc<Surface>>) -> Result<Response, Failure> {
    let status = surface.node.status().await.map_err(refused)?;
    let counters = surface.node.counters().await.map_err(refused)?;
    match metrics::encode(&surface, status, counters) {
        Ok(text) => Ok(with_type(metrics::CONTENT_TYPE, text)),
        Err(error) => Err(Error::new(Code::Internal, format!("cannot encode the metrics: {error}")).into()),
    }
}

pub(crate) async fn openapi() -> Response {
    with_type("application/json", OPENAPI)
}

fn with_type(kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Counters for every route, and for whatever is none.
pub(crate) fn requests() -> Requests {
    let labels = |method: &str, path: &str| vec![("method", method.to_owned()), ("path", path.to_owned())];
    let known = routes().into_iter().map(|Route { method, path, .. }| labels(method.as_str(), path));
    let codes = (0..=LAST_CODE).map(|code| match Code::try_from(code) {
        Ok(Code::Unknown) | Err(_) => "OK",
        Ok(code) => code.as_str(),
    });
    Requests::new(known.chain([labels("other", "other")]), codes.collect())
}

/// Codes are numbered without gaps; 0 is never sent and stands for success.
const LAST_CODE: i32 = Code::Internal as i32;
