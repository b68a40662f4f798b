//! Revocation of tokens over HTTP (AU13).

use super::extract::JsonBody;
use super::http_error::{HttpError, Json};
use crate::access::Caller;
use crate::error::invalid;
use crate::surface::Surface;
use axum::extract::State;
use convoke_proto::v1::revoke_request::What;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A token, or a principal and optionally a time.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Revoke {
    token: Option<String>,
    principal: Option<String>,
    issued_until: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Revoked {
    /// False if a revocation covered these tokens before.
    added: bool,
}

/// `POST /api/v1/revocations`
pub(crate) async fn revoke(
    State(surface): State<Arc<Surface>>,
    caller: Caller,
    JsonBody(wanted): JsonBody<Revoke>,
) -> Result<Json<Revoked>, HttpError> {
    let what = match (wanted.token, wanted.principal) {
        (Some(_), Some(_)) => return Err(invalid("principal", "token and principal exclude each other").into()),
        (token, principal) => token.map(What::Token).or(principal.map(What::Principal)),
    };
    Ok(Json(Revoked { added: surface.revoke(&caller, what, wanted.issued_until).await? }))
}
