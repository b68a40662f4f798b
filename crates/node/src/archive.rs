//! The agentless members on disk (AG4): a journal in the data directory, written by a thread of its own.
//!
//! Each entry replaces what the file holds for its id. The file is rewritten when most of its entries are outdated.

use crate::disk::DataDir;
use crate::events::NodeEvent;
use crate::shared::Shared;
use bytes::{Bytes, BytesMut};
use convoke_base::framing::{header, next_frame};
use convoke_core::node::Archive;
use smol_str::SmolStr;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::watch;

const FILE: &str = "agentless";
const HEADER: &[u8] = b"convoke agentless 1\n";
const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Outdated entries that a file may have in addition to as many as there are members.
const OUTDATED_MAX: usize = 10_000;

/// One change, as in `Effect::Archive`.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: SmolStr,
    pub(crate) record: Option<Bytes>,
    pub(crate) floor: u64,
}

/// Sends changes to the thread that writes them.
#[derive(Debug)]
pub(crate) struct ArchiveWriter {
    /// What the file holds once all changes are written; a new incarnation begins with it.
    pub(crate) archive: Archive,
    thread: Option<(Arc<Queue>, JoinHandle<()>)>,
    /// How many changes were queued.
    sent: u64,
    /// How many of them are on disk.
    durable: watch::Receiver<u64>,
}

/// The changes that the thread has not written yet. A later change of an id replaces an earlier one, so that a slow disk
/// costs no more memory than the members themselves.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    entries: BTreeMap<SmolStr, Entry>,
    /// How many changes were queued so far.
    sent: u64,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many changes were queued so far.
    fn push(&self, mut entry: Entry) -> u64 {
        let mut waiting = self.lock();
        entry.floor = waiting.entries.get(&entry.id).map_or(0, |replaced| replaced.floor).max(entry.floor);
        waiting.entries.insert(entry.id.clone(), entry);
        waiting.sent += 1;
        self.changed.notify_one();
        waiting.sent
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// Waits for changes. Returns them, and how many were queued so far; `None` after the last ones.
    fn take(&self) -> Option<(Vec<Entry>, u64)> {
        let idle = |waiting: &mut Waiting| waiting.entries.is_empty() && !waiting.closed;
        let mut waiting = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        let entries = std::mem::take(&mut waiting.entries);
        (!entries.is_empty()).then(|| (entries.into_values().collect(), waiting.sent))
    }
}

impl ArchiveWriter {
    /// Reads the file of a data directory and starts the thread. Without a directory, nothing is stored.
    pub(crate) fn open(data_dir: Option<&Arc<DataDir>>, shared: &Arc<Shared>) -> io::Result<ArchiveWriter> {
        let (progress, durable) = watch::channel(0);
        let Some(data_dir) = data_dir else {
            return Ok(ArchiveWriter { archive: Archive::default(), thread: None, sent: 0, durable });
        };
        let journal = Journal::open(&data_dir.path().join(FILE))?;
        let archive = journal.archive.clone();
        let queue = Arc::new(Queue::default());
        let changes = queue.clone();
        // The directory stays locked until the last change is written.
        let (shared, locked) = (shared.clone(), data_dir.clone());
        let running = std::thread::Builder::new().name("convoke-agentless".to_owned()).spawn(move || {
            journal.run(&changes, &progress, &shared);
            drop(locked);
        })?;
        Ok(ArchiveWriter { archive, thread: Some((queue, running)), sent: 0, durable })
    }

    pub(crate) fn write(&mut self, entry: Entry) {
        self.archive.apply(entry.id.clone(), entry.record.clone(), entry.floor);
        if let Some((queue, _)) = &self.thread {
            self.sent = queue.push(entry);
        }
    }

    /// Returns a future that resolves when all changes so far are on disk: `false` if they cannot be stored.
    pub(crate) fn stored(&self) -> impl Future<Output = bool> + Send + use<> {
        let (mut durable, sent, kept) = (self.durable.clone(), self.sent, self.thread.is_some());
        async move { kept && durable.wait_for(|n| *n >= sent).await.is_ok() }
    }
}

impl Drop for ArchiveWriter {
    /// Waits for the last change: afterwards the data directory can be used again.
    fn drop(&mut self) {
        if let Some((queue, running)) = self.thread.take() {
            queue.close();
            let _ = running.join();
        }
    }
}

#[derive(Debug)]
struct Journal {
    path: PathBuf,
    /// The file, if it ends with a whole entry. Otherwise the next change rewrites it.
    file: Option<File>,
    archive: Archive,
    entries: usize,
}

