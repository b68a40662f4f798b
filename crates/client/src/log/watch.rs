//! Watches of keys. They continue at any replica, exactly where they were.

use super::ambassador::Shared;
use super::following::{Ended, Follower, next_message, open_stream, run, send};
use super::kv::Handle;
use super::read::client;
use super::{KeyValue, Kv};
use crate::{Error, ErrorCode};
use convoke_proto::v1::key_event::Change;
use convoke_proto::v1::key_watch_response::Message;
use convoke_proto::v1::{self, key_watch::Which};
use prost::bytes::Bytes;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_stream::Stream;

/// Events that may wait for the application. When the queue is full, the stream of the replica is not read.
const EVENTS_MAX: usize = 256;

/// The keys to watch, and how.
#[derive(Clone, Debug)]
#[must_use]
pub struct WatchKeys {
    which: Which,
    log: Option<v1::LogId>,
    next: Option<v1::EventPosition>,
    previous: bool,
    stale: bool,
    records: bool,
}

impl WatchKeys {
    pub fn key(key: impl Into<Bytes>) -> WatchKeys {
        WatchKeys::of(Which::Key(key.into()))
    }

    /// Watches all keys that begin with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> WatchKeys {
        WatchKeys::of(Which::Range(v1::KeyRange::prefix(prefix)))
    }

    /// Watches all keys from `from` up to, but not including, `until`; without `until` up to the last key.
    pub fn range(from: impl Into<Bytes>, until: Option<Bytes>) -> WatchKeys {
        WatchKeys::of(Which::Range(v1::KeyRange { from: from.into(), until }))
    }

    fn of(which: Which) -> WatchKeys {
        WatchKeys { which, log: None, next: None, previous: false, stale: false, records: false }
    }

    /// Starts with the changes of this revision. Without it, the watch starts with the first change after the current
    /// state.
    pub fn from(mut self, revision: u64) -> WatchKeys {
        self.next = Some(v1::EventPosition { revision, index: 0 });
        self
    }

    /// Continues at a [position](KeyWatch::position) of an earlier watch.
    pub fn resume(mut self, log: v1::LogId, revision: u64, index: u64) -> WatchKeys {
        (self.log, self.next) = (Some(log), Some(v1::EventPosition { revision, index }));
        self
    }

    /// Starts with a [`Reset`](KeyWatchEvent::Reset) that contains the current records.
    pub fn with_records(mut self) -> WatchKeys {
        self.records = true;
        self
    }

    /// Returns the previous records.
    pub fn previous(mut self) -> WatchKeys {
        self.previous = true;
        self
    }

    /// Continues at replicas that know no leader.
    pub fn stale(mut self) -> WatchKeys {
        self.stale = true;
        self
    }
}

/// An event of a watch of keys.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "most events are changes")]
pub enum KeyWatchEvent {
    Change(KeyChange),
    /// All changes up to this revision were returned.
    Progress {
        revision: u64,
    },
    /// Changes may be missing. The records are all watched keys at the revision; replace what you know by them.
    Reset {
        reason: ResetReason,
        revision: u64,
        records: Vec<KeyValue>,
    },
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyChange {
    pub revision: u64,
    /// Whether the watch has no further event of this revision.
    pub last: bool,
    pub key: Bytes,
    /// The record after the change; `None` if the key was deleted.
    pub record: Option<KeyValue>,
    /// The record before the change, if the watch asked for it.
    pub previous: Option<KeyValue>,
}

/// Why changes may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetReason {
    /// The watch has started.
    Start,
    /// The history no longer contains the position of the watch.
    Compacted,
    /// The log was restored or recovered: positions of the earlier log have no meaning.
    OtherLog,
}

impl ResetReason {
    pub fn as_str(self) -> &'static str {
        match self {
            ResetReason::Start => "start",
            ResetReason::Compacted => "compacted",
            ResetReason::OtherLog => "log",
        }
    }
}

type Position = (Option<v1::LogId>, u64, u64);

/// A stream of changes of keys. It continues across lost connections and nodes, and ends with an error only if no node
/// can accept it. Dropping it ends it.
#[derive(Debug)]
#[must_use = "dropping a watch ends it"]
pub struct KeyWatch {
    events: mpsc::Receiver<(Result<KeyWatchEvent, Error>, Position)>,
    position: Position,
    task: tokio::task::JoinHandle<()>,
}

impl KeyWatch {
    /// Returns the next event; `None` after an error.
    pub async fn next(&mut self) -> Option<Result<KeyWatchEvent, Error>> {
        let (event, position) = self.events.recv().await?;
        self.position = position;
        Some(event)
    }

    /// Returns where the watch continues after the last returned event: the log, the revision and the place in it, for
    /// [`WatchKeys::resume`]. The log is `None` before the first event.
    pub fn position(&self) -> Position {
        self.position
    }
}

impl Drop for KeyWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stream for KeyWatch {
    type Item = Result<KeyWatchEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_recv(context).map(|next| {
            let (event, position) = next?;
            self.position = position;
            Some(event)
        })
    }
}

