//! The stream of events of one watcher.

use super::place::{Place, Scope};
use crate::convert::json_member;
use crate::watchers::Watching;
use bytes::Bytes;
use convoke_node::Subscription;
use convoke_node::core::node::{ResetReason, StreamEvent};
use convoke_node::core::version::Version;
use convoke_proto::json::{Gone, Shown};
use futures_core::Stream;
use serde::Serialize;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write;
use std::iter::Peekable;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

/// Text handed on at once.
const CHUNK: usize = 32 * 1024;

pub(super) struct Events {
    subscription: Subscription,
    batch: Peekable<vec::IntoIter<StreamEvent>>,
    scope: Scope,
    place: Place,
    /// Told before the stream was resumed: not told again while it catches up.
    told: BTreeMap<String, Version>,
    /// To be said first.
    reset: Option<&'static str>,
    keep_alive: Duration,
    quiet: Pin<Box<Sleep>>,
    text: String,
    ended: bool,
    _held: Held,
}

/// Given back when the stream ends: its place among the watchers, and in the list of them.
pub(super) type Held = (OwnedSemaphorePermit, Watching);

#[derive(Serialize)]
struct Reset {
    reason: &'static str,
}

#[derive(Serialize)]
struct CaughtUp {}

impl Events {
    /// `place` is where the reader is, `reset` why it has to forget what it knows.
    pub(super) fn new(
        subscription: Subscription,
        scope: Scope,
        place: Place,
        reset: Option<&'static str>,
        keep_alive: Duration,
        held: Held,
    ) -> Self {
        let told = match &place {
            Place::After(after) => after.recent.clone(),
            Place::Start => BTreeMap::new(),
        };
        Events {
            subscription,
            batch: Vec::new().into_iter().peekable(),
            scope,
            place,
            told,
            reset,
            keep_alive,
            quiet: Box::pin(tokio::time::sleep(keep_alive)),
            text: String::new(),
            ended: false,
            _held: held,
        }
    }

    /// Writes what there is of the present batch, as much as fits.
    fn write_batch(&mut self) {
        if let Some(reason) = self.reset.take() {
            self.write("reset", &Reset { reason });
        }
        while self.text.len() < CHUNK
            && let Some(event) = self.batch.next()
        {
            match event {
                StreamEvent::Snapshot(member) => {
                    if self.told.remove(member.id()) == Some(member.version()) {
                        self.skipped();
                    } else {
                        self.place.told(member.id(), member.version());
                        self.write("snapshot", &Shown { member: json_member(&member) });
                    }
                }
                StreamEvent::Registered(member) => {
                    self.place.told(member.id(), member.version());
                    self.write("register", &Shown { member: json_member(&member) });
                }
                StreamEvent::Updated(member) => {
                    self.place.told(member.id(), member.version());
                    self.write("update", &Shown { member: json_member(&member) });
                }
                StreamEvent::StatusChanged(member) => {
                    self.place.told(member.id(), member.version());
                    self.write("status", &Shown { member: json_member(&member) });
                }
                StreamEvent::OwnerChanged(member) => {
                    self.place.told(member.id(), member.version());
                    self.write("owner", &Shown { member: json_member(&member) });
                }
                StreamEvent::Unregistered { id, version } => {
                    if self.told.remove(&id) == Some(version) {
                        self.skipped();
                    } else {
                        self.place.told(&id, version);
                        self.write("unregister", &Gone { id, version: version.to_string() });
                    }
                }
                StreamEvent::CaughtUp => {
                    self.told = BTreeMap::new();
                    self.write("caught-up", &CaughtUp {});
                }
                StreamEvent::Reset(reason) => {
                    self.told = BTreeMap::new();
                    self.place = Place::Start;
                    self.write("reset", &Reset { reason: reset_reason(reason) });
                }
                StreamEvent::Mark(token) => {
                    self.place.mark(token);
                    self.write_place();
                }
            }
        }
    }

    /// Writes an event. If a mark follows at once, its place is the mark's.
    fn write(&mut self, event: &str, data: &impl Serialize) {
        if let Some(StreamEvent::Mark(token)) = self.batch.next_if(|next| matches!(next, StreamEvent::Mark(_))) {
            self.place.mark(token);
        }
        // Writing to a text does not fail, nor does a member that has no shape JSON could not show.
        let _ = write!(self.text, "event: {event}\nid: ");
        self.scope.write(&self.place, &mut self.text);
        let data = serde_json::to_string(data).unwrap_or_default();
        let _ = write!(self.text, "\ndata: {data}\n\n");
    }

    /// An event was not told; a mark behind it still is.
    fn skipped(&mut self) {
        if let Some(StreamEvent::Mark(token)) = self.batch.next_if(|next| matches!(next, StreamEvent::Mark(_))) {
            self.place.mark(token);
            self.write_place();
        }
    }

    /// Moves the reader on without telling it anything: without data, a browser only remembers the id.
    fn write_place(&mut self) {
        self.text.push_str("id: ");
        self.scope.write(&self.place, &mut self.text);
        self.text.push_str("\n\n");
    }

    fn hand_on(&mut self) -> Poll<Option<Result<Bytes, Infallible>>> {
        self.quiet.as_mut().reset(Instant::now() + self.keep_alive);
        Poll::Ready(Some(Ok(Bytes::from(std::mem::take(&mut self.text)))))
    }
}

fn reset_reason(reason: ResetReason) -> &'static str {
    match reason {
        ResetReason::Overflow => "overflow",
        ResetReason::TooOld => "too-old",
        ResetReason::Ahead => "ahead",
        ResetReason::Unreadable => "unreadable",
    }
}

impl Stream for Events {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            this.write_batch();
            if !this.text.is_empty() {
                return this.hand_on();
            }
            if this.ended {
                return Poll::Ready(None);
            }
            match Pin::new(&mut this.subscription).poll_next(context) {
                Poll::Ready(Some(batch)) => this.batch = batch.into_iter().peekable(),
                // The reader comes back, here or elsewhere, with where it was.
                Poll::Ready(None) => this.ended = true,
                Poll::Pending => match this.quiet.as_mut().poll(context) {
                    Poll::Ready(()) => {
                        this.text.push_str(": still here\n\n");
                        return this.hand_on();
                    }
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }
}
