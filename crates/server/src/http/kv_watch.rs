//! `GET /api/v1/kv-watch`: changes of keys as server-sent events, at every node.
//!
//! The id of an event is the position at which the stream continues after it: the log, the revision, and the place in
//! the revision.

use super::extract::{Query, Switch};
use super::http_error::{HttpError, event_stream};
use super::named_log::NamedLog;
use super::sse::{self, last_event_id};
use crate::access::Caller;
use crate::error::invalid;
use crate::log::{Feed, Step, WantedWatch, compacted_error, record};
use crate::surface::Surface;
use ::http::HeaderMap;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use convoke_access::{Resource, Verb};
use convoke_client::log::{KeyChange, KeyWatch, KeyWatchEvent, WatchKeys};
use convoke_log::history::{EventChange, EventPosition, WatchEvent, WatchFilter};
use convoke_log::keys::{KeyRange, Selection};
use convoke_proto::json::{KeyDeleted, KeyPut, KeyValue, WatchReset};
use convoke_proto::{Error, v1};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::sync::Arc;

/// The only watch of its stream.
const ID: u64 = 1;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct KvWatchQuery {
    key: Option<String>,
    prefix: Option<String>,
    from: Option<u64>,
    prev: Switch,
    stale: Switch,
}

/// A position in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    log: u128,
    next: EventPosition,
}

impl Position {
    fn write(self, text: &mut String) {
        use std::fmt::Write;
        let Position { log, next } = self;
        let _ = write!(text, "{log:032x}-{}-{}", next.revision, next.index);
    }

    fn parse(text: &str) -> Option<Position> {
        let mut parts = text.split('-');
        let log = parts.next()?.parse::<v1::LogId>().ok()?.into();
        let mut number = || {
            let digits = parts.next()?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten()
        };
        let next = EventPosition { revision: number()?, index: number()? };
        parts.next().is_none().then_some(Position { log, next })
    }
}

pub(crate) async fn watch(
    State(surface): State<Arc<Surface>>,
    caller: Caller,
    Query(query): Query<KvWatchQuery>,
    headers: HeaderMap,
    _: NamedLog,
) -> Result<Response, HttpError> {
    let log = surface.log()?;
    let range = match (query.key, query.prefix) {
        (Some(_), Some(_)) => return Err(invalid("prefix", "key and prefix exclude each other").into()),
        (Some(key), None) => {
            caller.check(Verb::Read, Resource::Key(key.as_bytes()))?;
            Selection::Key(key.into())
        }
        (None, prefix) => {
            let named = Resource::KeyPrefix(prefix.as_deref().unwrap_or_default().as_bytes());
            caller.check(Verb::Read, named)?;
            Selection::Range(KeyRange::prefix(prefix.unwrap_or_default()))
        }
    };
    let resumed = match last_event_id(&headers) {
        None => None,
        Some(id) => {
            let message = "invalid Last-Event-ID; pass the id of the last event unchanged";
            Some(id.and_then(Position::parse).ok_or_else(|| invalid("Last-Event-ID", message))?)
        }
    };
    if query.from == Some(0) {
        return Err(invalid("from", "revisions start at 1; omit from to watch from now on").into());
    }
    let from = query.from.map(EventPosition::start_of);
    let keep_alive = surface.config.timeouts.keep_alive;
    let Ok(own) = log.handle.log() else {
        let permit = log.service.enter_watch()?;
        let wanted = upstream(range, resumed, query.from, query.prev.0, query.stale.0);
        let events = Upstream {
            watch: log.kv.watch(wanted),
            log: resumed.map(|at| at.log).unwrap_or_default(),
            _permit: permit,
        };
        return Ok(event_stream(stream::unfold(Some(events), next_upstream)));
    };
    let other_log = resumed.is_some_and(|resumed| resumed.log != own);
    let from = resumed.filter(|_| !other_log).map(|resumed| resumed.next).or(from.filter(|_| resumed.is_none()));
    let filter = WatchFilter::keys(range);
    let wanted = vec![WantedWatch { id: ID, filter, from, previous: query.prev.0 }];
    let feed = Feed::open(&log.service, wanted, query.stale.0, keep_alive).await?;
    if let (None, Some(from)) = (resumed, from) {
        let machine = log.handle.local().map_err(|why| log.service.rejected(&why))?;
        let oldest = machine.history().oldest();
        if from.revision < oldest {
            return Err(compacted_error(convoke_log::history::Compacted { oldest }, machine.keys().revision()).into());
        }
    }
    let reset = other_log.then(|| WatchReset { reason: "log".to_owned(), revision: feed.revision() });
    let events = Own { next: EventPosition::start_of(feed.revision() + 1), feed, reset };
    Ok(event_stream(stream::unfold(Some(events), next_own)))
}

struct Own {
    feed: Feed,
    /// Position of the last event.
    next: EventPosition,
    reset: Option<WatchReset>,
}

type Chunk = Result<Bytes, Infallible>;

