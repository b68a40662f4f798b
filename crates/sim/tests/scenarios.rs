//! Runs every named scenario with all its seeds. All failures are reported, not just the first.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "the scenarios run on all cores and report their failures"
)]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_sim::scenarios::{self, Scenario};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn every_scenario_passes() {
    let next = AtomicUsize::new(0);
    let failures: Mutex<Vec<String>> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(scenario) = scenarios::all().get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(failure) = failure(scenario) {
                        failures.lock().expect("no scenario panics while it reports").push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no thread panicked");
    // Printed, because the simulator suppresses panic messages.
    println!("{} of {} scenarios failed", failures.len(), scenarios::all().len());
    println!("{}", failures.join("\n"));
    assert!(failures.is_empty());
}

fn failure(scenario: &Scenario) -> Option<String> {
    let outcome = scenarios::run(scenario, false);
    let violation = outcome.violation?;
    Some(format!("{} ({}), seed {}: {violation}", scenario.name, scenario.rules, outcome.seed))
}

#[test]
fn names_are_unique() {
    let names: BTreeSet<&str> = scenarios::all().iter().map(|scenario| scenario.name).collect();
    assert_eq!(names.len(), scenarios::all().len());
}
