//! A disk that forgets what was not synced, tears what was being written, and fails when told to.
//!
//! It outlives the node that uses it. A crash fences it: whatever is left of the node writes to a disk that is no longer there.

use convoke_replica::{Disk, DiskFile};
use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const SECTOR: usize = 512;
/// What a write and its fsync take on a healthy disk.
const USUAL_LATENCY: Duration = Duration::from_millis(2);

/// The disk of one node. Copies are the same disk.
#[derive(Clone, Debug)]
pub(crate) struct SimDisk(Arc<Mutex<Platters>>);

#[derive(Debug)]
struct Platters {
    files: BTreeMap<u64, Content>,
    /// Names as the process sees them, and as they would be after a crash.
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    next: u64,
    /// Counts starts of the node; only the last one may use the disk.
    generation: u64,
    latency: Duration,
    trouble: Option<Trouble>,
    /// How often there was trouble.
    met: u64,
    /// Says that it has synced, and has not. A planted bug.
    lies: bool,
}

/// What a disk rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The next fsync fails, once.
    Sync,
    /// Nothing can be written.
    Full,
}

#[derive(Clone, Debug, Default)]
struct Content {
    written: Vec<u8>,
    /// As it was when it was synced last.
    durable: Vec<u8>,
}

impl SimDisk {
    pub(crate) fn new(lies: bool) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(Platters {
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            next: 0,
            generation: 0,
            latency: USUAL_LATENCY,
            trouble: None,
            met: 0,
            lies,
        })))
    }

    /// The disk for a node that starts. Whoever had it before has it no more.
    pub(crate) fn mount(&self) -> Arc<dyn Disk> {
        let mut platters = self.lock();
        platters.generation += 1;
        Arc::new(Mounted { disk: self.clone(), generation: platters.generation })
    }

    /// The power goes, and with it what was not synced, or some of it. True if anything was lost.
    pub(crate) fn power_cut(&self, random: &mut fastrand::Rng) -> bool {
        let mut platters = self.lock();
        platters.generation += 1;
        let mut lost = false;
        for content in platters.files.values_mut() {
            let found = content.survive(random);
            lost |= found != content.written;
            *content = Content { written: found.clone(), durable: found };
        }
        if random.bool() {
            lost |= platters.names != platters.durable_names;
            platters.names = platters.durable_names.clone();
        }
        platters.durable_names = platters.names.clone();
        let used: Vec<u64> = platters.names.values().copied().collect();
        platters.files.retain(|id, _| used.contains(id));
        lost
    }

    /// A new disk in its place.
    pub(crate) fn wipe(&self) {
        let mut platters = self.lock();
        platters.generation += 1;
        platters.files.clear();
        platters.names.clear();
        platters.durable_names.clear();
    }

    pub(crate) fn set_trouble(&self, trouble: Option<Trouble>) {
        self.lock().trouble = trouble;
    }

    /// How often the node met trouble.
    pub(crate) fn met(&self) -> u64 {
        self.lock().met
    }

    /// `None`: as usual.
    pub(crate) fn set_latency(&self, latency: Option<Duration>) {
        self.lock().latency = latency.unwrap_or(USUAL_LATENCY);
    }

    fn lock(&self) -> MutexGuard<'_, Platters> {
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
            // Half of the bytes made it.
            2 => {
                let grown = written.len().saturating_sub(durable.len());
                written[..written.len() - grown / 2].to_vec()
            }
            // Only every other sector did; the file has its full length.
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

/// The disk in the hands of a node that runs.
#[derive(Clone, Debug)]
struct Mounted {
    disk: SimDisk,
    generation: u64,
}

impl Mounted {
    fn lock(&self) -> io::Result<MutexGuard<'_, Platters>> {
        let platters = self.disk.lock();
        if platters.generation == self.generation { Ok(platters) } else { Err(io::Error::other("the power is off")) }
    }

    /// For what changes something.
    fn write(&self) -> io::Result<MutexGuard<'_, Platters>> {
        let mut platters = self.lock()?;
        if platters.trouble == Some(Trouble::Full) {
            platters.met += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(platters)
    }

    fn sync(&self) -> io::Result<MutexGuard<'_, Platters>> {
        let mut platters = self.write()?;
        if platters.trouble == Some(Trouble::Sync) {
            platters.met += 1;
            platters.trouble = None;
            return Err(io::Error::other("fsync failed"));
        }
        Ok(platters)
    }
}

impl Disk for Mounted {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock()?.names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let platters = self.lock()?;
        let content = platters.names.get(name).and_then(|id| platters.files.get(id));
        Ok(Box::new(Cursor::new(content.ok_or(io::ErrorKind::NotFound)?.written.clone())))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut platters = self.write()?;
        platters.next += 1;
        let id = platters.next;
        platters.files.insert(id, Content::default());
        platters.names.insert(name.to_owned(), id);
        Ok(Box::new(Opened { disk: self.clone(), id }))
    }

    fn resume(&self, name: &str, len: u64) -> io::Result<Box<dyn DiskFile>> {
        let mut platters = self.write()?;
        let id = *platters.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let len = usize::try_from(len).map_err(io::Error::other)?;
        platters.files.entry(id).or_default().written.resize(len, 0);
        Ok(Box::new(Opened { disk: self.clone(), id }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut platters = self.write()?;
        let id = platters.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        platters.names.insert(to.to_owned(), id);
        Ok(())
    }

    /// Possible on a full disk, too.
    fn remove(&self, name: &str) -> io::Result<()> {
        self.lock()?.names.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        let mut platters = Mounted::sync(self)?;
        if !platters.lies {
            platters.durable_names = platters.names.clone();
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
        let mut platters = self.disk.sync()?;
        if !platters.lies {
            let content = platters.files.entry(self.id).or_default();
            content.durable = content.written.clone();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_and_an_old_mount_writes_nothing() {
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
    fn trouble_is_met_and_counted() {
        let disk = SimDisk::new(false);
        let mut file = disk.mount().create("a").unwrap();
        disk.set_trouble(Some(Trouble::Sync));
        file.append(b"a").unwrap();
        assert!(file.sync().is_err());
        assert!(file.sync().is_ok(), "once");
        disk.set_trouble(Some(Trouble::Full));
        assert_eq!(file.append(b"a").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(disk.met(), 2);
    }
}
