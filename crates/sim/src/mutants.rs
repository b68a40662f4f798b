//! Shows that the checks find real bugs: every mutant must be caught (docs/mutants.md).

#![allow(clippy::disallowed_types, reason = "the search reports its own duration")]

use crate::drive::{RunOutcome, run_plan};
use crate::plan::Kind;
use crate::scenarios::{self, Scenario};
use crate::world::Setup;
use convoke_harness::seeds::run_many;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A deliberate bug of the core, of HTTP sessions or of the SDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyMutant {
    Core(convoke_core::Mutant),
    Http(convoke_http_session::Mutant),
    Sdk(convoke_session::Mutant),
}

impl AnyMutant {
    pub fn all() -> Vec<AnyMutant> {
        let core = convoke_core::Mutant::ALL.iter().copied().map(AnyMutant::Core);
        let http = convoke_http_session::Mutant::ALL.iter().copied().map(AnyMutant::Http);
        let sdk = convoke_session::Mutant::ALL.iter().copied().map(AnyMutant::Sdk);
        core.chain(http).chain(sdk).collect()
    }

    pub fn name(self) -> &'static str {
        match self {
            AnyMutant::Core(mutant) => mutant.name(),
            AnyMutant::Http(mutant) => mutant.name(),
            AnyMutant::Sdk(mutant) => mutant.name(),
        }
    }

    /// The rule of the protocol that is broken.
    pub fn rule(self) -> &'static str {
        match self {
            AnyMutant::Core(mutant) => mutant.rule(),
            AnyMutant::Http(mutant) => mutant.rule(),
            AnyMutant::Sdk(mutant) => mutant.rule(),
        }
    }

    pub fn meaning(self) -> &'static str {
        match self {
            AnyMutant::Core(mutant) => mutant.meaning(),
            AnyMutant::Http(mutant) => mutant.meaning(),
            AnyMutant::Sdk(mutant) => mutant.meaning(),
        }
    }
}

impl Setup {
    /// The same with a mutant, or with none.
    pub fn with_mutant(self, mutant: Option<AnyMutant>) -> Setup {
        let correct = Setup {
            mutation: convoke_core::Mutation::none(),
            http_mutation: convoke_http_session::Mutation::none(),
            sdk_mutation: convoke_session::Mutation::none(),
            ..self
        };
        match mutant {
            None => correct,
            Some(AnyMutant::Core(mutant)) => Setup { mutation: convoke_core::Mutation::of(mutant), ..correct },
            Some(AnyMutant::Http(mutant)) => {
                Setup { http_mutation: convoke_http_session::Mutation::of(mutant), ..correct }
            }
            Some(AnyMutant::Sdk(mutant)) => Setup { sdk_mutation: convoke_session::Mutation::of(mutant), ..correct },
        }
    }
}

/// Result of one mutant.
#[derive(Clone, Debug)]
pub struct Caught {
    pub mutant: AnyMutant,
    /// The random seed that caught it.
    pub seed: Option<BySeed>,
    /// The scenario that caught it.
    pub scenario: Option<ByScenario>,
    pub took: Duration,
}

/// The first seed that caught a mutant, counted from 1.
#[derive(Clone, Debug)]
pub struct BySeed {
    pub seed: u64,
    pub kind: Kind,
    pub invariant: &'static str,
    pub message: String,
}

/// The first scenario that caught a mutant.
#[derive(Clone, Debug)]
pub struct ByScenario {
    pub name: &'static str,
    pub invariant: &'static str,
    pub message: String,
}

impl Caught {
    pub fn is_caught(&self) -> bool {
        self.seed.is_some() || self.scenario.is_some()
    }
}

/// Returns the plan kind of the n-th seed: focused plans are cheap and effective, brief plans are broader.
pub fn kind_of(seed: u64) -> Kind {
    if seed.is_multiple_of(4) { Kind::Brief } else { Kind::Focused }
}

/// Runs the scenarios and the seeds until a run violates an invariant that it does not violate without the mutant. With
/// `once`, a mutant that a scenario catches runs through no seeds.
pub fn run_one(mutant: AnyMutant, seeds: u64, once: bool) -> Caught {
    let started = Instant::now();
    let scenario = by_scenario(mutant);
    let seed = if once && scenario.is_some() { None } else { by_seed(mutant, seeds) };
    Caught { mutant, seed, scenario, took: started.elapsed() }
}

fn by_seed(mutant: AnyMutant, seeds: u64) -> Option<BySeed> {
    (1..=seeds).find_map(|seed| {
        let kind = kind_of(seed);
        let run = |active| run_plan(&kind.plan(seed).with_mutant(active), false);
        let (invariant, message) = difference(mutant, run)?;
        Some(BySeed { seed, kind, invariant, message })
    })
}

