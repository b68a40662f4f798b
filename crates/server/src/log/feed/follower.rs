//! The task of a shared feed: it follows one replica after the other (H8, H9).

use super::following::{After, Following};
use super::shared::{Counted, Progress, State, Upstream, request};
use super::wanted::{event_position, wire_position, wire_union};
use super::wants::Carried;
use super::window::Window;
use convoke_client::log::Ambassador;
use convoke_log::history::EventPosition;
use convoke_proto::v1::key_watch::Which;
use convoke_proto::v1::key_watch_response::Message;
use convoke_proto::{Error, ErrorCode, v1};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Size of the window of recent events.
const WINDOW_BYTES: usize = 16 * 1024 * 1024;
/// A stream that carries more than the watchers want is kept for this time, so that watchers can come and go.
const NARROW_AFTER: Duration = Duration::from_secs(10);
/// A stream lasts at least this long before one with more replaces it, so that many new watchers do not stop the events.
const STREAM_MIN: Duration = Duration::from_millis(20);

/// The task of a feed.
pub(super) struct Follower {
    pub(super) ambassador: Ambassador,
    pub(super) upstream: Arc<Upstream>,
    pub(super) state: Arc<State>,
    pub(super) wanted: watch::Receiver<()>,
    pub(super) following: Following,
    pub(super) stale: bool,
    pub(super) begun: Instant,
}

impl Follower {
    pub(super) async fn run(mut self) {
        let error = loop {
            match self.round().await {
                Ok(pause) => tokio::time::sleep(pause).await,
                Err(error) => break error,
            }
        };
        tracing::info!(%error, "shared feed of watches ended");
        self.state.update(|inner| {
            inner.progress = Progress::Ended(error);
            true
        });
    }

    /// Follows the replicas one after the other. Returns the pause before the next round, or the end of the feed.
    async fn round(&mut self) -> Result<Duration, Error> {
        for address in self.ambassador.replica_addresses() {
            let error = loop {
                if let Err(error) = self.follow(&address).await {
                    break error;
                }
            };
            tracing::debug!(address, %error, "stream of watches ended");
            self.state.update(|inner| {
                if let Progress::Starting(why) = &mut inner.progress {
                    *why = Some(error.clone());
                }
                false
            });
            match self.following.ended(self.begun.elapsed(), error) {
                After::Another => {}
                After::All => return Ok(Duration::ZERO),
                After::End(error) => return Err(error),
            }
        }
        self.following.round_failed(self.begun.elapsed())
    }

    /// Follows a replica until its stream ends. Returns without an error if the watchers want something else.
    async fn follow(&mut self, address: &str) -> Result<(), Error> {
        let (log, from) = self.following.start();
        self.wanted.mark_unchanged();
        let carried = self.state.read(|inner| inner.wants.needed());
        let watch = v1::KeyWatch {
            id: 1,
            which: Some(Which::Union(wire_union(&carried.union))),
            from: from.map(wire_position),
            previous: carried.previous,
            ..v1::KeyWatch::default()
        };
        let opening = self.ambassador.watch_at(address, request(log, watch, self.stale));
        let mut stream = opening.await.map_err(|error| of_earlier_version(error, address))?;
        let _counted = Counted::new(&self.upstream);
        let opened = Instant::now();
        let (mut started, mut replaced_at) = (false, None);
        loop {
            let replaced = tokio::time::sleep_until(replaced_at.unwrap_or(opened));
            let message = tokio::select! {
                biased;
                () = replaced, if replaced_at.is_some() => return Ok(()),
                // The sender lives in the state.
                _ = self.wanted.changed(), if started && replaced_at.is_none() => {
                    let missing = self.state.read(|inner| inner.wants.is_missing());
                    replaced_at = missing.then_some(opened + STREAM_MIN);
                    continue;
                }
                message = stream.next() => message?,
            };
            let (events, next) = match message {
                Message::Started(begun) => {
                    started = true;
                    self.started(&begun, carried.clone(), from);
                    continue;
                }
                Message::Events(events) => (events.events, event_position(events.next)),
                Message::Progress(progress) => (Vec::new(), event_position(progress.next)),
                Message::Compacted(_) => {
                    return Err(Error::new(ErrorCode::Compacted, "the history no longer has the position of the feed"));
                }
            };
            self.following.advanced(next);
            self.upstream.events.fetch_add(events.len() as u64, Ordering::Relaxed);
            let may_narrow = opened.elapsed() >= NARROW_AFTER;
            let mut wide = false;
            self.state.update(|inner| {
                if let Progress::Open { window, .. } = &mut inner.progress {
                    window.extend(events, next);
                }
                wide = may_narrow && inner.wants.is_wide();
                false
            });
            if wide {
                return Ok(());
            }
        }
    }

    fn started(&mut self, started: &v1::WatchStarted, carried: Carried, from: Option<EventPosition>) {
        let log = started.log.unwrap_or_default().into();
        let begins = self.following.started(self.begun.elapsed(), log, started.revision);
        let at = begins.or(from).unwrap_or_default();
        self.state.update(|inner| {
            match (&mut inner.progress, begins) {
                (progress, Some(next)) => *progress = Progress::Open { log, window: Window::new(next, WINDOW_BYTES) },
                (Progress::Open { window, .. }, None) => window.continued(at),
                _ => {}
            }
            inner.wants.carries(carried, at);
            // Watchers that wait for the stream continue.
            true
        });
    }
}

/// A replica of an earlier build does not know unions. Another one may.
fn of_earlier_version(error: Error, address: &str) -> Error {
    match error.code {
        ErrorCode::InvalidArgument => {
            Error::new(ErrorCode::NotReady, format!("{address} cannot serve the watches of this node: {error}"))
        }
        _ => error,
    }
}
