//! The glossary of the protocol.
//!
//! A rule sets a term in italics where it defines or stresses it. The glossary must contain it, in the first column or in
//! italics in the second.

use crate::{Finding, Repository};
use std::collections::BTreeSet;

const PAGE: &str = "docs/protocol.md";
const HEADING: &str = "\n## Glossary\n";

/// Finds terms in italics that the glossary does not contain.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let page = repository.text(PAGE).unwrap_or_default();
    let Some(start) = page.find(HEADING).map(|at| at + HEADING.len()) else {
        return vec![Finding::new(PAGE, 1, "the page has no glossary")];
    };
    let end = page[start..].find("\n## ").map_or(page.len(), |at| start + at);
    let mut terms = BTreeSet::new();
    for row in page[start..end].lines().filter(|line| line.starts_with('|')) {
        let first = row.trim_start_matches('|').split('|').next().unwrap_or_default();
        terms.extend(first.split(',').map(|term| term.trim().to_lowercase()));
        terms.extend(italics(row).map(str::to_lowercase));
    }
    let before = page[..end].matches('\n').count() + 1;
    let mut findings = Vec::new();
    for (index, line) in page[end..].lines().enumerate() {
        for term in italics(line).filter(|term| !terms.contains(&term.to_lowercase())) {
            findings.push(Finding::new(PAGE, before + index, format!("the glossary does not contain *{term}*")));
        }
    }
    findings
}

/// The texts between single asterisks.
fn italics(line: &str) -> impl Iterator<Item = &str> {
    // Bold text has two asterisks on each side, so it leaves empty parts.
    let parts: Vec<&str> = line.split('*').collect();
    let inner = parts.len().saturating_sub(1);
    let mut found = Vec::new();
    let mut index = 1;
    while index < inner {
        match parts[index] {
            "" => index += 4,
            text => {
                found.push(text);
                index += 2;
            }
        }
    }
    found.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(rules: &str) -> Vec<Finding> {
        let glossary = "# P\n\n## Glossary\n\n| Term | Meaning |\n|---|---|\n| slot, key | A *place*. |\n\n";
        check(&Repository::of([(PAGE, format!("{glossary}## Rules\n\n{rules}\n").as_str())]))
    }

    #[test]
    fn terms_must_be_in_the_glossary() {
        assert_eq!(findings("**Rule.** A *slot*, a *Key* and a *place* are **terms**."), []);
        let missing = |term| Finding::new(PAGE, 11, format!("the glossary does not contain *{term}*"));
        assert_eq!(findings("**Rule.** A *hole* and a *pit*."), [missing("hole"), missing("pit")]);
        assert_eq!(check(&Repository::of([(PAGE, "# P\n")])).len(), 1);
    }

    #[test]
    fn bold_text_is_not_a_term() {
        assert_eq!(italics("**bold** *one* text **bold** *two*").collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!(italics("| a | *b* |").collect::<Vec<_>>(), ["b"]);
        assert_eq!(italics("2 * 3").count(), 0);
    }
}
