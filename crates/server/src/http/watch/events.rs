//! The stream of events of one watcher.

use super::place::{Place, Scope};
use crate::encoded::{self, EncodedChanges};
use crate::watchers::Watching;
use bytes::Bytes;
use convoke_core::member::Member;
use convoke_core::node::{ResetReason, StreamEvent};
use convoke_core::version::Version;
use convoke_node::WatchHandle;
use convoke_proto::json::UnregisterEvent;
use futures_core::Stream;
use serde::Serialize;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::iter::Peekable;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

/// Text handed on at once.
const CHUNK: usize = 32 * 1024;
/// What a single change takes, most often.
const EVENT: usize = 1024;

pub(super) struct Events {
    watch: WatchHandle,
    batch: Peekable<vec::IntoIter<StreamEvent>>,
    scope: Scope,
    place: Place,
    /// Told before the stream was resumed: not told again while it catches up.
    told: BTreeMap<String, Version>,
    /// To be said first.
    reset: Option<&'static str>,
    keep_alive: Duration,
    /// When something was last handed on.
    handed_on: Instant,
    /// Ends at `handed_on` plus `keep_alive`, or earlier: it is set anew when it ends, not with every event.
    quiet: Pin<Box<Sleep>>,
    text: String,
    ended: bool,
    encoded: Arc<EncodedChanges>,
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
        watch: WatchHandle,
        scope: Scope,
        place: Place,
        reset: Option<&'static str>,
        keep_alive: Duration,
        encoded: Arc<EncodedChanges>,
        held: Held,
    ) -> Self {
        let told = match &place {
            Place::After(after) => after.recent.clone(),
            Place::Start => BTreeMap::new(),
        };
        Events {
            watch,
            batch: Vec::new().into_iter().peekable(),
            scope,
            place,
            told,
            reset,
            keep_alive,
            handed_on: Instant::now(),
            quiet: Box::pin(tokio::time::sleep(keep_alive)),
            text: String::new(),
            ended: false,
            encoded,
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
                        // Not kept for others: a large registry would push out what changes now.
                        self.move_place(member.id(), member.version());
                        self.write_with("snapshot", |_, text| text.push_str(&encoded::json(&member)));
                    }
                }
                StreamEvent::Registered(member) => self.write_change("register", &member),
                StreamEvent::Updated(member) => self.write_change("update", &member),
                StreamEvent::StatusChanged(member) => self.write_change("status", &member),
                StreamEvent::OwnerChanged(member) => self.write_change("owner", &member),
                StreamEvent::Unregistered { id, version } => {
                    if self.told.remove(&id) == Some(version) {
                        self.skipped();
                    } else {
                        self.move_place(&id, version);
                        self.write("unregister", &UnregisterEvent { id, version: version.to_string() });
                    }
                }
                StreamEvent::CaughtUp => {
                    self.told = BTreeMap::new();
                    self.take_mark();
                    self.write("caught-up", &CaughtUp {});
                }
                StreamEvent::Reset(reason) => {
                    self.told = BTreeMap::new();
                    self.place = Place::Start;
                    self.take_mark();
                    self.write("reset", &Reset { reason: reset_reason(reason) });
                }
                StreamEvent::Mark(token) => {
                    self.place.mark(token);
                    self.write_place();
                }
            }
        }
    }

    fn write_change(&mut self, event: &str, member: &Member) {
        self.move_place(member.id(), member.version());
        self.write_with(event, |encoded, text| encoded.write_json(member, text));
    }

    fn write(&mut self, event: &str, data: &impl Serialize) {
        // Nothing of it has a shape that JSON could not show.
        let data = serde_json::to_string(data).unwrap_or_default();
        self.write_with(event, |_, text| text.push_str(&data));
    }

    /// Moves the place behind a member that is about to be told. If a mark follows at once, the place is the mark's.
    fn move_place(&mut self, id: &str, version: Version) {
        if !self.take_mark() {
            self.place.told(id, version);
        }
    }

    /// Moves the place to the mark that follows. Returns false if none does.
    fn take_mark(&mut self) -> bool {
        let mark = self.batch.next_if(|next| matches!(next, StreamEvent::Mark(_)));
        let Some(StreamEvent::Mark(token)) = mark else { return false };
        self.place.mark(token);
        true
    }

    fn write_with(&mut self, event: &str, data: impl FnOnce(&EncodedChanges, &mut String)) {
        self.text.reserve(EVENT);
        self.text.push_str("event: ");
        self.text.push_str(event);
        self.text.push_str("\nid: ");
        self.scope.write(&self.place, &mut self.text);
        self.text.push_str("\ndata: ");
        data(&self.encoded, &mut self.text);
        self.text.push_str("\n\n");
    }

    /// An event was not told; a mark behind it still is.
    fn skipped(&mut self) {
        if self.take_mark() {
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
        self.handed_on = Instant::now();
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
            match Pin::new(&mut this.watch).poll_next(context) {
                Poll::Ready(Some(batch)) => this.batch = batch.into_iter().peekable(),
                // The reader comes back, here or elsewhere, with where it was.
                Poll::Ready(None) => this.ended = true,
                Poll::Pending => {
                    if this.quiet.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    if this.handed_on.elapsed() >= this.keep_alive {
                        this.text.push_str(": still here\n\n");
                        this.quiet.as_mut().reset(Instant::now() + this.keep_alive);
                        return this.hand_on();
                    }
                    this.quiet.as_mut().reset(this.handed_on + this.keep_alive);
                }
            }
        }
    }
}
