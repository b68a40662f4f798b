//! A hundred brief seeds without a violation, and every kind of fault among them.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_seeds::run_many;
use convoke_sim::stats::Stats;
use convoke_sim::{Kind, Plan, run_plan};
use std::sync::atomic::AtomicBool;

#[test]
fn a_hundred_seeds() {
    let (mut total, mut failures) = (Stats::default(), Vec::new());
    let one = |seed| run_plan(&Plan::brief(seed), false);
    run_many(1..101, 2, &AtomicBool::new(false), one, |outcome| {
        total.add(&outcome.stats);
        if let Some(violation) = outcome.violation {
            failures.push(format!("replay --brief --seed {}: {violation}", outcome.seed));
        }
    });
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(total.scarce_faults().is_empty(), "too seldom: {:?}", total.scarce_faults());
}

/// Seeds that found something once: bugs of the core or of a check. They are named in the history.
#[test]
fn seeds_that_found_something() {
    // 1439: a starting node retired a run of which it was about to be sent something (D10). The first and the last three: shown beyond the context where a token was made, and not yet known where it was brought (S3); kept there,
    // and dropped here (S3); a delta given up by a number that both ends had handed out (D6); two that did not push to each other
    // after one had refused a full merge (D7).
    let focused = [275, 1093, 1179, 1194, 1439, 1779, 1827, 2715, 3075, 6781].map(|seed| (Kind::Focused, seed));
    // The third and fourth: unregistered at a run whose number others had retired (N1); news of a returned owner collected with what was inferred before (L3); the last:
    // a node that was told to stop before anyone had heard of its last write (N6).
    let brief = [245, 318, 769, 2895, 3654].map(|seed| (Kind::Brief, seed));
    // Written off at two nodes, kept at one (S3); an owner that was returning where a token was made (S3); an end that was lost with the only
    // node that had heard of it; a client that had left without a word, and a node that still had its end of the connection (C4).
    let full = [192, 553, 698, 707].map(|seed| (Kind::Full, seed));
    for (kind, seed) in focused.into_iter().chain(brief).chain(full) {
        let violation = run_plan(&kind.plan(seed), false).violation;
        assert!(violation.is_none(), "replay{} --seed {seed}: {violation:?}", kind.option());
    }
}

/// Every theme, a few times.
#[test]
fn themes() {
    let one = |seed| run_plan(&Plan::focused(seed), false);
    let mut failures = Vec::new();
    run_many(1..31, 2, &AtomicBool::new(false), one, |outcome| {
        if let Some(violation) = outcome.violation {
            failures.push(format!("replay --focused --seed {}: {violation}", outcome.seed));
        }
    });
    assert!(failures.is_empty(), "{failures:#?}");
}
