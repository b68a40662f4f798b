//! The shared feed of a node without a replica: one stream of all changes of keys from a replica, for all watchers of
//! this node (H8).
//!
//! The node reads with its own credentials. What a watcher may see is decided before it joins (AU12).

use super::following::{After, Following};
use super::wanted::{WantedWatch, event_position, wire_position};
use super::window::Window;
use super::{EVENTS_MAX, LogService};
use convoke_client::log::Ambassador;
use convoke_log::history::EventPosition;
use convoke_proto::v1::key_watch::Which;
use convoke_proto::v1::key_watch_response::Message;
use convoke_proto::{Error, ErrorCode, PART_BYTES, v1};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// Size of the window of recent events.
const WINDOW_BYTES: usize = 16 * 1024 * 1024;
/// Watchers that read missing events from replicas at the same time. Others wait.
const CATCH_UPS_MAX: usize = 16;
/// Interval of the progress marks of replicas.
const PROGRESS: Duration = Duration::from_secs(5);
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
    streams: Arc<AtomicUsize>,
    catch_ups: AtomicU64,
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
struct State {
    progress: RwLock<Progress>,
    changes: watch::Sender<()>,
}

#[derive(Debug)]
enum Progress {
    /// No replica has accepted a stream yet. With the reason, if one is known.
    Starting(Option<Error>),
    Open {
        log: u128,
        window: Window,
    },
    Ended(Error),
}

impl State {
    fn update(&self, update: impl FnOnce(&mut Progress)) {
        update(&mut self.progress.write().unwrap_or_else(PoisonError::into_inner));
        self.changes.send_replace(());
    }

