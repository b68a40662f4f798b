//! The event stream of one watcher.

use super::held::Held as HeldMembers;
use super::position::{Position, Scope};
use super::shared::{SharedChunk, SharedChunks};
use crate::encoded;
use crate::http::sse::{self, CaughtUp, KEEP_ALIVE, Reset};
use crate::surface::Surface;
use crate::watchers::Watching;
use bytes::Bytes;
use convoke_core::member::{ChangeKind, Member};
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

/// Largest text sent in one chunk.
const CHUNK: usize = 32 * 1024;

pub(super) struct Events {
    watch: WatchHandle,
    batch: Peekable<vec::IntoIter<StreamEvent>>,
    scope: Scope,
    position: Position,
    held: HeldMembers,
    /// Whether everything that the reader missed before it resumed has been sent.
    caught_up: bool,
    /// Versions sent before the stream was resumed. They are not sent again while it catches up.
    sent: BTreeMap<String, Version>,
    /// Reason of the reset that is sent first, if any.
    reset: Option<&'static str>,
    keep_alive: Duration,
    /// When the last chunk was sent.
    last_sent: Instant,
    /// Expires at `last_sent` plus `keep_alive` or earlier. It is reset when it expires, not with every event.
    idle_timer: Pin<Box<Sleep>>,
    text: String,
    ended: bool,
    surface: Arc<Surface>,
    _guard: Guard,
}

/// Released when the stream ends: the permit of the watcher limit and the entry in the list of watchers.
pub(super) type Guard = (OwnedSemaphorePermit, Watching);

impl Events {
    /// `position` is the reader's position with the members that it holds, `reset` the reason why its state is invalid.
    pub(super) fn new(
        watch: WatchHandle,
        scope: Scope,
        (position, held): (Position, HeldMembers),
        reset: Option<&'static str>,
        surface: &Arc<Surface>,
        guard: Guard,
    ) -> Self {
        let sent = match &position {
            Position::After(after) => after.recent.clone(),
            Position::Start => BTreeMap::new(),
        };
        let keep_alive = surface.config.timeouts.keep_alive;
        Events {
            watch,
            batch: Vec::new().into_iter().peekable(),
            scope,
            position,
            held,
            caught_up: false,
            sent,
            reset,
            keep_alive,
            last_sent: Instant::now(),
            idle_timer: Box::pin(tokio::time::sleep(keep_alive)),
            text: String::new(),
            ended: false,
            surface: surface.clone(),
            _guard: guard,
        }
    }

    /// Writes the events of the current batch up to the size of a chunk.
    fn write_batch(&mut self) {
        if let Some(reason) = self.reset.take() {
            self.write("reset", &Reset { reason });
        }
        while self.text.len() < CHUNK
            && let Some(event) = self.batch.next()
        {
            match event {
                StreamEvent::Snapshot(member) => {
                    if self.sent.remove(member.id()) == Some(member.version()) {
                        self.skipped();
                    } else {
                        // Not cached: a large snapshot would evict the current changes.
                        self.held.insert(member.id());
                        self.advance(member.id(), member.version());
                        self.write_with("snapshot", |_, text| text.push_str(&encoded::json(&member)));
                    }
                }
                StreamEvent::Registered(member) => {
                    self.held.insert(member.id());
                    self.write_change(ChangeKind::Registered, &member);
                }
                StreamEvent::Updated(member) => self.write_change(ChangeKind::Updated, &member),
                StreamEvent::StatusChanged(member) => self.write_change(ChangeKind::StatusChanged, &member),
                StreamEvent::OwnerChanged(member) => self.write_change(ChangeKind::OwnerChanged, &member),
                StreamEvent::Unregistered { id, version } => {
                    let repeated = self.sent.remove(&id) == Some(version);
                    if repeated || !self.caught_up && !self.held.may_contain(&id) {
                        self.skipped();
                    } else {
                        self.held.remove(&id);
                        self.advance(&id, version);
                        let data = UnregisterEvent { id, version: version.to_string() };
                        self.write(ChangeKind::Unregistered.as_str(), &data);
                    }
                }
                StreamEvent::CaughtUp => {
                    self.caught_up = true;
                    self.sent = BTreeMap::new();
                    self.take_mark();
                    self.write("caught-up", &CaughtUp {});
                }
                StreamEvent::Reset(reason) => {
                    self.sent = BTreeMap::new();
                    self.position = Position::Start;
                    (self.held, self.caught_up) = (HeldMembers::default(), false);
                    self.take_mark();
                    self.write("reset", &Reset { reason: reset_reason(reason) });
                }
                StreamEvent::Mark(token) => {
                    self.position.mark(token);
                    self.write_position();
                }
            }
        }
    }

