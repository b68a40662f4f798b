//! `POST /api/v1/txn`: transactions of keys, at every node.

use super::body;
use super::extract::Query;
use super::http_error::{HttpError, Json};
use super::kv::{consistency, read_here};
use super::named_log::NamedLog;
use crate::access::{Caller, Use, authorize_txn};
use crate::error::invalid;
use crate::log::read_txn;
use crate::surface::Surface;
use axum::extract::{Request, State};
use convoke_client::log::{Consistency, Txn};
use convoke_proto::json::OpResult;
use convoke_proto::{Error, ErrorCode, json, v1};
use serde::Deserialize;
use std::sync::Arc;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TxnQuery {
    consistency: Option<String>,
}

pub(crate) async fn txn(
    State(surface): State<Arc<Surface>>,
    caller: Caller,
    Query(query): Query<TxnQuery>,
    _: NamedLog,
    request: Request,
) -> Result<Json<json::TxnAnswer>, HttpError> {
    surface.log()?;
    // Room for a value of the largest size in base64, and for the rest of the body.
    let limits = &surface.config.limits;
    let limit = limits.value_bytes.saturating_mul(2).saturating_add(limits.body_bytes);
    let body = body::read_up_to(&surface, request.into_body(), limit).await?;
    let wanted: v1::Txn = body::parse::<json::Txn>(&body)?.try_into()?;
    authorize_txn(&caller, &wanted)?;
    if wanted.is_read_only() {
        return Ok(Json(read(&surface, wanted, consistency(query.consistency.as_deref())?).await?));
    }
    if query.consistency.is_some() {
        let message = "only a transaction that changes nothing is a read and has a consistency";
        return Err(invalid("consistency", message).into());
    }
    surface.log()?.check_uses(&caller, &Use::of_txn(&wanted)).await?;
    Ok(Json(commit(&surface, &caller, wanted.into()).await?))
}

/// Submits through this node's ambassador. If the caller disconnects, the transaction is abandoned.
async fn commit(surface: &Surface, caller: &Caller, txn: Txn) -> Result<json::TxnAnswer, Error> {
    let kv = surface.log()?.session_of(caller)?;
    let answer = match kv.commit(txn.clone()).await {
        // The node's log session had ended before the request arrived, so it had no effect. The retry uses a new
        // session.
        Err(error) if error.code == ErrorCode::SessionGone => kv.commit(txn).await,
        result => result,
    };
    Ok(answer?.into())
}

async fn read(surface: &Surface, wanted: v1::Txn, consistency: Consistency) -> Result<json::TxnAnswer, Error> {
    let Some(machine) = read_here(surface, consistency).await? else {
        return surface.log()?.kv.read_txn(wanted.into(), consistency).await.map(Into::into);
    };
    let (succeeded, revision, found) = read_txn(&machine, wanted)?;
    let results = found.results.into_iter().map(OpResult::from).collect();
    Ok(json::TxnAnswer { succeeded, revision, results, ..json::TxnAnswer::default() })
}
