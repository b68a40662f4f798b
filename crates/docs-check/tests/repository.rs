//! All checks of the documentation, applied to this repository.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_docs_check::{
    Finding, Repository, citations, code_map, evidence, glossary, links, rules, snippets, summary, types, width,
};
use std::path::Path;

fn repository() -> Repository {
    Repository::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

fn assert_none(findings: &[Finding]) {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} problems:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn every_link_and_anchor_resolves() {
    assert_none(&links::check(&repository()));
}

#[test]
fn prose_is_at_most_100_columns_wide_or_one_sentence_per_line() {
    assert_none(&width::check(&repository()));
}

#[test]
fn every_rust_snippet_is_compiled() {
    assert_none(&snippets::check(&repository(), snippets::PAGES));
}

#[test]
fn the_table_of_contents_lists_every_page_once() {
    assert_none(&summary::check(&repository()));
}

#[test]
fn every_cited_path_exists() {
    assert_none(&citations::check(&repository()));
}

#[test]
fn every_test_scenario_invariant_and_mutant_named_as_evidence_exists() {
    assert_none(&evidence::check(&repository()));
}

#[test]
fn the_glossary_contains_every_term_of_a_rule() {
    assert_none(&glossary::check(&repository()));
}

#[test]
fn every_rule_has_its_parts_and_at_most_120_words() {
    assert_none(&rules::check(&repository()));
}

#[test]
fn one_name_of_a_public_type_is_one_concept() {
    assert_none(&types::check(&repository()));
}

#[test]
fn the_code_map_names_every_crate() {
    assert_none(&code_map::check(&repository()));
}
