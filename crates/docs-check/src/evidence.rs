//! The tests, scenarios, invariants and mutants that the requirements and the protocol pages name as evidence.
//!
//! Evidence is the text after *Shown by* or *Checked by*, up to the end of its paragraph or of its requirement, and the
//! table of tests of the log protocol. A word in the text states what the names after it are:
//! `scenario`, `invariant`, `mutant`, or otherwise a test. A semicolon or a new sentence starts over.

use crate::{Finding, Repository};

const PAGES: &[&str] = &[
    "docs/requirements.md",
    "docs/protocol.md",
    "docs/log-protocol.md",
    "docs/coordination-protocol.md",
    "docs/access-control.md",
    "docs/security-protocol.md",
];
const MARKERS: &[&str] = &["*Shown by:*", "*Checked by.*", "**Checked by:**"];
const TABLE: &str = "\n## Tests\n";

const SCENARIOS: &str = "crates/sim/src/scenarios/mod.rs";
/// Some invariants are checked where the event happens, outside of `invariants/`.
const INVARIANTS: &str = "crates/sim/src/";
const MUTANTS: &[&str] = &[
    "crates/core/src/mutant.rs",
    "crates/http-session/src/mutant.rs",
    "crates/log/src/mutant.rs",
    "crates/session/src/mutant.rs",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Scenario,
    Invariant,
    Mutant,
    Test,
}

/// Finds names in evidence that nothing in the repository has.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in PAGES {
        let page = repository.text(path).unwrap_or_default();
        for (start, end) in evidence(page) {
            let mut at = start;
            for part in page[start..end].split_inclusive(';') {
                for (offset, problem) in problems(repository, part) {
                    let line = page[..at + offset].matches('\n').count() + 1;
                    findings.push(Finding::new(path, line, problem));
                }
                at += part.len();
            }
        }
    }
    findings
}

/// Where evidence starts and ends.
fn evidence(page: &str) -> Vec<(usize, usize)> {
    let ends = |start: usize, ends: &[&str]| {
        let rest = &page[start..];
        start + ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len())
    };
    let mut found: Vec<(usize, usize)> = MARKERS
        .iter()
        .flat_map(|marker| page.match_indices(marker).map(|(at, marker)| at + marker.len()))
        .map(|start| (start, ends(start, &["\n\n", "\n- **", "\n#"])))
        .collect();
    if let Some(at) = page.find(TABLE) {
        let start = at + TABLE.len();
        let rows = page[start..ends(start, &["\n## "])].split_inclusive('\n').scan(start, |at, row| {
            *at += row.len();
            Some((*at - row.len(), *at))
        });
        found.extend(rows);
    }
    found.sort_unstable();
    found
}

/// The names without a counterpart in one part of evidence, with their offsets.
fn problems(repository: &Repository, part: &str) -> Vec<(usize, String)> {
    let pieces: Vec<(usize, &str)> = part
        .split('`')
        .scan(0, |at, piece| {
            let start = *at;
            *at += piece.len() + 1;
            Some((start, piece))
        })
        .collect();
    let files: Vec<&str> =
        pieces.iter().skip(1).step_by(2).map(|(_, name)| *name).filter(|name| name.ends_with(".rs")).collect();
    let mut kind = Kind::Test;
    let mut found = Vec::new();
    for (index, (offset, piece)) in pieces.iter().enumerate() {
        if index % 2 == 0 {
            kind = stated(piece).unwrap_or(kind);
        } else if let Some(problem) = problem(repository, kind, piece, &files) {
            found.push((*offset, problem));
        }
    }
    found
}

/// The kind that a text between two names states, by its last word about it. A new sentence starts over.
fn stated(text: &str) -> Option<Kind> {
    let words = text.split(|c: char| !c.is_ascii_alphabetic() && c != '.').rev();
    words.map(str::to_ascii_lowercase).find_map(|word| match word.trim_end_matches('s') {
        "scenario" => Some(Kind::Scenario),
        "invariant" => Some(Kind::Invariant),
        "mutant" => Some(Kind::Mutant),
        "test" | "storie" => Some(Kind::Test),
        word => word.ends_with('.').then_some(Kind::Test),
    })
}

