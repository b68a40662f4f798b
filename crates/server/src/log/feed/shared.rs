//! The shared feed of a node without a replica: one stream from a replica with everything that the watchers of this node
//! want together (H8).
//!
//! The node reads with its own credentials. What a watcher may see is decided before it joins (AU12).

use super::follower::Follower;
use super::following::Following;
use super::wanted::{WantedWatch, event_position};
use super::wants::{Want, Wants};
use super::window::Window;
use super::{EVENTS_MAX, LogService};
use convoke_client::log::Ambassador;
use convoke_log::history::EventPosition;
use convoke_proto::v1::key_watch_response::Message;
use convoke_proto::{Error, ErrorCode, PART_BYTES, v1};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// Watchers that read missing events from replicas at the same time. Others wait.
const CATCH_UPS_MAX: usize = 16;
/// Interval of the progress marks of replicas. A watch at a position that the window has not reached waits for the next
/// mark, because the stream does not carry the changes that nobody watches.
const PROGRESS: Duration = Duration::from_millis(100);
/// Pause before a read of missing events is tried again at all replicas.
const PAUSE: Duration = Duration::from_millis(200);
/// Events and bytes of one page.
pub(super) const PAGE: (usize, usize) = (EVENTS_MAX, PART_BYTES);

/// The shared feeds of a node: one, and another one for watches that accept a replica without a leader.
#[derive(Debug)]
pub(crate) struct SharedFeeds {
    service: Arc<LogService>,
    ambassador: Ambassador,
    feeds: Mutex<[Weak<SharedFeed>; 2]>,
    catching_up: Semaphore,
    upstream: Arc<Upstream>,
    catch_ups: AtomicU64,
}

/// Counters of the streams from replicas.
#[derive(Debug, Default)]
pub(super) struct Upstream {
    streams: AtomicUsize,
    pub(super) events: AtomicU64,
}

/// A feed with at least one watcher.
#[derive(Debug)]
struct SharedFeed {
    state: Arc<State>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for SharedFeed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
pub(super) struct State {
    inner: RwLock<Inner>,
    changes: watch::Sender<()>,
    /// Reports that the wants have changed, to the task of the feed.
    wanted: watch::Sender<()>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) progress: Progress,
    pub(super) wants: Wants,
}

#[derive(Debug)]
pub(super) enum Progress {
    /// No replica has accepted a stream yet. With the reason, if one is known.
    Starting(Option<Error>),
    Open {
        log: u128,
        window: Window,
    },
    Ended(Error),
}

impl Progress {
    fn reached(&self) -> Option<EventPosition> {
        if let Progress::Open { window, .. } = self { Some(window.next()) } else { None }
    }
}

impl State {
    fn new() -> State {
        let inner = Inner { progress: Progress::Starting(None), wants: Wants::default() };
        State { inner: RwLock::new(inner), changes: watch::Sender::new(()), wanted: watch::Sender::new(()) }
    }

    /// Changes the state. Watchers look at it again if it has reached another position, or `update` returns true.
    pub(super) fn update(&self, update: impl FnOnce(&mut Inner) -> bool) {
        let notable = {
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
            let before = inner.progress.reached();
            update(&mut inner) || inner.progress.reached() != before
        };
        if notable {
            self.changes.send_replace(());
        }
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&Inner) -> T) -> T {
        read(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn enter(&self, wants: &[Want]) -> Result<(), Error> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let reached = inner.progress.reached();
        inner.wants.enter(wants, reached)?;
        let missing = inner.wants.is_missing();
        drop(inner);
        if missing {
            self.wanted.send_replace(());
        }
        Ok(())
    }

    fn leave(&self, wants: &[Want]) {
        self.inner.write().unwrap_or_else(PoisonError::into_inner).wants.leave(wants);
    }
}

impl SharedFeeds {
    pub(crate) fn new(service: Arc<LogService>, ambassador: Ambassador) -> SharedFeeds {
        SharedFeeds {
            service,
            ambassador,
            feeds: Mutex::default(),
            catching_up: Semaphore::new(CATCH_UPS_MAX),
            upstream: Arc::default(),
            catch_ups: AtomicU64::new(0),
        }
    }

