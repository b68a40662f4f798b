//! `GET /metrics` and `GET /api/v1/openapi.json`.

use super::http_error::HttpError;
use super::routes::{Route, all_routes};
use crate::error::rejected;
use crate::metrics::{self, Requests};
use crate::surface::Surface;
use ::http::{HeaderValue, header};
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use convoke_proto::{Error, ErrorCode};
use std::sync::Arc;

const OPENAPI: &str = include_str!("../../openapi.json");

pub(crate) async fn metrics(State(surface): State<Arc<Surface>>) -> Result<Response, HttpError> {
    let status = surface.node.status().await.map_err(rejected)?;
    let counters = surface.node.counters().await.map_err(rejected)?;
    match metrics::encode(&surface, status, counters) {
        Ok(text) => Ok(with_type(metrics::CONTENT_TYPE, text)),
        Err(error) => Err(Error::new(ErrorCode::Internal, format!("cannot encode the metrics: {error}")).into()),
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

/// Returns the counters of every route and one for requests that match none.
pub(crate) fn requests() -> Requests {
    let labels = |method: &str, path: &str| vec![("method", method.to_owned()), ("path", path.to_owned())];
    let known = all_routes().into_iter().map(|Route { method, path, .. }| labels(method.as_str(), path));
    // Codes are numbered without gaps. Code 0 is never sent and stands for success.
    let codes = ErrorCode::ALL.iter().map(|code| if *code == ErrorCode::Unknown { "OK" } else { code.as_str() });
    Requests::new(known.chain([labels("other", "other")]), codes.collect())
}
