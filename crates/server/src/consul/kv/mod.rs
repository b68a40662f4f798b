//! `/v1/kv`: keys of the log as Consul's (docs/consul-kv.md).

mod changes;
mod grab;
mod store;

pub(super) use changes::changed_after;
pub(super) use store::{NotExecuted, Wants, execute, from_log, state_here};

use super::answer::{json, plain, with_index};
use super::blocking::Waiter;
use super::failure::Failure;
use super::params::{Mode, Params, ReadOptions};
use super::session::holders_of;
use crate::access::{Caller, authorize_write};
use crate::error::invalid;
use crate::http::{Connection, NamedLog, Segments, in_open_session, read_up_to};
use crate::log::{read_keys, record};
use crate::surface::Surface;
use ::http::{HeaderValue, StatusCode, header};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use changes::Keys;
use convoke_access::{Resource, Verb};
use convoke_client::log::{Consistency, Query, Write};
use convoke_consul::{KvOp, Pair, PairView, TxnEntry, Verb as KvVerb, keys_up_to};
use convoke_log::keys::{KeyRange, Selection};
use convoke_proto::{Error, v1};
use std::sync::Arc;
use store::pair;

type Shared = State<Arc<Surface>>;
type Answer = Result<Response, Failure>;

/// Largest answer to a read of many keys, in bytes of keys and values.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Consul's text for a request of a single key without one.
const NO_KEY: &str = "Missing key name";

/// Records that were read, and the revision of the read.
struct Read {
    pairs: Vec<Pair>,
    revision: u64,
}

pub(super) fn consistency(mode: Mode) -> Consistency {
    match mode {
        Mode::Default => Consistency::Linearizable,
        Mode::Consistent => Consistency::Barrier,
        Mode::Stale => Consistency::Local,
    }
}

/// `GET /v1/kv/` reads prefixes only.
pub(crate) async fn get_all(
    surface: Shared,
    caller: Caller,
    params: Params,
    connection: Connection,
    log: NamedLog,
) -> Answer {
    get(surface, caller, Segments(String::new()), params, connection, log).await
}

pub(crate) async fn get(
    State(surface): Shared,
    caller: Caller,
    Segments(key): Segments<String>,
    params: Params,
    connection: Connection,
    _: NamedLog,
) -> Answer {
    let options = params.read_options()?;
    let (keys, recurse) = (params.has("keys"), params.has("recurse"));
    if !keys && !recurse {
        return one(&surface, caller, key, &params, &options, connection).await;
    }
    let selection = Selection::Range(KeyRange::prefix(key.clone()));
    let waiter = Waiter { caller: caller.clone(), connection };
    let query = Query::prefix(key.clone());
    let query = if keys { query.keys_only() } else { query };
    let wanted = Keys { surface: &surface, waiter: &waiter, options: &options, query, selection, has_changed: false };
    let (index, found) = wanted.read().await?;
    let may_read = |pair: &Pair| caller.may(Verb::Read, Resource::Key(pair.key.as_bytes()));
    let found: Vec<Pair> = found.pairs.into_iter().filter(may_read).collect();
    if found.is_empty() {
        return Ok(missing(&surface, &options, index));
    }
    let response = if keys {
        let names = found.iter().map(|pair| pair.key.as_str());
        json(options.pretty, &keys_up_to(names, &key, params.get("separator").unwrap_or_default()))
    } else {
        json(options.pretty, &shown(&surface, &found).await?)
    };
    Ok(with_index(response, &surface, &options, index))
}

