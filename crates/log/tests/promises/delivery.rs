//! An adversarial network between clients and replicas. Copies are delayed, duplicated and delivered to other leaders
//! in other terms. Leaders are deposed without noticing; servers restart from snapshots and pause. Clients abandon,
//! retry, resolve, pipeline and restart. The seed decides everything, and the same seed gives the same run.

mod actions;
mod bodies;
mod checks;
mod client;
mod cluster;
mod coordination;
mod linear;
mod reads;
mod world;

use convoke_log::Mutation;
use std::collections::BTreeMap;
use std::fmt;

/// A broken promise.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) check: &'static str,
    pub(crate) message: String,
}

impl Violation {
    pub(crate) fn new(check: &'static str, message: String) -> Self {
        Violation { check, message }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.message)
    }
}

pub(crate) type Check = Result<(), Violation>;

/// Counts of events in a run.
pub(crate) type Tally = BTreeMap<&'static str, u64>;

/// Runs one seed.
pub(crate) fn run(seed: u64, mutation: Mutation) -> Result<Tally, Violation> {
    world::World::new(seed, mutation).run()
}

/// Minimum number of occurrences in a thousand seeds; otherwise the runs prove nothing.
const SOMETIMES: &[(&str, u64)] = &[
    ("abandoned request superseded", 1_000),
    ("barrier read", 1_000),
    ("client restarted", 300),
    ("copy crossed into another epoch", 500),
    ("copy of an applied request", 2_000),
    ("deadline passed", 300),
    ("end of a lease proposed", 50),
    ("expiry proposed", 300),
    ("fence of an own request", 100),
    ("fence of another session", 50),
    ("follower truncated its log", 100),
    ("gap", 300),
    ("leader deposed without knowing", 300),
    ("lease expired", 50),
    ("lock granted", 200),
    ("lock handed over", 5),
    ("membership change failed its compare", 50),
    ("membership changed", 200),
    ("name fenced a predecessor", 30),
    ("not admitted below a volatile floor", 300),
    ("outcome too old", 1_000),
    ("propose check raced", 1_000),
    ("server restarted", 1_000),
    ("server paused", 300),
    ("session expired", 200),
    ("snapshot installed", 50),
    ("update applied", 2_000),
];

/// Number of seeds; use `LOG_SEEDS=100000 cargo test --release -p convoke-log delivery` for a long search.
#[allow(clippy::disallowed_methods, reason = "the caller of the test chooses the number of seeds")]
fn seeds() -> u64 {
    std::env::var("LOG_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(2_000)
}

#[test]
fn promises_hold_under_any_delivery() {
    let mut tally = Tally::new();
    for seed in 0..seeds() {
        match run(seed, Mutation::none()) {
            Ok(found) => found.into_iter().for_each(|(what, count)| *tally.entry(what).or_default() += count),
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    let enough = |what: &str, least: u64| tally.get(what).is_some_and(|count| count * 1_000 >= least * seeds());
    let rare: Vec<_> = SOMETIMES.iter().filter(|(what, least)| !enough(what, *least)).collect();
    assert!(rare.is_empty(), "too rare: {rare:?} in {tally:#?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [3, 77] {
        assert_eq!(run(seed, Mutation::none()).unwrap(), run(seed, Mutation::none()).unwrap());
    }
}
