//! A disk that loses unsynced data, tears writes in progress, and fails on request.
//!
//! It outlives its node. A crash fences it: late writes of the dying node fail.

use convoke_replica::{Disk, DiskFile};
use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const SECTOR: usize = 512;
/// Latency of a write and its fsync on a healthy disk.
const USUAL_LATENCY: Duration = Duration::from_millis(2);

/// The disk of one node. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SimDisk(Arc<Mutex<DiskState>>);

#[derive(Debug)]
struct DiskState {
    files: BTreeMap<u64, Content>,
    /// Names as the process sees them, and as they would be after a crash.
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    next: u64,
    /// Counts starts of the node; only the last one may use the disk.
    generation: u64,
    latency: Duration,
    fault: Option<DiskFault>,
    /// Number of faults that the node has met.
    faults_met: u64,
    /// Reports syncs that it did not perform. A mutant.
    fakes_sync: bool,
}

/// A fault of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskFault {
    /// The next fsync fails, once.
    Sync,
    /// Nothing can be written.
    Full,
}

/// The content of a disk at some time.
#[derive(Clone, Debug)]
pub(crate) struct DiskImage(BTreeMap<String, Vec<u8>>);

#[derive(Clone, Debug, Default)]
struct Content {
    written: Vec<u8>,
    /// As it was when it was synced last.
    durable: Vec<u8>,
}

impl SimDisk {
    pub(crate) fn new(fakes_sync: bool) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(DiskState {
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            next: 0,
            generation: 0,
            latency: USUAL_LATENCY,
            fault: None,
            faults_met: 0,
            fakes_sync,
        })))
    }

    /// Returns the disk for a starting node. Earlier mounts become invalid.
    pub(crate) fn mount(&self) -> Arc<dyn Disk> {
        let mut state = self.lock();
        state.generation += 1;
        Arc::new(Mounted { disk: self.clone(), generation: state.generation })
    }

    /// Cuts the power: unsynced data is lost, completely or in part. Returns whether anything was lost.
    pub(crate) fn power_cut(&self, random: &mut fastrand::Rng) -> bool {
        let mut state = self.lock();
        state.generation += 1;
        let mut lost = false;
        for content in state.files.values_mut() {
            let found = content.survive(random);
            lost |= found != content.written;
            *content = Content { written: found.clone(), durable: found };
        }
        if random.bool() {
            lost |= state.names != state.durable_names;
            state.names = state.durable_names.clone();
        }
        state.durable_names = state.names.clone();
        let used: Vec<u64> = state.names.values().copied().collect();
        state.files.retain(|id, _| used.contains(id));
        lost
    }

    /// Replaces it with a new disk.
    pub(crate) fn wipe(&self) {
        let mut state = self.lock();
        state.generation += 1;
        state.files.clear();
        state.names.clear();
        state.durable_names.clear();
    }

    /// Returns an image of the synced content.
    pub(crate) fn image(&self) -> DiskImage {
        let state = self.lock();
        let content = |id: &u64| state.files.get(id).map(|content| content.durable.clone()).unwrap_or_default();
        DiskImage(state.durable_names.iter().map(|(name, id)| (name.clone(), content(id))).collect())
    }

    /// Replaces the content by an earlier image.
    pub(crate) fn roll_back(&self, image: DiskImage) {
        self.wipe();
        let mut state = self.lock();
        for (name, bytes) in image.0 {
            state.next += 1;
            let id = state.next;
            state.files.insert(id, Content { written: bytes.clone(), durable: bytes });
            state.names.insert(name, id);
        }
        state.durable_names = state.names.clone();
    }

    pub(crate) fn set_fault(&self, fault: Option<DiskFault>) {
        self.lock().fault = fault;
    }

    /// Returns how often the node met a fault.
    pub(crate) fn faults_met(&self) -> u64 {
        self.lock().faults_met
    }

    /// Sets the latency; `None` for the default.
    pub(crate) fn set_latency(&self, latency: Option<Duration>) {
        self.lock().latency = latency.unwrap_or(USUAL_LATENCY);
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    fn survive(&self, random: &mut fastrand::Rng) -> Vec<u8> {
        let (written, durable) = (&self.written, &self.durable);
        if written == durable {
            return written.clone();
        }
        match random.u8(0..4) {
            0 => durable.clone(),
            1 => written.clone(),
            // Half of the bytes were written.
            2 => {
                let grown = written.len().saturating_sub(durable.len());
                written[..written.len() - grown / 2].to_vec()
            }
            // Only every other sector was written; the file has its full length.
            _ => {
                let (mut found, first) = (durable.clone(), random.bool());
                found.resize(written.len(), 0);
                for (place, sector) in written.chunks(SECTOR).enumerate() {
                    if place.is_multiple_of(2) == first {
                        let start = place * SECTOR;
                        found[start..start + sector.len()].copy_from_slice(sector);
                    }
                }
                found
            }
        }
    }
}

