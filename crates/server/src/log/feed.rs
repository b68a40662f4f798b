//! Watches of keys, served from the applied state of the own replica (H5).
//!
//! A feed reads the history only when its reader asks for more, so a slow reader costs the memory of one page.

use super::LogService;
use super::convert::key_range;
use super::coordination::lock_name;
use super::txn::check_level;
use crate::error::invalid;
use convoke_log::history::{Compacted, EventPosition, WatchFilter, WatchPage};
use convoke_log::keys::Selection;
use convoke_log::{Level, Machine};
use convoke_proto::{Error, ErrorCode, KEY_WATCHES_MAX, PART_BYTES, v1};
use convoke_replica::LogRejection;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// Events in one page.
const EVENTS_MAX: usize = 1_000;
/// Time without events after which progress marks are sent.
const PROGRESS: Duration = Duration::from_secs(10);
const PROGRESS_MIN: Duration = Duration::from_millis(100);

/// What a watch wants.
#[derive(Clone, Debug)]
pub(crate) struct WantedWatch {
    pub(crate) id: u64,
    pub(crate) filter: WatchFilter,
    /// `None`: the first change after the current state.
    pub(crate) from: Option<EventPosition>,
    pub(crate) previous: bool,
}

#[derive(Debug)]
struct Watch {
    wanted: WantedWatch,
    next: EventPosition,
    ended: bool,
}

/// The watches of one stream.
#[derive(Debug)]
pub(crate) struct Feed {
    service: Arc<LogService>,
    log: u128,
    /// Revision of the replica at the start.
    revision: u64,
    watches: Vec<Watch>,
    /// The watch that is served first, so that a busy one does not starve the others.
    turn: usize,
    stale: bool,
    progress: Duration,
    /// Watches whose progress is to be sent.
    marks: VecDeque<usize>,
    mark_at: Instant,
    led_at: Instant,
    _permit: OwnedSemaphorePermit,
}

/// The next message of a feed.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    Events {
        watch: &'a WantedWatch,
        page: WatchPage,
    },
    Progress {
        watch: &'a WantedWatch,
        next: EventPosition,
    },
    /// The watch has ended.
    Compacted {
        watch: &'a WantedWatch,
        compacted: Compacted,
        revision: u64,
    },
}

impl Feed {
    /// Starts watches at the replica of this node. Waits for positions that the replica has not reached.
    pub(crate) async fn open(
        service: &Arc<LogService>,
        wanted: Vec<WantedWatch>,
        stale: bool,
        progress: Duration,
    ) -> Result<Feed, Error> {
        let permit = service.enter_watch()?;
        let log = service.handle.log().map_err(|why| service.rejected(&no_replica(why)))?;
        let ahead = wanted.iter().filter_map(|watch| watch.from).map(|from| from.revision).max().unwrap_or(0);
        let machine = reached(service, ahead).await?;
        check_level(&machine, Level::COORDINATION)?;
        let revision = machine.keys().revision();
        let now = EventPosition::start_of(revision + 1);
        let watches = wanted.into_iter().map(|wanted| Watch { next: wanted.from.unwrap_or(now), wanted, ended: false });
        let watches: Vec<Watch> = watches.collect();
        Ok(Feed {
            service: service.clone(),
            log,
            revision,
            turn: 0,
            stale,
            progress: if progress.is_zero() { PROGRESS } else { progress.max(PROGRESS_MIN) },
            marks: (0..watches.len()).collect(),
            watches,
            mark_at: Instant::now(),
            led_at: Instant::now(),
            _permit: permit,
        })
    }

    pub(crate) fn log(&self) -> u128 {
        self.log
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

    /// Returns the next message. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Step<'_>, Error> {
        loop {
            if let Some(at) = self.marks.pop_front() {
                if self.watches[at].ended {
                    continue;
                }
                let watch = &self.watches[at];
                return Ok(Step::Progress { watch: &watch.wanted, next: watch.next });
            }
            let machine = self.service.handle.local().map_err(|why| self.service.rejected(&why))?;
            match self.take(&machine) {
                Taken::Events(at, page) => {
                    self.mark_at = Instant::now() + self.progress;
                    return Ok(Step::Events { watch: &self.watches[at].wanted, page });
                }
                Taken::Compacted(at, compacted) => {
                    let (watch, revision) = (&self.watches[at].wanted, machine.keys().revision());
                    return Ok(Step::Compacted { watch, compacted, revision });
                }
                Taken::More => tokio::task::yield_now().await,
                Taken::Nothing => {
                    let index = machine.applied().index;
                    drop(machine);
                    self.wait(index).await?;
                }
            }
        }
    }

