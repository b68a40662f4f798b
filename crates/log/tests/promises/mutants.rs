//! Switches off each rule in turn; a check must detect every mutant.
//!
//! The same seeds pass without the mutant (`promises_hold_under_any_delivery`).

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "the test prints which check caught a mutant, and reads the protocol document"
)]

use crate::{coordination, delivery, model};
use convoke_log::{Mutant, Mutation};

/// Seeds tried per mutant.
const SEEDS: u64 = 200;

/// Returns what detects the mutant: the first seed of the adversarial network, otherwise the first case in which the
/// model differs.
fn detect(mutant: Mutant) -> Option<String> {
    // The log of the other two detectors stays at level 1.
    if COORDINATION.contains(&mutant.rule().trim_end_matches(|c: char| c.is_ascii_digit())) {
        return coordination::notices(mutant);
    }
    let seed = |seed| delivery::run(seed, Mutation::of(mutant)).err().map(|violation| (seed, violation));
    if let Some((seed, violation)) = (0..SEEDS).find_map(seed) {
        return Some(format!("seed {seed}: {}", violation.check));
    }
    model::notices(mutant).map(|(case, difference)| {
        let what = difference.split([':', '{']).next().unwrap_or_default().trim();
        format!("model, case {case}: {what}")
    })
}

#[test]
fn every_mutant_is_caught_under_delivery_or_by_the_model() {
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        match detect(*mutant) {
            Some(who) => println!("{} ({}): {who}", mutant.name(), mutant.rule()),
            None => missed.push(mutant.name()),
        }
    }
    assert!(missed.is_empty(), "not detected: {missed:?}");
}

#[test]
fn every_mutant_is_in_the_table_of_the_protocol() {
    for mutant in Mutant::ALL {
        let row = format!("| `{}` | {} | {} |", mutant.name(), mutant.rule(), mutant.meaning());
        assert!(PROTOCOL.contains(&row), "missing: {row}");
    }
}

const PROTOCOL: &str = concat!(
    include_str!("../../../../docs/log-protocol.md"),
    include_str!("../../../../docs/coordination-protocol.md")
);

/// Letters of the rules of level 2.
const COORDINATION: &[&str] = &["V", "T", "H", "LE", "LO", "EL", "Q"];

/// The rules of the protocol: number and text of each section with a heading such as `### LS2 Client names`.
fn rules() -> Vec<(&'static str, &'static str)> {
    let rule = |section: &'static str| {
        let name = section.split([' ', '\n']).next()?;
        let digits = name.trim_start_matches(|c: char| c.is_ascii_uppercase());
        let is_rule = digits.len() < name.len() && digits.parse::<u8>().is_ok();
        is_rule.then_some((name, section.split("\n## ").next()?))
    };
    PROTOCOL.split("\n### ").skip(1).filter_map(rule).collect()
}

/// Every rule states its reason, is short, and names mutants of its own or tests that fail without it. All of those exist.
#[test]
fn every_rule_has_a_mutant_or_a_test_that_needs_it() {
    let rules = rules();
    assert!(rules.len() > 40, "{rules:?}");
    for (rule, text) in &rules {
        let (statement, rest) = text.split_once("\n*Why.*\n").unwrap_or_else(|| panic!("{rule} has no reason"));
        let (_, checks) = rest.split_once("\n*Checked by.*\n").unwrap_or_else(|| panic!("{rule} has no checks"));
        assert!(statement.split_whitespace().count() < 140, "{rule} is too long");
        // `Mutant`, or `file.rs` and then the names of tests in it.
        let (mut file, mut found) = (String::new(), 0);
        for quoted in checks.split('`').skip(1).step_by(2) {
            if let Some(mutant) = Mutant::ALL.iter().find(|mutant| mutant.name() == quoted) {
                assert_eq!(mutant.rule().split('.').next(), Some(*rule), "{quoted} is a mutant of another rule");
                found += 1;
            } else if let Some(path) = quoted.strip_suffix(".rs") {
                let path = format!("{}/../../{path}.rs", env!("CARGO_MANIFEST_DIR"));
                file = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{rule}: {path}: {error}"));
            } else {
                assert!(file.contains(&format!("fn {quoted}(")), "{rule}: no test {quoted}");
                found += 1;
            }
        }
        assert!(found > 0, "{rule} names neither a mutant nor a test");
        for mutant in Mutant::ALL.iter().filter(|mutant| mutant.rule().split('.').next() == Some(rule)) {
            assert!(checks.contains(&format!("`{}`", mutant.name())), "{rule} does not name {}", mutant.name());
        }
    }
    for mutant in Mutant::ALL {
        let rule = mutant.rule().split('.').next().unwrap();
        assert!(rules.iter().any(|(name, _)| *name == rule), "{} is of {rule}, which does not exist", mutant.name());
    }
}
