//! Bodies of requests.

use super::failure::Failure;
use crate::http::read_up_to;
use crate::surface::Surface;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use std::sync::Arc;

/// A body within the limit of requests, as it arrived.
#[derive(Debug)]
pub(crate) struct RawBody(pub(crate) Bytes);

impl FromRequest<Arc<Surface>> for RawBody {
    type Rejection = Failure;

    async fn from_request(request: Request, surface: &Arc<Surface>) -> Result<RawBody, Failure> {
        let limit = surface.config.limits.body_bytes;
        Ok(RawBody(read_up_to(surface, request.into_body(), limit).await?))
    }
}
