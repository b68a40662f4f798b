//! The thread that writes the log: it writes everything waiting as one batch with one fsync. On a simulated disk it is
//! a task, and simulated time passes between write and fsync.
//!
//! After the first error it writes nothing and retries nothing, because the disk content is unknown until it is read
//! again.

use super::disk::{Disk, DiskFile, naming};
use super::record::{Opening, Record};
use super::segment::{Batch, PREFACE_BYTES, Preface, Scanned};
use crate::counters::{Counting, add};
use crate::entropy::random;
use crate::raft::{Entry, LogId, Types, Vote};
use openraft::storage::IOFlushed;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// A batch is closed at this size, so that no fsync takes very long.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// A step to be written. The engine bounds how many are in progress: by uncommitted entries at a leader, and by
/// unanswered messages at other replicas.
pub(crate) enum Step {
    Append(Vec<Entry>, IOFlushed<Types>),
    Vote(Vote, oneshot::Sender<io::Result<()>>),
    /// First index to remove, and the last entry that remains.
    Truncate(u64, Option<LogId>),
    /// Synced first; then whole segments are removed.
    Purge(LogId, oneshot::Sender<io::Result<()>>),
    /// Written together with the next step.
    Committed(LogId),
}

/// Handle of the writer thread.
#[derive(Debug)]
pub(crate) struct Writer {
    line: Line,
    failed: Arc<OnceLock<String>>,
}

#[derive(Debug)]
enum Line {
    Thread { steps: Option<Sender<Step>>, thread: Option<JoinHandle<()>> },
    Task(UnboundedSender<Step>),
}

/// Initial state of the writer thread.
#[derive(Debug)]
pub(crate) struct Begin {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) known: Opening,
    pub(crate) segments: VecDeque<Segment>,
    /// The segment to continue, as it was read.
    pub(crate) scanned: Option<Scanned>,
    pub(crate) next_batch: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) counting: Arc<Counting>,
}

/// An existing segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) sequence: u64,
    /// Highest index in it, or `None` if it has no entries.
    pub(crate) last: Option<u64>,
}

pub(crate) fn segment_name(sequence: u64) -> String {
    format!("{sequence:016x}.log")
}

impl Writer {
    /// Prepares the segment, then starts the thread.
    pub(crate) fn start(begin: Begin) -> io::Result<Self> {
        let simulated = begin.disk.simulated_latency().is_some();
        let mut state = Writing::open(begin)?;
        let failed = Arc::new(OnceLock::new());
        let noted = failed.clone();
        let line = if simulated {
            #[allow(
                clippy::disallowed_methods,
                reason = "bounded as the queue of the thread: by the proposals and appends in flight"
            )]
            let (steps, queue) = unbounded_channel();
            tokio::spawn(state.run_simulated(queue, noted));
            Line::Task(steps)
        } else {
            let (steps, queue) = channel();
            let thread = std::thread::Builder::new().name("convoke-log".to_owned());
            Line::Thread { steps: Some(steps), thread: Some(thread.spawn(move || state.run(&queue, &noted))?) }
        };
        Ok(Writer { line, failed })
    }

    pub(crate) fn push(&self, step: Step) -> io::Result<()> {
        let sent = match &self.line {
            Line::Thread { steps, .. } => steps.as_ref().is_some_and(|steps| steps.send(step).is_ok()),
            Line::Task(steps) => steps.send(step).is_ok(),
        };
        match self.failed.get() {
            Some(failure) => Err(io::Error::other(failure.clone())),
            None if sent => Ok(()),
            None => Err(io::Error::other("the replicated log is closed")),
        }
    }
}

