//! Line width of prose.
//!
//! A line of a paragraph or list item has at most [`COLUMNS`] characters, or it holds exactly one whole sentence.
//! Link targets do not count. Tables, code blocks, headings and HTML are exempt.

use crate::markdown::{self, CODE, Line, Page};
use crate::{Finding, Repository};

pub const COLUMNS: usize = 100;

/// Words with a full stop that does not end a sentence.
const ABBREVIATIONS: &[&str] = &["e.g", "i.e", "etc", "vs", "cf", "approx"];

/// Finds lines that are too wide.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in repository.pages() {
        let page = markdown::parse(source);
        for (number, text) in source.lines().enumerate().map(|(index, text)| (index + 1, text)) {
            let Some(line) = page.prose.get(&number) else { continue };
            let columns = text.chars().count().saturating_sub(line.link_columns);
            if columns <= COLUMNS {
                continue;
            }
            if let Some(reason) = not_one_sentence(&page, number, line) {
                let problem = format!("{columns} columns, and {reason}: write one sentence per line");
                findings.push(Finding::new(path, number, problem));
            }
        }
    }
    findings
}

fn not_one_sentence(page: &Page, number: usize, line: &Line) -> Option<&'static str> {
    let before = page.prose.get(&(number - 1)).filter(|before| before.continued);
    if before.is_some_and(|before| !ends_sentence(&before.text)) {
        return Some("the line begins within a sentence");
    }
    if line.continued && !ends_sentence(&line.text) {
        return Some("the sentence continues in the next line");
    }
    holds_several(&line.text).then_some("the line holds several sentences")
}

/// Whether the text ends with a mark after which a sentence, or a part set off by a colon or semicolon, is complete.
fn ends_sentence(text: &str) -> bool {
    text.trim_end().trim_end_matches(is_closing).ends_with(['.', '!', '?', ':', ';'])
}

/// Whether a sentence ends before the end of the text and another one begins.
fn holds_several(text: &str) -> bool {
    let characters: Vec<char> = text.chars().collect();
    (0..characters.len()).any(|at| {
        if !matches!(characters[at], '.' | '!' | '?') || is_abbreviation(&characters[..at]) {
            return false;
        }
        let rest = &characters[at + 1..];
        let after_mark = rest.iter().skip_while(|c| is_closing(**c));
        let mut blanks = after_mark.clone().take_while(|c| c.is_whitespace());
        let next = after_mark.skip_while(|c| c.is_whitespace()).find(|c| !matches!(c, '(' | '"' | '\'' | '“'));
        blanks.next().is_some() && next.is_some_and(|c| c.is_uppercase() || c.is_numeric() || *c == CODE)
    })
}

fn is_closing(character: char) -> bool {
    matches!(character, ')' | ']' | '"' | '\'' | '”' | '’')
}

fn is_abbreviation(before: &[char]) -> bool {
    let word = before.iter().rev().take_while(|c| c.is_alphabetic() || **c == '.').collect::<Vec<_>>();
    let word: String = word.into_iter().rev().collect();
    ABBREVIATIONS.contains(&word.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "This sentence has a subject, a verb, and so many further words that it needs more than one \
                        hundred columns";

    fn problems(text: &str) -> Vec<String> {
        check(&Repository::of([("a.md", text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn short_lines_and_lines_of_one_sentence_pass() {
        assert_eq!(problems("Short. Lines. May. Hold. Several.\n"), Vec::<String>::new());
        assert_eq!(problems(&format!("{LONG}.\nAnother one. And one more.\n")), Vec::<String>::new());
        assert_eq!(problems(&format!("1. {LONG}, e.g. `this` (see 7.1).\n")), Vec::<String>::new());
        // A list item without a verb has no full stop.
        assert_eq!(problems(&format!("- {LONG}\n- {LONG}\n")), Vec::<String>::new());
    }

    #[test]
    fn tables_code_and_link_targets_are_exempt() {
        assert_eq!(problems(&format!("| a |\n|---|\n| {LONG}. {LONG}. |\n")), Vec::<String>::new());
        assert_eq!(problems(&format!("```text\n{LONG}. {LONG}.\n```\n")), Vec::<String>::new());
        let target = "a-very-long-name-of-a-page/".repeat(5);
        assert_eq!(problems(&format!("One [link]({target}). Two sentences.\n")), Vec::<String>::new());
    }

    #[test]
    fn wide_lines_with_several_sentences_are_found() {
        let several = "a.md:1: 117 columns, and the line holds several sentences: write one sentence per line";
        assert_eq!(problems(&format!("{LONG}. And more.\n")), [several]);
        assert_eq!(problems(&format!("{LONG}. `code` begins a sentence, too.\n")).len(), 1);
        assert_eq!(problems(&format!("{LONG} (so far). 7 is a number.\n")).len(), 1);
        assert_eq!(problems(&format!("- **{LONG}.** More.\n")).len(), 1);
    }

    #[test]
    fn sentences_wrapped_beyond_the_width_are_found() {
        assert_eq!(problems(&format!("{LONG}\nand goes on here.\n")).len(), 1);
        assert_eq!(problems(&format!("It begins here and\n{LONG}.\n")).len(), 1);
    }
}
