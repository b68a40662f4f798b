//! The same seed gives the same trace, byte for byte; other wall clocks give the same decisions.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_sim::{Plan, run_plan};

#[test]
fn same_seed_same_trace() {
    for seed in [1, 7, 42] {
        let (one, two) = (run_plan(&Plan::brief(seed), false), run_plan(&Plan::brief(seed), false));
        assert_eq!(one.hash, two.hash, "seed {seed}");
        assert_eq!(one.stats.events, two.stats.events, "seed {seed}");
    }
    assert_ne!(run_plan(&Plan::brief(1), false).hash, run_plan(&Plan::brief(2), false).hash);
}

#[test]
fn wall_clocks_decide_nothing() {
    for seed in [3, 11] {
        let one = run_plan(&Plan::brief(seed), false);
        let two = run_plan(&Plan::brief(seed).with_clocks(seed + 1000), false);
        assert_eq!(one.decisions, two.decisions, "seed {seed}");
        assert_ne!(one.hash, two.hash, "the clocks of seed {seed} were different");
    }
}
