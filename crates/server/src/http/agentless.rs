//! Members without a client: `/api/v1/services/{service}/members/{id}` (AG2).

use super::body::parse;
use super::extract::Segments;
use super::http_error::{HttpError, Json};
use crate::access::Caller;
use crate::convert::member_spec;
use crate::error::invalid;
use crate::surface::Surface;
use axum::body::Bytes;
use axum::extract::State;
use convoke_core::node::CheckReport;
use convoke_proto::json;
use serde::Serialize;
use std::sync::Arc;

/// The answer to a registration.
#[derive(Debug, Serialize)]
pub(crate) struct Registered {
    version: String,
    /// Whether this node has stored it on disk. Other nodes store it when they receive it.
    stored: bool,
}

/// The answer to a deregistration.
#[derive(Debug, Serialize)]
pub(crate) struct Deregistered {
    /// Whether this node has stored it on disk.
    stored: bool,
}

/// `PUT /api/v1/services/{service}/members/{id}`
pub(crate) async fn register(
    State(surface): State<Arc<Surface>>,
    caller: Caller,
    Segments((service, id)): Segments<(String, String)>,
    body: Bytes,
) -> Result<Json<Registered>, HttpError> {
    let member: json::MemberSpec = parse(&body)?;
    for (field, body, path) in [("id", &member.id, &id), ("service", &member.service, &service)] {
        if !body.is_empty() && body != path {
            return Err(invalid(field, format!("the body names {body:?}, the path names {path:?}")).into());
        }
    }
    let spec = member_spec(json::MemberSpec { id, service, ..member })?;
    let (version, stored) = surface.register_agentless(&caller, spec).await?;
    Ok(Json(Registered { version, stored }))
}

/// The answer to a report about a check.
#[derive(Debug, Serialize)]
pub(crate) struct Reported {
    /// The report was sent to the node that owns the member, which does not confirm it.
    forwarded: bool,
}

/// `PUT /api/v1/services/{service}/members/{id}/checks/{check}`
pub(crate) async fn report(
    State(surface): State<Arc<Surface>>,
    caller: Caller,
    Segments((service, id, check)): Segments<(String, String, String)>,
    body: Bytes,
) -> Result<Json<Reported>, HttpError> {
    let json::CheckReport { status, output } = parse(&body)?;
    let report = CheckReport { id: id.into(), check: check.into(), status, output };
    Ok(Json(Reported { forwarded: surface.report_check(&caller, Some(&service), report).await? }))
}

/// `DELETE /api/v1/services/{service}/members/{id}`
pub(crate) async fn deregister(
    State(surface): State<Arc<Surface>>,
    caller: Caller,
    Segments((service, id)): Segments<(String, String)>,
) -> Result<Json<Deregistered>, HttpError> {
    Ok(Json(Deregistered { stored: surface.deregister_agentless(&caller, Some(&service), &id).await? }))
}
