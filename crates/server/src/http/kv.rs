//! Keys over HTTP. They work at every node: a request that the own replica cannot answer is sent to the leader as a
//! client.

use super::body;
use super::extract::{JsonBody, NoFields, Query, Segments, Switch};
use super::http_error::{HttpError, Json};
use super::named_log::NamedLog;
use crate::error::invalid;
use crate::log::record;
use crate::surface::Surface;
use ::http::{HeaderValue, header};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use convoke_client::log::{Consistency, KeyPage, Write, Written};
use convoke_log::keys::KeyRange;
use convoke_proto::{Error, ErrorCode, PART_BYTES, json, v1};
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
    revision: Option<u64>,
    consistency: Option<String>,
}

/// Parameters of a list. The prefix is a parameter here because the path contains no key.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListQuery {
    prefix: String,
    limit: Option<u64>,
    cursor: Option<String>,
    revision: Option<u64>,
    consistency: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PutQuery {
    if_revision: Option<u64>,
    previous: Switch,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DeleteQuery {
    if_revision: Option<u64>,
    prefix: Switch,
    previous: Switch,
}

/// Parses the parameter `consistency`.
fn consistency(text: Option<&str>) -> Result<Consistency, Error> {
    match text {
        None | Some("barrier") => Ok(Consistency::Barrier),
        Some("linearizable") => Ok(Consistency::Linearizable),
        Some("local") => Ok(Consistency::Local),
        Some(other) => {
            Err(invalid("consistency", format!("consistency {other:?} is none of linearizable, barrier and local")))
        }
    }
}

/// Rejects every revision except the current one: older revisions are not kept.
fn check_revision(wanted: Option<u64>, present: u64) -> Result<(), Error> {
    match wanted {
        Some(wanted) if wanted < present => {
            let message = format!("revision {wanted} is not kept, only the current revision {present}; omit revision");
            Err(Error::new(ErrorCode::Compacted, message).field("revision"))
        }
        Some(wanted) if wanted > present => {
            Err(invalid("revision", format!("revision {wanted} does not exist yet (current revision is {present})")))
        }
        _ => Ok(()),
    }
}

pub(crate) async fn get(
    State(surface): Shared,
    Segments(key): Segments<String>,
    Query(query): Query<ReadQuery>,
    _: NamedLog,
) -> Result<Response, HttpError> {
    if query.prefix.0 {
        if query.raw.0 {
            return Err(invalid("raw", "raw requires a single key; omit prefix").into());
        }
        let ReadQuery { limit, cursor, revision, consistency, .. } = query;
        let wanted = ListQuery { prefix: key, limit, cursor, revision, consistency };
        return Ok(list(&surface, wanted).await?.into_response());
    }
    if query.limit.is_some() || query.cursor.is_some() {
        return Err(invalid("limit", "limit and cursor require prefix").into());
    }
    let consistency = consistency(query.consistency.as_deref())?;
    let (found, revision) = read_key(&surface, key.clone().into(), consistency).await?;
    check_revision(query.revision, revision)?;
    let Some(found) = found else {
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
    Query(query): Query<ListQuery>,
    _: NamedLog,
) -> Result<Json<json::KeyList>, HttpError> {
    list(&surface, query).await
}

async fn list(surface: &Surface, query: ListQuery) -> Result<Json<json::KeyList>, HttpError> {
    if query.limit == Some(0) {
        return Err(invalid("limit", "limit must be at least 1; omit it for the default").into());
    }
    let after = match query.cursor.as_deref().filter(|cursor| !cursor.is_empty()) {
        None => None,
        Some(cursor) => {
            let message = "invalid cursor; pass next_cursor of the previous page unchanged";
            Some(Bytes::from(URL_SAFE_NO_PAD.decode(cursor).map_err(|_| invalid("cursor", message))?))
        }
    };
    let consistency = consistency(query.consistency.as_deref())?;
    let page = read_page(surface, query.prefix.into(), after, query.limit.unwrap_or(0), consistency).await?;
    check_revision(query.revision, page.revision)?;
    let last = page.records.last().filter(|_| page.more).map(|record| URL_SAFE_NO_PAD.encode(&record.key));
    let keys = page.records.into_iter().map(json::KeyValue::from).collect();
    Ok(Json(json::KeyList { keys, revision: page.revision, next_cursor: last }))
}

/// Reads from the own replica if it can answer, else from the leader.
async fn read_key(
    surface: &Surface,
    key: Bytes,
    consistency: Consistency,
) -> Result<(Option<v1::KeyValue>, u64), Error> {
    use convoke_replica::Consistency as Here;
    let log = surface.log()?;
    let here = match consistency {
        Consistency::Local => Some(surface.read_log(Here::Local).await?),
        Consistency::Linearizable => surface.read_log(Here::Linearizable).await.ok(),
        Consistency::Barrier => None,
    };
    match here {
        Some(machine) => Ok((machine.keys().get(&key).map(|found| record(found)), machine.keys().revision())),
        None => log.kv.get_revision(key, consistency).await,
    }
}

async fn read_page(
    surface: &Surface,
    prefix: Bytes,
    after: Option<Bytes>,
    limit: u64,
    consistency: Consistency,
) -> Result<KeyPage, Error> {
    use convoke_replica::Consistency as Here;
    let log = surface.log()?;
    let here = match consistency {
        Consistency::Local => Some(surface.read_log(Here::Local).await?),
        Consistency::Linearizable => surface.read_log(Here::Linearizable).await.ok(),
        Consistency::Barrier => None,
    };
    let Some(machine) = here else { return log.kv.list_after(prefix, after, limit, consistency).await };
    let mut range = KeyRange::prefix(prefix);
    if let Some(after) = after {
        range = range.after(&after);
    }
    let limit = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
    let page = machine.keys().range(&range, limit, PART_BYTES as u64);
    let records = page.records.iter().map(|found| record(found)).collect();
    Ok(KeyPage { records, more: page.more, revision: page.revision })
}

pub(crate) async fn put(
    State(surface): Shared,
    Segments(key): Segments<String>,
    Query(query): Query<PutQuery>,
    _: NamedLog,
    request: Request,
) -> Result<Json<json::KeyWritten>, HttpError> {
    surface.log()?;
    let limit = surface.config.limits.value_bytes;
    let value = body::read_up_to(&surface, request.into_body(), limit).await?;
    let mut write = Write::put(key, value);
    if let Some(revision) = query.if_revision {
        write = write.if_revision(revision);
    }
    if query.previous.0 {
        write = write.previous();
    }
    let written = submit(&surface, write).await?;
    Ok(Json(shown(written, false)))
}

pub(crate) async fn delete(
    State(surface): Shared,
    Segments(key): Segments<String>,
    Query(query): Query<DeleteQuery>,
    _: NamedLog,
    _: JsonBody<NoFields>,
) -> Result<Json<json::KeyWritten>, HttpError> {
    let mut write = if query.prefix.0 { Write::delete_prefix(key) } else { Write::delete(key) };
    if let Some(revision) = query.if_revision {
        if query.prefix.0 {
            return Err(invalid("if_revision", "if_revision cannot be combined with prefix").into());
        }
        write = write.if_revision(revision);
    }
    if query.previous.0 {
        write = write.previous();
    }
    let written = submit(&surface, write).await?;
    Ok(Json(shown(written, true)))
}

/// Submits through this node's ambassador. If the caller disconnects, the request is abandoned.
async fn submit(surface: &Surface, write: Write) -> Result<Written, Error> {
    let log = surface.log()?;
    match log.kv.write(write.clone()).await {
        // The node's log session had ended before the request arrived, so it had no effect. The retry uses a new
        // session.
        Err(error) if error.code == ErrorCode::SessionGone => log.kv.write(write).await,
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
