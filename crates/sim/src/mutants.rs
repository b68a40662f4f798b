//! Shows that the invariants would notice real bugs: each mutant must be caught (docs/mutants.md).

use crate::drive::run_plan;
use crate::plan::Plan;
use convoke_core::{Mutant, Mutation};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Brief plans tried before a full one.
const BRIEF_PER_FULL: u64 = 20;

/// What became of one mutant.
#[derive(Clone, Debug)]
pub struct Caught {
    pub mutant: Mutant,
    /// The invariant, and after how many seeds.
    pub by: Option<(&'static str, u64)>,
    pub message: String,
}

/// Tries seeds until an invariant is violated.
pub fn hunt(mutant: Mutant, seeds: u64) -> Caught {
    for seed in 1..=seeds {
        let plan = if seed.is_multiple_of(BRIEF_PER_FULL) { Plan::full(seed) } else { Plan::brief(seed) };
        let outcome = run_plan(&plan.clone().with_mutation(Mutation::of(mutant)), false);
        if let Some(violation) = outcome.violation {
            // Only a difference counts: a seed that fails without the mutant as well shows nothing.
            if run_plan(&plan, false).violation.is_some() {
                continue;
            }
            return Caught { mutant, by: Some((violation.invariant, seed)), message: violation.message };
        }
    }
    Caught { mutant, by: None, message: String::new() }
}

/// Hunts several mutants on some threads; results in the order of the list.
pub fn hunt_all(mutants: &[Mutant], seeds: u64, threads: usize, each: impl Fn(&Caught) + Sync) -> Vec<Caught> {
    let next = AtomicUsize::new(0);
    let caught: Mutex<Vec<(usize, Caught)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(mutant) = mutants.get(index) else { return };
                    let result = hunt(*mutant, seeds);
                    each(&result);
                    caught.lock().expect("no hunter panics while holding the lock").push((index, result));
                }
            });
        }
    });
    let mut caught = caught.into_inner().expect("all hunters are done");
    caught.sort_by_key(|(index, _)| *index);
    caught.into_iter().map(|(_, result)| result).collect()
}
