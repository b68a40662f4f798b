//! `GET /api/v1/events`: what happened lately at this node, and what happens, as server-sent events.
//!
//! Unlike a watch it is a memory, not a view: it begins with the last things that happened, never with what is there.

mod place;
mod tell;

use super::extract::Query;
use super::failure::{Failure, event_stream};
use super::watch::LAST_EVENT_ID;
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
use place::Place;
use serde::Deserialize;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// What happens within this time is told at once.
const GATHER: Duration = Duration::from_millis(100);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EventsQuery {
    filter: String,
}

pub(crate) async fn events(
    State(surface): State<Arc<Surface>>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let filter = convert::filter(&query.filter)?;
    let permit = Gates::enter(&surface.gates.watchers, "watchers", surface.config.limits.watchers)?;
    let run = surface.node.status().await.map_err(rejected)?.incarnation.nonce;
    let last = headers.get(LAST_EVENT_ID).and_then(|text| text.to_str().ok()).filter(|text| !text.is_empty());
    let place = last.map(|text| Place::read(run, text));
    let keep_alive = surface.config.timeouts.keep_alive;
    let (send, receive) = mpsc::channel(1);
    let reporter = Reporter {
        node: surface.node.clone(),
        filter,
        // Who was at another run starts over, and is told so.
        reset: place == Some(None),
        place: place.flatten().unwrap_or(Place::start(run)),
        keep_alive,
        send,
    };
    tokio::spawn(reporter.run());
    Ok(event_stream(Told { receive, _permit: permit }))
}

/// Tells one reader.
struct Reporter {
    node: NodeHandle,
    filter: Filter,
    place: Place,
    reset: bool,
    keep_alive: Duration,
    send: mpsc::Sender<Bytes>,
}

impl Reporter {
    /// Until the reader or the node is gone.
    async fn run(mut self) {
        let node = self.node.clone();
        let mut happenings = node.events();
        let mut changes = node.changes();
        let mut text = String::new();
        if self.reset {
            tell::reset(&mut text, &self.place);
        }
        self.news(&mut text);
        tell::caught_up(&mut text, &self.place);
        loop {
            if !text.is_empty() && self.send.send(Bytes::from(std::mem::take(&mut text))).await.is_err() {
                return;
            }
            tokio::select! {
                biased;
                _ = node.stopped() => return,
                () = self.send.closed() => return,
                // An error means that this reader was slow; what it missed is still kept, or told as missed.
                _ = happenings.recv() => {}
                _ = changes.changed() => {}
                () = tokio::time::sleep(self.keep_alive) => {
                    text.push_str(": still here\n\n");
                    continue;
                }
            }
            tokio::time::sleep(GATHER).await;
            while happenings.try_recv().is_ok() {}
            changes.mark_unchanged();
            self.news(&mut text);
        }
    }

    /// Everything after the place, oldest first.
    fn news(&mut self, text: &mut String) {
        let happenings = self.node.events_after(self.place.happening);
        let changes = self.node.changes_after(self.place.change);
        let first = |sequence: Option<u64>, place: u64| sequence.map_or(0, |sequence| sequence - place - 1);
        let missed = first(happenings.first().map(|event| event.sequence), self.place.happening)
            + first(changes.first().map(|change| change.sequence), self.place.change);
        if missed > 0 {
            tell::missed(text, &self.place, missed);
        }
        let (mut happenings, mut changes) = (happenings.into_iter().peekable(), changes.into_iter().peekable());
        loop {
            let happening_first = match (happenings.peek(), changes.peek()) {
                (None, None) => break,
                (happening, None) => happening.is_some(),
                (None, Some(_)) => false,
                (Some(happening), Some(change)) => happening.wall_ms <= change.wall_ms,
            };
            if happening_first && let Some(event) = happenings.next() {
                self.place.happening = event.sequence;
                tell::happening(text, &self.place, &event);
            } else if let Some(change) = changes.next() {
                self.place.change = change.sequence;
                if self.filter.matches(&change.member.subject()) {
                    tell::change(text, &self.place, &change);
                }
            }
        }
    }
}

/// The reader's end.
struct Told {
    receive: mpsc::Receiver<Bytes>,
    _permit: OwnedSemaphorePermit,
}

impl Stream for Told {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receive.poll_recv(context).map(|text| text.map(Ok))
    }
}
