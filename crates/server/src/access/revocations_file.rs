//! The file of revocations: one line each, `ISSUED_UNTIL KEEP_UNTIL KEY`.

use convoke_access::{Revocation, RevocationSet};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

/// Returns the revocations of a file. A file that does not exist has none; a line that is not readable is reported and
/// skipped, because a node without the others would be worse.
pub(super) fn read(file: &Path) -> Vec<Revocation> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            tracing::error!(%error, file = %file.display(), "revocations not read; other nodes send theirs");
            return Vec::new();
        }
    };
    let mut revocations = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ' ');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (issued_until, keep_until) = (number(), number());
        match (issued_until, keep_until, parts.next()) {
            (Some(issued_until), Some(keep_until), Some(key)) if !key.is_empty() => {
                revocations.push(Revocation { key: key.to_owned(), issued_until, keep_until });
            }
            _ => tracing::error!(file = %file.display(), "a revocation is not readable and was skipped"),
        }
    }
    revocations
}

/// Replaces the file as a whole.
pub(super) fn write(file: &Path, set: &RevocationSet) -> io::Result<()> {
    let mut text = String::new();
    for Revocation { key, issued_until, keep_until } in set.iter() {
        let _ = writeln!(text, "{issued_until} {keep_until} {key}");
    }
    let aside = file.with_extension("new");
    let mut open = std::fs::File::create(&aside)?;
    open.write_all(text.as_bytes())?;
    open.sync_all()?;
    std::fs::rename(&aside, file)?;
    // The rename itself must survive a crash.
    std::fs::File::open(file.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;
    use convoke_access::{revoke_principal, revoke_token};

    #[test]
    fn revocations_survive_their_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("revocations");
        assert_eq!(read(&file), []);
        let mut set = RevocationSet::default();
        let entries = [revoke_principal("k8s/a b c", 5, 7), revoke_token("token/x", 9)];
        for entry in &entries {
            set.add(entry).unwrap();
        }
        write(&file, &set).unwrap();
        assert_eq!(read(&file), entries);
        std::fs::write(&file, "5 7 principal a\nbroken\n1 2\n").unwrap();
        assert_eq!(read(&file).len(), 1);
    }
}
