//! The machine reaches no runtime, socket, file, clock, operating-system randomness or randomly ordered map.
//!
//! Two checks: which crates it names, and which words it uses. Both are shown able to fail. What does input and output for it is
//! a crate of its own (`convoke-replica`).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use std::fs;
use std::path::{Path, PathBuf};

/// What its modules may name at the beginning of a path.
const ALLOWED_ROOTS: &[&str] =
    &["bytes", "convoke_core", "crate", "crc32c", "self", "smol_str", "std", "super", "thiserror", "xxhash_rust"];

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
    "tokio",
    "openraft",
    "println!",
    "eprintln!",
];

#[test]
fn its_modules_use_no_forbidden_word_and_no_other_crate() {
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(sources.len() > 30, "only {} source files were found", sources.len());
    let mut violations = Vec::new();
    for path in sources {
        let found = scan(&fs::read_to_string(&path).unwrap());
        violations.extend(found.into_iter().map(|what| format!("{}: {what}", path.display())));
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn a_planted_violation_is_found() {
    for word in FORBIDDEN_WORDS {
        assert!(!scan(&format!("fn f() {{\n    {word};\n}}\n")).is_empty(), "{word}");
    }
    assert_eq!(scan("use tokio::time;\n"), ["1: tokio", "1: crate tokio"]);
    assert_eq!(scan("use std::{\n    fmt,\n    fs,\n};\n"), ["1: std::fs"]);
    assert_eq!(scan("pub use rand::Rng;\n"), ["1: crate rand"]);
}

#[test]
fn comments_tests_and_longer_names_are_no_violation() {
    assert!(scan("// an Instant is never read\n//! nor tokio used\nlet a = 1; // HashSet\n").is_empty());
    assert!(scan("struct Instantly;\nmod node;\nuse node::Node;\nuse crate::machine::Machine;\n").is_empty());
    assert!(scan("fn f() {}\n#[cfg(test)]\nmod tests {\n    use proptest::prelude::*;\n}\n").is_empty());
}

/// All source files except those that are only built for tests.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if name == "tests" {
            continue;
        }
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// What is wrong with the code of a file, with its line. In this crate test modules stand last.
fn scan(text: &str) -> Vec<String> {
    let code: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or("")).collect();
    let end = code.iter().position(|line| line.trim() == "#[cfg(test)]").unwrap_or(code.len());
    let code = &code[..end];
    let modules: Vec<&str> =
        code.iter().filter_map(|line| line.trim_end_matches(';').rsplit_once("mod ")).map(|(_, name)| name).collect();
    let mut found = Vec::new();
    for (at, line) in code.iter().enumerate() {
        let words = FORBIDDEN_WORDS.iter().filter(|word| contains_word(line, word));
        found.extend(words.map(|word| format!("{}: {word}", at + 1)));
        let Some(import) = line.trim().strip_prefix("pub ").unwrap_or(line.trim()).strip_prefix("use ") else {
            continue;
        };
        let root = import.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        // A lower module may be named without `self`.
        if !ALLOWED_ROOTS.contains(&root) && !modules.contains(&root) {
            found.push(format!("{}: crate {root}", at + 1));
        }
        if import.trim_end() == "std::{" {
            let group = code[at..].iter().take_while(|line| !line.contains("};"));
            let names = group.flat_map(|line| line.split(',')).map(str::trim);
            let bad = names.map(|name| format!("std::{name}")).filter(|path| FORBIDDEN_WORDS.contains(&&**path));
            found.extend(bad.map(|path| format!("{}: {path}", at + 1)));
        }
    }
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
