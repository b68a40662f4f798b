//! Level 2 against a simple model: transactions, history, watches, leases, locks and elections.
//!
//! The model keeps every state and every event for ever. After each entry, everything observable is compared: answers,
//! keys, the keys at every kept revision, history, leases, locks, and what watchers see. Copies of earlier
//! transactions must give their first results.

mod exhaustive;
mod leader;
mod locks;
mod reference;
mod run;
mod steps;
mod txns;
mod watchers;

use convoke_log::{CoordinationLimits, Level, LogLimits, Mutant, Mutation};
use run::Run;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

pub(crate) type Difference = String;

fn same<T: PartialEq + Debug>(what: &str, machine: &T, model: &T) -> Result<(), Difference> {
    if machine == model { Ok(()) } else { Err(format!("{what}: {machine:?}, and should be {model:?}")) }
}

/// Limits so small that each one is reached.
fn tight() -> LogLimits {
    LogLimits {
        key_bytes: 8,
        value_bytes: 3,
        range_keys: 3,
        client_name_bytes: 4,
        outcomes: 64,
        coordination: CoordinationLimits {
            keys: 5,
            answer_bytes: 360,
            history_bytes: 2_600,
            history_age: Duration::from_micros(150),
            leases: 4,
            lease_ttl_min: Duration::from_micros(10),
            lease_ttl_max: Duration::from_micros(60),
            keys_per_lease: 2,
            places_per_lease: 2,
            waiters: 2,
            places: 5,
            lock_value_bytes: 3,
            lock_delay_max: Duration::from_micros(30),
        },
        ..LogLimits::default()
    }
}

/// Runs one seed and returns what occurred.
fn run(seed: u64, mutation: Mutation) -> Result<BTreeMap<String, u64>, Difference> {
    let mut run = Run::new(seed, mutation);
    for _ in 0..10 {
        run.step()?;
    }
    for _ in 0..150 {
        if run.model.level < Level::COORDINATION {
            run.raise()?;
        }
        run.step()?;
    }
    let Run { mut seen, watchers, .. } = run;
    seen.insert("watched".to_owned(), watchers.count);
    seen.insert("watch compacted".to_owned(), watchers.compacted);
    Ok(seen)
}

/// Returns the first seed, or the check of a leader, that detects a mutant.
pub(crate) fn notices(mutant: Mutant) -> Option<String> {
    if let Err(difference) = leader::check(Mutation::of(mutant)) {
        return Some(format!("leader: {difference}"));
    }
    (0..SEEDS).find_map(|seed| {
        let difference = run(seed, Mutation::of(mutant)).err()?;
        Some(format!("coordination, seed {seed}: {}", difference.split([':', '{']).next().unwrap_or_default()))
    })
}

const SEEDS: u64 = 150;

/// Outcomes that must occur; otherwise the runs prove nothing.
const OCCUR: &[&str] = &[
    "Changed",
    "Ended",
    "Full",
    "Granted",
    "Invalid",
    "Level",
    "Lock",
    "LockHeld",
    "NoLease",
    "NotDelayed",
    "NotHeld",
    "OtherRegistration",
    "OtherTerm",
    "OutOfRange",
    "Permits",
    "Proclaimed",
    "Reconfigured",
    "Released",
    "Revoked",
    "StaleEpoch",
    "TooEarly",
    "TooLarge",
    "TooMany",
    "Txn",
    "watch compacted",
    "watched",
];

#[test]
fn level_two_equals_the_model_and_every_outcome_occurs() {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 0..SEEDS {
        match run(seed, Mutation::none()) {
            Ok(found) => found.into_iter().for_each(|(what, count)| *seen.entry(what).or_default() += count),
            Err(difference) => panic!("seed {seed}: {difference}"),
        }
    }
    let missing: Vec<_> = OCCUR.iter().filter(|name| seen.get(**name).is_none_or(|count| *count == 0)).collect();
    assert!(missing.is_empty(), "missing: {missing:?} in {seen:?}");
}