fn problem(repository: &Repository, kind: Kind, name: &str, files: &[&str]) -> Option<String> {
    if name.ends_with(".rs") {
        return (!is_source(repository, name)).then(|| format!("there is no source file {name}"));
    }
    if name.contains("::") {
        return (!is_module(repository, name)).then(|| format!("there is no module {name}"));
    }
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return None;
    }
    let missing = match kind {
        Kind::Scenario => (!contains(repository, SCENARIOS, &format!("::{name},"))).then_some("scenario"),
        Kind::Invariant => (!contains(repository, INVARIANTS, &format!("\"{name}\""))).then_some("invariant"),
        Kind::Mutant => {
            let declared = format!("    {name}: \"");
            (!MUTANTS.iter().any(|path| contains(repository, path, &declared))).then_some("mutant")
        }
        // A word without `_` is the name of something else: a command, a type, a parameter.
        Kind::Test => (name.contains('_') && !is_test(repository, name, files)).then_some("test"),
    };
    missing.map(|what| match (what, files) {
        ("test", [_, ..]) => format!("there is no test {name} in {}", files.join(", ")),
        _ => format!("there is no {what} {name}"),
    })
}

/// Whether a function has this name, in one of these files if there are some, or a source file has it.
fn is_test(repository: &Repository, name: &str, files: &[&str]) -> bool {
    let declared = format!("fn {name}(");
    sources(repository).any(|(path, text)| {
        let cited = files.is_empty() || files.iter().any(|file| is_path(path, file));
        (cited && text.contains(&declared)) || is_path(path, &format!("{name}.rs"))
    })
}

fn contains(repository: &Repository, path: &str, what: &str) -> bool {
    sources(repository).any(|(file, text)| file.starts_with(path) && text.contains(what))
}

fn is_source(repository: &Repository, name: &str) -> bool {
    sources(repository).any(|(path, _)| is_path(path, name))
}

/// Whether a module has a file of its own, or is the module `tests` at the end of its parent's file.
fn is_module(repository: &Repository, name: &str) -> bool {
    let path = name.replace("::", "/");
    let parent = path.strip_suffix("/tests").unwrap_or(&path);
    is_source(repository, &format!("{path}.rs")) || is_source(repository, &format!("{parent}.rs"))
}

/// Whether a path is this one, or ends with it.
fn is_path(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

/// All Rust sources but those of this crate, which contain bad examples.
fn sources(repository: &Repository) -> impl Iterator<Item = (&str, &str)> {
    let own = "crates/docs-check/";
    repository.texts().filter(move |(path, _)| path.ends_with(".rs") && !path.starts_with(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(page: &str) -> Vec<String> {
        let files = [
            ("crates/sim/src/scenarios/mod.rs", "    sessions::total_restart, 1, three, \"P1\", \"all restart\";\n"),
            ("crates/sim/src/invariants/streams.rs", "const NAME: &str = \"streams\";\n"),
            ("crates/core/src/mutant.rs", "    NoExchange: \"D7\", \"no exchange\";\n"),
            ("crates/core/src/map/tests/tokens.rs", "fn tokens_rise() {}\n"),
            ("crates/log/tests/stories/fates.rs", "fn f7_fates_last() {}\n"),
            ("docs/log-protocol.md", page),
        ];
        check(&Repository::of(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_that_exist_pass() {
        let page = "*Checked by.*\nscenario `total_restart`; invariant `streams`, mutant `NoExchange`.\n\
                    End to end: `tokens_rise`, `map::tests::tokens`; `stories/fates.rs`: `f7_fates_last`; `kill -9`, `view`.\n\n\
                    `gone_and_forgotten` is not evidence.\n\n## Tests\n\n| Fates | `f7_fates_last` in `fates.rs` |\n";
        assert_eq!(problems_of(page), Vec::<String>::new());
    }

    #[test]
    fn names_that_do_not_exist_are_found() {
        let page = "# Log\n\n*Shown by:* scenarios `total_restart`,\n  `no_restart`; invariant `total_restart`;\n  \
                    mutants `NoExchange`, `Exchange`; unit tests `tokens_fall`.\n";
        let expected = [
            "docs/log-protocol.md:4: there is no scenario no_restart",
            "docs/log-protocol.md:4: there is no invariant total_restart",
            "docs/log-protocol.md:5: there is no mutant Exchange",
            "docs/log-protocol.md:5: there is no test tokens_fall",
        ];
        assert_eq!(problems_of(page), expected);
        let modules = "**Checked by:** `map::tests::marks`; `stories/gone.rs`.\n";
        let expected = [
            "docs/log-protocol.md:1: there is no module map::tests::marks",
            "docs/log-protocol.md:1: there is no source file stories/gone.rs",
        ];
        assert_eq!(problems_of(modules), expected);
    }

    #[test]
    fn a_test_must_be_in_the_file_that_is_named_with_it() {
        let page =
            "# Log\n\n## Tests\n\n| Fates | `tokens_rise` in `stories/fates.rs` |\n\n## After\n\n`not_checked`\n";
        assert_eq!(problems_of(page), ["docs/log-protocol.md:5: there is no test tokens_rise in stories/fates.rs"]);
    }
}
