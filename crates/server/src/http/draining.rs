//! Maintenance: `/api/v1/members/{id}/drain`, `/api/v1/nodes/{id}/drain` (R-16, C21) and `/api/v1/nodes/{id}` (D15).

use super::body::parse;
use super::extract::Segments;
use super::http_error::{HttpError, Json};
use crate::access::Caller;
use crate::draining::{Marked, wanted};
use crate::surface::Surface;
use axum::body::Bytes;
use axum::extract::State;
use convoke_proto::json;
use serde::Serialize;
use std::sync::Arc;

type Answer = Result<Json<Done>, HttpError>;

/// The answer to a drain, or to its end. The owner of the member executes it.
#[derive(Debug, Serialize)]
pub(crate) struct Done {
    drained: bool,
}

async fn drain(surface: &Surface, caller: &Caller, target: Marked, body: &Bytes) -> Answer {
    let json::DrainRequest { for_ms, reason } = parse(body)?;
    surface.mark(caller, target, Some(wanted(for_ms, reason.unwrap_or_default()))).await?;
    Ok(Json(Done { drained: true }))
}

async fn undrain(surface: &Surface, caller: &Caller, target: Marked) -> Answer {
    surface.mark(caller, target, None).await?;
    Ok(Json(Done { drained: false }))
}

/// `POST /api/v1/members/{id}/drain`
pub(crate) async fn drain_member(
    State(surface): State<Arc<Surface>>,
    caller: Caller,
    Segments(id): Segments<String>,
    body: Bytes,
) -> Answer {
    drain(&surface, &caller, Marked::Member(id), &body).await
}

/// `DELETE /api/v1/members/{id}/drain`
pub(crate) async fn undrain_member(
    State(surface): State<Arc<Surface>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Answer {
    undrain(&surface, &caller, Marked::Member(id)).await
}

/// `POST /api/v1/nodes/{id}/drain`
pub(crate) async fn drain_node(
    State(surface): State<Arc<Surface>>,
    caller: Caller,
    Segments(id): Segments<String>,
    body: Bytes,
) -> Answer {
    drain(&surface, &caller, Marked::Node(id), &body).await
}

/// `DELETE /api/v1/nodes/{id}/drain`
pub(crate) async fn undrain_node(
    State(surface): State<Arc<Surface>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Answer {
    undrain(&surface, &caller, Marked::Node(id)).await
}

/// The answer to a request that forgets a node.
#[derive(Debug, Serialize)]
pub(crate) struct Forgotten {
    forgotten: bool,
}

/// `DELETE /api/v1/nodes/{id}`
pub(crate) async fn forget_node(
    State(surface): State<Arc<Surface>>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Json<Forgotten>, HttpError> {
    surface.forget(&caller, &id).await?;
    Ok(Json(Forgotten { forgotten: true }))
}
