//! A directory owned by a running process. The process removes it; if it was killed, the next process does.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const LOCK: &str = "lock";
/// Mode of the directories: only the user has access.
const MODE: u32 = 0o700;

/// A locked directory. Dropping it removes the directory with its content.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: File,
}

#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    #[error("{} is in use by another process", path.display())]
    InUse { path: PathBuf },
    #[error("{} belongs to another user: set XDG_RUNTIME_DIR or TMPDIR to a directory of your own", path.display())]
    OfAnother { path: PathBuf },
    #[error("cannot use {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl StateDir {
    /// Parent of all directories of this user: in `XDG_RUNTIME_DIR`, or in the directory for temporary files.
    pub fn root() -> PathBuf {
        match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_dir()) {
            Some(dir) => Path::new(&dir).join("convoke"),
            None => std::env::temp_dir().join(format!("convoke-{}", rustix::process::getuid().as_raw())),
        }
    }

    /// Locks the directory of this name, and removes the remains of a killed process.
    pub fn claim(root: &Path, name: &str) -> Result<StateDir, StateDirError> {
        let path = root.join(name);
        let failed = |source| StateDirError::Io { path: path.clone(), source };
        loop {
            make(root)?;
            make(&path)?;
            let lock = match OpenOptions::new().create(true).truncate(false).write(true).open(path.join(LOCK)) {
                Ok(lock) => lock,
                // Its previous owner has just removed it.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(error)),
            };
            match lock.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => return Err(StateDirError::InUse { path }),
                Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
            }
            // The lock is void if the file was removed meanwhile.
            if !same_file(&lock, &path.join(LOCK)) {
                continue;
            }
            let this = StateDir { path: path.clone(), _lock: lock };
            this.clear().map_err(failed)?;
            return Ok(this);
        }
    }

    /// Removes directories with this prefix whose process has ended. Returns their names.
    pub fn sweep(root: &Path, prefix: &str) -> Vec<String> {
        let entries = fs::read_dir(root).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let swept: Vec<String> =
            names.filter(|name| name.starts_with(prefix)).filter(|name| StateDir::claim(root, name).is_ok()).collect();
        let _ = fs::remove_dir(root);
        swept
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_name() == LOCK {
                continue;
            }
            if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
        }
        Ok(())
    }
}

impl Drop for StateDir {
    fn drop(&mut self) {
        // The lock file is removed last, while it is locked: no process locks a directory that is being removed.
        let _ = self.clear();
        let _ = fs::remove_file(self.path.join(LOCK));
        let _ = fs::remove_dir(&self.path);
        // Fails if there are other directories.
        if let Some(root) = self.path.parent() {
            let _ = fs::remove_dir(root);
        }
    }
}

fn make(path: &Path) -> Result<(), StateDirError> {
    let failed = |source| StateDirError::Io { path: path.to_owned(), source };
    match DirBuilder::new().mode(MODE).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        // The parent does not exist: the next iteration creates it.
        Err(error) if error.kind() == ErrorKind::NotFound && path.parent().is_some_and(Path::exists) => {}
        Err(error) => return Err(failed(error)),
        Ok(()) => return Ok(()),
    }
    // In a shared directory, another user may own the name.
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() && found.uid() == rustix::process::getuid().as_raw() => Ok(()),
        Ok(_) => Err(StateDirError::OfAnother { path: path.to_owned() }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

fn same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(held), Ok(found)) => held.ino() == found.ino() && held.dev() == found.dev(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_removed_with_its_holder() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().join("root");
        let held = StateDir::claim(&root, "a").unwrap();
        fs::create_dir(held.path().join("n1")).unwrap();
        assert!(matches!(StateDir::claim(&root, "a"), Err(StateDirError::InUse { .. })));
        let other = StateDir::claim(&root, "b").unwrap();
        drop(held);
        assert!(!root.join("a").exists() && root.join("b").exists());
        drop(other);
        assert!(!root.exists());
    }

    #[test]
    fn directories_of_a_killed_process_are_removed_by_the_next() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().join("root");
        fs::create_dir_all(root.join("demo-1/n1")).unwrap();
        fs::write(root.join("demo-1/lock"), "").unwrap();
        fs::create_dir_all(root.join("other")).unwrap();
        let living = StateDir::claim(&root, "demo-2").unwrap();
        assert_eq!(StateDir::sweep(&root, "demo-"), ["demo-1"]);
        assert!(living.path().exists() && root.join("other").exists() && !root.join("demo-1").exists());
        let again = StateDir::claim(&root, "other").unwrap();
        assert_eq!(fs::read_dir(again.path()).unwrap().count(), 1, "only the lock");
    }

    #[test]
    fn a_place_that_is_no_directory_of_ours_is_rejected() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().join("root");
        std::os::unix::fs::symlink(temporary.path(), &root).unwrap();
        let rejected = StateDir::claim(&root, "a").unwrap_err();
        assert!(matches!(rejected, StateDirError::OfAnother { .. }), "{rejected}");
    }
}
