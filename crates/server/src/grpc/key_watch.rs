//! `Log.Watch`: a feed of key watches as messages.

use crate::log::{Feed, LogService, Step, WantedWatch, lock_event, record, wanted};
use convoke_log::history::{EventChange, EventPosition, WatchEvent, WatchPage};
use convoke_proto::v1::key_event::Change;
use convoke_proto::v1::key_watch_response::Message;
use convoke_proto::{Error, v1};
use futures_core::Stream;
use futures_util::stream;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

pub(crate) type KeyWatchStream = Pin<Box<dyn Stream<Item = Result<v1::KeyWatchResponse, Status>> + Send>>;

/// Starts the watches. The stream ends with an error.
pub(super) async fn watch(service: &Arc<LogService>, request: v1::KeyWatchRequest) -> Result<KeyWatchStream, Error> {
    let progress = Duration::from_millis(request.progress_ms);
    let feed = Feed::open(service, wanted(request.watches)?, request.stale, progress).await?;
    let started = v1::WatchStarted { log: Some(feed.log().into()), revision: feed.revision() };
    let first = stream::iter([Ok(response(Message::Started(started)))]);
    let rest = stream::unfold(Some(feed), async |feed| {
        let mut feed = feed?;
        let next = match feed.next().await {
            Ok(step) => Ok(response(message(step))),
            Err(error) => return Some((Err(error.into()), None)),
        };
        Some((next, Some(feed)))
    });
    Ok(Box::pin(stream::StreamExt::chain(first, rest)))
}

fn response(message: Message) -> v1::KeyWatchResponse {
    v1::KeyWatchResponse { message: Some(message) }
}

fn message(step: Step<'_>) -> Message {
    match step {
        Step::Events { watch, page } => Message::Events(events(watch, &page)),
        Step::Progress { watch, next } => {
            Message::Progress(v1::WatchProgress { watch: watch.id, next: Some(position(next)) })
        }
        Step::Compacted { watch, compacted, revision } => {
            Message::Compacted(v1::WatchCompacted { watch: watch.id, oldest: compacted.oldest, revision })
        }
    }
}

fn events(watch: &WantedWatch, page: &WatchPage) -> v1::KeyEvents {
    let events = page.events.iter().map(|found| event(watch, found)).collect();
    v1::KeyEvents { watch: watch.id, events, next: Some(position(page.next)) }
}

fn event(watch: &WantedWatch, WatchEvent { event, last }: &WatchEvent) -> v1::KeyEvent {
    let (change, previous) = match &event.change {
        EventChange::Put { record: found, previous } => (Change::Put(record(found)), previous.as_ref()),
        EventChange::Delete { previous } => (Change::Delete(previous.key().to_vec().into()), Some(previous)),
        EventChange::Lock(event) => (Change::Lock(lock_event(event)), None),
    };
    let previous = previous.filter(|_| watch.previous).map(|found| record(found));
    v1::KeyEvent { position: Some(position(event.position)), last: *last, change: Some(change), previous }
}

fn position(position: EventPosition) -> v1::EventPosition {
    v1::EventPosition { revision: position.revision, index: position.index }
}
