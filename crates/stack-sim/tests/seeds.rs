//! A few seeds without a violation; mutants are found; where tokio can be seeded, runs are reproducible.
//!
//! CI runs many more seeds and all mutants from the command line (`.ci/run`), in an optimised build.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_harness::seeds::run_many;
use convoke_stack_sim::drive::run;
use convoke_stack_sim::{Mutant, OUTSIDE, Plan};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Shorter than usual: debug builds are slow.
fn brief(seed: u64) -> Plan {
    Plan { fault_period: Duration::from_secs(40), founders: 3, ..Plan::new(seed) }
}

#[test]
fn a_few_seeds() {
    let (mut failures, mut outside) = (Vec::new(), 0);
    run_many(
        1..5,
        2,
        &AtomicBool::new(false),
        |seed| run(&brief(seed), false),
        |outcome| {
            outside += outcome.stats.operations.get(OUTSIDE).copied().unwrap_or(0);
            if let Some(violation) = outcome.violation {
                failures.push(format!("seed {}, 40 s: {violation}\n{}", outcome.seed, outcome.lines.join("\n")));
            }
        },
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(outside > 100, "nodes without a replica serve watches: {outside} messages");
}

/// Tokio makes some choices at random; they follow from the seed only in builds with `--cfg tokio_unstable`
/// (docs/log-simulation.md).
#[cfg(tokio_unstable)]
#[test]
fn same_seed_same_trace() {
    let plan = Plan { fault_period: Duration::from_secs(20), ..brief(7) };
    let (one, two) = (run(&plan, false), run(&plan, false));
    assert_eq!(one.hash, two.hash);
    assert_eq!(one.stats.operations, two.stats.operations);
    assert_ne!(one.hash, run(&Plan { seed: 8, ..plan }, false).hash);
}

fn found(mutant: Mutant, by: std::ops::Range<u64>) {
    let (stop, mut found) = (AtomicBool::new(false), None);
    run_many(
        by,
        2,
        &stop,
        |seed| run(&brief(seed).with(mutant), false),
        |outcome| {
            if let Some(violation) = outcome.violation {
                stop.store(true, Ordering::Relaxed);
                found = Some(violation);
            }
        },
    );
    assert!(found.is_some(), "{mutant:?} is not detected");
}

#[test]
fn a_disk_that_fakes_syncs_is_detected() {
    found(Mutant::DisksLie, 1..30);
}

#[test]
fn reads_without_confirmation_are_detected() {
    found(Mutant::ReadsAreLocal, 1..30);
}

#[test]
fn ignored_evidence_of_a_rollback_is_detected() {
    found(Mutant::RollbackIgnored, 1..6);
}

#[test]
fn unknown_outcomes_taken_for_failures_are_detected() {
    found(Mutant::UnknownMeansFailed, 1..30);
}

#[test]
fn retries_under_new_numbers_are_detected() {
    // About one brief seed in nine shows it.
    found(Mutant::RetriesAreNew, 1..90);
}
