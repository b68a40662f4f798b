//! Each rule that carries a promise is switched off in turn; each time somebody must notice.
//!
//! Only a difference counts: the same seeds pass without the mutant (`promises_hold_under_any_delivery`).

use crate::delivery::{self, Violation};
use convoke_log::{Mutant, Mutation};

/// Seeds tried for each.
const SEEDS: u64 = 200;

/// The first seed that notices, and what it says.
fn hunt(mutant: Mutant) -> Option<(u64, Violation)> {
    (0..SEEDS).find_map(|seed| delivery::run(seed, Mutation::of(mutant)).err().map(|violation| (seed, violation)))
}

#[test]
fn every_mutant_is_caught_under_delivery() {
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        match hunt(*mutant) {
            Some((seed, violation)) => {
                println!("{} ({}): seed {seed}: {}", mutant.name(), mutant.rule(), violation.check);
            }
            None => missed.push(mutant.name()),
        }
    }
    assert!(missed.is_empty(), "nobody noticed {missed:?}");
}

#[test]
fn every_mutant_is_in_the_table_of_the_protocol() {
    let protocol = include_str!("../../../../docs/log-protocol.md");
    for mutant in Mutant::ALL {
        let row = format!("| `{}` | {} | {} |", mutant.name(), mutant.rule(), mutant.meaning());
        assert!(protocol.contains(&row), "missing: {row}");
    }
}
