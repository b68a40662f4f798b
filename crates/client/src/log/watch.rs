//! Watches of keys. They continue at any replica, exactly where they were.

use super::ambassador::Shared;
use super::following::{Ended, Follower, Place, Report, Reports, send};
use super::kv::Handle;
use super::read::client;
use super::{KeyValue, Kv};
use crate::Error;
use crate::connect::LogChannel;
use convoke_proto::v1::key_event::Change;
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
    place: Place,
    kinds: Kinds,
    previous: bool,
    stale: bool,
    records: bool,
}

/// The kinds of changes that a watch returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kinds {
    #[default]
    All,
    Puts,
    Deletes,
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
        WatchKeys { which, place: Place::default(), kinds: Kinds::All, previous: false, stale: false, records: false }
    }

    /// Starts with the changes of this revision. Without it, the watch starts with the first change after the current
    /// state.
    pub fn from(mut self, revision: u64) -> WatchKeys {
        self.place.next = Some(v1::EventPosition { revision, index: 0 });
        self
    }

    /// Continues at a [position](KeyWatch::position) of an earlier watch.
    pub fn resume(mut self, log: v1::LogId, revision: u64, index: u64) -> WatchKeys {
        self.place = Place { log: Some(log), next: Some(v1::EventPosition { revision, index }) };
        self
    }

    /// Starts with a [`Reset`](KeyWatchEvent::Reset) that contains the current records.
    pub fn with_records(mut self) -> WatchKeys {
        self.records = true;
        self
    }

    /// Returns only puts. [Resets](KeyWatchEvent::Reset) are returned in any case.
    pub fn only_puts(mut self) -> WatchKeys {
        self.kinds = Kinds::Puts;
        self
    }

    /// Returns only deletes. [Resets](KeyWatchEvent::Reset) are returned in any case.
    pub fn only_deletes(mut self) -> WatchKeys {
        self.kinds = Kinds::Deletes;
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
pub struct KeyWatch(Reports<KeyWatchEvent, Position>);

impl KeyWatch {
    /// Returns the next event; `None` after an error. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<KeyWatchEvent, Error>> {
        self.0.next().await
    }

    /// Returns where the watch continues after the last returned event: the log, the revision and the place in it, for
    /// [`WatchKeys::resume`]. The log is `None` before the first event.
    pub fn position(&self) -> Position {
        self.0.position()
    }
}

impl Stream for KeyWatch {
    type Item = Result<KeyWatchEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll(context)
    }
}

fn position(place: Place) -> Position {
    let next = place.next.unwrap_or_default();
    (place.log, next.revision, next.index)
}

impl Kv {
    /// Watches keys. Every change is returned exactly once, in the order of the revisions.
    pub fn watch(&self, keys: WatchKeys) -> KeyWatch {
        let reset = keys.records.then_some(ResetReason::Start);
        let handle = self.handle().clone();
        KeyWatch(Reports::start(position(keys.place), EVENTS_MAX, |sender| KeyFollower { handle, keys, reset, sender }))
    }
}

struct KeyFollower {
    handle: Arc<Handle>,
    keys: WatchKeys,
    /// The watch starts again at the next replica, with the current records.
    reset: Option<ResetReason>,
    sender: mpsc::Sender<Report<KeyWatchEvent, Position>>,
}

impl Follower for KeyFollower {
    fn shared(&self) -> &Shared {
        self.handle.shared()
    }

    fn place(&mut self) -> &mut Place {
        &mut self.keys.place
    }

    fn wanted(&self) -> (v1::KeyWatch, bool) {
        let WatchKeys { which, kinds, previous, stale, .. } = &self.keys;
        let watch = v1::KeyWatch {
            which: Some(which.clone()),
            previous: *previous,
            no_puts: *kinds == Kinds::Deletes,
            no_deletes: *kinds == Kinds::Puts,
            ..v1::KeyWatch::default()
        };
        (watch, *stale)
    }

    async fn started(&mut self, replica: &LogChannel, revision: u64) -> Result<(), Ended> {
        let Some(reason) = self.reset else { return Ok(()) };
        let records = self.records(replica, revision).await?;
        self.reset = None;
        self.keys.place.next = Some(v1::EventPosition { revision: revision + 1, index: 0 });
        self.send(KeyWatchEvent::Reset { reason, revision, records }).await
    }

    async fn event(&mut self, event: v1::KeyEvent) -> Result<(), Ended> {
        let (key, record) = match event.change {
            Some(Change::Put(record)) => (record.key.clone(), Some(record)),
            Some(Change::Delete(key)) => (key, None),
            // A watch of keys selects no locks.
            Some(Change::Lock(_)) | None => return Ok(()),
        };
        let (revision, last, previous) = (event.position.unwrap_or_default().revision, event.last, event.previous);
        self.send(KeyWatchEvent::Change(KeyChange { revision, last, key, record, previous })).await
    }

    async fn marked(&mut self, next: v1::EventPosition) -> Result<(), Ended> {
        self.send(KeyWatchEvent::Progress { revision: next.revision.saturating_sub(1) }).await
    }

    fn start_again(&mut self, reason: ResetReason) {
        self.reset = Some(reason);
    }

    async fn failed(self, error: Error) {
        let _ = self.sender.send(Report { event: Some(Err(error)), position: None }).await;
    }
}

/// A node that has served the stream from another replica may have become a replica that is behind it.
fn not_read(status: tonic::Status) -> Ended {
    match Error::from(status) {
        error if error.field.as_deref() == Some("revision") => Ended::Lost(error),
        error => error.into(),
    }
}

impl KeyFollower {
    async fn send(&self, event: KeyWatchEvent) -> Result<(), Ended> {
        let report = Report { event: Some(Ok(event)), position: Some(position(self.keys.place)) };
        send(self.handle.shared(), &self.sender, report).await
    }

    /// Reads all watched keys at a revision, at the replica that serves the stream.
    async fn records(&self, replica: &LogChannel, revision: u64) -> Result<Vec<KeyValue>, Ended> {
        let mut query = match self.keys.which.clone() {
            Which::Key(key) => super::Query::key(key),
            Which::Range(range) => super::Query::range(range.from, range.until),
            // A watch of keys selects no others.
            Which::Lock(_) | Which::Union(_) => return Ok(Vec::new()),
        };
        let mut records = Vec::new();
        loop {
            let request = v1::ReadRequest {
                consistency: v1::Consistency::Local.into(),
                revision,
                what: Some(v1::read_request::What::Query(query.clone().into())),
                ..v1::ReadRequest::default()
            };
            let page = client(self.shared(), replica.clone()).read(request).await.map_err(not_read)?.into_inner();
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