async fn one(
    surface: &Surface,
    caller: Caller,
    key: String,
    params: &Params,
    options: &ReadOptions,
    connection: Connection,
) -> Answer {
    if key.is_empty() {
        return Err(Failure::bad(NO_KEY));
    }
    caller.check(Verb::Read, Resource::Key(key.as_bytes()))?;
    let selection = Selection::Key(key.clone().into());
    let (waiter, query) = (Waiter { caller, connection }, Query::key(key));
    let wanted = Keys { surface, waiter: &waiter, options, query, selection, has_changed: false };
    let (index, found) = wanted.read().await?;
    let Some(pair) = found.pairs.first() else { return Ok(missing(surface, options, index)) };
    let response = if params.has("raw") {
        raw(pair)
    } else {
        json(options.pretty, &shown(surface, std::slice::from_ref(pair)).await?)
    };
    Ok(with_index(response, surface, options, index))
}

/// Reads all that a query selects, at one revision. The own replica answers if it can.
async fn read(surface: &Surface, query: Query, consistency: Consistency) -> Result<Read, Error> {
    let here = state_here(surface, consistency).await;
    let consistency = from_log(surface, consistency)?;
    let (mut query, mut revision, mut pairs, mut bytes) = (query, None, Vec::new(), 0_usize);
    loop {
        let (records, more, current) = match &here {
            Some(machine) => {
                let page = read_keys(machine, query.clone().into(), 0)?;
                let records: Vec<v1::KeyValue> = page.records.iter().map(|found| record(found)).collect();
                (records, page.more, machine.keys().revision())
            }
            None => {
                let page = surface.log()?.kv.query(query.clone(), revision, consistency).await?;
                (page.records, page.more, revision.unwrap_or(page.revision))
            }
        };
        revision = Some(current);
        bytes += records.iter().map(|found| found.key.len() + found.value.len()).sum::<usize>();
        if bytes > ANSWER_BYTES_MAX {
            let message = format!("the keys have more than {ANSWER_BYTES_MAX} bytes; read a longer prefix");
            return Err(invalid("recurse", message).limit(ANSWER_BYTES_MAX as u64));
        }
        let last = records.last().map(|found| found.key.clone());
        pairs.extend(records.into_iter().filter_map(pair));
        match last.filter(|_| more) {
            Some(last) => query = query.after(&last),
            None => return Ok(Read { pairs, revision: current }),
        }
    }
}

/// Reads the keys with a prefix, and the revision at which they were read.
pub(super) async fn read_prefix(
    surface: &Surface,
    prefix: &str,
    consistency: Consistency,
) -> Result<(Vec<Pair>, u64), Error> {
    let Read { pairs, revision } = read(surface, Query::prefix(prefix.to_owned()), consistency).await?;
    Ok((pairs, revision))
}

async fn shown(surface: &Surface, pairs: &[Pair]) -> Result<Vec<PairView>, Failure> {
    let sessions = holders_of(surface, pairs.iter().map(|pair| pair.lease).collect()).await?;
    let session = |pair: &Pair| sessions.get(&pair.lease).cloned().unwrap_or_default();
    Ok(pairs.iter().map(|pair| PairView::new(pair, session(pair))).collect())
}

/// A key that does not exist: 404 with headers and without a body.
fn missing(surface: &Surface, options: &ReadOptions, index: u64) -> Response {
    with_index(StatusCode::NOT_FOUND.into_response(), surface, options, index)
}

