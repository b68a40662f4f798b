//! The one thread that writes the log: everything that has gathered goes into one batch, with one fsync.
//!
//! After the first failure nothing is written any more, and nothing is tried again: what the disk holds then is not
//! known until it is read anew.

use super::disk::{Disk, DiskFile, naming};
use super::record::{Opening, Record};
use super::segment::{Batch, PREFACE_BYTES, Preface, Scanned};
use crate::counters::{Counting, add};
use crate::raft::{Entry, LogId, Types, Vote};
use openraft::storage::IOFlushed;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::oneshot;

/// A batch is closed once it has so many bytes, so that no fsync takes very long.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Something to be written. The engine bounds how much of it can be under way: by entries not yet committed on a leader,
/// by messages not yet answered on others.
pub(crate) enum Step {
    Append(Vec<Entry>, IOFlushed<Types>),
    Vote(Vote, oneshot::Sender<io::Result<()>>),
    /// From an index on; and the last entry that stays.
    Truncate(u64, Option<LogId>),
    /// Synced, then whole segments are removed.
    Purge(LogId, oneshot::Sender<io::Result<()>>),
    /// Goes with whatever is written next.
    Committed(LogId),
}

/// The way to the thread.
#[derive(Debug)]
pub(crate) struct Writer {
    steps: Option<Sender<Step>>,
    thread: Option<JoinHandle<()>>,
    failed: Arc<OnceLock<String>>,
}

/// What the thread starts from.
#[derive(Debug)]
pub(crate) struct Begin {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) known: Opening,
    pub(crate) segments: VecDeque<Segment>,
    /// The segment to go on with, as it was read.
    pub(crate) scanned: Option<Scanned>,
    pub(crate) next_batch: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) counting: Arc<Counting>,
}

/// A segment that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) sequence: u64,
    /// Highest index in it; `None` if it has no entries.
    pub(crate) last: Option<u64>,
}

pub(crate) fn segment_name(sequence: u64) -> String {
    format!("{sequence:016x}.log")
}

impl Writer {
    /// Makes the segment ready, here and now, then starts the thread.
    pub(crate) fn start(begin: Begin) -> io::Result<Self> {
        let mut state = Writing::open(begin)?;
        let (steps, queue) = channel();
        let failed = Arc::new(OnceLock::new());
        let thread_failed = failed.clone();
        let thread = std::thread::Builder::new()
            .name("convoke-log".to_owned())
            .spawn(move || state.run(&queue, &thread_failed))?;
        Ok(Writer { steps: Some(steps), thread: Some(thread), failed })
    }

    pub(crate) fn push(&self, step: Step) -> io::Result<()> {
        let sent = self.steps.as_ref().is_some_and(|steps| steps.send(step).is_ok());
        match self.failed.get() {
            Some(failure) => Err(io::Error::other(failure.clone())),
            None if sent => Ok(()),
            None => Err(io::Error::other("the log is closed")),
        }
    }
}

