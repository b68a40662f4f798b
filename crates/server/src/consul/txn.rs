//! `PUT /v1/txn`: transactions of keys (docs/consul-kv.md).

use super::answer::{json, knows_leader, with_index};
use super::failure::Failure;
use super::kv::{NotExecuted, Wants, consistency, execute};
use super::params::{Params, ReadOptions};
use crate::access::{Caller, authorize_write};
use crate::http::{NamedLog, read_up_to};
use crate::surface::Surface;
use ::http::StatusCode;
use axum::extract::{Request, State};
use axum::response::Response;
use convoke_access::{Resource, Verb};
use convoke_consul::{KvOp, OpError, PairView, TxnEntry, TxnError, Verb as KvVerb, parse_txn};
use serde::Serialize;
use std::sync::Arc;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    results: Option<Vec<OpResult>>,
    errors: Option<Vec<Failed>>,
    #[serde(flatten)]
    read: Option<ReadAnswer>,
}

/// What Consul adds to the answer of a transaction that only reads.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ReadAnswer {
    index: u64,
    last_contact: u64,
    known_leader: bool,
    consistency_level: &'static str,
}

#[derive(Serialize)]
struct OpResult {
    #[serde(rename = "KV")]
    kv: PairView,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Failed {
    op_index: usize,
    what: String,
}

pub(crate) async fn txn(
    State(surface): State<Arc<Surface>>,
    caller: Caller,
    params: Params,
    _: NamedLog,
    request: Request,
) -> Result<Response, Failure> {
    let options = params.read_options()?;
    let limits = &surface.config.limits;
    // Room for a value of the largest size in base64, and for the rest of the body.
    let limit = limits.value_bytes.saturating_mul(2).saturating_add(limits.body_bytes);
    let body = read_up_to(&surface, request.into_body(), limit).await?;
    let operations = parse_txn(&body).map_err(|error| match error {
        TxnError::Body(_) => Failure::bad(error.to_string()),
        TxnError::TooMany(_) => Failure::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
    })?;
    authorize(&caller, &operations)?;
    let writes = operations.iter().any(|operation| match operation {
        TxnEntry::Kv(op) => op.verb.writes(),
        TxnEntry::Other(_) => true,
    });
    let executed = match no_prefix(&operations) {
        Some(error) => Err(NotExecuted::Conditions(vec![error])),
        None => execute(&surface, &caller, &operations, consistency(options.consistency), Wants::Results).await,
    };
    let (status, revision, results, errors) = match executed {
        Ok(executed) => {
            let revision = executed.revision;
            let views = executed.views(|key| caller.may(Verb::Read, Resource::Key(key.as_bytes())));
            let results = views.into_iter().map(|kv| OpResult { kv }).collect();
            (StatusCode::OK, revision, Some(results), None)
        }
        Err(NotExecuted::Conditions(errors)) => {
            let errors = errors.into_iter().map(|OpError { operation, what }| Failed { op_index: operation, what });
            (StatusCode::CONFLICT, 0, None, Some(errors.collect()))
        }
        Err(NotExecuted::Failure(failure)) => return Err(failure),
    };
    Ok(answer(&surface, &options, status, revision, writes, results, errors))
}

fn answer(
    surface: &Surface,
    options: &ReadOptions,
    status: StatusCode,
    revision: u64,
    writes: bool,
    results: Option<Vec<OpResult>>,
    errors: Option<Vec<Failed>>,
) -> Response {
    let known_leader = knows_leader(surface);
    let read = ReadAnswer { index: 0, last_contact: 0, known_leader, consistency_level: "" };
    let read = Some(read).filter(|_| !writes);
    let mut response = json(options.pretty, &Answer { results, errors, read });
    *response.status_mut() = status;
    if writes { response } else { with_index(response, surface, options, revision) }
}

/// An empty prefix would be all keys. Consul refuses it here.
fn no_prefix(operations: &[TxnEntry]) -> Option<OpError> {
    let is_empty =
        |operation: &TxnEntry| matches!(operation, TxnEntry::Kv(op) if op.key.is_empty() && op.verb.is_tree());
    let operation = operations.iter().position(is_empty)?;
    Some(OpError { operation, what: "Must provide key".to_owned() })
}

/// A verb that shows or compares what is stored also needs the right to read. Keys below a prefix that is read are filtered.
fn authorize(caller: &Caller, operations: &[TxnEntry]) -> Result<(), Failure> {
    for operation in operations {
        let TxnEntry::Kv(KvOp { verb, key, .. }) = operation else { continue };
        let named = Resource::Key(key.as_bytes());
        match verb {
            KvVerb::Set => authorize_write(caller, Verb::Put, named, false)?,
            KvVerb::Cas | KvVerb::Lock | KvVerb::Unlock => authorize_write(caller, Verb::Put, named, true)?,
            KvVerb::Delete => authorize_write(caller, Verb::Delete, named, false)?,
            KvVerb::DeleteCas => authorize_write(caller, Verb::Delete, named, true)?,
            KvVerb::DeleteTree => {
                authorize_write(caller, Verb::Delete, Resource::KeyPrefix(key.as_bytes()), false)?;
            }
            KvVerb::Get | KvVerb::CheckIndex | KvVerb::CheckSession | KvVerb::CheckNotExists => {
                caller.check(Verb::Read, named)?;
            }
            KvVerb::GetTree | KvVerb::Unknown(_) => {}
        }
    }
    Ok(())
}