impl Kv {
    /// Watches keys. Every change is returned exactly once, in the order of the revisions.
    pub fn watch(&self, keys: WatchKeys) -> KeyWatch {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let position = (keys.log, keys.next.map_or(0, |at| at.revision), keys.next.map_or(0, |at| at.index));
        let reset = keys.records.then_some(ResetReason::Start);
        let follower = KeyFollower { handle: self.handle().clone(), keys, reset, sender };
        KeyWatch { events, position, task: tokio::spawn(run(follower)) }
    }
}

struct KeyFollower {
    handle: Arc<Handle>,
    keys: WatchKeys,
    /// The watch starts again at the next replica, with the current records.
    reset: Option<ResetReason>,
    sender: mpsc::Sender<(Result<KeyWatchEvent, Error>, Position)>,
}

impl Follower for KeyFollower {
    fn shared(&self) -> &Shared {
        self.handle.shared()
    }

    fn position(&self) -> Option<v1::EventPosition> {
        self.keys.next
    }

    async fn follow(&mut self, address: &str) -> Ended {
        match self.try_follow(address).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn failed(self, error: Error) {
        let reached = self.reached();
        let _ = self.sender.send((Err(error), reached)).await;
    }
}

impl KeyFollower {
    fn reached(&self) -> Position {
        let next = self.keys.next.unwrap_or_default();
        (self.keys.log, next.revision, next.index)
    }

    async fn send(&self, event: KeyWatchEvent) -> Result<(), Ended> {
        send(self.shared(), &self.sender, (Ok(event), self.reached())).await
    }

    /// Forgets the position: the next stream starts with the current records.
    fn start_again(&mut self, reason: ResetReason) -> Ended {
        (self.reset, self.keys.next, self.keys.log) = (Some(reason), None, None);
        Ended::start_again()
    }

    async fn try_follow(&mut self, address: &str) -> Result<std::convert::Infallible, Ended> {
        let watch = v1::KeyWatch {
            id: 1,
            which: Some(self.keys.which.clone()),
            from: self.keys.next,
            previous: self.keys.previous,
            ..v1::KeyWatch::default()
        };
        let opened = open_stream(self.shared(), address, watch, self.keys.log, self.keys.stale).await;
        let (channel, mut stream) = match opened {
            Err(error) if error.code == ErrorCode::SessionGone => return Err(self.start_again(ResetReason::OtherLog)),
            Err(error) if error.code == ErrorCode::Compacted => return Err(self.start_again(ResetReason::Compacted)),
            opened => opened?,
        };
        loop {
            match next_message(&mut stream, address).await? {
                Message::Started(started) => {
                    self.keys.log = started.log;
                    if let Some(reason) = self.reset {
                        let records = self.records(&channel, started.revision).await?;
                        self.reset = None;
                        self.keys.next = Some(v1::EventPosition { revision: started.revision + 1, index: 0 });
                        self.send(KeyWatchEvent::Reset { reason, revision: started.revision, records }).await?;
                    }
                }
                Message::Progress(progress) => {
                    let next = progress.next.unwrap_or_default();
                    self.keys.next = Some(next);
                    self.send(KeyWatchEvent::Progress { revision: next.revision.saturating_sub(1) }).await?;
                }
                Message::Events(events) => {
                    let (count, after) = (events.events.len(), events.next);
                    for (at, event) in events.events.into_iter().enumerate() {
                        let position = event.position.unwrap_or_default();
                        let next = v1::EventPosition { index: position.index + 1, ..position };
                        self.keys.next = if at + 1 == count { after.or(Some(next)) } else { Some(next) };
                        let (key, record) = match event.change {
                            Some(Change::Put(record)) => (record.key.clone(), Some(record)),
                            Some(Change::Delete(key)) => (key, None),
                            // A watch of keys selects no locks.
                            Some(Change::Lock(_)) | None => continue,
                        };
                        let (revision, last, previous) = (position.revision, event.last, event.previous);
                        let change = KeyChange { revision, last, key, record, previous };
                        self.send(KeyWatchEvent::Change(change)).await?;
                    }
                }
                Message::Compacted(_) => return Err(self.start_again(ResetReason::Compacted)),
            }
        }
    }

    /// Reads all watched keys at a revision, at the replica that serves the stream.
    async fn records(&self, channel: &crate::connect::LogChannel, revision: u64) -> Result<Vec<KeyValue>, Ended> {
        let mut query = match self.keys.which.clone() {
            Which::Key(key) => super::Query::key(key),
            Which::Range(range) => super::Query::range(range.from, range.until),
            // A lock has no keys.
            Which::Lock(_) => return Ok(Vec::new()),
        };
        let mut records = Vec::new();
        loop {
            let request = v1::ReadRequest {
                consistency: v1::Consistency::Local.into(),
                revision,
                what: Some(v1::read_request::What::Query(query.clone().into())),
                ..v1::ReadRequest::default()
            };
            let page = client(self.shared(), channel.clone()).read(request).await.map_err(Error::from)?.into_inner();
            if let Some(last) = page.records.last() {
                query = query.after(&last.key);
            }
            records.extend(page.records);
            if !page.more {
                return Ok(records);
            }
        }
    }
}