    /// Returns the number of streams from replicas.
    pub(crate) fn streams(&self) -> usize {
        self.upstream.streams.load(Ordering::Relaxed)
    }

    /// Returns the number of events that shared streams have carried.
    pub(crate) fn events(&self) -> u64 {
        self.upstream.events.load(Ordering::Relaxed)
    }

    /// Returns how often a watcher read events that the shared feed no longer had.
    pub(crate) fn catch_ups(&self) -> u64 {
        self.catch_ups.load(Ordering::Relaxed)
    }

    /// Joins the feed, and starts it if nobody watches. Waits until a replica serves it with what the watches want.
    pub(super) async fn join(self: &Arc<Self>, stale: bool, watches: &[WantedWatch]) -> Result<SharedSource, Error> {
        let feed = self.feed(stale);
        let mut wants: Vec<Want> = watches.iter().flat_map(WantedWatch::wants).collect();
        wants.sort();
        wants.dedup();
        feed.state.enter(&wants)?;
        let changes = feed.state.changes.subscribe();
        let since = EventPosition::default();
        let mut source = SharedSource { feeds: self.clone(), changes, feed, wants, since, stale, log: 0 };
        let started = async {
            loop {
                source.changes.mark_unchanged();
                let known = source.feed.state.read(|inner| match &inner.progress {
                    Progress::Starting(_) => None,
                    Progress::Open { log, .. } => inner.wants.since(&source.wants).map(|since| Ok((*log, since))),
                    Progress::Ended(error) => Some(Err(error.clone())),
                });
                match known {
                    Some(known) => return known,
                    None => source.changed().await,
                }
            }
        };
        (source.log, source.since) = match tokio::time::timeout(self.service.timeout, started).await {
            Ok(known) => known?,
            Err(_) => return Err(source.feed.state.read(|inner| not_started(&inner.progress))),
        };
        Ok(source)
    }

    fn feed(self: &Arc<Self>, stale: bool) -> Arc<SharedFeed> {
        let mut feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
        let running = feeds[usize::from(stale)].upgrade();
        let has_ended = |feed: &SharedFeed| feed.state.read(|inner| matches!(inner.progress, Progress::Ended(_)));
        if let Some(feed) = running.filter(|feed| !has_ended(feed)) {
            return feed;
        }
        let state = Arc::new(State::new());
        let follower = Follower {
            ambassador: self.ambassador.clone(),
            upstream: self.upstream.clone(),
            state: state.clone(),
            wanted: state.wanted.subscribe(),
            following: Following::new(stale, self.service.handle.election_timeout()),
            stale,
            begun: Instant::now(),
        };
        let feed = Arc::new(SharedFeed { state, task: tokio::spawn(follower.run()) });
        feeds[usize::from(stale)] = Arc::downgrade(&feed);
        feed
    }

