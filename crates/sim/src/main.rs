//! Command line of the simulator.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "the command line prints, and reports its own duration"
)]

use anyhow::Result;
use clap::{Parser, Subcommand};
use convoke_harness::seeds::{cores, progress, run_many};
use convoke_sim::drive::{self, RunOutcome};
use convoke_sim::invariants::CONVERGENCE_P99;
use convoke_sim::mutants::AnyMutant;
use convoke_sim::network::Micros;
use convoke_sim::stats::{Convergence, Stats};
use convoke_sim::{Kind, mutants, scenarios};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Maximum number of seeds with lost HTTP writes that a run prints.
const LOST_WRITES_SHOWN: usize = 5;
/// Runs of at least this many seeds must reach the minimum counts of faults and checks, and the bound on convergence.
const SOMETIMES_FROM: u64 = 100;

#[derive(Parser)]
#[command(about = "Deterministic simulation of Convoke clusters: seeds, scenarios, mutants.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run many seeds and print a summary.
    Run {
        #[arg(long, default_value_t = 100)]
        seeds: u64,
        #[arg(long, default_value_t = 1)]
        start: u64,
        #[arg(long)]
        threads: Option<usize>,
        #[command(flatten)]
        kind: KindOption,
        /// Continue after a violation and report all of them.
        #[arg(long)]
        keep_going: bool,
        /// Print the last missing condition when convergence took longer than this many milliseconds.
        #[arg(long, value_name = "MS", default_value_t = CONVERGENCE_P99 / 1000)]
        slow: u64,
    },
    /// Run one seed and print its trace.
    Replay {
        #[arg(long)]
        seed: u64,
        /// Print one line per event.
        #[arg(long)]
        verbose: bool,
        #[command(flatten)]
        kind: KindOption,
        /// Run with this deliberate bug.
        #[arg(long)]
        mutant: Option<String>,
    },
    /// Run a named scenario, or all of them.
    Scenario {
        name: String,
        #[arg(long)]
        verbose: bool,
        /// Run with this deliberate bug.
        #[arg(long)]
        mutant: Option<String>,
    },
    /// Check that every deliberate bug is caught.
    Mutants {
        #[arg(long, default_value_t = 400)]
        seeds: u64,
        #[arg(long)]
        name: Option<String>,
        #[arg(long)]
        threads: Option<usize>,
        /// Run no seeds for a mutant that a scenario catches.
        #[arg(long, conflicts_with = "markdown")]
        once: bool,
        /// Print docs/mutants.md.
        #[arg(long)]
        markdown: bool,
    },
}

#[derive(clap::Args)]
struct KindOption {
    /// Use short plans of a few simulated minutes.
    #[arg(long)]
    brief: bool,
    /// Use short plans of one theme each, such as long splits or replaced clients.
    #[arg(long, conflicts_with = "brief")]
    focused: bool,
}

impl KindOption {
    fn kind(&self) -> Kind {
        match (self.brief, self.focused) {
            (true, _) => Kind::Brief,
            (_, true) => Kind::Focused,
            _ => Kind::Full,
        }
    }
}

fn main() -> Result<ExitCode> {
    Ok(match Arguments::parse().command {
        Command::Run { seeds, start, threads, kind, keep_going, slow } => {
            run(start..start + seeds, threads, kind.kind(), keep_going, slow * 1000)?
        }
        Command::Replay { seed, verbose, kind, mutant } => replay(seed, verbose, kind.kind(), mutant.as_deref()),
        Command::Scenario { name, verbose, mutant } => scenario(&name, verbose, mutant.as_deref()),
        Command::Mutants { seeds, name, threads, once, markdown } => {
            run_mutants(seeds, name.as_deref(), threads, once, markdown)?
        }
    })
}

