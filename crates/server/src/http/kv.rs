//! Keys over HTTP. They work at every node: a request that the own replica cannot answer is sent to the leader as a
//! client.

use super::body;
use super::extract::{JsonBody, NoFields, Query, Segments, Switch};
use super::http_error::{HttpError, Json};
use super::leases::lease_id;
use super::named_log::NamedLog;
use crate::access::{Caller, Use, authorize_guard, authorize_query, authorize_write};
use crate::error::invalid;
use crate::log::{read_keys, record};
use crate::surface::Surface;
use ::http::{HeaderValue, header};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use convoke_access::{Resource, Verb};
use convoke_client::log::{Consistency, KeyPage, Query as KeyQuery, Write, Written};
use convoke_log::Machine;
use convoke_log::command::LeaseId;
use convoke_proto::{Error, ErrorCode, json};
use serde::Deserialize;
use std::sync::Arc;

type Shared = State<Arc<Surface>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReadQuery {
    raw: Switch,
    prefix: Switch,
    limit: Option<u64>,
    cursor: Option<String>,
    keys: Switch,
    count: Switch,
    sort: Option<json::Sort>,
    descending: Switch,
    revision: Option<u64>,
    consistency: Option<String>,
}

/// Parameters of a list. The prefix is a parameter here because the path contains no key.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListQuery {
    prefix: Option<String>,
    from: Option<String>,
    until: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
    keys: Switch,
    count: Switch,
    sort: Option<json::Sort>,
    descending: Switch,
    revision: Option<u64>,
    consistency: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PutQuery {
    if_revision: Option<u64>,
    previous: Switch,
    lease: Option<String>,
    lock: Option<String>,
    fence: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DeleteQuery {
    if_revision: Option<u64>,
    prefix: Switch,
    previous: Switch,
    lock: Option<String>,
    fence: Option<u64>,
}

/// Parses the parameter `consistency`.
pub(super) fn consistency(text: Option<&str>) -> Result<Consistency, Error> {
    match text {
        None | Some("barrier") => Ok(Consistency::Barrier),
        Some("linearizable") => Ok(Consistency::Linearizable),
        Some("local") => Ok(Consistency::Local),
        Some(other) => {
            Err(invalid("consistency", format!("consistency {other:?} is none of linearizable, barrier and local")))
        }
    }
}

pub(crate) async fn get(
    State(surface): Shared,
    caller: Caller,
    Segments(key): Segments<String>,
    Query(query): Query<ReadQuery>,
    _: NamedLog,
) -> Result<Response, HttpError> {
    if query.prefix.0 {
        if query.raw.0 {
            return Err(invalid("raw", "raw requires a single key; omit prefix").into());
        }
        let ReadQuery { limit, cursor, keys, count, sort, descending, revision, consistency, .. } = query;
        let (prefix, from, until) = (Some(key), None, None);
        let wanted =
            ListQuery { prefix, from, until, limit, cursor, keys, count, sort, descending, revision, consistency };
        return Ok(list(&surface, &caller, wanted).await?.into_response());
    }
    for (given, name) in [
        (query.limit.is_some(), "limit"),
        (query.cursor.is_some(), "cursor"),
        (query.keys.0, "keys"),
        (query.count.0, "count"),
        (query.sort.is_some(), "sort"),
        (query.descending.0, "descending"),
    ] {
        if given {
            return Err(invalid(name, format!("{name} requires prefix")).into());
        }
    }
    let consistency = consistency(query.consistency.as_deref())?;
    let revision = revision(query.revision)?;
    let found = read(&surface, &caller, KeyQuery::key(key.clone()), revision, consistency).await?;
    let Some(found) = found.records.into_iter().next() else {
        return Err(Error::new(ErrorCode::NotFound, format!("no key {key:?}")).field("key").into());
    };
    if query.raw.0 {
        let mut response = Response::new(Body::from(found.value));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert("convoke-mod-revision", found.mod_revision.into());
        return Ok(response);
    }
    Ok(Json(json::KeyValue::from(found)).into_response())
}

pub(crate) async fn list_all(
    State(surface): Shared,
    caller: Caller,
    Query(query): Query<ListQuery>,
    _: NamedLog,
) -> Result<Json<json::KeyList>, HttpError> {
    list(&surface, &caller, query).await
}

async fn list(surface: &Surface, caller: &Caller, query: ListQuery) -> Result<Json<json::KeyList>, HttpError> {
    if query.limit == Some(0) {
        return Err(invalid("limit", "limit must be at least 1; omit it for the default").into());
    }
    let revision = revision(query.revision)?;
    let consistency = consistency(query.consistency.as_deref())?;
    let (sorted, count) = (query.sort.is_some_and(|sort| sort != json::Sort::Key) || query.descending.0, query.count.0);
    let wanted = selected(query)?;
    let page = read(surface, caller, wanted, revision, consistency).await?;
    let more = page.more && sorted;
    let last = page.records.last().filter(|_| page.more && !sorted).map(|record| URL_SAFE_NO_PAD.encode(&record.key));
    let keys = page.records.into_iter().map(json::KeyValue::from).collect();
    let count = count.then_some(page.count);
    Ok(Json(json::KeyList { keys, revision: page.revision, next_cursor: last, count, more }))
}

/// Returns the read that the parameters describe.
fn selected(query: ListQuery) -> Result<KeyQuery, Error> {
    let mut wanted = match (query.prefix, query.from, query.until) {
        (Some(_), Some(_), _) => return Err(invalid("from", "prefix and from exclude each other")),
        (Some(_), _, Some(_)) => return Err(invalid("until", "prefix and until exclude each other")),
        (prefix, None, None) => KeyQuery::prefix(prefix.unwrap_or_default()),
        (None, from, until) => KeyQuery::range(from.unwrap_or_default(), until.map(Bytes::from)),
    };
    let cursor = query.cursor.as_deref().filter(|cursor| !cursor.is_empty());
    if let Some(cursor) = cursor {
        if query.sort.is_some_and(|sort| sort != json::Sort::Key) || query.descending.0 {
            return Err(invalid("cursor", "only keys in key order have pages; omit sort and descending"));
        }
        let message = "invalid cursor; pass next_cursor of the previous page unchanged";
        wanted = wanted.after(&URL_SAFE_NO_PAD.decode(cursor).map_err(|_| invalid("cursor", message))?);
    }
    wanted = wanted.limit(query.limit.unwrap_or(0)).sort(query.sort.unwrap_or(json::Sort::Key), query.descending.0);
    match (query.keys.0, query.count.0) {
        (true, true) => Err(invalid("count", "keys and count exclude each other")),
        (true, false) => Ok(wanted.keys_only()),
        (false, true) if query.limit.is_some() => Err(invalid("limit", "limit and count exclude each other")),
        (false, true) => Ok(wanted.count_only()),
        (false, false) => Ok(wanted),
    }
}

/// No revision is 0: a store without changes has none to read.
fn revision(wanted: Option<u64>) -> Result<Option<u64>, Error> {
    match wanted {
        Some(0) => Err(invalid("revision", "revisions start at 1; omit revision for the current state")),
        wanted => Ok(wanted),
    }
}

/// Reads from the own replica if it can answer, else from the leader.
async fn read(
    surface: &Surface,
    caller: &Caller,
    query: KeyQuery,
    revision: Option<u64>,
    consistency: Consistency,
) -> Result<KeyPage, Error> {
    authorize_query(caller, &query.clone().into())?;
    let Some(machine) = read_here(surface, consistency).await? else {
        return surface.log()?.kv.query(query, revision, consistency).await;
    };
    let page = read_keys(&machine, query.into(), revision.unwrap_or(0))?;
    let records = page.records.iter().map(|found| record(found)).collect();
    Ok(KeyPage { records, count: page.count, more: page.more, revision: machine.keys().revision() })
}

/// Returns the state of the own replica, or `None` if the leader must be asked.
pub(super) async fn read_here(surface: &Surface, consistency: Consistency) -> Result<Option<Arc<Machine>>, Error> {
    use convoke_replica::Consistency as Here;
    surface.log()?;
    match consistency {
        Consistency::Local => surface.read_log(Here::Local).await.map(Some),
        Consistency::Linearizable => Ok(surface.read_log(Here::Linearizable).await.ok()),
        Consistency::Barrier => Ok(None),
    }
}

pub(crate) async fn put(
    State(surface): Shared,
    caller: Caller,
    Segments(key): Segments<String>,
    Query(query): Query<PutQuery>,
    _: NamedLog,
    request: Request,
) -> Result<Json<json::KeyWritten>, HttpError> {
    let reads = query.previous.0 || query.if_revision.is_some();
    authorize_write(&caller, Verb::Put, Resource::Key(key.as_bytes()), reads)?;
    let lease = query.lease.as_deref().map(lease_id).transpose()?;
    let attached: Vec<Use> = lease.iter().map(|lease| Use::Lease(LeaseId(*lease))).collect();
    surface.log()?.check_uses(&caller, &attached).await?;
    let limit = surface.config.limits.value_bytes;
    let value = body::read_up_to(&surface, request.into_body(), limit).await?;
    let mut write = guarded(&caller, Write::put(key, value), query.lock, query.fence)?;
    write = lease.into_iter().fold(write, Write::lease);
    if let Some(revision) = query.if_revision {
        write = write.if_revision(revision);
    }
    if query.previous.0 {
        write = write.previous();
    }
    let written = submit(&surface, &caller, write).await?;
    Ok(Json(shown(written, false)))
}

pub(crate) async fn delete(
    State(surface): Shared,
    caller: Caller,
    Segments(key): Segments<String>,
    Query(query): Query<DeleteQuery>,
    _: NamedLog,
    _: JsonBody<NoFields>,
) -> Result<Json<json::KeyWritten>, HttpError> {
    let reads = query.previous.0 || query.if_revision.is_some();
    let name = key.as_bytes();
    let named = if query.prefix.0 { Resource::KeyPrefix(name) } else { Resource::Key(name) };
    authorize_write(&caller, Verb::Delete, named, reads)?;
    let mut write = if query.prefix.0 { Write::delete_prefix(key) } else { Write::delete(key) };
    write = guarded(&caller, write, query.lock, query.fence)?;
    if let Some(revision) = query.if_revision {
        if query.prefix.0 {
            return Err(invalid("if_revision", "if_revision cannot be combined with prefix").into());
        }
        write = write.if_revision(revision);
    }
    if query.previous.0 {
        write = write.previous();
    }
    let written = submit(&surface, &caller, write).await?;
    Ok(Json(shown(written, true)))
}

/// Requires that a lock is held with a fence, if the query says so (LO6).
fn guarded(caller: &Caller, write: Write, lock: Option<String>, fence: Option<u64>) -> Result<Write, Error> {
    match (lock, fence) {
        (None, None) => Ok(write),
        (Some(lock), Some(fence)) => {
            authorize_guard(caller, lock.as_bytes(), false)?;
            Ok(write.if_lock(lock, fence))
        }
        (Some(_), None) => Err(invalid("fence", "lock requires the fence of its holder")),
        (None, Some(_)) => Err(invalid("lock", "fence requires the name of its lock")),
    }
}

/// Submits through this node's ambassador. If the caller disconnects, the request is abandoned.
async fn submit(surface: &Surface, caller: &Caller, write: Write) -> Result<Written, Error> {
    let kv = surface.log()?.session_of(caller)?;
    match kv.write(write.clone()).await {
        // The node's log session had ended before the request arrived, so it had no effect. The retry uses a new
        // session.
        Err(error) if error.code == ErrorCode::SessionGone => kv.write(write).await,
        result => result,
    }
}

fn shown(written: Written, deleted: bool) -> json::KeyWritten {
    json::KeyWritten {
        revision: written.revision,
        deleted: deleted.then_some(written.keys),
        request: written.request,
        previous: written.previous.into_iter().map(json::KeyValue::from).collect(),
        omitted: written.omitted,
    }
}
