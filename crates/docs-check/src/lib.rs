//! Checks of the documentation, run by `cargo test --workspace`.
//!
//! - [`links`]: every relative link and every anchor in a Markdown file resolves.
//! - [`width`]: a line of prose has at most 100 columns, or it holds exactly one sentence.
//! - [`snippets`]: every page with Rust code is compiled as a doctest of this crate.
//! - [`summary`]: `docs/SUMMARY.md` lists every page of the documentation once.
//! - [`citations`]: comments, strings and text name only Markdown files that exist, pages only paths that exist.
//! - [`evidence`]: requirements and protocol pages name only tests, scenarios, invariants and mutants that exist.
//! - [`glossary`]: the glossary of the protocol contains every term that its rules set in italics.
//! - [`rules`]: every rule of a protocol page has its three parts, a number of its own, and at most 120 words.
//! - [`types`]: two crates have public types with one name only for one concept.
//! - [`code_map`]: `docs/ARCHITECTURE.md` names every crate.
//!
//! Each check is a function of a [`Repository`] in memory. Its unit tests show that it fails on bad input.
//! `tests/repository.rs` applies all of them to this repository.

pub mod citations;
pub mod code_map;
pub mod evidence;
mod finding;
pub mod glossary;
pub mod links;
mod markdown;
mod repository;
pub mod rules;
pub mod snippets;
pub mod summary;
pub mod types;
pub mod width;

pub use finding::Finding;
pub use repository::Repository;