    fn read<T>(&self, read: impl FnOnce(&Progress) -> T) -> T {
        read(&self.progress.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SharedFeeds {
    pub(crate) fn new(service: Arc<LogService>, ambassador: Ambassador) -> SharedFeeds {
        SharedFeeds {
            service,
            ambassador,
            feeds: Mutex::default(),
            catching_up: Semaphore::new(CATCH_UPS_MAX),
            streams: Arc::default(),
            catch_ups: AtomicU64::new(0),
        }
    }

    /// Returns the number of streams from replicas.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Returns how often a watcher read events that the shared feed no longer had.
    pub(crate) fn catch_ups(&self) -> u64 {
        self.catch_ups.load(Ordering::Relaxed)
    }

    /// Joins the feed, and starts it if nobody watches. Waits until a replica serves it.
    pub(super) async fn join(self: &Arc<Self>, stale: bool) -> Result<SharedSource, Error> {
        let feed = self.feed(stale);
        let mut source =
            SharedSource { feeds: self.clone(), changes: feed.state.changes.subscribe(), feed, stale, log: 0 };
        let started = async {
            loop {
                let known = source.feed.state.read(|progress| match progress {
                    Progress::Starting(_) => None,
                    Progress::Open { log, .. } => Some(Ok(*log)),
                    Progress::Ended(error) => Some(Err(error.clone())),
                });
                match known {
                    Some(log) => return log,
                    None => source.changed().await,
                }
            }
        };
        source.log = match tokio::time::timeout(self.service.timeout, started).await {
            Ok(log) => log?,
            Err(_) => return Err(source.feed.state.read(not_started)),
        };
        Ok(source)
    }

    fn feed(self: &Arc<Self>, stale: bool) -> Arc<SharedFeed> {
        let mut feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
        let running = feeds[usize::from(stale)].upgrade();
        if let Some(feed) = running.filter(|feed| !feed.state.read(|state| matches!(state, Progress::Ended(_)))) {
            return feed;
        }
        let state =
            Arc::new(State { progress: RwLock::new(Progress::Starting(None)), changes: watch::Sender::new(()) });
        let following = Following::new(stale, self.service.handle.election_timeout());
        let follower = Follower {
            ambassador: self.ambassador.clone(),
            streams: self.streams.clone(),
            state: state.clone(),
            following,
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
        let _counted = Counted::new(&self.streams);
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

fn request(log: Option<u128>, watch: v1::KeyWatch, stale: bool) -> v1::KeyWatchRequest {
    let progress_ms = u64::try_from(PROGRESS.as_millis()).unwrap_or(u64::MAX);
    v1::KeyWatchRequest { log: log.map(Into::into), watches: vec![watch], stale, progress_ms, replica_only: true }
}

/// Counts a stream while it exists.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Counted {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A watcher of a shared feed. The feed ends with its last watcher.
#[derive(Debug)]
pub(crate) struct SharedSource {
    feeds: Arc<SharedFeeds>,
    feed: Arc<SharedFeed>,
    changes: watch::Receiver<()>,
    stale: bool,
    pub(super) log: u128,
}

impl SharedSource {
    /// Reads the window. Fails if the feed has ended.
    pub(super) fn read<T>(&mut self, read: impl FnOnce(&Window) -> T) -> Result<T, Error> {
        // Changes after this are seen by `changed`.
        self.changes.mark_unchanged();
        self.feed.state.read(|progress| match progress {
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
            let current = self.feed.state.read(|progress| match progress {
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
        self.feed.state.read(|progress| match progress {
            Progress::Open { window, .. } => window.revision(),
            Progress::Starting(_) | Progress::Ended(_) => 0,
        })
    }

    /// Reads the next events of a watch below the window. Fails if the feed ends meanwhile.
    pub(super) async fn catch_up(&self, watch: &WantedWatch, from: EventPosition) -> Result<Message, Error> {
        let mut changes = self.changes.clone();
        let ended = async {
            loop {
                if let Some(error) = self.feed.state.read(|progress| match progress {
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

/// The task of a feed.
struct Follower {
    ambassador: Ambassador,
    streams: Arc<AtomicUsize>,
    state: Arc<State>,
    following: Following,
    stale: bool,
    begun: Instant,
}

impl Follower {
    async fn run(mut self) {
        let error = loop {
            match self.round().await {
                Ok(pause) => tokio::time::sleep(pause).await,
                Err(error) => break error,
            }
        };
        tracing::info!(%error, "shared feed of watches ended");
        self.state.update(|progress| *progress = Progress::Ended(error));
    }

    /// Follows the replicas one after the other. Returns the pause before the next round, or the end of the feed.
    async fn round(&mut self) -> Result<Duration, Error> {
        for address in self.ambassador.replica_addresses() {
            let Err(error) = self.follow(&address).await;
            tracing::debug!(address, %error, "stream of watches ended");
            self.state.update(|progress| {
                if let Progress::Starting(why) = progress {
                    *why = Some(error.clone());
                }
            });
            match self.following.ended(self.begun.elapsed(), error) {
                After::Another => {}
                After::All => return Ok(Duration::ZERO),
                After::End(error) => return Err(error),
            }
        }
        self.following.round_failed(self.begun.elapsed())
    }

    async fn follow(&mut self, address: &str) -> Result<std::convert::Infallible, Error> {
        let (log, from) = self.following.start();
        let watch = v1::KeyWatch {
            id: 1,
            which: Some(Which::Range(v1::KeyRange::prefix(""))),
            from: from.map(wire_position),
            previous: true,
            ..v1::KeyWatch::default()
        };
        let mut stream = self.ambassador.watch_at(address, request(log, watch, self.stale)).await?;
        let _counted = Counted::new(&self.streams);
        loop {
            let (events, next) = match stream.next().await? {
                Message::Started(started) => {
                    let log = started.log.unwrap_or_default().into();
                    if let Some(next) = self.following.started(self.begun.elapsed(), log, started.revision) {
                        let window = Window::new(next, WINDOW_BYTES);
                        self.state.update(|progress| *progress = Progress::Open { log, window });
                    }
                    continue;
                }
                Message::Events(events) => (events.events, event_position(events.next)),
                Message::Progress(progress) => (Vec::new(), event_position(progress.next)),
                Message::Compacted(_) => {
                    return Err(Error::new(ErrorCode::Compacted, "the history no longer has the position of the feed"));
                }
            };
            self.following.advanced(next);
            self.state.update(|progress| {
                if let Progress::Open { window, .. } = progress {
                    window.extend(events, next);
                }
            });
        }
    }
}
