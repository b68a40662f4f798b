//! Runs plans: the phases of one, and many at once.

use crate::invariants::{Violation, compare_clocks};
use crate::network::SECOND;
use crate::plan::Plan;
use crate::stats::Stats;
use crate::trace::Fold;
use crate::world::World;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

/// One in this many seeds is run again with other wall clocks (invariant 13).
const CLOCK_RERUNS: u64 = 20;

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub violation: Option<Violation>,
    /// The end of the trace.
    pub lines: Vec<String>,
    pub stats: Stats,
    pub hash: Fold,
    pub decisions: Fold,
}

/// Runs a full plan, and for some seeds a second time with other clocks.
pub fn run_seed(seed: u64) -> Outcome {
    let plan = Plan::full(seed);
    let mut outcome = run_plan(&plan, false);
    if seed.is_multiple_of(CLOCK_RERUNS) && outcome.violation.is_none() {
        let again = run_plan(&plan.with_clocks(!seed), false);
        outcome.violation = compare_clocks(outcome.decisions, again.decisions);
        *outcome.stats.checks.entry("clocks_irrelevant").or_default() += 1;
        outcome.stats.simulated += again.stats.simulated;
        outcome.stats.add(&Stats { seeds: 0, simulated: 0, ..again.stats });
    }
    outcome
}

/// Runs a plan to its end or to its first violation. A panic anywhere is a violation of `no_panic`.
pub fn run_plan(plan: &Plan, verbose: bool) -> Outcome {
    quiet_panics();
    let mut world = plan.world();
    world.trace.verbose = verbose;
    let result = catch_unwind(AssertUnwindSafe(|| phases(&mut world, plan)));
    let violation = match result {
        Ok(Ok(())) => None,
        Ok(Err(violation)) => Some(violation),
        Err(_) => Some(Violation::new("no_panic", world.now, LAST_PANIC.take())),
    };
    outcome(plan.setup.seed, &mut world, violation)
}

/// Runs a scripted world in the same manner.
pub fn run_script(
    mut world: World,
    script: impl FnOnce(&mut World) -> Result<(), Violation>,
    verbose: bool,
) -> Outcome {
    quiet_panics();
    world.trace.verbose = verbose;
    let result = catch_unwind(AssertUnwindSafe(|| script(&mut world).and_then(|()| world.finish())));
    let violation = match result {
        Ok(Ok(())) => None,
        Ok(Err(violation)) => Some(violation),
        Err(_) => Some(Violation::new("no_panic", world.now, LAST_PANIC.take())),
    };
    outcome(world.setup.seed, &mut world, violation)
}

fn outcome(seed: u64, world: &mut World, violation: Option<Violation>) -> Outcome {
    let mut stats = std::mem::take(&mut world.stats);
    stats.seeds = 1;
    stats.simulated = world.now;
    stats.events = world.trace.events;
    stats.faults = std::mem::take(&mut world.faults.counts);
    for invariant in &world.invariants {
        *stats.checks.entry(invariant.name()).or_default() += invariant.checks();
    }
    Outcome {
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

/// Runs seeds on some threads until all are done or `stop` is set; outcomes are handed over as they come.
pub fn run_many(
    seeds: std::ops::Range<u64>,
    threads: usize,
    stop: &AtomicBool,
    run: impl Fn(u64) -> Outcome + Sync,
    mut each: impl FnMut(Outcome),
) {
    let next = AtomicU64::new(seeds.start);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (sender, next, run) = (sender.clone(), &next, &run);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || sender.send(run(seed)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for outcome in receiver {
            each(outcome);
        }
    });
}

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Panics of simulated nodes are findings: they are kept for the report instead of being printed.
fn quiet_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::env::var_os("CONVOKE_SIM_PANICS").is_some() {
                before(info);
            }
            LAST_PANIC.set(info.to_string());
        }));
    });
}