impl Drop for Writer {
    /// Waits until everything in line is written: nobody may open the log before.
    fn drop(&mut self) {
        drop(self.steps.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Who is told when a batch is synced.
enum Waiter {
    Entries(IOFlushed<Types>),
    Other(oneshot::Sender<io::Result<()>>),
}

impl Waiter {
    fn tell(self, failure: Option<&String>) {
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
    /// Where the next batch belongs.
    offset: u64,
    next_batch: u64,
    /// What the next segment begins with.
    known: Opening,
    /// The current one last.
    segments: VecDeque<Segment>,
    segment_bytes: u64,
    batch: Batch,
    buffer: Vec<u8>,
    counting: Arc<Counting>,
}

impl Writing {
    fn open(begin: Begin) -> io::Result<Self> {
        let Begin { disk, known, mut segments, scanned, next_batch, segment_bytes, counting } = begin;
        match (scanned, segments.back()) {
            (Some(scanned), Some(current)) => {
                let mut file = disk.resume(&segment_name(current.sequence), scanned.end as u64)?;
                // The tail that was cut off must not come back behind what is written next.
                file.sync()?;
                Ok(Writing {
                    disk,
                    file,
                    preface: scanned.preface,
                    offset: scanned.end as u64,
                    next_batch,
                    known,
                    segments,
                    segment_bytes,
                    batch: Batch::default(),
                    buffer: Vec::new(),
                    counting,
                })
            }
            (_, current) => {
                let sequence = current.map_or(1, |current| current.sequence + 1);
                let (file, preface, offset) = create_segment(&*disk, sequence, &known, next_batch)?;
                segments.push_back(Segment { sequence, last: None });
                Ok(Writing {
                    disk,
                    file,
                    preface,
                    offset,
                    next_batch: next_batch + 1,
                    known,
                    segments,
                    segment_bytes,
                    batch: Batch::default(),
                    buffer: Vec::new(),
                    counting,
                })
            }
        }
    }

    fn run(&mut self, queue: &Receiver<Step>, failed: &OnceLock<String>) {
        let mut waiters = Vec::new();
        while let Ok(first) = queue.recv() {
            let (mut step, mut purged) = (Some(first), None);
            while let Some(found) = step {
                self.take(found, &mut waiters, &mut purged);
                step = if self.batch.len() < BATCH_BYTES { queue.try_recv().ok() } else { None };
            }
            // A hint alone is not worth a write; it goes with the next.
            let written = match failed.get() {
                _ if waiters.is_empty() && purged.is_none() => continue,
                Some(failure) => Err(failure.clone()),
                None => self.flush(purged).map_err(|error| error.to_string()),
            };
            if let Err(failure) = &written {
                self.batch.clear();
                if failed.set(failure.clone()).is_ok() {
                    tracing::error!("the log cannot be written: {failure}");
                }
            }
            for waiter in waiters.drain(..) {
                waiter.tell(written.as_ref().err());
            }
        }
    }

    fn take(&mut self, step: Step, waiters: &mut Vec<Waiter>, purged: &mut Option<LogId>) {
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
                waiters.push(Waiter::Entries(callback));
            }
            Step::Vote(vote, reply) => {
                self.batch.push(&Record::Vote(vote));
                self.known.vote = Some(vote);
                waiters.push(Waiter::Other(reply));
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
                *purged = self.known.purged;
                waiters.push(Waiter::Other(reply));
            }
            Step::Committed(upto) => {
                self.batch.push(&Record::Committed(upto));
                self.known.committed = Some(upto);
            }
        }
    }

    /// Writes the batch and syncs it.
    fn flush(&mut self, purged: Option<LogId>) -> io::Result<()> {
        if !self.batch.is_empty() {
            self.buffer.clear();
            self.batch.write(&mut self.buffer, self.offset, self.next_batch, self.preface.salt);
            let begin = Instant::now();
            let written = self.file.append(&self.buffer).and_then(|()| self.file.sync());
            written.map_err(|error| naming(&self.disk.path(&segment_name(self.preface.sequence)), &error))?;
            self.counting.syncs.add(begin.elapsed());
            add(&self.counting.batches, 1);
            add(&self.counting.bytes_written, self.buffer.len() as u64);
            self.offset += self.buffer.len() as u64;
            self.next_batch += 1;
            self.batch.clear();
        }
        if self.offset >= self.segment_bytes {
            self.roll()?;
        }
        if let Some(purged) = purged {
            self.remove(purged.index)?;
        }
        Ok(())
    }

    /// Goes on in a new segment.
    fn roll(&mut self) -> io::Result<()> {
        let sequence = self.preface.sequence + 1;
        let (file, preface, offset) = create_segment(&*self.disk, sequence, &self.known, self.next_batch)?;
        (self.file, self.preface, self.offset) = (file, preface, offset);
        self.next_batch += 1;
        self.segments.push_back(Segment { sequence, last: None });
        Ok(())
    }

    /// Removes segments that only have entries up to an index, oldest first: what is left has no gap, whenever a crash
    /// comes.
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

/// A segment with its preface and what was known before it, durable under its name.
fn create_segment(
    disk: &dyn Disk,
    sequence: u64,
    known: &Opening,
    batch: u64,
) -> io::Result<(Box<dyn DiskFile>, Preface, u64)> {
    let mut salt = [0; 4];
    getrandom::fill(&mut salt).map_err(io::Error::other)?;
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
