//! Checks that a crate is pure: it reaches no runtime, socket, file, clock, operating-system randomness or randomly ordered map.
//!
//! Two checks, for the tests of such crates: which crates it is built from, and which words its code uses. Both are shown able to fail.

#![allow(clippy::expect_used, reason = "it serves tests, where a panic is the message")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Named so that nobody allows one of them without noticing what it means.
const FORBIDDEN_CRATES: &[&str] =
    &["tokio", "mio", "socket2", "getrandom", "rand", "rand_core", "chrono", "time", "async-std", "smol", "libc"];

/// Ways to a clock, a socket, a file, a thread, the environment, a terminal, randomness or an order that changes from
/// run to run.
const FORBIDDEN_WORDS: &[&str] = &[
    "std::net",
    "std::fs",
    "std::thread",
    "std::env",
    "std::process",
    "std::io",
    "Instant",
    "SystemTime",
    "HashMap",
    "HashSet",
    "RandomState",
    "thread_rng",
    "getrandom",
    "tokio",
    "openraft",
    "println!",
    "eprintln!",
    "print!",
    "eprint!",
];

/// Checks that a package of this workspace is built from just these crates, in alphabetical order. A new one needs a look at what it brings along.
///
/// # Panics
/// If it is not, or if one of them is never allowed.
pub fn assert_built_from(package: &str, allowed: &[&str]) {
    assert_allowed(package, &dependency_closure(package), allowed);
}

/// The same for a package that stands on another one of this workspace: what that is built from is for its own check.
///
/// # Panics
/// If it adds other crates than these, or one that is never allowed.
pub fn assert_adds(package: &str, base: &str, allowed: &[&str]) {
    let known = dependency_closure(base);
    let mut added = dependency_closure(package);
    added.retain(|name| !known.contains(name));
    assert_allowed(package, &added, allowed);
}

fn assert_allowed(package: &str, found: &[String], allowed: &[&str]) {
    assert_eq!(found, allowed, "the crates that {package} is built from have changed");
    assert_eq!(forbidden_crates(found), Vec::<&str>::new());
}

/// Checks the sources below some directories, without their tests.
///
/// # Panics
/// If one of them uses a word that leads out of the pure world.
pub fn assert_clean<'a>(directories: impl IntoIterator<Item = &'a Path>) {
    let mut violations = Vec::new();
    let files: Vec<PathBuf> = directories.into_iter().flat_map(sources).collect();
    assert!(!files.is_empty(), "there is nothing to check");
    for path in files {
        let text = fs::read_to_string(&path).expect("a source file is readable text");
        violations.extend(scan(&text).into_iter().map(|(line, word)| format!("{}:{line}: {word}", path.display())));
    }
    assert!(violations.is_empty(), "forbidden words in pure code:\n{}", violations.join("\n"));
}

/// Names of all crates a package of this workspace is built from, sorted.
///
/// # Panics
/// If there is no such package.
#[must_use]
pub fn dependency_closure(package: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs, as it did to build this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let mut names: Vec<String> = text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

fn forbidden_crates(found: &[String]) -> Vec<&str> {
    found.iter().map(String::as_str).filter(|name| FORBIDDEN_CRATES.contains(name)).collect()
}

/// All source files except those that are only built for tests.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory of sources") {
        let path = entry.expect("a directory that can be read").path();
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        if name == "tests" {
            continue;
        }
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Forbidden words in the code of one file, with the line each stands in: without comments and test modules.
fn scan(text: &str) -> Vec<(usize, &'static str)> {
    let code = without_tests(&without_comments(text));
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        found.extend(FORBIDDEN_WORDS.iter().filter(|word| contains_word(line, word)).map(|word| (number + 1, *word)));
    }
    for (line, path) in unfolded_imports(&code) {
        let folded = |word: &&&str| path == **word || path.starts_with(&format!("{word}::"));
        let words = FORBIDDEN_WORDS.iter().filter(folded).map(|word| (line, *word));
        let fresh: Vec<_> = words.filter(|(_, word)| !found.iter().any(|(_, seen)| seen == word)).collect();
        found.extend(fresh);
    }
    found.sort();
    found
}

/// Whether a word stands in a line, not as a part of a longer name.
fn contains_word(line: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(is_name);
        let after = !word.ends_with('!') && line[at + word.len()..].chars().next().is_some_and(is_name);
        !before && !after
    })
}

/// Line comments are blanked. A `//` inside a string blanks the rest of that line too, which pure code has no need for.
fn without_comments(text: &str) -> String {
    let code: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or("")).collect();
    code.join("\n")
}

/// Blanks what `#[cfg(test)]` stands before: a declared module, or one with its braces.
fn without_tests(text: &str) -> String {
    let mut kept = Vec::new();
    let (mut pending, mut depth) = (false, 0usize);
    for line in text.lines() {
        let opening = line.matches('{').count();
        let closing = line.matches('}').count();
        if depth > 0 {
            depth = (depth + opening).saturating_sub(closing);
            kept.push("");
        } else if pending && !line.trim().is_empty() {
            depth = opening.saturating_sub(closing);
            pending = false;
            kept.push("");
        } else if line.trim() == "#[cfg(test)]" {
            pending = true;
            kept.push("");
        } else {
            kept.push(line);
        }
    }
    kept.join("\n")
}

/// The paths a file imports, written out in full, with the line each import starts in.
fn unfolded_imports(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let line = code[..code.len() - rest.len() + at].matches('\n').count() + 1;
        let Some(end) = rest[at..].find(';') else { break };
        unfold("", &rest[at + 4..at + end], line, &mut found);
        rest = &rest[at + end..];
    }
    found
}

fn unfold(prefix: &str, tree: &str, line: usize, found: &mut Vec<(usize, String)>) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        found.push((line, format!("{prefix}{tree}")));
        return;
    };
    let inner = tree[open + 1..].trim_end().trim_end_matches('}');
    let prefix = format!("{prefix}{}", &tree[..open]);
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth <= 0 => {
                unfold(&prefix, &inner[start..at], line, found);
                start = (at + 1).min(inner.len());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
