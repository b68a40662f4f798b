//! `docs/SUMMARY.md`, the table of contents that mdBook renders.

use crate::repository::resolve;
use crate::{Finding, Repository};
use std::collections::BTreeMap;

const SUMMARY: &str = "docs/SUMMARY.md";
/// The page in front of all parts.
const INTRODUCTION: &str = "docs/README.md";
/// Each page belongs to one of these.
const PARTS: &[&str] = &["Tutorial", "How-to guides", "Reference", "Explanation", "Project"];

/// Finds pages that are listed never or more than once, entries without a page, and unknown parts.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let Some(summary) = repository.text(SUMMARY) else {
        return vec![Finding::new(SUMMARY, 1, "the table of contents is missing")];
    };
    let mut findings = Vec::new();
    let mut listed: BTreeMap<String, usize> = BTreeMap::new();
    let mut part = None;
    for (number, line) in summary.lines().enumerate().map(|(index, line)| (index + 1, line)) {
        if let Some(title) = line.strip_prefix("# ").filter(|title| *title != "Summary") {
            part = Some(title);
            if !PARTS.contains(&title) {
                findings.push(Finding::new(SUMMARY, number, format!("unknown part {title}")));
            }
        }
        let Some((_, target)) = line.split_once("](") else { continue };
        let Some((target, _)) = target.split_once(')') else { continue };
        let page = resolve("docs", target).unwrap_or_default();
        if !repository.is_file(&page) {
            findings.push(Finding::new(SUMMARY, number, format!("there is no page {target}")));
        }
        if part.is_none() && page != INTRODUCTION {
            findings.push(Finding::new(SUMMARY, number, format!("{target} belongs to no part")));
        }
        if let Some(first) = listed.insert(page, number) {
            findings.push(Finding::new(SUMMARY, number, format!("{target} is listed in line {first} already")));
        }
    }
    let pages = repository.pages().map(|(path, _)| path).filter(|path| path.starts_with("docs/") && *path != SUMMARY);
    for path in pages.filter(|path| !listed.contains_key(*path)) {
        findings.push(Finding::new(path, 1, "the page is not in docs/SUMMARY.md"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = "# Summary\n\n[Convoke](README.md)\n\n# Tutorial\n\n- [A](a.md)\n  - [B](guides/b.md)\n";

    fn problems(summary: &str) -> Vec<String> {
        let pages = [("docs/README.md", ""), ("docs/a.md", ""), ("docs/guides/b.md", ""), (SUMMARY, summary)];
        check(&Repository::of(pages)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_complete_table_of_contents_passes() {
        assert_eq!(problems(SOUND), Vec::<String>::new());
    }

    #[test]
    fn missing_repeated_and_invented_pages_are_found() {
        let without = SOUND.replace("  - [B](guides/b.md)\n", "");
        assert_eq!(problems(&without), ["docs/guides/b.md:1: the page is not in docs/SUMMARY.md"]);
        let twice = format!("{SOUND}- [A](a.md)\n");
        assert_eq!(problems(&twice), ["docs/SUMMARY.md:9: a.md is listed in line 7 already"]);
        let invented = format!("{SOUND}- [C](c.md)\n");
        assert_eq!(problems(&invented), ["docs/SUMMARY.md:9: there is no page c.md"]);
        assert_eq!(check(&Repository::default()).len(), 1);
    }

    #[test]
    fn pages_outside_of_the_known_parts_are_found() {
        assert_eq!(problems(&SOUND.replace("# Tutorial\n", "")).len(), 2);
        assert_eq!(problems(&SOUND.replace("Tutorial", "Miscellany")), ["docs/SUMMARY.md:5: unknown part Miscellany"]);
    }
}
