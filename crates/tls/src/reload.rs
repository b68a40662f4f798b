//! Notices changed files without reading them (TS7).

use std::path::Path;
use std::time::SystemTime;

/// What is compared of files: if nothing of it changed, neither did their contents. Renewals replace files, which
/// gives them another inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(Vec<Option<(SystemTime, u64, u64)>>);

impl Stamp {
    pub(crate) fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Stamp {
        let stamp = |path: &Path| {
            let data = std::fs::metadata(path).ok()?;
            #[cfg(unix)]
            let inode = std::os::unix::fs::MetadataExt::ino(&data);
            #[cfg(not(unix))]
            let inode = 0;
            Some((data.modified().ok()?, data.len(), inode))
        };
        Stamp(paths.into_iter().map(stamp).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_or_missing_file_changes_the_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let missing = Stamp::of([path.as_path()]);
        crate::files::write_private(&path, b"one").unwrap();
        let one = Stamp::of([path.as_path()]);
        crate::files::write_private(&path, b"two").unwrap();
        let two = Stamp::of([path.as_path()]);
        assert!(missing != one && one != two && two == Stamp::of([path.as_path()]));
    }
}
