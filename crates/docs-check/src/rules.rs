//! The rules of the protocol pages: their form, their length and their numbers.
//!
//! A rule is a heading `### D5 Push` with three parts: *Rule*, *Why* and *Checked by*. A newcomer should be able to keep
//! one rule in mind, so its first part has at most `WORDS_MAX` words. Tables do not count.

use crate::{Finding, Repository};
use std::collections::BTreeMap;

/// Pages with rules.
const PAGES: &[&str] = &[
    "docs/protocol.md",
    "docs/log-protocol.md",
    "docs/coordination-protocol.md",
    "docs/security-protocol.md",
    "docs/access-control.md",
];
const WORDS_MAX: usize = 120;
/// The parts of a rule in their order, each in its two spellings.
const PARTS: &[[&str; 2]] = &[["**Rule.**", "*Rule.*"], ["**Why.**", "*Why.*"], ["**Checked by:**", "*Checked by.*"]];

/// Finds rules that are too long, that lack a part, and numbers that two rules have.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut places: BTreeMap<&str, String> = BTreeMap::new();
    for path in PAGES {
        for rule in rules(repository.text(path).unwrap_or_default()) {
            let mut report = |problem: String| findings.push(Finding::new(path, rule.line, problem));
            match parts(rule.text) {
                Err(missing) => report(format!("{} has no {missing}, or not in its place", rule.number)),
                Ok(text) => {
                    let words = words(text);
                    if words > WORDS_MAX {
                        let number = rule.number;
                        report(format!("{number} has {words} words: shorten it to {WORDS_MAX}, or split it"));
                    }
                }
            }
            if let Some(other) = places.insert(rule.number, format!("{path}:{}", rule.line)) {
                report(format!("{} is also the number of the rule at {other}", rule.number));
            }
        }
    }
    findings
}

struct Rule<'a> {
    number: &'a str,
    line: usize,
    text: &'a str,
}

/// The headings of the third level that begin with a number such as `D5`, each with its text.
fn rules(page: &str) -> Vec<Rule<'_>> {
    let mut found = Vec::new();
    for (at, heading) in page.match_indices("\n### ") {
        let start = at + heading.len();
        let text = &page[start..];
        let text = &text[..text.find("\n## ").unwrap_or(text.len()).min(text.find("\n### ").unwrap_or(text.len()))];
        let number = text.split_whitespace().next().unwrap_or_default();
        let digits = number.trim_start_matches(|c: char| c.is_ascii_uppercase());
        if digits.len() < number.len() && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            found.push(Rule { number, line: page[..start].matches('\n').count() + 1, text });
        }
    }
    found
}

/// The text of the first part, or the part that is missing.
fn parts(text: &str) -> Result<&str, &'static str> {
    let mut rest = text;
    let mut first = "";
    for (index, spellings) in PARTS.iter().enumerate() {
        let begins = |spelling: &&str| rest.find(&format!("\n{spelling}")).map(|at| (at, at + 1 + spelling.len()));
        let (before, after) = spellings.iter().filter_map(begins).min().ok_or(spellings[0])?;
        if index == 1 {
            first = &rest[..before];
        }
        rest = &rest[after..];
    }
    Ok(first)
}

fn words(text: &str) -> usize {
    let lines = text.lines().filter(|line| !line.starts_with('|'));
    lines.map(|line| line.split_whitespace().count()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(page: &str) -> Vec<String> {
        let other = "# L\n\n### A1 Input\n\n*Rule.*\nOne.\n\n*Why.*\nTwo.\n\n*Checked by.*\n`three`.\n";
        let files = [("docs/protocol.md", page), ("docs/log-protocol.md", other)];
        check(&Repository::of(files)).iter().map(ToString::to_string).collect()
    }

    fn page(number: &str, words: usize) -> String {
        let text = "word ".repeat(words);
        let table = "| not | counted |\n|---|---|\n";
        format!(
            "# P\n\n### {number} Title\n\n**Rule.** {text}\n\n{table}\n**Why.** So.\n\n**Checked by:**\n`t`.\n\n## Next\n"
        )
    }

    #[test]
    fn rules_of_the_right_form_and_length_pass() {
        assert_eq!(problems(&page("D1", WORDS_MAX)), Vec::<String>::new());
        assert_eq!(problems("# P\n\n### Notes\n\nNot a rule.\n\n### HTTP\n"), Vec::<String>::new());
    }

    #[test]
    fn long_rules_are_found() {
        let expected = ["docs/protocol.md:3: D1 has 121 words: shorten it to 120, or split it"];
        assert_eq!(problems(&page("D1", WORDS_MAX + 1)), expected);
    }

    #[test]
    fn missing_parts_and_repeated_numbers_are_found() {
        let expected = ["docs/protocol.md:3: D1 has no **Why.**, or not in its place"];
        assert_eq!(problems(&page("D1", 3).replace("**Why.**", "Because")), expected);
        let expected = ["docs/log-protocol.md:3: A1 is also the number of the rule at docs/protocol.md:3"];
        assert_eq!(problems(&page("A1", 3)), expected);
    }
}
