//! Watches of keys and locks, served from the applied state of the own replica (H5, H7), or from the shared feed of a node without
//! one (H8).
//!
//! A feed reads events only when its reader asks for more, so a slow reader costs the memory of one page.

mod follower;
mod following;
mod replica;
mod shared;
mod wanted;
mod wants;
mod window;

pub(crate) use shared::SharedFeeds;
pub(crate) use wanted::{WantedWatch, event_position, wanted};

use super::{LogService, WatchPermit, compacted_error};
use crate::service::ClientConnection;
use convoke_log::history::{Compacted, EventPosition};
use convoke_proto::v1::key_watch_response::Message;
use convoke_proto::{Error, ErrorCode, v1};
use convoke_replica::LogRejection;
use replica::{ReplicaSource, no_replica, not_reached};
use shared::SharedSource;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use wanted::wire_position;
use window::Behind;

/// Events in one page.
const EVENTS_MAX: usize = 1_000;
/// Time without events after which progress marks are sent.
const PROGRESS: Duration = Duration::from_secs(10);
const PROGRESS_MIN: Duration = Duration::from_millis(100);

/// Where the events of a stream come from.
#[derive(Debug)]
pub(crate) enum Source {
    Replica(ReplicaSource),
    Shared(SharedSource),
}

impl Source {
    /// Returns the replica of this node. Without one, joins the shared feed of the node with what the watches want, if
    /// `feeds` is given.
    pub(crate) async fn of(
        service: &Arc<LogService>,
        feeds: Option<&Arc<SharedFeeds>>,
        stale: bool,
        wanted: &[WantedWatch],
    ) -> Result<Source, Error> {
        match (service.handle.log(), feeds) {
            (Ok(log), _) => Ok(Source::Replica(ReplicaSource::new(service, log, stale))),
            (Err(LogRejection::NotLeader(_)), Some(feeds)) => Ok(Source::Shared(feeds.join(stale, wanted).await?)),
            (Err(why), _) => Err(service.rejected(&no_replica(why))),
        }
    }

    pub(crate) fn log(&self) -> u128 {
        match self {
            Source::Replica(replica) => replica.log,
            Source::Shared(shared) => shared.log,
        }
    }

    /// Rejects a request that names another log.
    pub(crate) fn check_named(&self, service: &LogService, named: Option<v1::LogId>) -> Result<(), Error> {
        match self {
            Source::Replica(_) => service.check_named(named),
            Source::Shared(shared) => match named.map(u128::from) {
                Some(named) if named != shared.log => {
                    Err(service.rejected(&LogRejection::OtherLog { named, own: shared.log }))
                }
                _ => Ok(()),
            },
        }
    }

    /// Returns the current revision once the source has reached a position. Waits for it.
    async fn reached(&self, service: &LogService, revision: u64) -> Result<u64, Error> {
        let reaching = async {
            match self {
                Source::Replica(replica) => replica.reached(revision).await,
                Source::Shared(shared) => shared.reached(revision).await,
            }
        };
        tokio::time::timeout(service.timeout, reaching).await.unwrap_or_else(|_| {
            let current = match self {
                Source::Replica(replica) => replica.revision(),
                Source::Shared(shared) => shared.revision(),
            };
            Err(not_reached(revision, current))
        })
    }
}

#[derive(Debug)]
struct Watch {
    wanted: WantedWatch,
    /// Index of the first watch of the stream with the same events.
    like: usize,
    next: EventPosition,
    ended: bool,
}

/// The next events of a watch.
#[derive(Debug, PartialEq)]
struct Page {
    events: Vec<v1::KeyEvent>,
    /// Where the next page starts. All events before it have been returned.
    next: EventPosition,
    /// Whether there are more events at `next`.
    more: bool,
}

/// Why there is no page at a position.
enum Miss {
    /// With the current revision.
    Compacted(Compacted, u64),
    /// The shared feed no longer has it.
    Behind,
}

