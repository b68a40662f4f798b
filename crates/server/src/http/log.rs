//! Operations of the log over HTTP, at every node: status, fates of requests, membership changes.

use super::extract::{JsonBody, NoFields, Query, Segments};
use super::http_error::{HttpError, Json};
use super::named_log::NamedLog;
use crate::access::Caller;
use crate::error::invalid;
use crate::log::{fate, request_id};
use crate::surface::Surface;
use axum::extract::State;
use convoke_access::Verb;
use convoke_client::log::{EndSessions, ReplicaChange};
use convoke_proto::json::{MembersChange, RequestFate};
use convoke_proto::v1::RequestId;
use convoke_proto::{Error, ErrorCode, v1};
use convoke_replica::Consistency;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

type Shared = State<Arc<Surface>>;
type Answer<T> = Result<Json<T>, HttpError>;

pub(crate) async fn status(State(surface): Shared) -> Answer<v1::LogStatusResponse> {
    Ok(Json(surface.log_status()?))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PeekQuery {
    consistency: Option<String>,
    log: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ResolveQuery {
    log: Option<String>,
}

pub(crate) async fn peek(
    State(surface): Shared,
    caller: Caller,
    Segments((session, number)): Segments<(u64, u64)>,
    Query(query): Query<PeekQuery>,
) -> Answer<RequestFate> {
    let id = RequestId { session, number, log: named(query.log.as_deref())? };
    let log = surface.log()?;
    log.check_request(&caller, Verb::Observe, id).await?;
    log.service.check_conflict(id.log.map(Into::into))?;
    let fate = match query.consistency.as_deref() {
        Some("local") => {
            surface.log()?.service.check_named(id.log)?;
            let machine = surface.read_log(Consistency::Local).await?;
            fate(&machine.peek(request_id(Some(id))?))
        }
        None | Some("linearizable") => {
            let timeout = surface.config.timeouts.request;
            surface.log()?.ambassador.peek(id, Some(timeout)).await?
        }
        Some(other) => {
            let message = format!("consistency {other:?} is none of linearizable and local");
            return Err(invalid("consistency", message).into());
        }
    };
    Ok(Json(RequestFate::new(id, fate)))
}

pub(crate) async fn resolve(
    State(surface): Shared,
    caller: Caller,
    Segments((session, number)): Segments<(u64, u64)>,
    Query(query): Query<ResolveQuery>,
    _: JsonBody<NoFields>,
) -> Answer<RequestFate> {
    let id = RequestId { session, number, log: named(query.log.as_deref())? };
    let log = surface.log()?;
    log.check_request(&caller, Verb::Resolve, id).await?;
    log.service.check_conflict(id.log.map(Into::into))?;
    let timeout = surface.config.timeouts.request;
    let fate = surface.log()?.ambassador.resolve(id, Some(timeout)).await?;
    Ok(Json(RequestFate::new(id, fate)))
}

/// Returns the log that a request id names.
fn named(log: Option<&str>) -> Result<Option<v1::LogId>, Error> {
    log.map(|log| log.parse().map_err(|error| invalid("log", format!("{error}")))).transpose()
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SessionsQuery {
    after: Option<u64>,
    limit: Option<u64>,
}

pub(crate) async fn sessions(
    State(surface): Shared,
    Query(query): Query<SessionsQuery>,
    _: NamedLog,
) -> Answer<v1::SessionsResponse> {
    let timeout = surface.config.timeouts.request;
    let (after, limit) = (query.after.unwrap_or(0), query.limit.unwrap_or(0));
    Ok(Json(surface.log()?.ambassador.sessions(after, limit, Some(timeout)).await?))
}

pub(crate) async fn end_session(
    State(surface): Shared,
    Segments(session): Segments<u64>,
    _: NamedLog,
    _: JsonBody<NoFields>,
) -> Answer<v1::EndSessionsResponse> {
    let timeout = surface.config.timeouts.request;
    let ended = surface.log()?.ambassador.end_sessions(&EndSessions::One(session), Some(timeout)).await?;
    if ended == 0 {
        let message = format!("log session {session} is not open");
        return Err(Error::new(ErrorCode::NotFound, message).field("session").into());
    }
    Ok(Json(v1::EndSessionsResponse { ended, more: false }))
}

pub(crate) async fn upgrade(State(surface): Shared, _: NamedLog, _: JsonBody<NoFields>) -> Answer<v1::UpgradeResponse> {
    let timeout = surface.config.timeouts.request;
    let level = surface.log()?.ambassador.upgrade(Some(timeout)).await?;
    Ok(Json(v1::UpgradeResponse { level }))
}

pub(crate) async fn members(
    State(surface): Shared,
    _: NamedLog,
    JsonBody(wanted): JsonBody<MembersChange>,
) -> Answer<v1::MembersResponse> {
    let change = change(&wanted)?;
    let log = surface.log()?;
    let timeout = surface.config.timeouts.request;
    let wait = Duration::from_millis(wanted.wait_ms.unwrap_or(0)).min(timeout);
    let changed = log.ambassador.change_from(&change, wanted.replaces, wait, Some(timeout)).await?;
    Ok(Json(changed))
}

/// Returns the change. Exactly one must be given.
fn change(wanted: &MembersChange) -> Result<ReplicaChange, Error> {
    let MembersChange { add, replace, with, address, promote, demote, remove, transfer, .. } = wanted.clone();
    let mut changes = Vec::new();
    if let Some(node) = add {
        changes.push(ReplicaChange::Add { node, address: address.clone() });
    }
    match (replace, with) {
        (Some(old), Some(node)) => changes.push(ReplicaChange::Replace { old, node, address: address.clone() }),
        (None, None) => {}
        _ => return Err(invalid("with", "replace (the old node) and with (the new node) must be given together")),
    }
    changes.extend(promote.map(ReplicaChange::Promote));
    changes.extend(demote.map(ReplicaChange::Demote));
    changes.extend(remove.map(ReplicaChange::Remove));
    changes.extend(transfer.map(ReplicaChange::Transfer));
    match changes.pop() {
        Some(
            ReplicaChange::Promote(_)
            | ReplicaChange::Demote(_)
            | ReplicaChange::Remove(_)
            | ReplicaChange::Transfer(_),
        ) if address.is_some() => Err(invalid("address", "address is only allowed with add and replace")),
        Some(change) if changes.is_empty() => Ok(change),
        _ => {
            let message = "exactly one change is required: add, promote, demote, remove, replace (with) or transfer";
            Err(Error::new(ErrorCode::InvalidArgument, message).field("body"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_change_at_a_time() {
        let node = || Some("n1".to_owned());
        assert!(change(&MembersChange::default()).is_err());
        assert!(change(&MembersChange { add: node(), remove: node(), ..Default::default() }).is_err());
        assert!(change(&MembersChange { promote: node(), address: node(), ..Default::default() }).is_err());
        assert!(change(&MembersChange { replace: node(), ..Default::default() }).is_err());
        let add = change(&MembersChange { add: node(), address: node(), ..Default::default() });
        assert_eq!(add, Ok(ReplicaChange::Add { node: "n1".into(), address: node() }));
        assert_eq!(
            change(&MembersChange { remove: node(), ..Default::default() }),
            Ok(ReplicaChange::Remove("n1".into()))
        );
    }
}
