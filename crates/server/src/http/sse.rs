//! The text of server-sent events: frames, keep-alives, and the events that every stream has.

use ::http::{HeaderMap, HeaderName};
use serde::Serialize;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Typical size of one event.
const EVENT_BYTES: usize = 1024;

/// A comment, which readers ignore. It is sent on an idle stream.
pub(super) const KEEP_ALIVE: &str = ": still here\n\n";

/// The data of `reset`: the reader must discard its state.
#[derive(Serialize)]
pub(super) struct Reset {
    pub(super) reason: &'static str,
}

/// The data of `caught-up`: everything up to the start of the stream has been sent.
#[derive(Serialize)]
pub(super) struct CaughtUp {}

/// Returns the `Last-Event-ID` of a reader that resumes a stream. The text is `None` if it is not readable.
pub(super) fn last_event_id(headers: &HeaderMap) -> Option<Option<&str>> {
    headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty()).map(|id| id.to_str().ok())
}

/// Appends one event. `id` and `data` append one line of text each, without copying it.
pub(super) fn write_event(
    text: &mut String,
    event: &str,
    id: impl FnOnce(&mut String),
    data: impl FnOnce(&mut String),
) {
    text.reserve(EVENT_BYTES);
    text.push_str("event: ");
    text.push_str(event);
    text.push_str("\nid: ");
    id(text);
    text.push_str("\ndata: ");
    data(text);
    text.push_str("\n\n");
}

/// Appends an id without an event: a browser stores it and reports nothing to the page.
pub(super) fn write_id(text: &mut String, id: impl FnOnce(&mut String)) {
    text.push_str("id: ");
    id(text);
    text.push_str("\n\n");
}

/// The JSON text of the data of an event.
pub(super) fn json(data: &impl Serialize) -> String {
    // Strings and numbers always serialize.
    serde_json::to_string(data).unwrap_or_default()
}
