//! Locks, semaphores and elections over HTTP, at every node.
//!
//! A request that waits holds a place in the queue. If its connection closes, the place is given up. If this node dies,
//! the place ends with a lease that only this node keeps alive: the one that the request brought into being, or a second
//! one for the time in the queue (LO10).

use super::extract::{JsonBody, NoFields, Query, Segments};
use super::http_error::{HttpError, Json};
use super::leases::{ListQuery, ShowQuery, clock, consistency, in_open_session, lease_id, limit, terms};
use super::named_log::NamedLog;
use crate::access::{Caller, Use, authorize_lock, authorize_release};
use crate::error::invalid;
use crate::log::lock_name;
use crate::surface::Surface;
use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use convoke_access::{Resource, Verb};
use convoke_client::log::{Acquire, Kv, LeaseTerms, LockInfo, LockPage};
use convoke_log::command::{LeaseId, Place};
use convoke_proto::json::{self, LogClock};
use convoke_proto::{Error, ErrorCode};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest wait of one request.
const WAIT_MAX: Duration = Duration::from_secs(60 * 60);
/// How long a place in a queue outlives the node that serves its request, without a change of the leader.
const WAITING_TTL: Duration = Duration::from_secs(10);

type Shared = State<Arc<Surface>>;
type Answer<T> = Result<Json<T>, HttpError>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AcquireBody {
    lease: Option<String>,
    ttl_ms: Option<u64>,
    member: Option<String>,
    wait_ms: Option<u64>,
    permits: Option<u64>,
    delay_ms: Option<u64>,
    value: Option<String>,
    value_base64: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProclaimBody {
    fence: Option<u64>,
    value: Option<String>,
    value_base64: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReleaseQuery {
    fence: Option<u64>,
}

/// A granted lock.
#[derive(Debug, Serialize)]
pub(crate) struct LockAcquired {
    lock: String,
    fence: u64,
    lease: String,
}

/// A won election.
#[derive(Debug, Serialize)]
pub(crate) struct ElectionWon {
    election: String,
    fence: u64,
    lease: String,
}

/// A released permit.
#[derive(Debug, Serialize)]
pub(crate) struct Released {
    fence: u64,
}

pub(crate) async fn acquire(
    State(surface): Shared,
    caller: Caller,
    Segments(lock): Segments<String>,
    _: NamedLog,
    JsonBody(wanted): JsonBody<AcquireBody>,
) -> Answer<LockAcquired> {
    authorize_lock(&caller, lock.as_bytes(), false)?;
    let (fence, lease) = granted(&surface, &caller, &lock, wanted, false).await?;
    Ok(Json(LockAcquired { lock, fence, lease: lease.to_string() }))
}

pub(crate) async fn campaign(
    State(surface): Shared,
    caller: Caller,
    Segments(election): Segments<String>,
    _: NamedLog,
    JsonBody(wanted): JsonBody<AcquireBody>,
) -> Answer<ElectionWon> {
    authorize_lock(&caller, election.as_bytes(), true)?;
    if wanted.permits.is_some() {
        return Err(invalid("permits", "an election has one leader; omit permits").into());
    }
    let (fence, lease) = granted(&surface, &caller, &election, wanted, true).await?;
    Ok(Json(ElectionWon { election, fence, lease: lease.to_string() }))
}

/// Waits for a permit. Returns its fence and its lease.
async fn granted(
    surface: &Surface,
    caller: &Caller,
    name: &str,
    wanted: AcquireBody,
    election: bool,
) -> Result<(u64, u64), Error> {
    let log = surface.log()?;
    let wait = Duration::from_millis(wanted.wait_ms.unwrap_or(0));
    if wait > WAIT_MAX {
        let limit = WAIT_MAX.as_secs() * 1_000;
        return Err(invalid("wait_ms", format!("a request waits at most {limit} ms; ask again after it")).limit(limit));
    }
    if wanted.permits == Some(0) {
        return Err(invalid("permits", "a lock has at least one permit"));
    }
    let value = value(wanted.value, wanted.value_base64)?;
    let mut acquire = Acquire::new(name.to_owned()).wait(wait).permits(wanted.permits.unwrap_or(1)).value(value);
    if let Some(delay) = wanted.delay_ms {
        acquire = acquire.delay(Duration::from_millis(delay));
    }
    let _waiting = if wait.is_zero() { None } else { Some(log.service.enter_wait()?) };
    let kv = log.session_of(caller)?;
    let granting = async {
        match (wanted.lease, wanted.ttl_ms, wanted.member) {
            (Some(lease), None, None) => {
                let lease = lease_id(&lease)?;
                log.check_uses(caller, &[Use::Lease(LeaseId(lease))]).await?;
                Ok((bound_place(&kv, acquire.lease_id(lease), wait, election).await?, lease))
            }
            (None, ttl, member) if ttl.is_some() != member.is_some() => {
                let (leases, terms) = (kv.leases(), terms(surface, caller, ttl, member.as_deref())?);
                let lease = in_open_session(|| leases.grant(terms.clone())).await?;
                let acquire = acquire.lease(&lease);
                // This node keeps a lease with a ttl alive. A member may outlive this node.
                let fence = match ttl {
                    Some(_) => place(&kv, acquire, election).await?,
                    None => bound_place(&kv, acquire, wait, election).await?,
                };
                // From now on the client keeps it alive. Otherwise dropping it revokes it.
                lease.detach();
                Ok((fence, lease.id()))
            }
            _ => Err(invalid("lease", "exactly one of lease, ttl_ms and member is required")),
        }
    };
    tokio::select! {
        biased;
        granted = granting => granted,
        () = log.service.closing() => Err(stopping()),
    }
}

/// Waits with a lease that may outlive this node. A second lease removes the place from the queue if this node dies (LO10).
async fn bound_place(kv: &Kv, acquire: Acquire, wait: Duration, election: bool) -> Result<u64, Error> {
    let begun = Instant::now();
    // A free lock takes one round trip and no second lease.
    match place(kv, acquire.clone().no_wait(), election).await {
        Err(error) if error.code == ErrorCode::LockHeld && !wait.is_zero() => {}
        placed => return placed,
    }
    let leases = kv.leases();
    let second = in_open_session(|| leases.grant(LeaseTerms::ttl(WAITING_TTL))).await?;
    let left = wait.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
    place(kv, acquire.wait(left).waits_with(&second), election).await
}

async fn place(kv: &Kv, acquire: Acquire, election: bool) -> Result<u64, Error> {
    let acquire = if election { acquire.of_election() } else { acquire };
    Ok(kv.locks().acquire(acquire).await?.detach())
}

pub(super) fn stopping() -> Error {
    Error::new(ErrorCode::NotReady, "this node is stopping; ask another node")
}

pub(super) fn value(text: Option<String>, base64: Option<String>) -> Result<Bytes, Error> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(invalid("value_base64", "value and value_base64 exclude each other")),
        (None, Some(encoded)) => {
            let decoded = STANDARD.decode(encoded).map_err(|error| invalid("value_base64", error.to_string()))?;
            Ok(decoded.into())
        }
        (text, None) => Ok(text.unwrap_or_default().into()),
    }
}

