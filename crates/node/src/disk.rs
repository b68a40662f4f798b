//! The data directory: a lock against a second process, and the last incarnation number (N1).

use crate::error::StartError;
use convoke_core::version::NodeId;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

const LOCK: &str = "lock";
const FILE: &str = "incarnation";
const HEADER: &str = "convoke node 1";

/// A locked data directory. The lock ends with the process or with this value, whichever ends first.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    id: NodeId,
    /// Highest incarnation known to be on disk.
    written: Mutex<u64>,
    _lock: File,
}

impl DataDir {
    pub(crate) fn open(path: &Path, id: &NodeId) -> Result<Self, StartError> {
        create_private(path).map_err(disk("create", path))?;
        let lock_path = path.join(LOCK);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(disk("open", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StartError::DataDirInUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(disk("lock", &lock_path)(source)),
        }
        let written = read(path, id)?;
        Ok(DataDir { path: path.to_owned(), id: id.clone(), written: Mutex::new(written), _lock: lock })
    }

    /// Returns the last incarnation number; 0 if the node never started.
    pub(crate) fn incarnation(&self) -> u64 {
        *self.lock()
    }

    /// Writes an incarnation number durably. Ignores a number below the stored one.
    pub(crate) fn persist(&self, incarnation: u64) -> io::Result<()> {
        let mut written = self.lock();
        if incarnation <= *written {
            return Ok(());
        }
        let (target, temporary) = (self.path.join(FILE), self.path.join("incarnation.new"));
        let mut file = File::create(&temporary)?;
        write!(file, "{HEADER}\nid {}\nincarnation {incarnation}\n", self.id)?;
        file.sync_all()?;
        fs::rename(&temporary, &target)?;
        // The rename itself must survive a crash.
        File::open(&self.path)?.sync_all()?;
        *written = incarnation;
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, u64> {
        self.written.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Creates the directory, and keeps other users out of it, also if it existed (TS11).
fn create_private(path: &Path) -> io::Result<()> {
    convoke_tls::create_private_dir(path)?;
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    Ok(())
}

/// Returns the id of the node that a data directory belongs to, without locking it.
pub fn id_of_data_dir(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path.join(FILE)).ok()?;
    let mut lines = text.lines();
    lines.next().filter(|line| *line == HEADER)?;
    Some(lines.next()?.strip_prefix("id ")?.to_owned())
}

fn read(path: &Path, id: &NodeId) -> Result<u64, StartError> {
    let file = path.join(FILE);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(damaged(file, "not text")),
        Err(error) => return Err(disk("read", &file)(error)),
    };
    let mut lines = text.lines();
    if lines.next() != Some(HEADER) {
        return Err(damaged(file, "unknown header"));
    }
    let found = lines.next().and_then(|line| line.strip_prefix("id "));
    let Some(found) = found else { return Err(damaged(file, "no id")) };
    if found != id.as_str() {
        return Err(StartError::DataDirOfAnother {
            path: path.to_owned(),
            found: found.to_owned(),
            id: id.to_string(),
        });
    }
    let number = lines.next().and_then(|line| line.strip_prefix("incarnation "));
    number.and_then(|number| number.parse().ok()).ok_or_else(|| damaged(file, "no incarnation"))
}

fn damaged(path: PathBuf, what: &'static str) -> StartError {
    StartError::Damaged { path, what }
}

fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::Disk { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn id(text: &str) -> NodeId {
        NodeId::new(text).unwrap()
    }

    #[test]
    fn the_incarnation_is_durable_and_never_decreases() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let data = DataDir::open(&path, &id("a")).unwrap();
        assert_eq!(data.incarnation(), 0);
        data.persist(3).unwrap();
        data.persist(2).unwrap();
        drop(data);
        assert_eq!(id_of_data_dir(&path).as_deref(), Some("a"));
        assert_eq!(id_of_data_dir(dir.path()), None);
        assert_eq!(DataDir::open(&path, &id("a")).unwrap().incarnation(), 3);
    }

    #[test]
    fn a_data_directory_belongs_to_one_process_and_one_node() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), &id("a")).unwrap();
        let error = DataDir::open(dir.path(), &id("a")).unwrap_err();
        assert!(matches!(error, StartError::DataDirInUse { .. }), "{error}");
        data.persist(1).unwrap();
        drop(data);
        let error = DataDir::open(dir.path(), &id("b")).unwrap_err();
        assert!(error.to_string().contains("belongs to node a, not to b"), "{error}");
    }

    #[test]
    fn a_damaged_file_is_reported_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        for (text, what) in [
            ("", "unknown header"),
            ("convoke node 1\n", "no id"),
            ("convoke node 1\nid a\nincarnation many\n", "no incarnation"),
        ] {
            fs::write(dir.path().join(FILE), text).unwrap();
            let error = DataDir::open(dir.path(), &id("a")).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
