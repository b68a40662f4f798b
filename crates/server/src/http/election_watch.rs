//! `GET /api/v1/elections/{name}/watch`: the leader of an election as server-sent events, at every node.
//!
//! The id of an event is the position after it: the log, the revision, and the fence and lease of the leader, 0 without
//! one. A resumed stream needs the leader, because an event of a new value does not contain the lease.

use super::event_id::EventId;
use super::extract::{Connection, Segments};
use super::http_error::{HttpError, event_stream};
use super::locks::stopping;
use super::named_log::NamedLog;
use super::sse;
use crate::access::Caller;
use crate::log::{LogService, WatchPermit};
use crate::surface::Surface;
use ::http::HeaderMap;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use convoke_access::{Resource, Verb};
use convoke_client::log::{ElectionPosition, LeaderChange, Observer};
use convoke_proto::json::{self, ElectedLeader};
use futures_util::stream;
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

type Id = EventId<3>;

/// An observer of an election: the current leader first, unless it is resumed, then every change.
struct Observed {
    observer: Observer,
    service: Arc<LogService>,
    keep_alive: Duration,
    _permit: WatchPermit,
}

impl Observed {
    fn id(&self) -> Id {
        let Some(ElectionPosition { log, revision, leader }) = self.observer.position() else {
            // Before the first event. No log has this id, so a resumed stream begins with the current leader.
            return Id { log: 0, numbers: [0; 3] };
        };
        let (fence, lease) = leader.unwrap_or_default();
        Id { log: log.into(), numbers: [revision, fence, lease] }
    }
}

pub(crate) async fn watch(
    State(surface): State<Arc<Surface>>,
    caller: Caller,
    Segments(name): Segments<String>,
    headers: HeaderMap,
    connection: Connection,
    _: NamedLog,
) -> Result<Response, HttpError> {
    caller.check(Verb::Read, Resource::Election(name.as_bytes()))?;
    let log = surface.log()?;
    // As for keys, a client must learn that changes cannot arrive (H7).
    let elections = log.kv.elections().end_without_quorum();
    let observer = match Id::resumed(&headers)? {
        None => elections.observe(name),
        Some(Id { log, numbers: [revision, fence, lease] }) => {
            let leader = (fence > 0).then_some((fence, lease));
            elections.resume(name, ElectionPosition { log: log.into(), revision, leader })
        }
    };
    let observed = Observed {
        _permit: log.service.enter_watch(connection.0.as_ref(), 1)?,
        observer,
        service: log.service.clone(),
        keep_alive: surface.config.timeouts.keep_alive,
    };
    Ok(event_stream(stream::unfold(Some(observed), next)))
}

type Chunk = Result<Bytes, Infallible>;

async fn next(observed: Option<Observed>) -> Option<(Chunk, Option<Observed>)> {
    let mut observed = observed?;
    let changed = tokio::select! {
        biased;
        changed = tokio::time::timeout(observed.keep_alive, observed.observer.next()) => changed,
        () = observed.service.closing() => Ok(Some(Err(stopping()))),
    };
    let (mut text, id) = (String::new(), observed.id());
    match changed {
        // The position moves without changes, so that the history still contains it when the client resumes.
        Err(_) if observed.observer.position().is_some() => sse::write_id(&mut text, |text| id.write(text)),
        Err(_) => text.push_str(sse::KEEP_ALIVE),
        Ok(Some(Ok(LeaderChange { leader, revision, reset }))) => {
            let leader = leader.map(|leader| ElectedLeader::new(leader.fence, leader.lease, &leader.value));
            write(&mut text, "leader", id, &json::LeaderChange { revision, leader, reset });
        }
        Ok(Some(Err(error))) => {
            write(&mut text, "end", id, &serde_json::json!({ "error": error }));
            return Some((Ok(text.into()), None));
        }
        Ok(None) => return None,
    }
    Some((Ok(text.into()), Some(observed)))
}

fn write(text: &mut String, event: &str, id: Id, data: &impl Serialize) {
    sse::write_event(text, event, |text| id.write(text), |text| text.push_str(&sse::json(data)));
}
