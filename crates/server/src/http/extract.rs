//! Extractors of request parts with typed rejections.

use super::body;
use super::http_error::HttpError;
use crate::access::Caller;
use crate::error::invalid;
use crate::service::ClientConnection;
use crate::surface::Surface;
use ::http::request::Parts;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use convoke_proto::Error;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use std::convert::Infallible;
use std::sync::Arc;

/// Parameters of the path, percent-decoded.
#[derive(Debug)]
pub(crate) struct Segments<T>(pub(crate) T);

impl<T, S> FromRequestParts<S> for Segments<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpError> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Segments(value)),
            Err(rejection) => Err(invalid("path", rejection.body_text()).into()),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, HttpError> {
        Ok(Caller::of(&parts.extensions)?)
    }
}

/// The connection on which the request arrived.
#[derive(Debug)]
pub(crate) struct Connection(pub(crate) Option<Arc<ClientConnection>>);

impl<S: Send + Sync> FromRequestParts<S> for Connection {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Connection(parts.extensions.get::<Arc<ClientConnection>>().cloned()))
    }
}

/// Parameters of the query. All types reject unknown parameters, and a rejection names the parameter.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T, S> FromRequestParts<S> for Query<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, HttpError> {
        Ok(Query(query(parts.uri.query().unwrap_or_default())?))
    }
}

fn query<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let pairs = || form_urlencoded::parse(text.as_bytes());
    if let Ok(value) = T::deserialize(serde_urlencoded::Deserializer::new(pairs())) {
        return Ok(value);
    }
    // Parsed again, more slowly, to find the name of the invalid parameter.
    serde_path_to_error::deserialize(serde_urlencoded::Deserializer::new(pairs())).map_err(|error| {
        let (path, why) = (error.path().to_string(), error.inner().to_string());
        match pairs().find(|(name, _)| *name == path) {
            Some((name, value)) if why.starts_with("unknown field") => {
                // Serde's message uses the word "field".
                let why = why.replacen("unknown field", "unknown parameter", 1).replace("no fields", "none here");
                invalid(&name, format!("{name}={value}: {why}"))
            }
            Some((name, value)) => invalid(&name, format!("{name}={value}: {why}; see /api/v1/openapi.json")),
            // The error concerns the query as a whole.
            None => invalid("query", why),
        }
    })
}

/// For routes without parameters and bodies without fields.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoFields {}

/// Rejects any query, for routes without parameters.
pub(crate) fn no_query(text: &str) -> Result<(), Error> {
    query::<NoFields>(text).map(drop)
}

/// A boolean parameter. It is true when it is present without a value or with `=true`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Switch(pub(crate) bool);

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "" | "true" => Ok(Switch(true)),
            "false" => Ok(Switch(false)),
            _ => Err(D::Error::custom("expected true, false or no value")),
        }
    }
}

/// A JSON body.
#[derive(Debug)]
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<Surface>> for JsonBody<T> {
    type Rejection = HttpError;

    async fn from_request(request: Request, surface: &Arc<Surface>) -> Result<Self, HttpError> {
        let body = body::read(surface, request.into_body()).await?;
        Ok(JsonBody(body::parse(&body)?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields, default)]
    struct TestQuery {
        limit: Option<u64>,
        filter: String,
        raw: Switch,
    }

    #[test]
    fn a_switch_without_a_value_is_true() {
        for (text, on) in [("", false), ("raw", true), ("raw=", true), ("raw=true", true), ("raw=false", false)] {
            assert_eq!(query::<TestQuery>(text).unwrap().raw, Switch(on), "{text}");
        }
    }

    #[test]
    fn rejections_name_the_parameter() {
        for (text, field, words) in [
            ("limit=x", "limit", "limit=x: invalid digit"),
            ("limit=-1", "limit", "limit=-1: invalid digit"),
            ("limit=", "limit", "limit=: cannot parse integer"),
            ("limit=99999999999999999999", "limit", "number too large"),
            ("filter=a&limt=3", "limt", "limt=3: unknown parameter `limt`, expected one of `limit`, `filter`, `raw`"),
            ("raw=no", "raw", "raw=no: expected true, false or no value"),
        ] {
            let error = query::<TestQuery>(text).unwrap_err();
            assert_eq!(error.field.as_deref(), Some(field), "{text}: {error}");
            assert!(error.message.contains(words), "{text}: {error}");
        }
        assert_eq!(query::<TestQuery>("limit=1&limit=2").unwrap_err().message, "duplicate field `limit`");
        let error = no_query("pretty").unwrap_err();
        assert_eq!(error.message, "pretty=: unknown parameter `pretty`, there are none here");
        assert_eq!(error.field.as_deref(), Some("pretty"));
        no_query("").unwrap();
    }
}
