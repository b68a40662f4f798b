//! The files of a repository, read once.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Directories that hold no sources: build output, version control, data of nodes started by hand.
const SKIPPED: &[&str] = &[".git", "target", "convoke-data"];

/// Paths from the root, with `/` between their parts, and the contents of text files.
#[derive(Clone, Debug, Default)]
pub struct Repository {
    /// `None` for a file that is not UTF-8 text.
    files: BTreeMap<String, Option<String>>,
}

impl Repository {
    /// Reads all files below a directory.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut repository = Repository::default();
        repository.add(root, "")?;
        Ok(repository)
    }

    /// A repository in memory, for tests.
    pub fn of<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let files = files.into_iter().map(|(path, text)| (path.to_owned(), Some(text.to_owned())));
        Repository { files: files.collect() }
    }

    fn add(&mut self, directory: &Path, prefix: &str) -> io::Result<()> {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
                self.add(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() {
                self.files.insert(path, String::from_utf8(std::fs::read(entry.path())?).ok());
            }
        }
        Ok(())
    }

    /// Paths and contents of all text files, ordered by path.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// Paths and contents of all Markdown files, ordered by path.
    pub fn pages(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| path.ends_with(".md"))
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    pub fn is_file(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// Whether a file or a directory with files has this path.
    pub fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        path.is_empty() || self.is_file(path) || self.files.keys().any(|file| is_below(file, path))
    }

    /// Whether some file has this name, in whatever directory.
    pub fn has_name(&self, name: &str) -> bool {
        self.files.keys().any(|file| directory_and_name(file).1 == name)
    }
}

fn is_below(file: &str, directory: &str) -> bool {
    file.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

/// Splits a path into its directory, empty for the root, and the name of the file.
pub(crate) fn directory_and_name(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Resolves a relative path in a directory. `None` if it leads out of the repository.
pub(crate) fn resolve(directory: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_are_resolved() {
        assert_eq!(resolve("docs/guides", "../log.md").as_deref(), Some("docs/log.md"));
        assert_eq!(resolve("", "docs/./a.md").as_deref(), Some("docs/a.md"));
        assert_eq!(resolve("docs", "../../outside.md"), None);
    }

    #[test]
    fn directories_exist_if_they_hold_a_file() {
        let repository = Repository::of([("docs/guides/a.md", "")]);
        assert!(repository.exists("docs/guides/") && repository.exists("docs") && repository.exists(""));
        assert!(!repository.exists("doc") && !repository.exists("docs/guides/b.md"));
    }
}
