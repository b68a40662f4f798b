//! Runs plans, phase by phase.

use crate::invariants::{self, Violation, compare_clocks};
use crate::network::SECOND;
use crate::plan::Plan;
use crate::stats::Stats;
use crate::trace::Fold;
use crate::world::World;
use convoke_harness::seeds::panics;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs one in this many seeds again with other wall clocks (`clocks_irrelevant`).
const CLOCK_RERUNS: u64 = 20;

/// Result of a run.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    pub seed: u64,
    pub violation: Option<Violation>,
    /// The end of the trace.
    pub lines: Vec<String>,
    pub stats: Stats,
    pub hash: Fold,
    pub decisions: Fold,
}

/// Runs a full plan. Some seeds run a second time with other clocks.
pub fn run_seed(seed: u64) -> RunOutcome {
    let plan = Plan::full(seed);
    if seed.is_multiple_of(CLOCK_RERUNS) { run_with_two_clocks(plan) } else { run_plan(&plan, false) }
}

/// Runs a plan twice, with different wall clocks, and compares the decisions.
pub fn run_with_two_clocks(plan: Plan) -> RunOutcome {
    let mut outcome = run_plan(&plan, false);
    if outcome.violation.is_none() {
        let again = run_plan(&plan.with_clocks(!outcome.seed), false);
        outcome.violation = compare_clocks(outcome.decisions, again.decisions);
        *outcome.stats.checks.entry(invariants::CLOCKS_IRRELEVANT).or_default() += 1;
        outcome.stats.simulated += again.stats.simulated;
        outcome.stats.add(&Stats { seeds: 0, simulated: 0, ..again.stats });
    }
    outcome
}

/// Runs a plan to its end or to its first violation. A panic anywhere is a violation of `no_panic`.
pub fn run_plan(plan: &Plan, verbose: bool) -> RunOutcome {
    run_script(plan.world(), |world| phases(world, plan), verbose)
}

/// Runs a scripted world in the same way.
pub fn run_script(
    mut world: World,
    script: impl FnOnce(&mut World) -> Result<(), Violation>,
    verbose: bool,
) -> RunOutcome {
    let _keeping = panics::keep();
    world.trace.verbose = verbose;
    let result = catch_unwind(AssertUnwindSafe(|| script(&mut world).and_then(|()| world.finish())));
    let violation = match result {
        Ok(Ok(())) => None,
        Ok(Err(violation)) => Some(violation),
        Err(_) => Some(Violation::new(invariants::NO_PANIC, world.now, panics::take().unwrap_or_default())),
    };
    outcome(world.setup.seed, &mut world, violation)
}

fn outcome(seed: u64, world: &mut World, violation: Option<Violation>) -> RunOutcome {
    let mut stats = std::mem::take(&mut world.stats);
    stats.seeds = 1;
    stats.simulated = world.now;
    stats.events = world.trace.events;
    stats.faults = std::mem::take(&mut world.faults.counts);
    for invariant in &world.invariants {
        *stats.checks.entry(invariant.name()).or_default() += invariant.checks();
    }
    *stats.checks.entry(invariants::HTTP_ANSWERS).or_default() += world.http.checks;
    RunOutcome {
        seed,
        violation,
        lines: world.trace.last_lines(),
        stats,
        hash: world.trace.hash,
        decisions: world.trace.decisions,
    }
}

fn phases(world: &mut World, plan: &Plan) -> Result<(), Violation> {
    for round in &plan.rounds {
        world.begin_chaos();
        match plan.theme {
            Some(theme) => (theme.play)(world, world.now + round.chaos),
            None => world.advance(round.chaos),
        }
        world.finish()?;
        world.settle()?;
        if round.long_peace {
            let wait = 2 * world.linger() + 30 * SECOND;
            world.advance(wait);
            world.finish()?;
            world.quiesce()?;
        }
    }
    Ok(())
}
