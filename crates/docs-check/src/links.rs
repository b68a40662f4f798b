//! Relative links and anchors in Markdown files.

use crate::markdown::{self, Page};
use crate::repository::{directory_and_name, resolve};
use crate::{Finding, Repository};
use std::collections::BTreeMap;

/// Finds links to files, directories and anchors that do not exist.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let pages: BTreeMap<&str, Page> =
        repository.pages().map(|(path, source)| (path, markdown::parse(source))).collect();
    let mut findings = Vec::new();
    for (path, page) in &pages {
        for link in &page.links {
            if let Err(problem) = follow(repository, &pages, path, &link.target) {
                findings.push(Finding::new(path, link.line, problem));
            }
        }
    }
    findings
}

fn follow(repository: &Repository, pages: &BTreeMap<&str, Page>, path: &str, target: &str) -> Result<(), String> {
    if has_scheme(target) {
        return Ok(());
    }
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (target, None),
    };
    if file.starts_with('/') {
        return Err(format!("link to {target}: use a path relative to this file"));
    }
    let file = if file.is_empty() {
        path.to_owned()
    } else {
        resolve(directory_and_name(path).0, file).ok_or(format!("link to {target}: outside of the repository"))?
    };
    if !repository.exists(&file) {
        return Err(format!("link to {target}: there is no {file}"));
    }
    match (anchor, pages.get(file.as_str())) {
        (Some(anchor), Some(page)) if !page.anchors.contains(anchor) => {
            Err(format!("link to {target}: {file} has no heading #{anchor}"))
        }
        _ => Ok(()),
    }
}

/// Whether the target is an absolute address, such as `https:` or `mailto:`.
fn has_scheme(target: &str) -> bool {
    target.split_once(':').is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let repository =
            Repository::of([("docs/a.md", text), ("docs/b.md", "# Two words\n"), ("README.md", "# Readme\n")]);
        check(&repository).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_that_resolve_pass() {
        let text =
            "# Here\n\n[b](b.md) [b](b.md#two-words) [r](../README.md) [up](..) [here](#here) [e](https://e.org/x)\n";
        assert_eq!(problems(text), Vec::<String>::new());
    }

    #[test]
    fn links_that_do_not_resolve_are_found() {
        assert_eq!(problems("[c](c.md)"), ["docs/a.md:1: link to c.md: there is no docs/c.md"]);
        assert_eq!(problems("\n![c](c.png)"), ["docs/a.md:2: link to c.png: there is no docs/c.png"]);
        assert_eq!(problems("[b](b.md#words)"), ["docs/a.md:1: link to b.md#words: docs/b.md has no heading #words"]);
        assert_eq!(problems("[x](#gone)"), ["docs/a.md:1: link to #gone: docs/a.md has no heading #gone"]);
        assert_eq!(problems("[x][y]\n\n[y]: z.md").len(), 1);
        assert_eq!(problems("[x](../../z.md)").len(), 1);
        assert_eq!(problems("[x](/docs/b.md)").len(), 1);
    }
}
