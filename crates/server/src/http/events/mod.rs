//! `GET /api/v1/events`: recent and new events of this node as server-sent events.
//!
//! Unlike a watch, the stream is a history and not a view: it starts with the last events, not with the current
//! members.

mod encode;
mod position;

use super::extract::Query;
use super::http_error::{HttpError, event_stream};
use super::sse::{self, KEEP_ALIVE};
use crate::access::Caller;
use crate::convert;
use crate::error::rejected;
use crate::surface::{Gates, Surface};
use ::http::HeaderMap;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use convoke_core::filter::Filter;
use convoke_node::NodeHandle;
use futures_core::Stream;
use position::HistoryPosition;
use serde::Deserialize;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// Events are collected for this time and sent together.
const GATHER: Duration = Duration::from_millis(100);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EventsQuery {
    filter: String,
}

pub(crate) async fn events(
    State(surface): State<Arc<Surface>>,
    caller: Caller,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    let filter = caller.readable(convert::filter(&query.filter)?);
    let permit = Gates::enter(&surface.gates.watchers, "watchers", surface.config.limits.http_watchers)?;
    let nonce = surface.node.status().await.map_err(rejected)?.incarnation.nonce;
    let position = sse::last_event_id(&headers).map(|last| HistoryPosition::read(nonce, last?));
    let keep_alive = surface.config.timeouts.keep_alive;
    let (send, receive) = mpsc::channel(1);
    let reporter = Reporter {
        node: surface.node.clone(),
        filter,
        // The reader's position is of another incarnation: its stream restarts with a reset.
        reset: position == Some(None),
        position: position.flatten().unwrap_or(HistoryPosition::start(nonce)),
        keep_alive,
        send,
    };
    tokio::spawn(reporter.run());
    Ok(event_stream(EventBody { receive, _permit: permit }))
}

/// Sends the events to one reader.
struct Reporter {
    node: NodeHandle,
    filter: Filter,
    position: HistoryPosition,
    reset: bool,
    keep_alive: Duration,
    send: mpsc::Sender<Bytes>,
}

impl Reporter {
    /// Runs until the reader disconnects or the node stops.
    async fn run(mut self) {
        let node = self.node.clone();
        let mut node_events = node.events();
        let mut changes = node.changes();
        let mut text = String::new();
        if self.reset {
            encode::reset(&mut text, &self.position);
        }
        self.append_new(&mut text);
        encode::caught_up(&mut text, &self.position);
        loop {
            if !text.is_empty() && self.send.send(Bytes::from(std::mem::take(&mut text))).await.is_err() {
                return;
            }
            tokio::select! {
                biased;
                _ = node.stopped() => return,
                () = self.send.closed() => return,
                // An error means that this reader was slow. The missed events are still kept or reported as missed.
                _ = node_events.recv() => {}
                _ = changes.changed() => {}
                () = tokio::time::sleep(self.keep_alive) => {
                    text.push_str(KEEP_ALIVE);
                    continue;
                }
            }
            tokio::time::sleep(GATHER).await;
            while node_events.try_recv().is_ok() {}
            changes.mark_unchanged();
            self.append_new(&mut text);
        }
    }

    /// Appends everything after the position, oldest first.
    fn append_new(&mut self, text: &mut String) {
        let node_events = self.node.events_after(self.position.node_event);
        let changes = self.node.changes_after(self.position.change);
        let first = |sequence: Option<u64>, position: u64| sequence.map_or(0, |sequence| sequence - position - 1);
        let missed = first(node_events.first().map(|event| event.sequence), self.position.node_event)
            + first(changes.first().map(|change| change.sequence), self.position.change);
        if missed > 0 {
            encode::missed(text, &self.position, missed);
        }
        let (mut node_events, mut changes) = (node_events.into_iter().peekable(), changes.into_iter().peekable());
        loop {
            let node_event_first = match (node_events.peek(), changes.peek()) {
                (None, None) => break,
                (node_event, None) => node_event.is_some(),
                (None, Some(_)) => false,
                (Some(node_event), Some(change)) => node_event.wall_ms <= change.wall_ms,
            };
            if node_event_first && let Some(event) = node_events.next() {
                self.position.node_event = event.sequence;
                encode::node_event(text, &self.position, &event);
            } else if let Some(change) = changes.next() {
                self.position.change = change.sequence;
                if self.filter.matches(&change.member.subject()) {
                    encode::change(text, &self.position, &change);
                }
            }
        }
    }
}

/// The response body.
struct EventBody {
    receive: mpsc::Receiver<Bytes>,
    _permit: OwnedSemaphorePermit,
}

impl Stream for EventBody {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receive.poll_recv(context).map(|text| text.map(Ok))
    }
}
