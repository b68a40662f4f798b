//! `GET /api/v1/kv-watch`: changes of keys as server-sent events, at every node.
//!
//! The id of an event is the position at which the stream continues after it: the log, the revision, and the place in
//! the revision.

use super::event_id::EventId;
use super::extract::{Connection, Query, Switch};
use super::http_error::{HttpError, event_stream};
use super::named_log::NamedLog;
use super::sse;
use crate::access::Caller;
use crate::error::invalid;
use crate::log::{Feed, Source, WantedWatch, event_position};
use crate::surface::Surface;
use ::http::HeaderMap;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use convoke_access::{Resource, Verb};
use convoke_log::history::{EventPosition, WatchFilter};
use convoke_log::keys::{KeyRange, Selection};
use convoke_proto::json::{KeyDeleted, KeyPut, KeyValue, WatchReset};
use convoke_proto::v1::key_event::Change;
use convoke_proto::v1::key_watch_response::Message;
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
    first_key: Option<String>,
    until_key: Option<String>,
    events: Option<String>,
    from: Option<u64>,
    prev: Switch,
    stale: Switch,
}

type Id = EventId<2>;

fn id(log: u128, next: EventPosition) -> Id {
    Id { log, numbers: [next.revision, next.index] }
}

pub(crate) async fn watch(
    State(surface): State<Arc<Surface>>,
    caller: Caller,
    Query(query): Query<KvWatchQuery>,
    headers: HeaderMap,
    connection: Connection,
    _: NamedLog,
) -> Result<Response, HttpError> {
    let log = surface.log()?;
    let filter = filter(&caller, &query)?;
    let resumed = Id::resumed(&headers)?;
    if query.from == Some(0) {
        return Err(invalid("from", "revisions start at 1; omit from to watch from now on").into());
    }
    let wanted = WantedWatch { id: ID, filter, from: None, previous: query.prev.0 };
    let source = Source::of(&log.service, Some(&log.feeds), query.stale.0, std::slice::from_ref(&wanted)).await?;
    let other_log = resumed.is_some_and(|resumed| resumed.log != source.log());
    let from = match resumed {
        Some(Id { numbers: [revision, index], .. }) => Some(EventPosition { revision, index }).filter(|_| !other_log),
        None => query.from.map(EventPosition::start_of),
    };
    let wanted = WantedWatch { from, ..wanted };
    let keep_alive = surface.config.timeouts.keep_alive;
    let mut feed = Feed::open(&log.service, source, vec![wanted], keep_alive, connection.0.as_ref()).await?;
    // A client that resumes gets a reset instead.
    if resumed.is_none() && from.is_some() {
        feed.check_start().await?;
    }
    let reset = other_log.then(|| WatchReset { reason: "log".to_owned(), revision: feed.revision() });
    let events = Events { next: EventPosition::start_of(feed.revision() + 1), feed, reset };
    Ok(event_stream(stream::unfold(Some(events), next)))
}

/// Returns what the query selects, if the caller may read it.
fn filter(caller: &Caller, query: &KvWatchQuery) -> Result<WatchFilter, Error> {
    let KvWatchQuery { key, prefix, first_key, until_key, .. } = query;
    let is_range = first_key.is_some() || until_key.is_some();
    let selection = match (key, prefix) {
        (Some(_), Some(_)) => return Err(invalid("prefix", "key and prefix exclude each other")),
        (Some(_), None) | (None, Some(_)) if is_range => {
            return Err(invalid("first_key", "a range excludes key and prefix"));
        }
        (Some(key), None) => {
            caller.check(Verb::Read, Resource::Key(key.as_bytes()))?;
            Selection::Key(key.clone().into())
        }
        (None, None) if is_range => {
            let (from, until) = (first_key.clone().unwrap_or_default(), until_key.clone());
            let named = Resource::KeyRange { from: from.as_bytes(), until: until.as_ref().map(String::as_bytes) };
            caller.check(Verb::Read, named)?;
            Selection::Range(KeyRange { from: from.into(), until: until.map(Into::into) })
        }
        (None, prefix) => {
            let prefix = prefix.clone().unwrap_or_default();
            caller.check(Verb::Read, Resource::KeyPrefix(prefix.as_bytes()))?;
            Selection::Range(KeyRange::prefix(prefix))
        }
    };
    let all = WatchFilter::keys(selection);
    match query.events.as_deref() {
        None => Ok(all),
        Some("put") => Ok(WatchFilter { deletes: false, ..all }),
        Some("delete") => Ok(WatchFilter { puts: false, ..all }),
        Some(_) => Err(invalid("events", "events is put or delete; omit it to watch both")),
    }
}

struct Events {
    feed: Feed,
    /// Position after the last event.
    next: EventPosition,
    reset: Option<WatchReset>,
}

type Chunk = Result<Bytes, Infallible>;

async fn next(events: Option<Events>) -> Option<(Chunk, Option<Events>)> {
    let mut events = events?;
    let mut text = String::new();
    let log = events.feed.log();
    if let Some(reset) = events.reset.take() {
        write(&mut text, "reset", id(log, events.next), &reset);
        return Some((Ok(text.into()), Some(events)));
    }
    match events.feed.next().await {
        Ok(Message::Events(page)) => {
            let (count, after) = (page.events.len(), event_position(page.next));
            for (at, event) in page.events.into_iter().enumerate() {
                let next = if at + 1 == count { after } else { event_position(event.position).next() };
                write_event(&mut text, id(log, next), event);
            }
            events.next = after;
        }
        Ok(Message::Progress(progress)) => {
            events.next = event_position(progress.next);
            let progress = Progress { revision: events.next.revision.saturating_sub(1) };
            write(&mut text, "progress", id(log, events.next), &progress);
        }
        Ok(Message::Compacted(v1::WatchCompacted { revision, .. })) => {
            events.next = EventPosition::start_of(revision + 1);
            events.feed.restart(ID, events.next);
            let reset = WatchReset { reason: "compacted".to_owned(), revision };
            write(&mut text, "reset", id(log, events.next), &reset);
        }
        // A feed has started when it is opened.
        Ok(Message::Started(_)) => {}
        Err(error) => {
            write(&mut text, "end", id(log, events.next), &End { error: &error });
            return Some((Ok(text.into()), None));
        }
    }
    Some((Ok(text.into()), Some(events)))
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

fn write(text: &mut String, event: &str, id: Id, data: &impl Serialize) {
    sse::write_event(text, event, |text| id.write(text), |text| text.push_str(&sse::json(data)));
}

fn write_event(text: &mut String, id: Id, event: v1::KeyEvent) {
    let v1::KeyEvent { position: at, last, change, previous } = event;
    let (revision, prev) = (event_position(at).revision, previous.map(KeyValue::from));
    match change {
        Some(Change::Put(record)) => {
            write(text, "put", id, &KeyPut { revision, last, record: record.into(), prev });
        }
        Some(Change::Delete(key)) => {
            let deleted = KeyValue::from(v1::KeyValue { key, ..v1::KeyValue::default() });
            let KeyValue { key, key_base64, .. } = deleted;
            write(text, "delete", id, &KeyDeleted { revision, last, key, key_base64, prev });
        }
        // A watch of keys selects no others.
        Some(Change::Lock(_)) | None => {}
    }
}
