//! Request bodies: their size is limited before they are read, and errors in JSON name the position.

use super::http_error::HttpError;
use crate::error::invalid;
use crate::surface::Surface;
use axum::body::Body;
use bytes::Bytes;
use convoke_proto::{Error, ErrorCode};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

/// Reads a body within the limits of time and size.
pub(super) async fn read(surface: &Surface, body: Body) -> Result<Bytes, HttpError> {
    read_up_to(surface, body, surface.config.limits.body_bytes).await
}

/// Like `read`, with another limit of the size.
pub(crate) async fn read_up_to(surface: &Surface, body: Body, limit: usize) -> Result<Bytes, HttpError> {
    // A body that declares its size is rejected before it is read.
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(limit).into());
    }
    let reading = Limited::new(body, limit).collect();
    match tokio::time::timeout(surface.config.timeouts.request, reading).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(limit).into()),
        Ok(Err(_)) => Err(invalid("body", "the body could not be read completely").into()),
        Err(_) => Err(Error::new(ErrorCode::Timeout, "the body did not arrive in time; nothing was executed").into()),
    }
}

/// Parses JSON. An empty body counts as `{}`.
pub(super) fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Error> {
    let text = match std::str::from_utf8(body) {
        Ok("") => "{}",
        Ok(text) => text,
        Err(error) => {
            let message = format!("the body is not UTF-8 (invalid byte at position {})", error.valid_up_to() + 1);
            return Err(invalid("body", message));
        }
    };
    // Serde would also accept an array and read the fields of the object from it in order.
    if !text.trim_start().starts_with('{') {
        return Err(invalid("body", "body: expected a JSON object"));
    }
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(value);
    }
    // Parsed again, more slowly, to find the path of the invalid value.
    let mut json = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        // There is no path if the text ends early or is not JSON.
        let field = if matches!(path.as_str(), "." | "?") { "body" } else { path.as_str() };
        invalid(field, format!("{field}: {}", error.inner()))
    })?;
    json.end().map_err(|error| invalid("body", format!("body: {error}")))?;
    Ok(value)
}

fn too_large(limit: usize) -> Error {
    Error::new(ErrorCode::TooLarge, format!("the body exceeds {limit} bytes")).field("body").limit(limit as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;
    use convoke_proto::json::SessionRequest;
    use std::collections::BTreeMap;

    fn rejection<T: DeserializeOwned + std::fmt::Debug>(body: &'static [u8]) -> (String, String) {
        let error = parse::<T>(&Bytes::from_static(body)).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArgument);
        (error.field.unwrap(), error.message)
    }

    #[test]
    fn errors_name_the_path_and_the_position() {
        let (field, message) = rejection::<SessionRequest>(br#"{"timeout_ms":"x"}"#);
        assert_eq!(field, "timeout_ms");
        assert!(message.contains("line 1 column 17"), "{message}");
        let (field, message) = rejection::<SessionRequest>(br#"{"clint":"x"}"#);
        assert!(message.contains("unknown field `clint`"), "{field} {message}");
        let (field, _) = rejection::<BTreeMap<String, Option<String>>>(br#"{"a":"b","c":7}"#);
        assert_eq!(field, "c");
        let (field, message) = rejection::<SessionRequest>(b"{\"client\":\"\xff\"}");
        assert_eq!((field.as_str(), message.as_str()), ("body", "the body is not UTF-8 (invalid byte at position 12)"));
        assert_eq!(rejection::<SessionRequest>(b"{\"client\":").0, "client");
        assert_eq!(rejection::<SessionRequest>(b"[]").0, "body");
        assert_eq!(rejection::<SessionRequest>(b"{} x").0, "body");
    }

    #[test]
    fn no_body_counts_as_an_empty_object() {
        assert_eq!(parse::<SessionRequest>(&Bytes::new()).unwrap(), SessionRequest::default());
    }
}