fn run(
    seeds: std::ops::Range<u64>,
    threads: Option<usize>,
    kind: Kind,
    keep_going: bool,
    slow: Micros,
) -> Result<ExitCode> {
    let bar = progress(seeds.end - seeds.start, "seeds");
    let started = Instant::now();
    let (mut total, mut failures) = (Stats::default(), 0_u64);
    let mut lossy = Vec::new();
    let stop = AtomicBool::new(false);
    let one = |seed| if kind == Kind::Full { drive::run_seed(seed) } else { drive::run_plan(&kind.plan(seed), false) };
    run_many(seeds, threads.unwrap_or_else(cores), &stop, one, |outcome| {
        total.add(&outcome.stats);
        if outcome.stats.http_writes_lost > 0 {
            lossy.push(outcome.seed);
        }
        for one in outcome.stats.convergence.iter().filter(|one| one.took > slow) {
            bar.suspend(|| println!("{}", late(outcome.seed, one)));
        }
        if outcome.violation.is_some() {
            failures += 1;
            bar.suspend(|| report(&outcome, kind, None));
            stop.store(!keep_going, Ordering::Relaxed);
        }
        bar.set_message(format!("{:.0} simulated hours", total.hours()));
        bar.inc(1);
    });
    bar.finish_and_clear();
    summary(&total, started.elapsed().as_secs_f64());
    lost_writes(lossy, kind);
    if failures > 0 {
        println!("{failures} seeds violated an invariant");
        return Ok(ExitCode::from(1));
    }
    if total.seeds < SOMETIMES_FROM {
        return Ok(ExitCode::SUCCESS);
    }
    let scarce = total.scarce_faults(kind);
    if !scarce.is_empty() {
        let names: Vec<String> = scarce.iter().map(|(fault, count)| format!("{} ({count})", fault.name())).collect();
        println!("fault kinds below their minimum count: {}", names.join(", "));
        return Ok(ExitCode::from(1));
    }
    let scarce = total.scarce_checks(kind);
    if !scarce.is_empty() {
        let names: Vec<String> = scarce.iter().map(|(invariant, count)| format!("{invariant} ({count})")).collect();
        println!("invariants below their minimum number of checks: {}", names.join(", "));
        return Ok(ExitCode::from(1));
    }
    if total.quantile(0.99) > CONVERGENCE_P99 {
        println!("p99 of the convergence times is above the bound of {} ms", CONVERGENCE_P99 / 1000);
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}

fn summary(total: &Stats, seconds: f64) {
    let hours = total.hours().max(1e-9);
    println!("seeds               {}", total.seeds);
    println!("simulated           {:.1} cluster-hours", total.hours());
    println!("events              {} ({:.0} per second)", total.events, total.events as f64 / seconds.max(1e-9));
    println!("client operations   {} ({:.0} per simulated hour)", total.operations, total.operations as f64 / hours);
    println!(
        "faults              {} ({:.0} per simulated hour)",
        total.fault_count(),
        total.fault_count() as f64 / hours
    );
    for (fault, count) in &total.faults {
        println!("  {:<28} {count}", fault.name());
    }
    println!("invariant checks");
    for (invariant, count) in &total.checks {
        println!("  {invariant:<28} {count}");
    }
    println!("HTTP writes lost    {} (docs/consistency.md)", total.http_writes_lost);
    let ms = |q| total.quantile(q) / 1000;
    println!("convergence         p50 {} ms, p99 {} ms, max {} ms", ms(0.5), ms(0.99), ms(1.0));
    println!("wall time           {seconds:.1} s");
}

/// Prints some of the seeds in which faults undid acknowledged writes of HTTP clients.
fn lost_writes(mut seeds: Vec<u64>, kind: Kind) {
    seeds.sort_unstable();
    let Some(first) = seeds.first() else { return };
    let shown: Vec<String> = seeds.iter().take(LOST_WRITES_SHOWN).map(u64::to_string).collect();
    println!("seeds with such     {} (first: {})", seeds.len(), shown.join(", "));
    println!("  replay --seed {first}{} --verbose, lines with \"lost write\"", kind.option());
}

/// Describes a slow convergence and its last missing condition.
fn late(seed: u64, one: &Convergence) -> String {
    let (took, healed) = (one.took / 1000, convoke_sim::trace::stamp(one.healed));
    format!(
        "seed {seed}: converged {took} ms after the heal at {}; last missing condition: {}",
        healed.trim_start(),
        one.awaited
    )
}

fn report(outcome: &RunOutcome, kind: Kind, mutant: Option<&str>) {
    let Some(violation) = &outcome.violation else { return };
    println!("seed {} violates {violation}", outcome.seed);
    println!("last events:");
    for line in &outcome.lines {
        println!("  {line}");
    }
    let kind = kind.option();
    let mutant = mutant.map(|name| format!(" --mutant {name}")).unwrap_or_default();
    println!(
        "replay: cargo run --profile sim -p convoke-sim -- replay --seed {}{kind}{mutant} --verbose",
        outcome.seed
    );
}

fn replay(seed: u64, verbose: bool, kind: Kind, mutant: Option<&str>) -> ExitCode {
    let mut plan = kind.plan(seed);
    if let Some(name) = mutant {
        let Some(mutant) = find_mutant(name) else { return usage(&format!("unknown mutant {name:?}")) };
        plan = plan.with_mutant(Some(mutant));
    }
    if verbose {
        println!("{plan:#?}");
    }
    let started = Instant::now();
    let outcome = drive::run_plan(&plan, verbose);
    if outcome.violation.is_some() {
        report(&outcome, kind, mutant);
    } else {
        summary(&outcome.stats, started.elapsed().as_secs_f64());
    }
    println!("trace hash {:016x}, decisions {:016x}", outcome.hash.0, outcome.decisions.0);
    if outcome.violation.is_some() { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

fn scenario(name: &str, verbose: bool, mutant: Option<&str>) -> ExitCode {
    let active = mutant.and_then(find_mutant);
    if let (Some(name), None) = (mutant, active) {
        return usage(&format!("unknown mutant {name:?}"));
    }
    let chosen: Vec<&scenarios::Scenario> = match name {
        "all" => scenarios::ALL.iter().collect(),
        name => scenarios::find(name).into_iter().collect(),
    };
    if chosen.is_empty() {
        let names: Vec<&str> = scenarios::ALL.iter().map(|scenario| scenario.name).collect();
        return usage(&format!("unknown scenario {name:?}; known scenarios: {}", names.join(", ")));
    }
    let mut failed = false;
    for scenario in chosen {
        let outcome = match active {
            None => scenarios::run(scenario, verbose),
            Some(_) => scenarios::run_mutated(scenario, 1, active, verbose),
        };
        match &outcome.violation {
            None => println!("pass  {:<36} {}", scenario.name, scenario.description),
            Some(violation) => {
                failed = true;
                println!("FAIL  {:<36} {violation}", scenario.name);
                for line in &outcome.lines {
                    println!("  {line}");
                }
                println!("replay: cargo run --profile sim -p convoke-sim -- scenario {} --verbose", scenario.name);
            }
        }
    }
    if failed { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

fn run_mutants(seeds: u64, name: Option<&str>, threads: Option<usize>, once: bool, markdown: bool) -> Result<ExitCode> {
    let chosen: Vec<AnyMutant> = match name {
        None => AnyMutant::all(),
        Some(name) => find_mutant(name).into_iter().collect(),
    };
    if chosen.is_empty() {
        return Ok(usage(&format!("unknown mutant {name:?}")));
    }
    let bar = progress(chosen.len() as u64, "mutants");
    let started = Instant::now();
    let caught = mutants::run_all(&chosen, seeds, once, threads.unwrap_or_else(cores), |caught| {
        if !markdown {
            bar.suspend(|| println!("{}", line(caught)));
        }
        bar.inc(1);
    });
    bar.finish_and_clear();
    if markdown {
        print!("{}", mutants::page(&caught, seeds));
    }
    let missed: Vec<&str> = caught.iter().filter(|one| !one.is_caught()).map(|one| one.mutant.name()).collect();
    let by_seed = caught.iter().filter(|one| one.seed.is_some()).count();
    let by_scenario = caught.iter().filter(|one| one.scenario.is_some()).count();
    eprintln!(
        "{} of {} caught ({by_seed} by one of {seeds} seeds, {by_scenario} by a scenario) in {:.0} s",
        caught.len() - missed.len(),
        caught.len(),
        started.elapsed().as_secs_f64()
    );
    if missed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("not caught: {}", missed.join(", "));
    Ok(ExitCode::from(1))
}

/// Formats the result of one mutant as a progress line.
fn line(caught: &mutants::Caught) -> String {
    let seed = caught
        .seed
        .as_ref()
        .map_or("no seed".to_owned(), |by| format!("seed {}{}: {}", by.seed, by.kind.option(), by.invariant));
    let scenario = caught.scenario.as_ref().map_or("no scenario", |by| by.name);
    let (name, rule, took) = (caught.mutant.name(), caught.mutant.rule(), caught.took.as_secs_f64());
    let verdict = if caught.is_caught() { "" } else { "  NOT CAUGHT" };
    format!("{name:<32} {rule:<4} {took:>5.1} s  {seed:<44} {scenario}{verdict}")
}

fn find_mutant(name: &str) -> Option<AnyMutant> {
    AnyMutant::all().into_iter().find(|mutant| mutant.name().eq_ignore_ascii_case(name))
}

fn usage(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::from(2)
}