fn raw(pair: &Pair) -> Response {
    let mut response = Response::new(Body::from(pair.value.clone()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// `PUT` and `DELETE` of `/v1/kv/` without a key.
pub(crate) async fn no_key() -> Failure {
    Failure::bad(NO_KEY)
}

pub(crate) async fn put(
    State(surface): Shared,
    caller: Caller,
    Segments(key): Segments<String>,
    params: Params,
    _: NamedLog,
    request: Request,
) -> Answer {
    exclusive(&params, &["acquire", "cas", "release"])?;
    let (cas, flags) = (number(&params, "cas")?, number(&params, "flags")?.unwrap_or(0));
    let (acquire, release) = (params.get("acquire"), params.get("release"));
    let compares = cas.is_some() || acquire.is_some() || release.is_some();
    authorize_write(&caller, Verb::Put, Resource::Key(key.as_bytes()), compares)?;
    let limit = surface.config.limits.value_bytes;
    let value = read_up_to(&surface, request.into_body(), limit).await?;
    let verb = match (cas, acquire, release) {
        (Some(_), ..) => KvVerb::Cas,
        (_, Some(_), _) => KvVerb::Lock,
        (.., Some(_)) => KvVerb::Unlock,
        _ => KvVerb::Set,
    };
    let session = acquire.or(release).unwrap_or_default().to_owned();
    let op = KvOp { value, flags, index: cas.unwrap_or(0), session, ..KvOp::new(verb, key) };
    decide(&surface, &caller, &params, op).await
}

pub(crate) async fn delete(
    State(surface): Shared,
    caller: Caller,
    Segments(key): Segments<String>,
    params: Params,
    _: NamedLog,
) -> Answer {
    exclusive(&params, &["cas", "recurse"])?;
    if params.has("recurse") {
        return delete_tree(&surface, &caller, &params, key).await;
    }
    let cas = number(&params, "cas")?;
    authorize_write(&caller, Verb::Delete, Resource::Key(key.as_bytes()), cas.is_some())?;
    let verb = if cas.is_some() { KvVerb::DeleteCas } else { KvVerb::Delete };
    decide(&surface, &caller, &params, KvOp { index: cas.unwrap_or(0), ..KvOp::new(verb, key) }).await
}

/// `DELETE /v1/kv/` deletes all keys if `recurse` says so.
pub(crate) async fn delete_all(State(surface): Shared, caller: Caller, params: Params, _: NamedLog) -> Answer {
    exclusive(&params, &["cas", "recurse"])?;
    if !params.has("recurse") {
        return Err(Failure::bad(NO_KEY));
    }
    delete_tree(&surface, &caller, &params, String::new()).await
}

/// The number of keys of one delete is limited by the log (T3), not the size of their values.
async fn delete_tree(surface: &Surface, caller: &Caller, params: &Params, prefix: String) -> Answer {
    authorize_write(caller, Verb::Delete, Resource::KeyPrefix(prefix.as_bytes()), false)?;
    let kv = surface.log()?.session_of(caller)?;
    in_open_session(|| async { kv.write(Write::delete_prefix(prefix.clone())).await }).await?;
    Ok(plain(params, &true))
}

/// Executes an operation that answers `true` or `false`.
async fn decide(surface: &Surface, caller: &Caller, params: &Params, op: KvOp) -> Answer {
    let (verb, session) = (op.verb.clone(), op.session.clone());
    let operations = [TxnEntry::Kv(op)];
    match execute(surface, caller, &operations, Consistency::Linearizable, Wants::Success).await {
        Ok(_) => Ok(plain(params, &true)),
        Err(NotExecuted::Failure(failure)) => Err(failure),
        Err(NotExecuted::Conditions(errors)) => {
            let what = errors.into_iter().next().map(|error| error.what).unwrap_or_default();
            // Consul answers `false` if the lock is not free, and with an error if the session does not exist.
            let is_condition = what.starts_with("failed to ") || (verb != KvVerb::Lock && !session.is_empty());
            if is_condition { Ok(plain(params, &false)) } else { Err(Failure::server(what)) }
        }
    }
}

/// Refuses parameters that exclude each other.
fn exclusive(params: &Params, names: &[&str]) -> Result<(), Failure> {
    if names.iter().filter(|name| params.has(name)).count() < 2 {
        return Ok(());
    }
    Err(Failure::bad(format!("Conflicting flags: {}", params.encoded())))
}

/// Parses a number in the words of Go.
fn number(params: &Params, name: &str) -> Result<Option<u64>, Failure> {
    let Some(text) = params.get(name) else { return Ok(None) };
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if is_number => Ok(Some(number)),
        _ => {
            let why = if is_number { "value out of range" } else { "invalid syntax" };
            Err(Failure::server(format!("strconv.ParseUint: parsing {text:?}: {why}")))
        }
    }
}
