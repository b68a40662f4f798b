//! Some deliberate bugs, one per plane, are caught quickly; `convoke-sim mutants` checks all of them
//! (docs/mutants.md).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_core::Mutant;
use convoke_sim::mutants::{self, AnyMutant, run_all};
use std::collections::BTreeSet;

/// Each is caught by one of this many seeds.
const SEEDS: u64 = 10;

#[test]
fn some_mutants_are_caught() {
    let chosen = [
        Mutant::SeqBeforeClaim,
        Mutant::FloorNotRaised,
        Mutant::LossNotNotified,
        Mutant::SilentOwnerHidesMember,
        Mutant::SlowWatcherDropsSilently,
    ];
    let chosen = chosen.map(AnyMutant::Core);
    for caught in run_all(&chosen, SEEDS, false, 2, |_| {}) {
        assert!(caught.seed.is_some(), "{} is not caught by {SEEDS} seeds", caught.mutant.name());
        assert!(caught.scenario.is_some(), "{} is not caught by a scenario", caught.mutant.name());
    }
}

#[test]
fn the_page_lists_mutants_that_were_not_caught() {
    let nothing = mutants::Caught {
        mutant: AnyMutant::Core(Mutant::NoExchange),
        seed: None,
        scenario: None,
        took: std::time::Duration::ZERO,
    };
    assert!(!nothing.is_caught());
    let page = mutants::page(&[nothing], 7);
    assert!(page.contains("Caught: 0 of 1"), "{page}");
    assert!(page.ends_with("| none of 7 | none |\n"), "{page}");
}

/// docs/mutants.md lists every mutant with its rule and its meaning.
#[test]
fn every_mutant_is_in_the_page() {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mutants.md"));
    let missing: Vec<String> = AnyMutant::all()
        .into_iter()
        .map(|mutant| format!("| `{}` | {} | {} |", mutant.name(), mutant.rule(), mutant.meaning()))
        .filter(|row| !page.contains(row))
        .collect();
    assert!(missing.is_empty(), "regenerate docs/mutants.md (crates/sim/src/mutants.rs); missing: {missing:#?}");
    let rows = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, AnyMutant::all().len(), "docs/mutants.md lists a mutant that does not exist");
}

/// Every rule of docs/protocol.md has a mutant, and every mutant breaks a rule of that page.
#[test]
fn every_rule_has_a_mutant() {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol.md"));
    let rules: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("### ")?.split_whitespace().next()).collect();
    let broken: BTreeSet<&str> = AnyMutant::all().iter().map(|mutant| mutant.rule()).collect();
    assert_eq!(rules, broken);
    for mutant in AnyMutant::all() {
        assert!(page.contains(&format!("`{}`", mutant.name())), "no rule names {}", mutant.name());
    }
}
