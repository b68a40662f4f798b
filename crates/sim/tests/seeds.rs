//! A hundred brief seeds without a violation, and every kind of fault among them.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_sim::drive::run_many;
use convoke_sim::stats::Stats;
use convoke_sim::{Plan, run_plan};
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
    assert!(total.missing_faults().is_empty(), "{:?} never happened", total.missing_faults());
}