async fn next_own(own: Option<Own>) -> Option<(Chunk, Option<Own>)> {
    let mut own = own?;
    let mut text = String::new();
    let log = own.feed.log();
    if let Some(reset) = own.reset.take() {
        write(&mut text, "reset", Position { log, next: own.next }, &reset);
        return Some((Ok(text.into()), Some(own)));
    }
    let restart = match own.feed.next().await {
        Ok(Step::Events { watch, page }) => {
            let count = page.events.len();
            for (at, found) in page.events.iter().enumerate() {
                let next = if at + 1 == count { page.next } else { found.event.position.next() };
                write_event(&mut text, watch.previous, Position { log, next }, found);
            }
            own.next = page.next;
            None
        }
        Ok(Step::Progress { next, .. }) => {
            own.next = next;
            write(&mut text, "progress", Position { log, next }, &Progress { revision: next.revision - 1 });
            None
        }
        Ok(Step::Compacted { revision, .. }) => Some(revision),
        Err(error) => {
            write_end(&mut text, Position { log, next: own.next }, &error);
            return Some((Ok(text.into()), None));
        }
    };
    if let Some(revision) = restart {
        own.next = EventPosition::start_of(revision + 1);
        own.feed.restart(ID, own.next);
        let reset = WatchReset { reason: "compacted".to_owned(), revision };
        write(&mut text, "reset", Position { log, next: own.next }, &reset);
    }
    Some((Ok(text.into()), Some(own)))
}

/// All changes up to this revision were sent.
#[derive(Serialize)]
struct Progress {
    revision: u64,
}

/// The error with which a stream ends.
#[derive(Serialize)]
struct End<'a> {
    error: &'a Error,
}

fn write(text: &mut String, event: &str, position: Position, data: &impl Serialize) {
    sse::write_event(text, event, |text| position.write(text), |text| text.push_str(&sse::json(data)));
}

fn write_end(text: &mut String, position: Position, error: &Error) {
    write(text, "end", position, &End { error });
}

fn write_event(text: &mut String, previous: bool, position: Position, found: &WatchEvent) {
    let (revision, last) = (found.event.position.revision, found.last);
    let shown = |found: &convoke_log::keys::KeyRecord| KeyValue::from(record(found));
    let prev = found.event.change.previous().filter(|_| previous).map(|found| shown(found));
    match &found.event.change {
        EventChange::Put { record, .. } => {
            write(text, "put", position, &KeyPut { revision, last, record: shown(record), prev });
        }
        EventChange::Delete { previous } => {
            let KeyValue { key, key_base64, .. } = shown(previous);
            write(text, "delete", position, &KeyDeleted { revision, last, key, key_base64, prev });
        }
        // A watch of keys selects no others.
        EventChange::Lock(_) => {}
    }
}

/// The watch of a node without a replica: it follows a replica as a client.
struct Upstream {
    watch: KeyWatch,
    log: u128,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

fn upstream(
    selection: Selection,
    resumed: Option<Position>,
    from: Option<u64>,
    previous: bool,
    stale: bool,
) -> WatchKeys {
    let mut wanted = match selection {
        Selection::Key(key) => WatchKeys::key(key),
        Selection::Range(range) => WatchKeys::range(range.from, range.until),
    };
    wanted = match (resumed, from) {
        (Some(at), _) => wanted.resume(at.log.into(), at.next.revision, at.next.index),
        (None, Some(revision)) => wanted.from(revision),
        (None, None) => wanted,
    };
    if previous {
        wanted = wanted.previous();
    }
    if stale { wanted.stale() } else { wanted }
}

async fn next_upstream(upstream: Option<Upstream>) -> Option<(Chunk, Option<Upstream>)> {
    let mut upstream = upstream?;
    let mut text = String::new();
    let event = upstream.watch.next().await?;
    let (log, revision, index) = upstream.watch.position();
    upstream.log = log.map_or(upstream.log, Into::into);
    let position = Position { log: upstream.log, next: EventPosition { revision, index } };
    match event {
        Ok(KeyWatchEvent::Change(KeyChange { revision, last, record, key, previous })) => {
            let prev = previous.map(KeyValue::from);
            match record {
                Some(record) => {
                    write(&mut text, "put", position, &KeyPut { revision, last, record: record.into(), prev });
                }
                None => {
                    let deleted = KeyValue::from(v1::KeyValue { key, ..v1::KeyValue::default() });
                    let KeyValue { key, key_base64, .. } = deleted;
                    write(&mut text, "delete", position, &KeyDeleted { revision, last, key, key_base64, prev });
                }
            }
        }
        Ok(KeyWatchEvent::Progress { revision }) => {
            write(&mut text, "progress", position, &Progress { revision });
        }
        Ok(KeyWatchEvent::Reset { reason, revision, .. }) => {
            let reason = reason.as_str().to_owned();
            write(&mut text, "reset", position, &WatchReset { reason, revision });
        }
        Err(error) => {
            write_end(&mut text, position, &error);
            return Some((Ok(text.into()), None));
        }
    }
    Some((Ok(text.into()), Some(upstream)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[test]
    fn positions_round_trip_and_garbage_is_rejected() {
        let position = Position { log: 0xab, next: EventPosition { revision: 12, index: 3 } };
        let mut text = String::new();
        position.write(&mut text);
        assert_eq!(text, "000000000000000000000000000000ab-12-3");
        assert_eq!(Position::parse(&text), Some(position));
        for garbage in [
            "",
            "12-3",
            "000000000000000000000000000000ab-12",
            "000000000000000000000000000000ab-+1-0",
            "000000000000000000000000000000ab-1-2-3",
            "000000000000000000000000000000ab-99999999999999999999-0",
        ] {
            assert_eq!(Position::parse(garbage), None, "{garbage}");
        }
    }
    #[test]
    fn fuzz_positions() {
        let corpus =
            ["000000000000000000000000000000ab-12-3", "ffffffffffffffffffffffffffffffff-1-18446744073709551615"];
        convoke_fuzz::texts(&corpus, |text| {
            let Some(position) = Position::parse(text) else { return };
            let mut printed = String::new();
            position.write(&mut printed);
            assert_eq!(Position::parse(&printed), Some(position));
        });
    }
}