impl Journal {
    /// Reads the file, and writes nothing: a node with a full disk starts. A torn end, as after a crash, is ignored; other
    /// nodes have what it held.
    fn open(path: &Path) -> io::Result<Journal> {
        let mut archive = Archive::default();
        match fs::read(path) {
            Ok(bytes) if bytes.starts_with(HEADER) => {
                let mut rest = BytesMut::from(&bytes[HEADER.len()..]);
                while let Ok(Some(frame)) = next_frame(&mut rest, ENTRY_BYTES_MAX) {
                    let Some(Entry { id, record, floor }) = decode(&frame) else { break };
                    archive.apply(id, record, floor);
                }
            }
            Ok(bytes) if bytes.is_empty() => {}
            Ok(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a file of agentless members")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(Journal { path: path.to_owned(), file: None, archive, entries: 0 })
    }

    /// Writes changes until the node ends, as many as there are with one sync.
    fn run(mut self, changes: &Queue, progress: &watch::Sender<u64>, shared: &Shared) {
        while let Some((batch, sent)) = changes.take() {
            match self.append(batch) {
                Ok(()) => drop(progress.send_replace(sent)),
                Err(error) => {
                    // The next change writes the whole file, and with it what failed now.
                    self.file = None;
                    let error = format!("{}: {error}", self.path.display());
                    shared.timeline.record(NodeEvent::PersistFailed { error });
                }
            }
        }
    }

    fn append(&mut self, batch: Vec<Entry>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for entry in batch {
            let body = encode(&entry);
            bytes.extend_from_slice(&header(&[&body]));
            bytes.extend_from_slice(&body);
            self.archive.apply(entry.id, entry.record, entry.floor);
            self.entries += 1;
        }
        match &mut self.file {
            Some(file) if self.entries <= 2 * self.archive.records.len() + OUTDATED_MAX => {
                file.write_all(&bytes)?;
                file.sync_data()
            }
            _ => {
                self.file = Some(rewrite(&self.path, &self.archive)?);
                self.entries = self.archive.records.len();
                Ok(())
            }
        }
    }
}

/// Replaces the file by one without outdated entries, and returns it for appending.
fn rewrite(path: &Path, archive: &Archive) -> io::Result<File> {
    let mut bytes = HEADER.to_vec();
    for (id, record) in &archive.records {
        let body = encode(&Entry { id: id.clone(), record: Some(record.clone()), floor: archive.floor });
        bytes.extend_from_slice(&header(&[&body]));
        bytes.extend_from_slice(&body);
    }
    if archive.records.is_empty() && archive.floor > 0 {
        let body = encode(&Entry { id: SmolStr::default(), record: None, floor: archive.floor });
        bytes.extend_from_slice(&header(&[&body]));
        bytes.extend_from_slice(&body);
    }
    let temporary = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&temporary)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    if let Some(parent) = path.parent() {
        // The rename itself must survive a crash.
        File::open(parent)?.sync_all()?;
    }
    Ok(file)
}

/// Floor, length of the id, id, and the record if there is one.
fn encode(entry: &Entry) -> Vec<u8> {
    let mut bytes = entry.floor.to_le_bytes().to_vec();
    bytes.extend_from_slice(&(entry.id.len() as u32).to_le_bytes());
    bytes.extend_from_slice(entry.id.as_bytes());
    if let Some(record) = &entry.record {
        bytes.extend_from_slice(record);
    }
    bytes
}

fn decode(frame: &Bytes) -> Option<Entry> {
    let floor = u64::from_le_bytes(frame.get(..8)?.try_into().ok()?);
    let length = u32::from_le_bytes(frame.get(8..12)?.try_into().ok()?) as usize;
    let end = length.checked_add(12)?;
    let id = SmolStr::new(std::str::from_utf8(frame.get(12..end)?).ok()?);
    let record = frame.slice(end..);
    Some(Entry { id, record: (!record.is_empty()).then_some(record), floor })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn entry(id: &str, record: Option<&'static [u8]>, floor: u64) -> Entry {
        Entry { id: id.into(), record: record.map(Bytes::from_static), floor }
    }

    #[test]
    fn a_journal_keeps_the_last_entry_of_each_id_and_survives_a_torn_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut journal = Journal::open(&path).unwrap();
        journal.append(vec![entry("a", Some(b"one"), 0), entry("b", Some(b"two"), 0)]).unwrap();
        journal.append(vec![entry("a", Some(b"three"), 0), entry("b", None, 9)]).unwrap();
        let expected = journal.archive.clone();
        assert_eq!((expected.records.len(), expected.floor), (1, 9));
        drop(journal);
        let bytes = fs::read(&path).unwrap();
        let read = |cut: usize| {
            fs::write(&path, &bytes[..bytes.len() - cut]).unwrap();
            Journal::open(&path).unwrap().archive
        };
        assert_eq!(read(0), expected);
        let torn = read(3);
        assert_eq!((torn.records.len(), torn.floor), (2, 0), "only the last entry is lost");
        let mut journal = Journal::open(&path).unwrap();
        journal.append(vec![entry("c", Some(b"four"), 0)]).unwrap();
        assert_eq!(Journal::open(&path).unwrap().archive, journal.archive, "the torn end is gone");
        fs::write(&path, "something else").unwrap();
        assert!(Journal::open(&path).is_err());
    }

    #[test]
    fn the_queue_holds_one_change_for_each_id_and_loses_no_floor() {
        let queue = Queue::default();
        queue.push(entry("a", None, 9));
        queue.push(entry("b", Some(b"two"), 0));
        assert_eq!(queue.push(entry("a", Some(b"three"), 0)), 3);
        let (entries, sent) = queue.take().unwrap();
        let taken: Vec<_> =
            entries.iter().map(|entry| (entry.id.as_str(), entry.record.is_some(), entry.floor)).collect();
        assert_eq!((taken, sent), (vec![("a", true, 9), ("b", true, 0)], 3));
        queue.close();
        assert!(queue.take().is_none());
    }

    #[test]
    fn a_file_does_not_grow_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut journal = Journal::open(&path).unwrap();
        for _ in 0..10 {
            journal.append((0..2_000).map(|_| entry("a", Some(b"one"), 0)).collect()).unwrap();
        }
        assert!(journal.entries <= OUTDATED_MAX + 2, "{}", journal.entries);
    }

    #[test]
    fn a_floor_without_members_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        Journal::open(&path).unwrap().append(vec![entry("a", None, 7)]).unwrap();
        assert_eq!(Journal::open(&path).unwrap().archive.floor, 7);
        assert_eq!(Journal::open(&path).unwrap().archive.floor, 7, "also after it was rewritten");
    }
}