fn by_scenario(mutant: AnyMutant) -> Option<ByScenario> {
    let (likely, others): (Vec<&Scenario>, Vec<&Scenario>) =
        scenarios::ALL.iter().partition(|scenario| scenario.covers_rule(mutant.rule()));
    likely.into_iter().chain(others).find_map(|scenario| {
        let run = |seed, active| scenarios::run_mutated(scenario, seed, active, false);
        let (invariant, message) =
            (1..=scenario.seeds).find_map(|seed| difference(mutant, |active| run(seed, active)))?;
        Some(ByScenario { name: scenario.name, invariant, message })
    })
}

/// Returns the invariant that a mutant violates. A violation that occurs without the mutant as well proves nothing.
fn difference(mutant: AnyMutant, run: impl Fn(Option<AnyMutant>) -> RunOutcome) -> Option<(&'static str, String)> {
    let violation = run(Some(mutant)).violation?;
    run(None).violation.is_none().then_some((violation.invariant, violation.message))
}

/// Runs several mutants on some threads; results are in the order of the list.
pub fn run_all(
    mutants: &[AnyMutant],
    seeds: u64,
    once: bool,
    threads: usize,
    mut each: impl FnMut(&Caught),
) -> Vec<Caught> {
    let mut caught = Vec::new();
    let one = |index: u64| mutants.get(index as usize).map(|mutant| (index, run_one(*mutant, seeds, once)));
    run_many(0..mutants.len() as u64, threads, &AtomicBool::new(false), one, |found| {
        let Some((index, found)) = found else { return };
        each(&found);
        caught.push((index, found));
    });
    caught.sort_by_key(|(index, _)| *index);
    caught.into_iter().map(|(_, found)| found).collect()
}

/// The text of docs/mutants.md before its table.
const INTRODUCTION: &str = "# Mutants

A mutant is a deliberate bug of the core, of the SDK or of HTTP sessions (`src/mutant.rs` in `crates/core`, `crates/session` and `crates/http-session`).
It switches off a rule of [protocol.md](protocol.md).
Mutants exist only in builds with the feature `mutants`, which only the simulator enables.
Without the feature every mutant check is the constant `false`.

```
cargo run --profile sim -p convoke-sim -- mutants                                 # all; fails if one is not caught
cargo run --profile sim -p convoke-sim -- mutants --once                          # the same without seeds for those that a scenario catches
cargo run --profile sim -p convoke-sim -- mutants --name NoExchange               # one
cargo run --profile sim -p convoke-sim -- mutants --name NoExchange --markdown    # its row of this page
cargo run --profile sim -p convoke-sim -- replay --seed 1 --focused --mutant NoExchange --verbose
cargo run --profile sim -p convoke-sim -- mutants --markdown > docs/mutants.md    # this page
```

Every mutant runs through the scenarios, those about its rule first, and through seeds from 1 until one finds a violation.
Three of four seeds are *focused*: a few minutes of faults that belong together (`crates/sim/src/themes`).
Every fourth seed is *brief*: a few minutes of all faults.
A violation counts only if it does not occur without the mutant.
The table shows the invariant and the seed that caught the mutant, and the scenario that did.
An invariant after a colon failed in that scenario; without one, the scenario's own check failed.
`none of N` means that no seed up to N found a violation.
`crates/sim/tests/mutants.rs` runs a few mutants with every change and requires a mutant for every rule.
";

/// Returns the text of docs/mutants.md.
pub fn page(caught: &[Caught], seeds: u64) -> String {
    let all = caught.len();
    let either = caught.iter().filter(|one| one.is_caught()).count();
    let by_seed = caught.iter().filter(|one| one.seed.is_some()).count();
    let by_scenario = caught.iter().filter(|one| one.scenario.is_some()).count();
    let sum = format!("Caught: {either} of {all}; {by_seed} within {seeds} seeds, {by_scenario} by a scenario.\n");
    [INTRODUCTION, "\n", &sum, "\n", &table(caught, seeds)].concat()
}

fn table(caught: &[Caught], seeds: u64) -> String {
    let mut text = "| Mutant | Rule | What is wrong | Invariant, seed | Scenario |\n|---|---|---|---|---|\n".to_owned();
    for Caught { mutant, seed, scenario, .. } in caught {
        let by_seed = seed.as_ref().map_or(format!("none of {seeds}"), |by| {
            format!("`{}`, {}{}", by.invariant, by.seed, by.kind.option().replace(" --", ", "))
        });
        let by_scenario = scenario.as_ref().map_or("none".to_owned(), |by| match by.invariant {
            crate::invariants::SCENARIO => format!("`{}`", by.name),
            invariant => format!("`{}`: `{invariant}`", by.name),
        });
        let (name, rule, meaning) = (mutant.name(), mutant.rule(), mutant.meaning());
        text += &format!("| `{name}` | {rule} | {meaning} | {by_seed} | {by_scenario} |\n");
    }
    text
}