    fn take(&mut self, machine: &Machine) -> Taken {
        let (count, mut more) = (self.watches.len(), false);
        for at in (0..count).map(|offset| (self.turn + offset) % count) {
            let watch = &mut self.watches[at];
            if watch.ended || watch.next.revision > machine.keys().revision() {
                continue;
            }
            match machine.watch(&watch.wanted.filter, watch.next, EVENTS_MAX, PART_BYTES as u64) {
                Ok(page) => {
                    watch.next = page.next;
                    if !page.events.is_empty() {
                        self.turn = (at + 1) % count;
                        return Taken::Events(at, page);
                    }
                    more |= page.more;
                }
                Err(compacted) => {
                    watch.ended = true;
                    return Taken::Compacted(at, compacted);
                }
            }
        }
        if more { Taken::More } else { Taken::Nothing }
    }

    /// Waits for the next applied entry or progress mark. Fails if there is no leader for too long, or if the server
    /// closes.
    async fn wait(&mut self, index: u64) -> Result<(), Error> {
        let election = self.service.handle.election_timeout();
        if self.mark_at <= Instant::now() {
            self.mark_at = Instant::now() + self.progress;
            self.marks = (0..self.watches.len()).collect();
            return Ok(());
        }
        tokio::select! {
            biased;
            () = self.service.closing() => {
                let message = "this node is stopping; continue at another node";
                return Err(Error::new(ErrorCode::NotReady, message));
            }
            applied = self.service.handle.applied_after(index) => {
                return applied.map_err(|why| self.service.rejected(&no_replica(why)));
            }
            () = tokio::time::sleep_until(self.mark_at) => {}
            () = tokio::time::sleep(election / 2) => {}
        }
        if self.service.handle.is_available() {
            self.led_at = Instant::now();
        } else if !self.stale && self.led_at.elapsed() >= 2 * election {
            let group = self.service.handle.group();
            return Err(self.service.rejected(&LogRejection::NoQuorum(group)));
        }
        Ok(())
    }
}

enum Taken {
    Events(usize, WatchPage),
    Compacted(usize, Compacted),
    /// Nothing found so far, and there is more to examine.
    More,
    Nothing,
}

/// Returns the state once it has reached a position, which another replica may have reported.
async fn reached(service: &LogService, revision: u64) -> Result<Arc<Machine>, Error> {
    let reaching = async {
        loop {
            let machine = service.handle.local().map_err(|why| service.rejected(&why))?;
            if revision <= machine.keys().revision() + 1 {
                return Ok(machine);
            }
            let index = machine.applied().index;
            drop(machine);
            service.handle.applied_after(index).await.map_err(|why| service.rejected(&no_replica(why)))?;
        }
    };
    tokio::time::timeout(service.timeout, reaching).await.unwrap_or_else(|_| {
        let current = service.handle.local().map_or(0, |machine| machine.keys().revision());
        let message = format!(
            "this replica has not reached revision {revision} (its current revision is {current}); continue at another node"
        );
        Err(Error::new(ErrorCode::NotReady, message).field("from"))
    })
}

/// A watch needs a replica, not a leader.
fn no_replica(why: LogRejection) -> LogRejection {
    match why {
        LogRejection::NotLeader(group) => LogRejection::NoReplica(group),
        why => why,
    }
}

/// Converts the watches of a request.
pub(crate) fn wanted(watches: Vec<v1::KeyWatch>) -> Result<Vec<WantedWatch>, Error> {
    if watches.is_empty() || watches.len() > KEY_WATCHES_MAX {
        let message = format!("a stream has 1 to {KEY_WATCHES_MAX} watches, not {}", watches.len());
        return Err(invalid("watches", message).limit(KEY_WATCHES_MAX as u64));
    }
    let mut all: Vec<WantedWatch> = Vec::new();
    for (at, watch) in watches.into_iter().enumerate() {
        let field = |name: &str| format!("watches[{at}].{name}");
        let filter = match watch.which {
            Some(v1::key_watch::Which::Key(key)) => WatchFilter::keys(Selection::Key(key)),
            Some(v1::key_watch::Which::Range(range)) => WatchFilter::keys(Selection::Range(key_range(range))),
            Some(v1::key_watch::Which::Lock(lock)) => WatchFilter::lock(lock_name(lock.name, lock.election)),
            None => return Err(invalid(&field("which"), "a key, a range or a lock to watch is required")),
        };
        if all.iter().any(|other| other.id == watch.id) {
            return Err(invalid(&field("id"), "another watch of the stream has the same id"));
        }
        if watch.no_puts && watch.no_deletes {
            return Err(invalid(&field("no_deletes"), "a watch without puts and deletes has no events"));
        }
        let from = watch.from.map(|from| EventPosition { revision: from.revision, index: from.index });
        let filter = WatchFilter { puts: !watch.no_puts, deletes: !watch.no_deletes, ..filter };
        all.push(WantedWatch { id: watch.id, filter, from, previous: watch.previous });
    }
    Ok(all)
}