/// What the watches have at one moment.
enum Taken {
    Message(Message),
    /// A watch must be caught up by its own read.
    Behind(usize),
    /// Nothing found so far, and there is more to examine.
    More,
    /// Nothing until something changes after this state.
    Nothing(Seen),
}

/// The state in which nothing was found.
enum Seen {
    /// Index of the last applied entry.
    Applied(u64),
    /// The shared feed marks its changes for each of its readers.
    Marked,
}

/// The watches of one stream.
#[derive(Debug)]
pub(crate) struct Feed {
    service: Arc<LogService>,
    source: Source,
    /// Revision at the start.
    revision: u64,
    watches: Vec<Watch>,
    /// The watch that is served first, so that a busy one does not starve the others.
    turn: usize,
    progress: Duration,
    /// Read before it was asked for.
    ready: Option<Message>,
    /// Watches whose progress is to be sent.
    marks: VecDeque<usize>,
    mark_at: Instant,
    _permit: WatchPermit,
}

impl Feed {
    /// Starts watches. Waits for positions that the source has not reached.
    pub(crate) async fn open(
        service: &Arc<LogService>,
        source: Source,
        wanted: Vec<WantedWatch>,
        progress: Duration,
        connection: Option<&Arc<ClientConnection>>,
    ) -> Result<Feed, Error> {
        let permit = service.enter_watch(connection, wanted.len())?;
        let ahead = wanted.iter().filter_map(|watch| watch.from).map(|from| from.revision).max().unwrap_or(0);
        let revision = source.reached(service, ahead).await?;
        let now = EventPosition::start_of(revision + 1);
        let mut watches: Vec<Watch> = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let like = watches.iter().position(|watch| watch.wanted.is_like(&wanted)).unwrap_or(watches.len());
            watches.push(Watch { next: wanted.from.unwrap_or(now), like, wanted, ended: false });
        }
        Ok(Feed {
            service: service.clone(),
            source,
            revision,
            turn: 0,
            progress: if progress.is_zero() { PROGRESS } else { progress.max(PROGRESS_MIN) },
            ready: None,
            marks: (0..watches.len()).collect(),
            watches,
            mark_at: Instant::now(),
            _permit: permit,
        })
    }

    pub(crate) fn log(&self) -> u128 {
        self.source.log()
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Moves a watch, for example after a reset.
    pub(crate) fn restart(&mut self, id: u64, next: EventPosition) {
        for watch in self.watches.iter_mut().filter(|watch| watch.wanted.id == id) {
            (watch.next, watch.ended) = (next, false);
        }
    }

    /// Fails with `COMPACTED` if a watch starts below the history. Call it before the first message is read.
    pub(crate) async fn check_start(&mut self) -> Result<(), Error> {
        self.ready = match self.take()? {
            Taken::Message(message) => Some(message),
            Taken::Behind(at) => self.catch_up(at).await?,
            Taken::More | Taken::Nothing(_) => None,
        };
        match &self.ready {
            Some(Message::Compacted(v1::WatchCompacted { oldest, revision, .. })) => {
                Err(compacted_error(Compacted { oldest: *oldest }, *revision))
            }
            _ => Ok(()),
        }
    }

    /// Returns the next message. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Message, Error> {
        loop {
            if let Some(message) = self.ready.take() {
                return Ok(message);
            }
            while let Some(at) = self.marks.pop_front() {
                let watch = &self.watches[at];
                if !watch.ended {
                    let next = Some(wire_position(watch.next));
                    return Ok(Message::Progress(v1::WatchProgress { watch: watch.wanted.id, next }));
                }
            }
            match self.take()? {
                Taken::Message(message) => self.ready = Some(message),
                Taken::Behind(at) => self.ready = self.catch_up(at).await?,
                Taken::More => tokio::task::yield_now().await,
                Taken::Nothing(seen) => self.wait(seen).await?,
            }
            if matches!(self.ready, Some(Message::Events(_))) {
                self.mark_at = Instant::now() + self.progress;
            }
        }
    }

    fn take(&mut self) -> Result<Taken, Error> {
        let Feed { source, watches, turn, .. } = self;
        match source {
            Source::Replica(replica) => {
                let machine = replica.machine()?;
                let seen = Seen::Applied(machine.applied().index);
                Ok(take(watches, turn, seen, |watch, from| replica::page(&machine, watch, from)))
            }
            Source::Shared(shared) => {
                let since = shared.since;
                shared.read(|window| {
                    take(watches, turn, Seen::Marked, |watch, from| {
                        let page = if from < since { Err(Behind) } else { window.page(watch, from, shared::PAGE) };
                        page.map_err(|Behind| Miss::Behind)
                    })
                })
            }
        }
    }

    /// Reads the next events of a watch that the shared feed no longer has.
    async fn catch_up(&mut self, at: usize) -> Result<Option<Message>, Error> {
        let (Source::Shared(shared), Some(watch)) = (&mut self.source, self.watches.get_mut(at)) else {
            return Ok(None);
        };
        let message = tokio::select! {
            biased;
            () = self.service.closing() => return Err(stopping()),
            message = shared.catch_up(&watch.wanted, watch.next) => message?,
        };
        match &message {
            Message::Events(events) => watch.next = event_position(events.next),
            Message::Progress(progress) => {
                watch.next = event_position(progress.next);
                return Ok(None);
            }
            Message::Compacted(_) => watch.ended = true,
            Message::Started(_) => return Ok(None),
        }
        Ok(Some(message))
    }

    /// Waits for the next change or progress mark. Fails if there is no leader for too long, or if the server closes.
    async fn wait(&mut self, seen: Seen) -> Result<(), Error> {
        if self.mark_at <= Instant::now() {
            self.mark_at = Instant::now() + self.progress;
            self.marks = (0..self.watches.len()).collect();
            return Ok(());
        }
        let changed = async {
            match (&mut self.source, seen) {
                (Source::Replica(replica), Seen::Applied(index)) => replica.changed(index, self.mark_at).await,
                (Source::Shared(shared), _) => {
                    let _ = tokio::time::timeout_at(self.mark_at, shared.changed()).await;
                    Ok(())
                }
                (Source::Replica(_), Seen::Marked) => Ok(()),
            }
        };
        tokio::select! {
            biased;
            () = self.service.closing() => Err(stopping()),
            changed = changed => changed,
        }
    }
}

