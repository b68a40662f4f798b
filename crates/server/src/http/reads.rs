//! Reads over HTTP: liveness, readiness, status, nodes, services, members.

use super::extract::{Query, Segments, Switch};
use super::http_error::{HttpError, Json};
use crate::access::Caller;
use crate::convert::{self, JsonMember};
use crate::error::{invalid, no_member, not_ready, rejected};
use crate::listing::{Part, list};
use crate::surface::Surface;
use axum::extract::State;
use convoke_core::filter::{Filter, Status};
use convoke_node::Phase;
use convoke_proto::{Error, ErrorCode, v1};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

type Shared = State<Arc<Surface>>;
type Answer<T> = Result<Json<T>, HttpError>;

#[derive(Debug, Serialize)]
pub(crate) struct Alive {
    alive: bool,
}

/// Succeeds while the process runs and its node has not stopped.
pub(crate) async fn alive(State(surface): Shared) -> Answer<Alive> {
    match surface.node.phase() {
        Phase::Stopped(_) => Err(not_ready().into()),
        _ => Ok(Json(Alive { alive: true })),
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Ready {
    ready: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReadyQuery {
    log: Switch,
}

/// Succeeds while the registry is complete at this node and, with `?log`, while the log has a leader.
pub(crate) async fn ready(State(surface): Shared, Query(query): Query<ReadyQuery>) -> Answer<Ready> {
    if query.log.0 {
        let log = &surface.log()?.handle;
        if let Some(conflict) = log.conflict() {
            return Err(Error::new(ErrorCode::NotReady, conflict.to_string()).into());
        }
        return if log.is_available() {
            Ok(Json(Ready { ready: true }))
        } else {
            Err(Error::new(ErrorCode::NotReady, "this node knows no leader of the log with a majority").into())
        };
    }
    if surface.node.is_ready() {
        return Ok(Json(Ready { ready: true }));
    }
    let alone = surface.readable().and_then(|node| node.absence().map_err(rejected)).err();
    Err(alone.unwrap_or_else(not_ready).into())
}

pub(crate) async fn status(State(surface): Shared) -> Answer<v1::StatusResponse> {
    Ok(Json(surface.status().await?))
}

pub(crate) async fn nodes(State(surface): Shared) -> Answer<v1::NodesResponse> {
    Ok(Json(surface.nodes().await?))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServicesQuery {
    /// Accept a list that may lack services (N7).
    partial: Switch,
}

pub(crate) async fn services(
    State(surface): Shared,
    caller: Caller,
    Query(query): Query<ServicesQuery>,
) -> Answer<v1::ServicesResponse> {
    Ok(Json(surface.services(&caller, query.partial.0)?))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MembersQuery {
    filter: String,
    service: Option<String>,
    locality: Option<String>,
    status: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    /// Accept a list that may lack members (N7).
    partial: Switch,
}

impl MembersQuery {
    /// Combines the parameters to one filter that requires all of them.
    fn filter(&self) -> Result<Filter, Error> {
        let mut filter = convert::filter(&self.filter)?;
        if let Some(pattern) = &self.service {
            filter = filter.and(Filter::service(pattern));
        }
        if let Some(pattern) = &self.locality {
            filter = filter.and(Filter::locality(pattern));
        }
        Ok(match self.status.as_deref() {
            None => filter,
            Some("up") => filter.and(Filter::status(Status::Up)),
            Some("down") => filter.and(Filter::status(Status::Down)),
            Some(other) => return Err(invalid("status", format!("status {other:?} is neither up nor down"))),
        })
    }
}

/// A page of members, in the form of [`convoke_proto::json::MemberList`].
#[derive(Debug, Serialize)]
pub(crate) struct MemberList {
    members: Vec<JsonMember>,
    next_cursor: Option<String>,
    complete: bool,
}

pub(crate) async fn members(
    State(surface): Shared,
    caller: Caller,
    Query(query): Query<MembersQuery>,
) -> Answer<MemberList> {
    let filter = caller.readable(query.filter()?);
    if query.limit == Some(0) {
        return Err(invalid("limit", "limit must be at least 1; omit it for the default").into());
    }
    let cursor = query.cursor.filter(|cursor| !cursor.is_empty());
    let part = Part { cursor, limit: query.limit, partial: query.partial.0 };
    let page = list(&surface, &filter, part, JsonMember, JsonMember::size_hint)?;
    Ok(Json(MemberList { members: page.members, next_cursor: page.next, complete: page.complete }))
}

pub(crate) async fn member(
    State(surface): Shared,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Answer<JsonMember> {
    let found = surface.readable()?.find_member(&id).map_err(rejected)?;
    let member = caller.visible(found).ok_or_else(|| no_member(&id))?;
    Ok(Json(JsonMember(member)))
}

pub(crate) async fn explain(
    State(surface): Shared,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Answer<v1::ExplainResponse> {
    Ok(Json(surface.explain(&caller, &id).await?))
}
