//! `GET /api/v1/watch`: changes as server-sent events.

mod events;
mod held;
mod position;
mod shared;

use super::extract::Query;
use super::http_error::{HttpError, event_stream};
use super::sse;
use crate::access::Caller;
use crate::convert;
use crate::error::rejected;
use crate::service::ClientConnection;
use crate::surface::{Gates, Surface};
use crate::watchers::Watcher;
use ::http::{HeaderMap, header};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use convoke_core::node::Resume;
use events::Events;
use held::Held;
use position::{Position, Scope};
use serde::Deserialize;
pub(crate) use shared::SharedChunks;
use std::sync::Arc;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WatchQuery {
    filter: String,
}

pub(crate) async fn watch(
    State(surface): State<Arc<Surface>>,
    caller: Caller,
    Query(query): Query<WatchQuery>,
    connection: Option<Extension<Arc<ClientConnection>>>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    let interest = caller.watched(convert::filter(&query.filter)?);
    let permit = Gates::enter(&surface.gates.watchers, "watchers", surface.config.limits.http_watchers)?;
    let scope = Scope::of(&interest.filter);
    let (position, held, reset) = resume(scope, &headers);
    let resume = match &position {
        Position::Start => Resume::Fresh,
        Position::After(after) => {
            Resume::Token { token: after.token.to_vec(), recent: after.recent.clone(), known: None }
        }
    };
    let watcher =
        Watcher::new("http", connection.as_deref().map(Arc::as_ref), headers.get(header::USER_AGENT), &interest.filter);
    let watch = surface.node.watch_marked(interest, resume).await.map_err(rejected)?;
    let watching = surface.watchers.enter(watcher);
    let events = Events::new(watch, scope, (position, held), reset, &surface, (permit, watching));
    Ok(event_stream(events))
}

/// Returns the position of a reader, the members it holds and, if it cannot be resumed, the reason of the reset.
fn resume(scope: Scope, headers: &HeaderMap) -> (Position, Held, Option<&'static str>) {
    let start = |reset| (Position::Start, Held::default(), reset);
    let Some(last) = sse::last_event_id(headers) else { return start(None) };
    match last.and_then(|text| scope.read(text)) {
        Some((Position::Start, _)) => start(Some("incomplete")),
        Some((position, held)) => (position, held, None),
        None => start(Some("unreadable")),
    }
}