    /// Reads the next events of one watch at any replica.
    async fn read(&self, watch: &WantedWatch, from: EventPosition, log: u128, stale: bool) -> Result<Message, Error> {
        // The semaphore is never closed.
        let _permit = self.catching_up.acquire().await;
        self.catch_ups.fetch_add(1, Ordering::Relaxed);
        let request = request(Some(log), watch.request(from), stale);
        loop {
            for address in self.ambassador.replica_addresses() {
                let reading = self.read_at(&address, request.clone(), from);
                match tokio::time::timeout(self.service.timeout, reading).await {
                    Ok(Err(error)) if ends_watch(&error) => return Err(error),
                    Ok(Ok(message)) => return Ok(message),
                    Ok(Err(_)) | Err(_) => {}
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn read_at(
        &self,
        address: &str,
        request: v1::KeyWatchRequest,
        from: EventPosition,
    ) -> Result<Message, Error> {
        let mut stream = self.ambassador.watch_at(address, request).await?;
        let _counted = Counted::new(&self.upstream);
        loop {
            match stream.next().await? {
                Message::Started(_) => {}
                // The replica marks the start before it reads.
                Message::Progress(progress) if event_position(progress.next) <= from => {}
                message => return Ok(message),
            }
        }
    }
}

/// Whether no other replica can answer.
fn ends_watch(error: &Error) -> bool {
    matches!(
        error.code,
        ErrorCode::SessionGone
            | ErrorCode::FailedPrecondition
            | ErrorCode::InvalidArgument
            | ErrorCode::PermissionDenied
            | ErrorCode::Unauthenticated
    )
}

fn not_started(progress: &Progress) -> Error {
    let cause = match progress {
        Progress::Starting(Some(error)) | Progress::Ended(error) => format!(" ({error})"),
        Progress::Starting(None) | Progress::Open { .. } => String::new(),
    };
    let message = format!("this node has no replica and could not follow one in time{cause}; watch at another node");
    Error::new(ErrorCode::NotReady, message)
}

pub(super) fn request(log: Option<u128>, watch: v1::KeyWatch, stale: bool) -> v1::KeyWatchRequest {
    let progress_ms = u64::try_from(PROGRESS.as_millis()).unwrap_or(u64::MAX);
    v1::KeyWatchRequest { log: log.map(Into::into), watches: vec![watch], stale, progress_ms, replica_only: true }
}

/// Counts a stream while it exists.
pub(super) struct Counted(Arc<Upstream>);

impl Counted {
    pub(super) fn new(upstream: &Arc<Upstream>) -> Counted {
        upstream.streams.fetch_add(1, Ordering::Relaxed);
        Counted(upstream.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A watcher of a shared feed. The feed ends with its last watcher.
#[derive(Debug)]
pub(crate) struct SharedSource {
    feeds: Arc<SharedFeeds>,
    feed: Arc<SharedFeed>,
    changes: watch::Receiver<()>,
    wants: Vec<Want>,
    /// The window has all events of the watches from here on.
    pub(super) since: EventPosition,
    stale: bool,
    pub(super) log: u128,
}

impl Drop for SharedSource {
    fn drop(&mut self) {
        self.feed.state.leave(&self.wants);
    }
}

impl SharedSource {
    /// Reads the window. Fails if the feed has ended.
    pub(super) fn read<T>(&mut self, read: impl FnOnce(&Window) -> T) -> Result<T, Error> {
        // Changes after this are seen by `changed`.
        self.changes.mark_unchanged();
        self.feed.state.read(|inner| match &inner.progress {
            Progress::Open { window, .. } => Ok(read(window)),
            Progress::Ended(error) => Err(error.clone()),
            starting @ Progress::Starting(_) => Err(not_started(starting)),
        })
    }

    /// Waits for a change of the feed after the last read.
    pub(super) async fn changed(&mut self) {
        // The sender lives in the feed.
        let _ = self.changes.changed().await;
    }

    pub(super) async fn reached(&self, revision: u64) -> Result<u64, Error> {
        let mut changes = self.changes.clone();
        loop {
            changes.mark_unchanged();
            let current = self.feed.state.read(|inner| match &inner.progress {
                Progress::Open { window, .. } => Ok(window.revision()),
                Progress::Ended(error) => Err(error.clone()),
                starting @ Progress::Starting(_) => Err(not_started(starting)),
            })?;
            if revision <= current + 1 {
                return Ok(current);
            }
            let _ = changes.changed().await;
        }
    }

    pub(super) fn revision(&self) -> u64 {
        self.feed.state.read(|inner| match &inner.progress {
            Progress::Open { window, .. } => window.revision(),
            Progress::Starting(_) | Progress::Ended(_) => 0,
        })
    }

    /// Reads the next events of a watch below the window. Fails if the feed ends meanwhile.
    pub(super) async fn catch_up(&self, watch: &WantedWatch, from: EventPosition) -> Result<Message, Error> {
        let mut changes = self.changes.clone();
        let ended = async {
            loop {
                if let Some(error) = self.feed.state.read(|inner| match &inner.progress {
                    Progress::Ended(error) => Some(error.clone()),
                    Progress::Starting(_) | Progress::Open { .. } => None,
                }) {
                    return error;
                }
                let _ = changes.changed().await;
            }
        };
        tokio::select! {
            biased;
            message = self.feeds.read(watch, from, self.log, self.stale) => message,
            error = ended => Err(error),
        }
    }
}