pub(crate) async fn release(
    State(surface): Shared,
    caller: Caller,
    Segments(name): Segments<String>,
    Query(query): Query<ReleaseQuery>,
    _: NamedLog,
    _: JsonBody<NoFields>,
) -> Answer<Released> {
    let session = releasing(&surface, &caller, &name, &query, false).await?;
    let (locks, fence) = (session.locks(), required(query.fence)?);
    in_open_session(|| locks.release(name.clone(), fence)).await?;
    Ok(Json(Released { fence }))
}

pub(crate) async fn resign(
    State(surface): Shared,
    caller: Caller,
    Segments(name): Segments<String>,
    Query(query): Query<ReleaseQuery>,
    _: NamedLog,
    _: JsonBody<NoFields>,
) -> Answer<Released> {
    let session = releasing(&surface, &caller, &name, &query, true).await?;
    let (elections, fence) = (session.elections(), required(query.fence)?);
    in_open_session(|| elections.resign(name.clone(), fence)).await?;
    Ok(Json(Released { fence }))
}

pub(crate) async fn proclaim(
    State(surface): Shared,
    caller: Caller,
    Segments(name): Segments<String>,
    _: NamedLog,
    JsonBody(wanted): JsonBody<ProclaimBody>,
) -> Answer<Released> {
    authorize_lock(&caller, name.as_bytes(), true)?;
    let (log, fence) = (surface.log()?, required(wanted.fence)?);
    log.check_uses(&caller, &[Use::Proclaim(lock_name(name.clone().into(), true), fence)]).await?;
    let session = log.session_of(&caller)?;
    let elections = session.elections();
    let value = value(wanted.value, wanted.value_base64)?;
    in_open_session(|| elections.proclaim(name.clone(), fence, value.clone())).await?;
    Ok(Json(Released { fence }))
}

