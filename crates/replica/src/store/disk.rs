//! The disk operations that the log needs, as a trait, so that tests can simulate a disk.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A directory. Content survives a crash once its file is synced; a file name survives once the directory is synced.
pub trait Disk: Debug + Send + Sync + 'static {
    fn list(&self) -> io::Result<Vec<String>>;
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;
    /// Creates an empty file, replacing an existing one.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file for appending after its first `len` bytes, and truncates the rest.
    fn resume(&self, name: &str, len: u64) -> io::Result<Box<dyn DiskFile>>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
    /// Returns the path of a file for messages.
    fn path(&self, name: &str) -> PathBuf;
    /// Returns the latency of a simulated disk for the next write. `None` means a real disk, whose calls block and
    /// therefore run on their own threads.
    fn simulated_latency(&self) -> Option<Duration> {
        None
    }
}

/// A file that only grows by appends.
pub trait DiskFile: Debug + Send {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
}

/// Reads a whole file.
pub(crate) fn read(disk: &dyn Disk, name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    disk.open(name)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Adds the path to an error.
pub(crate) fn naming(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Writes a file atomically: after a crash it has its old or its new content.
pub(crate) fn replace(disk: &dyn Disk, name: &str, bytes: &[u8]) -> io::Result<()> {
    let aside = format!("{name}.new");
    let mut file = disk.create(&aside)?;
    file.append(bytes)?;
    file.sync()?;
    drop(file);
    disk.rename(&aside, name)?;
    disk.sync()
}

/// A real directory, locked against other processes while this value lives.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: File,
}

const LOCK: &str = "lock";

impl Directory {
    /// Opens a directory and creates it if needed. Fails with `WouldBlock` if another process uses it.
    pub(crate) fn open(path: &Path) -> io::Result<Arc<Self>> {
        convoke_tls::create_private_dir(path)?;
        // The entry of the directory itself must survive a crash too.
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            File::open(parent)?.sync_all()?;
        }
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => Ok(Arc::new(Directory { path: path.to_owned(), _lock: lock })),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Disk for Directory {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string().ok().filter(|name| name != LOCK));
        }
        names.sort();
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(io::BufReader::with_capacity(256 * 1024, File::open(self.path.join(name))?)))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::create(self.path.join(name))?))
    }

    fn resume(&self, name: &str, len: u64) -> io::Result<Box<dyn DiskFile>> {
        let mut file = OpenOptions::new().write(true).open(self.path.join(name))?;
        file.set_len(len)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl DiskFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
