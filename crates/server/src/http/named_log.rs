//! The header `Convoke-Log`, with which a client names the log that its request is for (FD6).

use super::http_error::HttpError;
use crate::error::invalid;
use crate::surface::Surface;
use axum::extract::FromRequestParts;
use convoke_proto::{LOG_HEADER, v1};
use http::request::Parts;
use std::sync::Arc;

/// Checks the header before a request is executed. While the cluster has two logs, a request without it is rejected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedLog;

impl FromRequestParts<Arc<Surface>> for NamedLog {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, surface: &Arc<Surface>) -> Result<Self, HttpError> {
        let service = &surface.log()?.service;
        let named: Option<u128> = match parts.headers.get(LOG_HEADER) {
            None => None,
            Some(value) => {
                let log: Option<v1::LogId> = value.to_str().ok().and_then(|text| text.parse().ok());
                let message = "expected a log id of 32 hexadecimal digits";
                Some(log.ok_or_else(|| invalid("Convoke-Log", message))?.into())
            }
        };
        service.check_conflict(named)?;
        if let Some(named) = named {
            service.handle.check_log(named).map_err(|why| service.rejected(&why))?;
        }
        Ok(NamedLog)
    }
}