/// The disk as used by a running node.
#[derive(Clone, Debug)]
struct Mounted {
    disk: SimDisk,
    generation: u64,
}

impl Mounted {
    fn lock(&self) -> io::Result<MutexGuard<'_, DiskState>> {
        let state = self.disk.lock();
        if state.generation == self.generation { Ok(state) } else { Err(io::Error::other("the power is off")) }
    }

    /// Access for operations that change something.
    fn write(&self) -> io::Result<MutexGuard<'_, DiskState>> {
        let mut state = self.lock()?;
        if state.fault == Some(DiskFault::Full) {
            state.faults_met += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(state)
    }

    fn sync(&self) -> io::Result<MutexGuard<'_, DiskState>> {
        let mut state = self.write()?;
        if state.fault == Some(DiskFault::Sync) {
            state.faults_met += 1;
            state.fault = None;
            return Err(io::Error::other("fsync failed"));
        }
        Ok(state)
    }
}

impl Disk for Mounted {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock()?.names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let state = self.lock()?;
        let content = state.names.get(name).and_then(|id| state.files.get(id));
        Ok(Box::new(Cursor::new(content.ok_or(io::ErrorKind::NotFound)?.written.clone())))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.write()?;
        state.next += 1;
        let id = state.next;
        state.files.insert(id, Content::default());
        state.names.insert(name.to_owned(), id);
        Ok(Box::new(Opened { disk: self.clone(), id }))
    }

    fn resume(&self, name: &str, len: u64) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.write()?;
        let id = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let len = usize::try_from(len).map_err(io::Error::other)?;
        state.files.entry(id).or_default().written.resize(len, 0);
        Ok(Box::new(Opened { disk: self.clone(), id }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.write()?;
        let id = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), id);
        Ok(())
    }

    /// Also possible on a full disk.
    fn remove(&self, name: &str) -> io::Result<()> {
        self.lock()?.names.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = Mounted::sync(self)?;
        if !state.fakes_sync {
            state.durable_names = state.names.clone();
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/simulated").join(name)
    }

    fn simulated_latency(&self) -> Option<Duration> {
        Some(self.disk.lock().latency)
    }
}

#[derive(Debug)]
struct Opened {
    disk: Mounted,
    id: u64,
}

impl DiskFile for Opened {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.write()?.files.entry(self.id).or_default().written.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.sync()?;
        if !state.fakes_sync {
            let content = state.files.entry(self.id).or_default();
            content.durable = content.written.clone();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synced_bytes_survive_and_an_old_mount_writes_nothing() {
        let disk = SimDisk::new(false);
        let mount = disk.mount();
        let mut file = mount.create("a").unwrap();
        file.append(b"safe").unwrap();
        file.sync().unwrap();
        mount.sync().unwrap();
        file.append(b" and not").unwrap();
        for seed in 0..20 {
            disk.power_cut(&mut fastrand::Rng::with_seed(seed));
            assert!(file.append(b"late").is_err(), "it is fenced");
            let mut found = Vec::new();
            disk.mount().open("a").unwrap().read_to_end(&mut found).unwrap();
            assert!(found.starts_with(b"safe"), "{found:?}");
        }
    }

    #[test]
    fn faults_are_counted() {
        let disk = SimDisk::new(false);
        let mut file = disk.mount().create("a").unwrap();
        disk.set_fault(Some(DiskFault::Sync));
        file.append(b"a").unwrap();
        assert!(file.sync().is_err());
        assert!(file.sync().is_ok(), "once");
        disk.set_fault(Some(DiskFault::Full));
        assert_eq!(file.append(b"a").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(disk.faults_met(), 2);
    }
}
