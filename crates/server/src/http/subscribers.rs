//! `GET /api/v1/subscribers`: who watches what at this node.

use super::extract::Query;
use super::failure::{Failure, Json};
use crate::error::{invalid, refused};
use crate::surface::Surface;
use crate::watchers::Watcher;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SubscribersQuery {
    limit: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Subscribers {
    subscribers: Vec<Watcher>,
    /// Streams to clients, those left out among them.
    count: usize,
    /// All subscriptions of the node, its own among them.
    at_node: usize,
}

pub(crate) async fn subscribers(
    State(surface): State<Arc<Surface>>,
    Query(query): Query<SubscribersQuery>,
) -> Result<Json<Subscribers>, Failure> {
    if query.limit == Some(0) {
        return Err(invalid("limit", "limit 0 asks for nothing; leave it out for the node's choice").into());
    }
    let page = surface.config.limits.page_members;
    let status = surface.node.status().await.map_err(refused)?;
    let (count, subscribers) = surface.watchers.list(query.limit.unwrap_or(page).min(page));
    Ok(Json(Subscribers { subscribers, count, at_node: status.sizes.subscribers }))
}