fn stopping() -> Error {
    Error::new(ErrorCode::NotReady, "this node is stopping; continue at another node")
}

/// Returns the next page of the first watch that has one, beginning with the watch whose turn it is. Watches with the same
/// events that continue at the same position share the page, so that it is read and encoded once.
fn take(
    watches: &mut [Watch],
    turn: &mut usize,
    seen: Seen,
    page: impl Fn(&WantedWatch, EventPosition) -> Result<Page, Miss>,
) -> Taken {
    let (count, mut more) = (watches.len(), false);
    for at in (0..count).map(|offset| (*turn + offset) % count) {
        let watch = &mut watches[at];
        if watch.ended {
            continue;
        }
        let (id, like, from) = (watch.wanted.id, watch.like, watch.next);
        match page(&watch.wanted, from) {
            Ok(page) => {
                let mut same = Vec::new();
                for other in watches.iter_mut().filter(|other| other.like == like && other.next == from) {
                    other.next = page.next;
                    if other.wanted.id != id && !other.ended {
                        same.push(other.wanted.id);
                    }
                }
                if !page.events.is_empty() {
                    *turn = (at + 1) % count;
                    let (events, next) = (page.events, Some(wire_position(page.next)));
                    return Taken::Message(Message::Events(v1::KeyEvents { watch: id, events, next, same }));
                }
                more |= page.more;
            }
            Err(Miss::Behind) => return Taken::Behind(at),
            Err(Miss::Compacted(Compacted { oldest }, revision)) => {
                watch.ended = true;
                return Taken::Message(Message::Compacted(v1::WatchCompacted { watch: id, oldest, revision }));
            }
        }
    }
    if more { Taken::More } else { Taken::Nothing(seen) }
}
