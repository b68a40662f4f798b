//! A disk that loses unsynced data, tears writes, and fails on request.

use crate::store::disk::{Disk, DiskFile};
use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

const SECTOR: usize = 512;

/// Clones share the disk.
#[derive(Clone, Debug, Default)]
pub(super) struct FakeDisk(Arc<Mutex<DiskState>>);

#[derive(Debug, Default)]
struct DiskState {
    files: BTreeMap<u64, Content>,
    /// Names as the process sees them, and as they would be after a crash.
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    next: u64,
    steps: usize,
    /// The step at which the power fails or an error occurs.
    fault: Option<(usize, Fault)>,
    dead: bool,
}

#[derive(Clone, Debug, Default)]
struct Content {
    written: Vec<u8>,
    /// Content at the last sync.
    durable: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The power fails before the step.
    Crash,
    /// The step fails, once.
    Fail,
}

/// Fate of unsynced bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsynced {
    Lost,
    Kept,
    /// Only every other sector is written, the first or the second of each pair; the file has its full length.
    Holes(bool),
    /// Half of the bytes are written.
    Short,
}

impl FakeDisk {
    pub(super) fn with_fault(self, at: usize, fault: Fault) -> Self {
        self.lock().fault = Some((at, fault));
        self
    }

    /// Returns the number of writes, syncs, renames and removals so far.
    pub(super) fn steps(&self) -> usize {
        self.lock().steps
    }

    /// Returns the disk after a crash. Unsynced names may be present or not.
    pub(super) fn after_crash(&self, unsynced: Unsynced, names_kept: bool) -> FakeDisk {
        let platters = self.lock();
        let names = if names_kept { &platters.names } else { &platters.durable_names };
        let mut found = DiskState { next: platters.next, ..DiskState::default() };
        for (name, id) in names {
            let content = platters.files.get(id).map(|content| content.survive(unsynced)).unwrap_or_default();
            found.files.insert(*id, Content { written: content.clone(), durable: content });
            found.names.insert(name.clone(), *id);
            found.durable_names.insert(name.clone(), *id);
        }
        FakeDisk(Arc::new(Mutex::new(found)))
    }

    pub(super) fn files(&self) -> Vec<(String, Vec<u8>)> {
        let platters = self.lock();
        platters.names.iter().map(|(name, id)| (name.clone(), platters.files[id].written.clone())).collect()
    }

    pub(super) fn overwrite(&self, name: &str, bytes: Vec<u8>) {
        let mut platters = self.lock();
        let id = platters.names[name];
        platters.files.insert(id, Content { written: bytes.clone(), durable: bytes });
    }

    /// Returns an independent copy.
    pub(super) fn copy(&self) -> FakeDisk {
        self.after_crash(Unsynced::Kept, true)
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap()
    }

    /// Performs one step, unless it fails.
    fn step(&self) -> io::Result<MutexGuard<'_, DiskState>> {
        let mut platters = self.lock();
        if platters.dead {
            return Err(io::Error::other("the power is off"));
        }
        platters.steps += 1;
        match platters.fault {
            Some((at, Fault::Crash)) if platters.steps > at => {
                platters.dead = true;
                Err(io::Error::other("the power went off"))
            }
            Some((at, Fault::Fail)) if platters.steps == at + 1 => Err(io::Error::other("the disk failed")),
            _ => Ok(platters),
        }
    }
}

impl Content {
    fn survive(&self, unsynced: Unsynced) -> Vec<u8> {
        let (written, durable) = (&self.written, &self.durable);
        match unsynced {
            Unsynced::Lost => durable.clone(),
            Unsynced::Kept => written.clone(),
            Unsynced::Short => {
                let grown = written.len().saturating_sub(durable.len());
                written[..written.len() - grown / 2].to_vec()
            }
            Unsynced::Holes(first) => {
                let mut found = durable.clone();
                found.resize(written.len(), 0);
                for (place, sector) in written.chunks(SECTOR).enumerate() {
                    if (place % 2 == 0) == first {
                        let start = place * SECTOR;
                        found[start..start + sector.len()].copy_from_slice(sector);
                    }
                }
                found
            }
        }
    }
}

impl Disk for FakeDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let platters = self.lock();
        let id = platters.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Cursor::new(platters.files[id].written.clone())))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut platters = self.step()?;
        platters.next += 1;
        let id = platters.next;
        platters.files.insert(id, Content::default());
        platters.names.insert(name.to_owned(), id);
        Ok(Box::new(FakeFile { disk: self.clone(), id }))
    }

    fn resume(&self, name: &str, len: u64) -> io::Result<Box<dyn DiskFile>> {
        let mut platters = self.step()?;
        let id = *platters.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let content = platters.files.entry(id).or_default();
        content.written.resize(usize::try_from(len).unwrap(), 0);
        Ok(Box::new(FakeFile { disk: self.clone(), id }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut platters = self.step()?;
        let id = platters.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        platters.names.insert(to.to_owned(), id);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut platters = self.step()?;
        platters.names.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        let mut platters = self.step()?;
        platters.durable_names = platters.names.clone();
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/fake").join(name)
    }
}

#[derive(Debug)]
struct FakeFile {
    disk: FakeDisk,
    id: u64,
}

impl DiskFile for FakeFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut platters = self.disk.step()?;
        platters.files.entry(self.id).or_default().written.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut platters = self.disk.step()?;
        let content = platters.files.entry(self.id).or_default();
        content.durable = content.written.clone();
        Ok(())
    }
}
