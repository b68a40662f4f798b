//! Shows that the invariants would notice real bugs: each mutant must be caught (docs/mutants.md).

use crate::drive::run_plan;
use crate::plan::Kind;
use crate::scenarios;
use convoke_core::{Mutant, Mutation};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What became of one mutant.
#[derive(Clone, Debug)]
pub struct Caught {
    pub mutant: Mutant,
    pub by: Option<By>,
    pub message: String,
    pub took: Duration,
}

/// What noticed a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The random search, after so many seeds.
    Seed { kind: Kind, seed: u64, invariant: &'static str },
    /// No seed, but a story told on purpose.
    Scenario { name: &'static str, invariant: &'static str },
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            By::Seed { kind, seed, invariant } => write!(f, "{invariant}, seed {seed}{}", kind.option()),
            By::Scenario { name, .. } => write!(f, "scenario {name}"),
        }
    }
}

/// How the n-th seed of a hunt is read: focused plans are cheap and strong, whole ones are neither, but wide.
pub fn kind_of(seed: u64) -> Kind {
    match seed {
        _ if seed.is_multiple_of(20) => Kind::Full,
        _ if seed.is_multiple_of(4) => Kind::Brief,
        _ => Kind::Focused,
    }
}

/// Tries seeds, then the named stories, until something is violated that is not violated without the mutant.
pub fn hunt(mutant: Mutant, seeds: u64) -> Caught {
    let started = Instant::now();
    let (by, message) = by_seed(mutant, seeds).or_else(|| by_scenario(mutant)).unzip();
    Caught { mutant, by, message: message.unwrap_or_default(), took: started.elapsed() }
}

fn by_seed(mutant: Mutant, seeds: u64) -> Option<(By, String)> {
    (1..=seeds).find_map(|seed| {
        let kind = kind_of(seed);
        let plan = kind.plan(seed);
        let violation = run_plan(&plan.clone().with_mutation(Mutation::of(mutant)), false).violation?;
        // Only a difference counts: a seed that fails without the mutant as well shows nothing.
        let differs = run_plan(&plan, false).violation.is_none();
        differs.then_some((By::Seed { kind, seed, invariant: violation.invariant }, violation.message))
    })
}

fn by_scenario(mutant: Mutant) -> Option<(By, String)> {
    scenarios::ALL.iter().find_map(|scenario| {
        let told = |seed, mutation| scenarios::run_mutated(scenario, seed, mutation, false).violation;
        (1..=scenario.seeds).find_map(|seed| {
            let violation = told(seed, Mutation::of(mutant))?;
            let differs = told(seed, Mutation::none()).is_none();
            let by = By::Scenario { name: scenario.name, invariant: violation.invariant };
            differs.then_some((by, violation.message))
        })
    })
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

/// The table of docs/mutants.md.
pub fn table(caught: &[Caught]) -> String {
    let mut text = "| Mutant | Rule | What is wrong | Noticed by | How |\n|---|---|---|---|---|\n".to_owned();
    for Caught { mutant, by, .. } in caught {
        let (noticed, how) = match by {
            None => ("**nothing**".to_owned(), String::new()),
            Some(By::Seed { kind, seed, invariant }) => {
                let plural = if *seed == 1 { "" } else { "s" };
                (format!("`{invariant}`"), format!("{seed} seed{plural}{}", kind.option().replace(" --", ", ")))
            }
            Some(By::Scenario { name, .. }) => (format!("`{name}`"), "scenario".to_owned()),
        };
        let (name, rule, meaning) = (mutant.name(), mutant.rule(), mutant.meaning());
        text += &format!("| `{name}` | {rule} | {meaning} | {noticed} | {how} |\n");
    }
    text
}