/// Authorises a release. Returns the log session for it.
async fn releasing(
    surface: &Surface,
    caller: &Caller,
    name: &str,
    query: &ReleaseQuery,
    election: bool,
) -> Result<Arc<Kv>, Error> {
    authorize_release(caller, name.as_bytes(), election)?;
    let (log, fence) = (surface.log()?, required(query.fence)?);
    let released = Use::Release(lock_name(name.to_owned().into(), election), Place::Fence(fence));
    log.check_uses(caller, &[released]).await?;
    log.session_of(caller)
}

fn required(fence: Option<u64>) -> Result<u64, Error> {
    fence.filter(|fence| *fence > 0).ok_or_else(|| invalid("fence", "the fence of the holder is required"))
}

pub(crate) async fn list(
    State(surface): Shared,
    Query(query): Query<ListQuery>,
    _: NamedLog,
) -> Answer<json::LockList> {
    let (locks, clock, next_cursor) = listed(&surface, &query, false).await?;
    let locks = locks.into_iter().map(|lock| json::Lock::new(lock, clock)).collect();
    Ok(Json(json::LockList { locks, next_cursor }))
}

pub(crate) async fn elections(
    State(surface): Shared,
    Query(query): Query<ListQuery>,
    _: NamedLog,
) -> Answer<json::ElectionList> {
    let (locks, clock, next_cursor) = listed(&surface, &query, true).await?;
    let elections = locks.into_iter().map(|lock| json::Election::new(lock, clock)).collect();
    Ok(Json(json::ElectionList { elections, next_cursor }))
}

/// Returns a page, its clock, and the cursor of the next page.
async fn listed(
    surface: &Surface,
    query: &ListQuery,
    election: bool,
) -> Result<(Vec<LockInfo>, LogClock, Option<String>), Error> {
    let after = after(query.cursor.as_deref())?;
    let (limit, consistency) = (limit(query.limit)?, consistency(query.consistency.as_deref())?);
    let kv = &surface.log()?.kv;
    let page = match election {
        true => kv.elections().list(after, limit, consistency).await?,
        false => kv.locks().list(after, limit, consistency).await?,
    };
    let next = page.locks.last().filter(|_| page.more).map(|lock| URL_SAFE_NO_PAD.encode(&lock.name));
    Ok((page.locks, clock(page.log_time_us), next))
}

pub(super) fn after(cursor: Option<&str>) -> Result<Bytes, Error> {
    let message = "invalid cursor; pass next_cursor of the previous page unchanged";
    let decoded = URL_SAFE_NO_PAD.decode(cursor.unwrap_or_default()).map_err(|_| invalid("cursor", message))?;
    Ok(decoded.into())
}

pub(crate) async fn show(
    State(surface): Shared,
    caller: Caller,
    Segments(name): Segments<String>,
    Query(query): Query<ShowQuery>,
    _: NamedLog,
) -> Answer<json::Lock> {
    caller.check(Verb::Read, Resource::Lock(name.as_bytes()))?;
    let consistency = consistency(query.consistency.as_deref())?;
    let found = only(surface.log()?.kv.locks().show_page(name.clone(), consistency).await?);
    Ok(Json(found.map_or_else(|| json::Lock::free(&name), |(lock, clock)| json::Lock::new(lock, clock))))
}

pub(crate) async fn election(
    State(surface): Shared,
    caller: Caller,
    Segments(name): Segments<String>,
    Query(query): Query<ShowQuery>,
    _: NamedLog,
) -> Answer<json::Election> {
    caller.check(Verb::Read, Resource::Election(name.as_bytes()))?;
    let consistency = consistency(query.consistency.as_deref())?;
    let found = only(surface.log()?.kv.elections().show_page(name.clone(), consistency).await?);
    Ok(Json(found.map_or_else(|| json::Election::empty(&name), |(lock, clock)| json::Election::new(lock, clock))))
}

/// Returns the only lock of a page, with the clock of the page.
fn only(page: LockPage) -> Option<(LockInfo, LogClock)> {
    let clock = clock(page.log_time_us);
    page.locks.into_iter().next().map(|lock| (lock, clock))
}