    fn write_change(&mut self, kind: ChangeKind, member: &Member) {
        self.advance(member.id(), member.version());
        self.write_with(kind.as_str(), |surface, text| surface.encoded.write_json(member, text));
    }

    fn write(&mut self, event: &str, data: &impl Serialize) {
        self.write_with(event, |_, text| text.push_str(&sse::json(data)));
    }

    /// Advances the position beyond a member that is about to be sent. If a mark follows directly, the event carries the
    /// position of the mark.
    fn advance(&mut self, id: &str, version: Version) {
        if !self.take_mark() {
            self.position.sent(id, version);
        }
    }

    /// Advances the position to the mark that follows. Returns false if none does.
    fn take_mark(&mut self) -> bool {
        let mark = self.batch.next_if(|next| matches!(next, StreamEvent::Mark(_)));
        let Some(StreamEvent::Mark(token)) = mark else { return false };
        self.position.mark(token);
        true
    }

    fn write_with(&mut self, event: &str, data: impl FnOnce(&Surface, &mut String)) {
        let id = |text: &mut String| self.scope.write(&self.position, &self.held, text);
        sse::write_event(&mut self.text, event, id, |text| data(&self.surface, text));
    }

    /// An event was not sent. If a mark follows it, the mark is still sent.
    fn skipped(&mut self) {
        if self.take_mark() {
            self.write_position();
        }
    }

    /// Advances the reader's position without an event.
    fn write_position(&mut self) {
        sse::write_id(&mut self.text, |text| self.scope.write(&self.position, &self.held, text));
    }

    /// Takes the next batch. Returns its whole text if it is one that watchers share.
    fn take_batch(&mut self, batch: Vec<StreamEvent>) -> Option<Bytes> {
        if !self.sent.is_empty() || !SharedChunks::covers(&batch) {
            self.batch = batch.into_iter().peekable();
            return None;
        }
        let from = (self.position.clone(), self.held.clone());
        if let Some((text, to)) = self.surface.chunks.find(self.scope, &from, &batch) {
            (self.position, self.held) = to;
            return Some(text);
        }
        self.batch = batch.clone().into_iter().peekable();
        self.write_batch();
        if self.batch.peek().is_some() {
            return None;
        }
        let text = self.take_text();
        let (scope, to) = (self.scope, (self.position.clone(), self.held.clone()));
        self.surface.chunks.store(SharedChunk { scope, from, batch, text: text.clone(), to });
        Some(text)
    }

    fn take_text(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.text))
    }

    fn send_chunk(&mut self, text: Bytes) -> Poll<Option<Result<Bytes, Infallible>>> {
        self.last_sent = Instant::now();
        Poll::Ready(Some(Ok(text)))
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
                let text = this.take_text();
                return this.send_chunk(text);
            }
            if this.ended {
                return Poll::Ready(None);
            }
            match Pin::new(&mut this.watch).poll_next(context) {
                Poll::Ready(Some(batch)) => {
                    if let Some(text) = this.take_batch(batch) {
                        return this.send_chunk(text);
                    }
                }
                // The reader resumes at this or another node from its last position.
                Poll::Ready(None) => this.ended = true,
                Poll::Pending => {
                    if this.idle_timer.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    if this.last_sent.elapsed() >= this.keep_alive {
                        this.idle_timer.as_mut().reset(Instant::now() + this.keep_alive);
                        return this.send_chunk(Bytes::from_static(KEEP_ALIVE.as_bytes()));
                    }
                    this.idle_timer.as_mut().reset(this.last_sent + this.keep_alive);
                }
            }
        }
    }
}
