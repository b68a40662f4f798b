//! Pure crates are functions of their arguments. Two checks enforce it: the lints of `clippy-pure.toml` for the standard
//! library, and this test for third-party crates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates with a runtime, a socket, a clock or randomness of the operating system.
/// They are named so that nobody adds one of them to `allowed` without noticing the consequence.
const FORBIDDEN: &[&str] = &[
    "tokio",
    "mio",
    "socket2",
    "tonic",
    "hyper",
    "getrandom",
    "rand",
    "rand_core",
    "chrono",
    "time",
    "async-std",
    "smol",
    "libc",
];

/// Crates that the macros of thiserror are built from.
const MACROS: &[&str] = &["proc-macro2", "quote", "syn", "thiserror", "thiserror-impl", "unicode-ident"];

struct Pure {
    package: &'static str,
    /// Workspace crates that this one is built from. They are checked by their own entry, or contain only data.
    builds_on: &'static [&'static str],
    /// All other crates that this one is built from. Read a new crate before you add it.
    allowed: &'static [&'static str],
}

const PURE: &[Pure] = &[
    Pure { package: "convoke-counters", builds_on: &[], allowed: &[] },
    Pure { package: "convoke-filter", builds_on: &[], allowed: MACROS },
    Pure {
        package: "convoke-base",
        builds_on: &[],
        allowed: &["bytes", "crc32c", "proc-macro2", "quote", "syn", "thiserror", "thiserror-impl", "unicode-ident"],
    },
    Pure { package: "convoke-log", builds_on: &["convoke-base"], allowed: &["smol_str", "xxhash-rust"] },
    Pure {
        package: "convoke-core",
        builds_on: &["convoke-base", "convoke-counters", "convoke-filter"],
        allowed: &["fastrand", "foldhash", "hashbrown", "smol_str"],
    },
    Pure {
        package: "convoke-http-session",
        builds_on: &["convoke-core"],
        allowed: &[
            "base64",
            "block-buffer",
            "cfg-if",
            "cpufeatures",
            "crypto-common",
            "digest",
            "hybrid-array",
            "sha2",
            "typenum",
        ],
    },
    Pure { package: "convoke-convert", builds_on: &["convoke-core", "convoke-proto"], allowed: &[] },
    Pure { package: "convoke-session", builds_on: &["convoke-base", "convoke-proto"], allowed: &["fastrand"] },
];

/// Messages and JSON types, without the feature `grpc`: data that pure crates may use.
const MESSAGES: &[&str] = &[
    "anyhow",
    "base64",
    "convoke-filter",
    "either",
    "itertools",
    "prost",
    "prost-derive",
    "serde",
    "serde_core",
    "serde_derive",
];

#[test]
fn pure_crates_are_built_from_an_allowed_list_of_crates() {
    for Pure { package, builds_on, allowed } in PURE {
        let known: Vec<String> = builds_on.iter().flat_map(|package| dependency_closure(package)).collect();
        let mut found = dependency_closure(package);
        found.retain(|name| name != package && !known.contains(name));
        assert_eq!(found, *allowed, "{package} is built from other crates than before");
        assert_eq!(forbidden(&dependency_closure(package)), Vec::<&str>::new(), "{package} is not pure");
    }
}

#[test]
fn messages_are_built_without_grpc() {
    let known = dependency_closure("convoke-base");
    let mut found = dependency_closure("convoke-proto");
    found.retain(|name| name != "convoke-proto" && !known.contains(name));
    assert_eq!(found, MESSAGES);
}

/// Applications do not carry a registry around.
#[test]
fn the_sdk_does_not_depend_on_the_core() {
    let found = dependency_closure("convoke-client");
    assert!(found.iter().any(|name| name == "convoke-session"), "{found:?}");
    assert!(!found.iter().any(|name| name == "convoke-core"), "{found:?}");
}

/// The checks above are able to fail: they find what other crates are built from.
#[test]
fn forbidden_crates_and_the_core_are_found_where_they_are_used() {
    let expected = ["getrandom", "hyper", "libc", "mio", "socket2", "time", "tokio", "tonic"];
    assert_eq!(forbidden(&dependency_closure("convoke-client")), expected);
    assert!(dependency_closure("convoke-sim").iter().any(|name| name == "convoke-core"));
}

/// clippy reads only the nearest `clippy.toml`, so a pure crate without the link has no such lints.
#[test]
fn pure_crates_are_linted_as_pure() {
    let wanted = fs::read_to_string(root().join("clippy-pure.toml")).expect("the lints of the pure crates");
    let directories = PURE.iter().map(|pure| pure.package.trim_start_matches("convoke-")).chain(["sim"]);
    for directory in directories {
        let path = root().join("crates").join(directory).join("clippy.toml");
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == wanted, "{} is not a link to clippy-pure.toml", path.display());
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Names of all crates that a package of this workspace is built from, sorted.
fn dependency_closure(package: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs, as it did to build this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let mut names: Vec<String> = text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

fn forbidden(found: &[String]) -> Vec<&str> {
    found.iter().map(String::as_str).filter(|name| FORBIDDEN.contains(name)).collect()
}