impl Drop for Writer {
    /// Waits until everything queued is written, so that no other process opens the log before. A simulated disk fences
    /// late writers itself.
    fn drop(&mut self) {
        if let Line::Thread { steps, thread } = &mut self.line {
            drop(steps.take());
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
    }
}

/// A caller to notify when a batch is synced.
enum Waiter {
    Entries(IOFlushed<Types>),
    Other(oneshot::Sender<io::Result<()>>),
}

impl Waiter {
    fn notify(self, failure: Option<&String>) {
        let result = match failure {
            Some(failure) => Err(io::Error::other(failure.clone())),
            None => Ok(()),
        };
        match self {
            Waiter::Entries(callback) => callback.io_completed(result),
            Waiter::Other(reply) => drop(reply.send(result)),
        }
    }
}

struct Writing {
    disk: Arc<dyn Disk>,
    file: Box<dyn DiskFile>,
    preface: Preface,
    /// Offset of the next batch.
    offset: u64,
    next_batch: u64,
    /// State that the next segment starts with.
    known: Opening,
    /// The current segment is the last one.
    segments: VecDeque<Segment>,
    segment_bytes: u64,
    batch: Batch,
    buffer: Vec<u8>,
    /// Callers to notify when the batch is synced, and what to purge then.
    waiters: Vec<Waiter>,
    purged: Option<LogId>,
    counting: Arc<Counting>,
}

impl Writing {
    fn open(begin: Begin) -> io::Result<Self> {
        let Begin { disk, known, mut segments, scanned, next_batch, segment_bytes, counting } = begin;
        let (file, preface, offset, next_batch) = match (scanned, segments.back()) {
            (Some(scanned), Some(current)) => {
                let mut file = disk.resume(&segment_name(current.sequence), scanned.end as u64)?;
                // The truncated tail must not reappear after later writes.
                file.sync()?;
                (file, scanned.preface, scanned.end as u64, next_batch)
            }
            (_, current) => {
                let sequence = current.map_or(1, |current| current.sequence + 1);
                let (file, preface, offset) = create_segment(&*disk, sequence, &known, next_batch)?;
                segments.push_back(Segment { sequence, last: None });
                (file, preface, offset, next_batch + 1)
            }
        };
        Ok(Writing {
            disk,
            file,
            preface,
            offset,
            next_batch,
            known,
            segments,
            segment_bytes,
            batch: Batch::default(),
            buffer: Vec::new(),
            waiters: Vec::new(),
            purged: None,
            counting,
        })
    }

    fn run(&mut self, queue: &Receiver<Step>, failed: &OnceLock<String>) {
        while let Ok(first) = queue.recv() {
            if self.gather(first, || queue.try_recv().ok()) {
                let written = match failed.get() {
                    Some(failure) => Err(failure.clone()),
                    None => self.write().and_then(|()| self.sync()).map_err(|error| error.to_string()),
                };
                self.notify(&written, failed);
            }
        }
    }

    async fn run_simulated(mut self, mut queue: UnboundedReceiver<Step>, failed: Arc<OnceLock<String>>) {
        while let Some(first) = queue.recv().await {
            if self.gather(first, || queue.try_recv().ok()) {
                let mut written = match failed.get() {
                    Some(failure) => Err(failure.clone()),
                    None => self.write().map_err(|error| error.to_string()),
                };
                if written.is_ok() {
                    tokio::time::sleep(self.disk.simulated_latency().unwrap_or_default()).await;
                    written = self.sync().map_err(|error| error.to_string());
                }
                self.notify(&written, &failed);
            }
        }
    }

    /// Collects all queued steps. Returns whether to write now: a commit hint alone waits for the next step.
    fn gather(&mut self, first: Step, mut next: impl FnMut() -> Option<Step>) -> bool {
        let mut step = Some(first);
        while let Some(found) = step {
            self.take(found);
            step = if self.batch.len() < BATCH_BYTES { next() } else { None };
        }
        !self.waiters.is_empty() || self.purged.is_some()
    }

    fn notify(&mut self, written: &Result<(), String>, failed: &OnceLock<String>) {
        if let Err(failure) = written {
            self.batch.clear();
            self.purged = None;
            if failed.set(failure.clone()).is_ok() {
                tracing::error!(error = %failure, "cannot write replicated log, stopping replica");
            }
        }
        for waiter in self.waiters.drain(..) {
            waiter.notify(written.as_ref().err());
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Append(entries, callback) => {
                for entry in &entries {
                    self.batch.push(&Record::Entry(Cow::Borrowed(entry)));
                }
                if let (Some(last), Some(current)) = (entries.last(), self.segments.back_mut()) {
                    current.last = current.last.max(Some(last.log_id.index));
                    self.known.last = Some(last.log_id);
                }
                add(&self.counting.entries, entries.len() as u64);
                self.waiters.push(Waiter::Entries(callback));
            }
            Step::Vote(vote, reply) => {
                self.batch.push(&Record::Vote(vote));
                self.known.vote = Some(vote);
                self.waiters.push(Waiter::Other(reply));
            }
            Step::Truncate(from, last) => {
                self.batch.push(&Record::Truncate(from));
                self.known.last = last;
            }
            Step::Purge(upto, reply) => {
                self.batch.push(&Record::Purge(upto));
                self.known.purged = self.known.purged.max(Some(upto));
                if self.known.last.is_none_or(|last| last.index <= upto.index) {
                    self.known.last = self.known.purged;
                }
                self.purged = self.known.purged;
                self.waiters.push(Waiter::Other(reply));
            }
            Step::Committed(upto) => {
                self.batch.push(&Record::Committed(upto));
                self.known.committed = Some(upto);
            }
        }
    }

