//! Parts of requests, with typed refusals.

use super::body;
use super::failure::Failure;
use crate::error::invalid;
use crate::surface::Surface;
use ::http::request::Parts;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Parameters of the path, percent-decoded.
#[derive(Debug)]
pub(crate) struct Segments<T>(pub(crate) T);

impl<T, S> FromRequestParts<S> for Segments<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Segments(value)),
            Err(rejection) => Err(invalid("path", rejection.body_text()).into()),
        }
    }
}

/// Parameters of the query. Unknown ones are refused where the type says so.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T, S> FromRequestParts<S> for Query<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let query = parts.uri.query().unwrap_or_default();
        let value = serde_urlencoded::from_str(query).map_err(|error| invalid("query", error.to_string()))?;
        Ok(Query(value))
    }
}

/// A JSON body.
#[derive(Debug)]
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<Surface>> for JsonBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, surface: &Arc<Surface>) -> Result<Self, Failure> {
        let body = body::read(surface, request.into_body()).await?;
        Ok(JsonBody(body::parse(&body)?))
    }
}
