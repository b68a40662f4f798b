//! Checks the log of a stopped node without changing it, and cuts an unsynced tail on request.

use crate::offline::OfflineError;
use crate::store::disk::{Directory, Disk, DiskFile};
use crate::store::identity::Identity;
use crate::store::{StoreError, open, segment, snapshot_file};
use convoke_log::ReplicaId;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The content of a log directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogCheck {
    /// Id of the log, replica and node; `None` without a readable identity.
    pub identity: Option<(u128, ReplicaId, String)>,
    pub segments: usize,
    /// Index of the newest snapshot; 0 for none.
    pub snapshot: u64,
    /// Last, committed and purged index; 0 for none.
    pub last: u64,
    pub committed: u64,
    pub purged: u64,
    /// Term of the last vote.
    pub term: u64,
    /// An unsynced batch that the next start of the node cuts.
    pub tear: Option<LogFinding>,
    /// Findings because of which the node does not start.
    pub damage: Vec<LogFinding>,
}

/// A part of the log that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFinding {
    pub path: PathBuf,
    pub what: String,
}

/// A tail that was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutTail {
    pub path: PathBuf,
    /// Size of the file before and after.
    pub before: u64,
    pub after: u64,
    /// The file that keeps the removed bytes.
    pub kept_in: PathBuf,
}

/// Reads identity, segments and the newest snapshot of a stopped node. Changes nothing.
pub fn check(directory: &Path) -> Result<LogCheck, OfflineError> {
    let disk = ReadOnly::open(directory)?;
    let names = disk.list().map_err(|source| failed("list", directory, source))?;
    if !names.iter().any(|name| is_of_log(name)) {
        return Err(OfflineError::NoLog { path: directory.to_owned() });
    }
    let mut found = LogCheck::default();
    match Identity::load(&disk) {
        Ok(Some(identity)) => found.identity = Some((identity.log, ReplicaId(identity.replica), identity.node)),
        Ok(None) => {
            found.damage.push(LogFinding { path: disk.path("identity"), what: "the file is missing".to_owned() });
        }
        Err(error) => found.add(directory, error)?,
    }
    match snapshot_file::load(&disk) {
        Ok(image) => {
            let last = image.and_then(|image| image.meta.last_log_id);
            found.snapshot = last.map_or(0, |last| last.index + 1);
        }
        Err(error) => found.add(directory, error)?,
    }
    match open::open(&disk) {
        Ok(log) => found.describe(&disk, &log),
        Err(error) => found.add(directory, error)?,
    }
    Ok(found)
}

/// Cuts the last segment after its last complete batch, and keeps the removed bytes in another file.
///
/// Only for a batch that was never synced. If it was, the replica loses what it acknowledged; replicas with evidence of
/// that exclude it (M6). Returns `None` if there is nothing to cut.
pub fn cut_tail(directory: &Path) -> Result<Option<CutTail>, OfflineError> {
    // Creates nothing: the directory must hold a log.
    drop(ReadOnly::open(directory)?);
    let disk = Directory::open(directory).map_err(|source| failed("open", directory, source))?;
    let names = disk.list().map_err(|source| failed("list", directory, source))?;
    let Some(name) = names.iter().filter(|name| name.ends_with(".log")).max() else {
        return Err(OfflineError::NoLog { path: directory.to_owned() });
    };
    let path = disk.path(name);
    let bytes = fs::read(&path).map_err(|source| failed("read", &path, source))?;
    let end = segment::complete(&bytes)
        .map_err(|damage| StoreError::Damaged { path: path.clone(), what: format!("{damage}; it is not a tail") })?;
    if end == bytes.len() {
        return Ok(None);
    }
    let kept_name = (0..).map(|number| format!("cut-tail-{number}")).find(|name| !names.contains(name));
    let kept_name = kept_name.unwrap_or_default();
    let cut = || -> io::Result<()> {
        let mut kept = disk.create(&kept_name)?;
        kept.append(&bytes[end..])?;
        kept.sync()?;
        disk.sync()?;
        disk.resume(name, end as u64)?.sync()
    };
    cut().map_err(|source| failed("cut", &path, source))?;
    Ok(Some(CutTail { before: bytes.len() as u64, after: end as u64, kept_in: disk.path(&kept_name), path }))
}

fn is_of_log(name: &str) -> bool {
    name == "identity" || name.ends_with(".log") || name.starts_with("snapshot-")
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> StoreError {
    match source.kind() {
        io::ErrorKind::WouldBlock => StoreError::InUse { path: path.to_owned() },
        _ => StoreError::Disk { action, path: path.to_owned(), source },
    }
}

impl LogCheck {
    /// Adds damage; other errors end the check.
    fn add(&mut self, directory: &Path, error: StoreError) -> Result<(), StoreError> {
        match error {
            StoreError::Damaged { path, what } => self.damage.push(LogFinding { path, what }),
            StoreError::NoIdentity { .. } => {
                let path = directory.join("identity");
                self.damage.push(LogFinding { path, what: "the file is missing".to_owned() });
            }
            other => return Err(other),
        }
        Ok(())
    }

    fn describe(&mut self, disk: &ReadOnly, log: &open::Found) {
        let index = |log_id: Option<crate::raft::LogId>| log_id.map_or(0, |log_id| log_id.index + 1);
        self.segments = log.segments.len();
        self.last = index(log.known.last);
        self.committed = index(log.known.committed);
        self.purged = index(log.known.purged);
        self.term = log.known.vote.map_or(0, |vote| vote.leader_id.term);
        if let (Some(scanned), Some(segment)) = (&log.scanned, log.segments.back())
            && scanned.torn
        {
            let path = disk.path(&crate::store::segment_name(segment.sequence));
            let what = format!("a batch at byte {} was never synced; the next start cuts it", scanned.end);
            self.tear = Some(LogFinding { path, what });
        }
        if self.purged > self.snapshot {
            let what = "the snapshot before the first entry of the log is missing".to_owned();
            self.damage.push(LogFinding { path: disk.path(""), what });
        }
    }
}

/// A directory that is not changed. What a start would remove stays.
#[derive(Debug)]
struct ReadOnly {
    path: PathBuf,
    _lock: Option<fs::File>,
}

impl ReadOnly {
    fn open(path: &Path) -> Result<Self, OfflineError> {
        if !path.is_dir() {
            return Err(OfflineError::NoLog { path: path.to_owned() });
        }
        // A running node holds the lock.
        let lock = fs::OpenOptions::new().write(true).open(path.join("lock")).ok();
        if let Some(Err(fs::TryLockError::WouldBlock)) = lock.as_ref().map(fs::File::try_lock) {
            return Err(StoreError::InUse { path: path.to_owned() }.into());
        }
        Ok(ReadOnly { path: path.to_owned(), _lock: lock })
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Disk for ReadOnly {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort();
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(io::BufReader::new(fs::File::open(self.path.join(name))?)))
    }

    fn create(&self, _: &str) -> io::Result<Box<dyn DiskFile>> {
        read_only()
    }

    fn resume(&self, _: &str, _: u64) -> io::Result<Box<dyn DiskFile>> {
        read_only()
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        read_only()
    }

    /// Files of an interrupted operation, which nothing refers to.
    fn remove(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}
