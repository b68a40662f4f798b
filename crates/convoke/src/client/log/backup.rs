//! `convoke log backup`

use super::{ambassador, or_explain};
use convoke_cli::output::{print, print_json};
use convoke_cli::{CommandError, ConnectArgs, Result};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes the backup to a temporary file and renames it once it is durable, so that the file is complete or absent.
pub(super) async fn backup(connect: &ConnectArgs, file: &Path, force: bool, json: bool) -> Result {
    if file.exists() && !force {
        return Err(CommandError::rejected(format!("{} exists: choose another file or use --force", file.display())));
    }
    let log = ambassador(connect)?;
    let mut parts = or_explain(connect, log.backup(Some(connect.timeout)).await).await?;
    let partial = Partial::create(file)?;
    let (mut applied, mut state_hash, mut bytes) = (0, String::new(), 0);
    let mut out = &partial.file;
    while let Some(part) = parts.message().await.map_err(convoke_proto::Error::from)? {
        if !part.state_hash.is_empty() {
            (applied, state_hash) = (part.applied, part.state_hash);
        }
        bytes += part.data.len();
        out.write_all(&part.data).map_err(|error| cannot_write(&partial.path, &error))?;
    }
    partial.finish(file)?;
    if json {
        return print_json(&serde_json::json!({ "applied": applied, "state_hash": state_hash, "bytes": bytes }));
    }
    let file = file.display();
    print(&format!("{file}: {bytes} bytes, all entries up to index {applied}, state hash {state_hash}\n"))
}

/// A temporary file that is removed unless it is finished.
struct Partial {
    file: File,
    path: PathBuf,
}

impl Partial {
    fn create(target: &Path) -> Result<Partial> {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".partial-{}", std::process::id()));
        let path = target.with_file_name(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        // A backup contains all keys and values.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path);
        Ok(Partial { file: file.map_err(|error| cannot_write(&path, &error))?, path })
    }

    fn finish(&self, target: &Path) -> Result {
        let moved = self.file.sync_all().and_then(|()| std::fs::rename(&self.path, target));
        moved.map_err(|error| cannot_write(target, &error))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Fails if the file was finished and renamed.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::failed(format!("cannot write {}: {error}", path.display()))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_its_owner_can_read_a_backup() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("backup");
        std::fs::write(&target, "an earlier one").unwrap();
        Partial::create(&target).unwrap().finish(&target).unwrap();
        assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
