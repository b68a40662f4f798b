//! Leases over HTTP, at every node: it acts as a client through its own ambassador.

use super::extract::{JsonBody, NoFields, Query, Segments};
use super::http_error::{HttpError, Json};
use super::named_log::NamedLog;
use crate::access::{Caller, Use, authorize_lease, authorize_revoke};
use crate::error::invalid;
use crate::log::binding;
use crate::surface::Surface;
use axum::extract::State;
use convoke_access::{Resource, Verb};
use convoke_client::log::{Consistency, LeaseTerms, MemberBinding};
use convoke_log::command::LeaseId;
use convoke_proto::json::{self, LogClock};
use convoke_proto::{Error, ErrorCode};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

type Shared = State<Arc<Surface>>;
type Answer<T> = Result<Json<T>, HttpError>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GrantBody {
    ttl_ms: Option<u64>,
    member: Option<String>,
    end: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct LeaseGranted {
    lease: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct LeaseKept {
    lease: String,
    left_ms: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct LeaseRevoked {
    lease: String,
    /// Keys that were deleted or detached.
    keys: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListQuery {
    pub(super) limit: Option<u64>,
    pub(super) cursor: Option<String>,
    pub(super) consistency: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ShowQuery {
    pub(super) consistency: Option<String>,
}

pub(crate) async fn grant(
    State(surface): Shared,
    caller: Caller,
    _: NamedLog,
    JsonBody(wanted): JsonBody<GrantBody>,
) -> Answer<LeaseGranted> {
    let terms = match (wanted.ttl_ms, wanted.member.as_deref()) {
        (Some(_), Some(_)) => return Err(invalid("member", "ttl_ms and member exclude each other").into()),
        (None, None) => return Err(invalid("ttl_ms", "one of ttl_ms and member is required").into()),
        (ttl, member) => terms(&surface, &caller, ttl, member)?,
    };
    let terms = match wanted.end.as_deref() {
        None | Some("delete") => terms,
        Some("release") => terms.release_keys(),
        Some(other) => return Err(invalid("end", format!("end {other:?} is none of delete and release")).into()),
    };
    let session = surface.log()?.session_of(&caller)?;
    let leases = session.leases();
    let lease = in_open_session(|| leases.create(terms.clone())).await?.to_string();
    Ok(Json(LeaseGranted { lease, ttl_ms: wanted.ttl_ms }))
}

/// Returns the terms of a lease with a ttl, or bound to a member that the registry of this node shows as up. A member that
/// the caller may not read does not exist for it.
pub(super) fn terms(
    surface: &Surface,
    caller: &Caller,
    ttl_ms: Option<u64>,
    member: Option<&str>,
) -> Result<LeaseTerms, Error> {
    if let Some(ttl) = ttl_ms {
        return Ok(LeaseTerms::ttl(Duration::from_millis(ttl)));
    }
    let node = surface.readable()?;
    let bound = binding(node, caller, member.unwrap_or_default())?;
    let bound = MemberBinding {
        member: bound.member.into(),
        client: bound.client.into(),
        registration: bound.registration.into(),
    };
    Ok(LeaseTerms::member(bound, node.session_timeout()))
}

pub(crate) async fn keep_alive(
    State(surface): Shared,
    caller: Caller,
    Segments(lease): Segments<String>,
    _: NamedLog,
    _: JsonBody<NoFields>,
) -> Answer<LeaseKept> {
    let (log, id) = (surface.log()?, lease_id(&lease)?);
    log.check_uses(&caller, &[Use::Keep(LeaseId(id))]).await?;
    let left = log.kv.leases().keep_alive(id).await?;
    Ok(Json(LeaseKept { lease, left_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX) }))
}

pub(crate) async fn revoke(
    State(surface): Shared,
    caller: Caller,
    Segments(lease): Segments<String>,
    _: NamedLog,
    _: JsonBody<NoFields>,
) -> Answer<LeaseRevoked> {
    authorize_revoke(&caller)?;
    let (log, id) = (surface.log()?, lease_id(&lease)?);
    log.check_uses(&caller, &[Use::EndLease(LeaseId(id))]).await?;
    let session = log.session_of(&caller)?;
    let leases = session.leases();
    let keys = in_open_session(|| leases.revoke(id)).await?;
    Ok(Json(LeaseRevoked { lease, keys }))
}

pub(crate) async fn list(
    State(surface): Shared,
    Query(query): Query<ListQuery>,
    _: NamedLog,
) -> Answer<json::LeaseList> {
    let after = match query.cursor.as_deref().filter(|cursor| !cursor.is_empty()) {
        None => 0,
        Some(cursor) => {
            let message = "invalid cursor; pass next_cursor of the previous page unchanged";
            cursor.parse().map_err(|_| invalid("cursor", message))?
        }
    };
    let (limit, consistency) = (limit(query.limit)?, consistency(query.consistency.as_deref())?);
    let page = surface.log()?.kv.leases().list(after, limit, consistency).await?;
    let last = page.leases.last().filter(|_| page.more).map(|lease| lease.lease.to_string());
    let clock = clock(page.log_time_us);
    let leases = page.leases.into_iter().map(|lease| json::Lease::new(lease, clock)).collect();
    Ok(Json(json::LeaseList { leases, next_cursor: last }))
}

pub(crate) async fn show(
    State(surface): Shared,
    caller: Caller,
    Segments(lease): Segments<String>,
    Query(query): Query<ShowQuery>,
    _: NamedLog,
) -> Answer<json::Lease> {
    authorize_lease(&caller)?;
    let (id, consistency) = (lease_id(&lease)?, consistency(query.consistency.as_deref())?);
    let (found, log_time) = surface.log()?.kv.leases().get_at(id, consistency).await?;
    let may_see = |owner: &str| caller.owns(owner) || caller.may(Verb::Observe, Resource::Log);
    let found = found.filter(|lease| may_see(&lease.owner)).ok_or_else(|| {
        let message = format!("lease {id} does not exist: it has ended, or was never granted");
        Error::new(ErrorCode::NotFound, message).field("lease")
    })?;
    Ok(Json(json::Lease::new(found, clock(log_time))))
}

pub(super) fn lease_id(text: &str) -> Result<u64, Error> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let id = digits.filter(|id| *id > 0);
    id.ok_or_else(|| invalid("lease", format!("lease {text:?} is not a lease id; pass it as the grant returned it")))
}

/// Parses the parameter `limit`.
pub(super) fn limit(limit: Option<u64>) -> Result<u64, Error> {
    match limit {
        Some(0) => Err(invalid("limit", "limit must be at least 1; omit it for the default")),
        limit => Ok(limit.unwrap_or(0)),
    }
}

/// Parses the parameter `consistency`. Reads of leases and locks are linearizable by default.
pub(super) fn consistency(text: Option<&str>) -> Result<Consistency, Error> {
    text.map_or(Ok(Consistency::Linearizable), |text| super::kv::consistency(Some(text)))
}

/// Returns the clock that shows times of the log in UNIX milliseconds.
pub(super) fn clock(log_time_us: u64) -> LogClock {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    LogClock { log_time_us, unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX) }
}

/// Executes a request again if the node's log session had ended before it arrived, so that it had no effect. The retry
/// uses a new session.
pub(crate) async fn in_open_session<T, F>(request: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    match request().await {
        Err(error) if error.code == ErrorCode::SessionGone => request().await,
        result => result,
    }
}