    /// Writes the batch without syncing it.
    fn write(&mut self) -> io::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.buffer.clear();
        self.batch.write(&mut self.buffer, self.offset, self.next_batch, self.preface.salt);
        self.file.append(&self.buffer).map_err(|error| self.naming_segment(&error))
    }

    /// Adds the segment's path to an error.
    fn naming_segment(&self, error: &io::Error) -> io::Error {
        naming(&self.disk.path(&segment_name(self.preface.sequence)), error)
    }

    /// Syncs the batch, then starts a new segment and removes old ones if needed.
    fn sync(&mut self) -> io::Result<()> {
        if !self.batch.is_empty() {
            let begin = Instant::now();
            self.file.sync().map_err(|error| self.naming_segment(&error))?;
            self.counting.syncs.observe(begin.elapsed().as_secs_f64());
            add(&self.counting.batches, 1);
            add(&self.counting.written_bytes, self.buffer.len() as u64);
            self.offset += self.buffer.len() as u64;
            self.next_batch += 1;
            self.batch.clear();
        }
        if self.offset >= self.segment_bytes {
            self.roll()?;
        }
        if let Some(purged) = self.purged.take() {
            self.remove(purged.index)?;
        }
        Ok(())
    }

    /// Starts a new segment.
    fn roll(&mut self) -> io::Result<()> {
        let sequence = self.preface.sequence + 1;
        let (file, preface, offset) = create_segment(&*self.disk, sequence, &self.known, self.next_batch)?;
        (self.file, self.preface, self.offset) = (file, preface, offset);
        self.next_batch += 1;
        self.segments.push_back(Segment { sequence, last: None });
        Ok(())
    }

    /// Removes segments with entries up to an index only, oldest first, so that a crash leaves no gap.
    fn remove(&mut self, upto: u64) -> io::Result<()> {
        while self.segments.len() > 1
            && let Some(oldest) = self.segments.front()
            && oldest.last.is_none_or(|last| last <= upto)
        {
            let name = segment_name(oldest.sequence);
            let removed = self.disk.remove(&name).and_then(|()| self.disk.sync());
            removed.map_err(|error| naming(&self.disk.path(&name), &error))?;
            self.segments.pop_front();
        }
        Ok(())
    }
}

/// Creates a segment with its preface and opening record, and makes it durable.
fn create_segment(
    disk: &dyn Disk,
    sequence: u64,
    known: &Opening,
    batch: u64,
) -> io::Result<(Box<dyn DiskFile>, Preface, u64)> {
    let salt = random().map_err(io::Error::other)?;
    let preface = Preface { sequence, salt: u32::from_le_bytes(salt) };
    let mut opening = Batch::default();
    opening.push(&Record::Opening(*known));
    let mut bytes = preface.encode().to_vec();
    opening.write(&mut bytes, PREFACE_BYTES as u64, batch, preface.salt);
    let name = segment_name(sequence);
    let create = || {
        let mut file = disk.create(&name)?;
        file.append(&bytes)?;
        file.sync()?;
        disk.sync()?;
        Ok(file)
    };
    let file = create().map_err(|error| naming(&disk.path(&name), &error))?;
    Ok((file, preface, bytes.len() as u64))
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Step::Append(..) => "Append",
            Step::Vote(..) => "Vote",
            Step::Truncate(..) => "Truncate",
            Step::Purge(..) => "Purge",
            Step::Committed(_) => "Committed",
        })
    }
}
