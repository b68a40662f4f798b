//! The core reaches no runtime, socket, clock, operating-system randomness or randomly ordered map.
//!
//! Two checks: which crates it is built from, and which words its code uses. Both are shown able to fail.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Everything the core may be built from. A new entry needs a look at what it brings along.
const ALLOWED_CRATES: &[&str] = &[
    "bytes",
    "convoke-core",
    "convoke-filter",
    "fastrand",
    "foldhash",
    "hashbrown",
    "proc-macro2",
    "quote",
    "smol_str",
    "syn",
    "thiserror",
    "thiserror-impl",
    "unicode-ident",
];

/// Named so that nobody adds one of them to the list above without noticing what it means.
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
    "println!",
    "eprintln!",
    "print!",
    "eprint!",
];

#[test]
fn the_core_is_built_from_an_allowed_list_of_crates() {
    let found = dependency_closure();
    assert_eq!(found, ALLOWED_CRATES, "the crates the core is built from have changed");
    assert_eq!(forbidden_crates(&found), Vec::<&str>::new());
}

#[test]
fn a_forbidden_crate_would_be_noticed() {
    let planted = ["bytes", "mio", "tokio"].map(str::to_owned);
    assert_eq!(forbidden_crates(&planted), ["mio", "tokio"]);
}

#[test]
fn the_code_of_the_core_uses_no_forbidden_word() {
    let mut sources = sources(&manifest_directory().join("src"));
    sources.extend(self::sources(&manifest_directory().join("../filter/src")));
    assert!(sources.len() > 30, "only {} source files were found", sources.len());
    let mut violations = Vec::new();
    for path in sources {
        let text = fs::read_to_string(&path).unwrap();
        violations.extend(scan(&text).into_iter().map(|(line, word)| format!("{}:{line}: {word}", path.display())));
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn a_planted_violation_is_found_wherever_it_stands() {
    for word in FORBIDDEN_WORDS {
        assert_eq!(scan(&format!("fn f() {{\n    {word};\n}}\n")), [(2, *word)], "{word} in a function");
        assert_eq!(scan(&format!("use a::{{b, {word}}};\n")), [(1, *word)], "{word} in an import");
        // After a test module the code goes on.
        let after = format!("#[cfg(test)]\nmod tests {{\n    fn f() {{}}\n}}\n\nfn g() {{ {word} }}\n");
        assert_eq!(scan(&after), [(6, *word)], "{word} after a test module");
        let declared = format!("#[cfg(test)]\nmod tests;\n\nfn g() {{ {word} }}\n");
        assert_eq!(scan(&declared), [(4, *word)], "{word} after a declared test module");
    }
    assert_eq!(scan("use std::{net, time};\n"), [(1, "std::net")], "grouped imports are unfolded");
    assert_eq!(scan("use std::{\n    fmt,\n    collections::{BTreeMap, HashMap},\n};\n"), [(3, "HashMap")]);
    assert_eq!(scan("use std::{\n    fmt,\n    env,\n};\n"), [(1, "std::env")]);
}

#[test]
fn words_in_tests_and_comments_and_inside_longer_names_are_no_violation() {
    assert_eq!(
        scan("// an Instant is never read\n/// nor a HashMap kept\n//! nor tokio used\nlet a = 1; // HashSet\n"),
        []
    );
    assert_eq!(
        scan("#[cfg(test)]\nmod tests {\n    use std::collections::HashMap;\n    fn f() { println!(); }\n}\n"),
        []
    );
    assert_eq!(scan("struct Instantly; fn tokiofy() {} let MyHashMapLike = std::networking;\n"), []);
}

/// Names of all crates the core is built from, sorted.
fn dependency_closure() -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", "convoke-core", "--edges", "normal", "--prefix", "none", "--offline"])
        .current_dir(manifest_directory())
        .output()
        .expect("cargo runs, as it did to build this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut names: Vec<String> = text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

fn forbidden_crates(found: &[String]) -> Vec<&str> {
    found.iter().map(String::as_str).filter(|name| FORBIDDEN_CRATES.contains(name)).collect()
}

fn manifest_directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
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

/// Line comments are blanked. A `//` inside a string blanks the rest of that line too, which the core has no need for.
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
