//! The file of the audit log and its rotation.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Returns the renames that make room for a new file, in their order: `audit.log.6` to `audit.log.7`, …, `audit.log` to
/// `audit.log.1`. `files` counts the current file. With one file there are none, and the file is replaced.
fn renames(path: &Path, files: usize) -> Vec<(PathBuf, PathBuf)> {
    let numbered = |number: usize| {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        if number > 0 {
            name.push(format!(".{number}"));
        }
        path.with_file_name(name)
    };
    (1..files).rev().map(|number| (numbered(number - 1), numbered(number))).collect()
}

/// A file that is rotated when it is full. Its owner alone can read it.
#[derive(Debug)]
pub(super) struct RotatingFile {
    path: PathBuf,
    max_bytes: u64,
    files: usize,
    open: File,
    bytes: u64,
    /// The last write was cut off in a line.
    torn: bool,
}

impl RotatingFile {
    pub(super) fn open(path: &Path, max_bytes: u64, files: usize) -> io::Result<RotatingFile> {
        if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            convoke_tls::create_private_dir(directory)?;
        }
        let mut open = append(path)?;
        let bytes = open.metadata()?.len();
        let torn = bytes > 0 && last_byte(&mut open)? != b'\n';
        Ok(RotatingFile { path: path.to_owned(), max_bytes, files, open, bytes, torn })
    }

    /// Appends whole lines.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.bytes > 0 && self.bytes.saturating_add(lines.len() as u64) > self.max_bytes {
            self.rotate()?;
        } else if !self.is_current() {
            // Another program has renamed or deleted the file.
            *self = RotatingFile::open(&self.path, self.max_bytes, self.files)?;
        }
        if self.torn {
            self.open.write_all(b"\n")?;
            self.bytes += 1;
        }
        self.torn = true;
        self.open.write_all(lines)?;
        self.torn = false;
        self.bytes += lines.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        for (from, to) in renames(&self.path, self.files) {
            match std::fs::rename(&from, &to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.files <= 1 {
            std::fs::remove_file(&self.path)?;
        }
        *self = RotatingFile::open(&self.path, self.max_bytes, self.files)?;
        Ok(())
    }

    #[cfg(unix)]
    fn is_current(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let identity = |data: std::fs::Metadata| (data.dev(), data.ino());
        match (std::fs::metadata(&self.path), self.open.metadata()) {
            (Ok(named), Ok(open)) => identity(named) == identity(open),
            _ => false,
        }
    }

    #[cfg(not(unix))]
    fn is_current(&self) -> bool {
        self.path.exists()
    }
}

fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn last_byte(file: &mut File) -> io::Result<u8> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last[0])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[test]
    fn the_oldest_file_makes_room() {
        let named = |(from, to): (PathBuf, PathBuf)| format!("{} {}", from.display(), to.display());
        let all: Vec<String> = renames(Path::new("d/a.log"), 3).into_iter().map(named).collect();
        assert_eq!(all, ["d/a.log.1 d/a.log.2", "d/a.log d/a.log.1"]);
        assert_eq!(renames(Path::new("a"), 1), []);
    }

    #[test]
    fn files_are_rotated_when_they_are_full() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data/a.log");
        let mut file = RotatingFile::open(&path, 10, 3).unwrap();
        for number in 0..9 {
            file.write(format!("line{number}\n").as_bytes()).unwrap();
        }
        let content = |name: &str| std::fs::read_to_string(directory.path().join("data").join(name)).unwrap();
        assert_eq!(
            (content("a.log"), content("a.log.1"), content("a.log.2")),
            ("line8\n".into(), "line7\n".into(), "line6\n".into())
        );
        assert_eq!(std::fs::read_dir(directory.path().join("data")).unwrap().count(), 3, "older ones are gone");
        // A line that is larger than a file is written whole.
        file.write(b"a line of more than ten bytes\n").unwrap();
        assert_eq!(content("a.log"), "a line of more than ten bytes\n");
        let mut single = RotatingFile::open(&directory.path().join("b.log"), 10, 1).unwrap();
        single.write(b"line0\n").unwrap();
        single.write(b"line1\n").unwrap();
        assert_eq!(std::fs::read_to_string(directory.path().join("b.log")).unwrap(), "line1\n");
    }

    #[cfg(unix)]
    #[test]
    fn a_renamed_file_is_replaced_and_a_torn_line_is_ended() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.log");
        let mut file = RotatingFile::open(&path, 1_000, 3).unwrap();
        file.write(b"one\n").unwrap();
        std::fs::rename(&path, directory.path().join("moved")).unwrap();
        file.write(b"two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(file);
        std::fs::write(&path, "half a li").unwrap();
        RotatingFile::open(&path, 1_000, 3).unwrap().write(b"three\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "half a li\nthree\n");
    }
}
