//! Paths that comments, strings and text name.

use crate::repository::{directory_and_name, resolve};
use crate::{Finding, Repository};

/// Not checked: the bad examples of this crate, and texts that describe earlier states of the project.
const SKIPPED: &[&str] = &["crates/docs-check/", "CHANGELOG.md"];
/// Sources that Markdown pages name by their paths. Decision records describe the time they were made.
const SOURCES: &[&str] = &["crates/", "proto/", "packaging/", "examples/", "tests/python/", "bench/"];
const DECISIONS: &str = "docs/decisions/";
const SUFFIX: &str = ".md";

/// Finds names of Markdown files that do not exist, in all files, and paths of sources that do not exist, in pages.
///
/// The name of a Markdown file resolves if it is a path from the root of the repository or from the file that names it.
/// A name without a directory also resolves if any file has it.
/// The path of a source is a path from the root.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    let texts = repository.texts().filter(|(path, _)| !SKIPPED.iter().any(|skipped| path.starts_with(skipped)));
    for (path, text) in texts {
        let names_sources = path.ends_with(SUFFIX) && !path.starts_with(DECISIONS);
        for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line)) {
            let pages = pages(line).filter(|name| !is_page(repository, path, name));
            let sources = sources(line).filter(|name| names_sources && !repository.exists(name));
            for name in pages.chain(sources) {
                findings.push(Finding::new(path, number, format!("there is no {name}")));
            }
        }
    }
    findings
}

fn is_page(repository: &Repository, path: &str, name: &str) -> bool {
    let directory = directory_and_name(path).0;
    let found = |from: &str| resolve(from, name).is_some_and(|path| repository.is_file(&path));
    found("") || found(directory) || (!name.contains('/') && repository.has_name(name))
}

fn is_path_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_-./".contains(character)
}

/// The names of Markdown files in a line, without addresses on the web and patterns.
fn pages(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices(SUFFIX).filter_map(move |(dot, _)| {
        let end = dot + SUFFIX.len();
        if line[end..].starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '*')) {
            return None;
        }
        let before = line[..dot].trim_end_matches(is_path_character);
        let name = &line[before.len()..end];
        let is_path =
            name.starts_with(|c: char| c.is_ascii_alphanumeric()) || name.starts_with("./") || name.starts_with("../");
        let is_pattern = before.ends_with(['*', '{', '}', '$', '<', '>', ':', '…']);
        (is_path && !is_pattern).then_some(name)
    })
}

/// The paths of sources in a line, without patterns and paths relative to another directory.
fn sources(line: &str) -> impl Iterator<Item = &str> {
    SOURCES.iter().flat_map(move |source| line.match_indices(source)).filter_map(move |(start, _)| {
        if line[..start].ends_with(|c: char| is_path_character(c) || c == '$') {
            return None;
        }
        let rest = &line[start..];
        let end = rest.find(|c| !is_path_character(c)).unwrap_or(rest.len());
        let is_pattern = rest[end..].starts_with(['*', '{', '$', '<', '…']);
        (!is_pattern).then(|| rest[..end].trim_end_matches(['.', '/']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        let files = [("docs/log.md", ""), ("docs/guides/upgrade.md", ""), ("crates/core/src/lib.rs", ""), (path, text)];
        check(&Repository::of(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_that_exist_may_be_cited() {
        let text = "/// See docs/log.md, `upgrade.md`, ../docs/log.md (docs/guides/upgrade.md).\n";
        assert_eq!(problems("src/lib.rs", text), Vec::<String>::new());
        let others = "// *.md, https://example.org/x.md, {name}.md, .md5, a.mdx";
        assert_eq!(problems("src/lib.rs", others), Vec::<String>::new());
        let sources = "`crates/core/`, crates/core/src/lib.rs. `crates/*/src`, ../convoke/crates/client, `crates/`\n";
        assert_eq!(problems("docs/a.md", sources), Vec::<String>::new());
    }

    #[test]
    fn pages_that_do_not_exist_are_found() {
        assert_eq!(problems("src/lib.rs", "\n// See docs/gone.md."), ["src/lib.rs:2: there is no docs/gone.md"]);
        assert_eq!(problems("a.toml", "# gone.md"), ["a.toml:1: there is no gone.md"]);
        let text = "`docs/log.md` and `docs/upgrade.md`";
        assert_eq!(problems("docs/a.md", text), ["docs/a.md:1: there is no docs/upgrade.md"]);
    }

    #[test]
    fn sources_that_do_not_exist_are_found() {
        let text = "`crates/core/src/main.rs`, then `crates/log/`.";
        let expected = ["docs/a.md:1: there is no crates/core/src/main.rs", "docs/a.md:1: there is no crates/log"];
        assert_eq!(problems("docs/a.md", text), expected);
        // A decision record names the files of its time.
        assert_eq!(problems("docs/decisions/0001-a.md", text), Vec::<String>::new());
    }
}
