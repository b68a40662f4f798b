//! `GET /api/v1/watchers`: the watchers at this node and their filters.

use super::extract::Query;
use super::http_error::{HttpError, Json};
use crate::error::{invalid, rejected};
use crate::surface::Surface;
use crate::watchers::Watcher;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WatchersQuery {
    limit: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Watchers {
    watchers: Vec<Watcher>,
    /// All streams to clients, including those not listed.
    count: usize,
    /// All watchers of the node, including internal ones.
    at_node: usize,
}

pub(crate) async fn watchers(
    State(surface): State<Arc<Surface>>,
    Query(query): Query<WatchersQuery>,
) -> Result<Json<Watchers>, HttpError> {
    if query.limit == Some(0) {
        return Err(invalid("limit", "limit must be at least 1; omit it for the default").into());
    }
    let page = surface.config.limits.page_members;
    let status = surface.node.status().await.map_err(rejected)?;
    let (count, watchers) = surface.watchers.list(query.limit.unwrap_or(page).min(page));
    Ok(Json(Watchers { watchers, count, at_node: status.sizes.watchers }))
}
