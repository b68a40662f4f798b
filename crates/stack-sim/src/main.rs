//! Command line of the simulation of the log's whole stack.

use anyhow::Result;
use clap::{Parser, Subcommand};
use convoke_harness::seeds::{cores, progress, run_many};
use convoke_stack_sim::drive::{self, LEADER_CUT_P99, LEADER_LOSS_P99, RECOVERY_P99, RunOutcome};
use convoke_stack_sim::stats::{Stats, quantile};
use convoke_stack_sim::{Mutant, Plan};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs of at least this many seeds must include every kind of fault often enough, and keep the bounds of 99 of 100 runs.
const SOMETIMES_FROM: u64 = 50;

#[derive(Parser)]
#[command(about = "Simulation of the log's whole stack: real replicas, gRPC and SDK on a simulated network and disk.")]
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
        /// Continue after a violation and report all of them.
        #[arg(long)]
        keep_going: bool,
        /// Fail if fewer hours were simulated in total.
        #[arg(long, value_name = "HOURS", default_value_t = 0.0)]
        at_least: f64,
    },
    /// Run one seed and print its trace.
    Replay {
        #[arg(long)]
        seed: u64,
        /// Print one line per event.
        #[arg(long)]
        verbose: bool,
        /// Print the logging of the nodes, too.
        #[arg(long)]
        logs: bool,
        /// Run with this deliberate bug.
        #[arg(long)]
        mutant: Option<String>,
    },
    /// Check that every deliberate bug is found.
    Mutants {
        #[arg(long, default_value_t = 200)]
        seeds: u64,
        #[arg(long)]
        threads: Option<usize>,
    },
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().command {
        Command::Run { seeds, start, threads, keep_going, at_least } => {
            run(start..start + seeds, threads, keep_going, at_least)
        }
        Command::Replay { seed, verbose, logs, mutant } => {
            if logs {
                tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).without_time().init();
            }
            Ok(replay(seed, verbose, mutant.as_deref()))
        }
        Command::Mutants { seeds, threads } => Ok(mutants(seeds, threads)),
    }
}

fn run(seeds: std::ops::Range<u64>, threads: Option<usize>, keep_going: bool, at_least: f64) -> Result<ExitCode> {
    let bar = progress(seeds.end - seeds.start, "seeds");
    let started = Instant::now();
    let (mut total, mut failures) = (Stats::default(), 0_u64);
    let stop = AtomicBool::new(false);
    let one = |seed| drive::run(&Plan::new(seed), false);
    run_many(seeds, threads.unwrap_or_else(cores), &stop, one, |outcome| {
        total.add(&outcome.stats);
        if outcome.violation.is_some() {
            failures += 1;
            bar.suspend(|| report(&outcome, None));
            stop.store(!keep_going, Ordering::Relaxed);
        }
        bar.set_message(format!("{:.1} simulated hours", total.hours()));
        bar.inc(1);
    });
    bar.finish_and_clear();
    summary(&total, started.elapsed().as_secs_f64());
    if failures > 0 {
        println!("{failures} seeds violated a check");
        return Ok(ExitCode::from(1));
    }
    if total.hours() < at_least {
        println!("{:.1} hours were simulated, fewer than {at_least}: run more seeds", total.hours());
        return Ok(ExitCode::from(1));
    }
    if total.seeds < SOMETIMES_FROM {
        return Ok(ExitCode::SUCCESS);
    }
    let rare: Vec<String> =
        total.too_rare().iter().map(|(fault, count)| format!("{} ({count})", fault.name())).collect();
    if !rare.is_empty() {
        println!("fault kinds that occurred too rarely: {}", rare.join("; "));
        return Ok(ExitCode::from(1));
    }
    if quantile(&total.recoveries, 0.99) > RECOVERY_P99 {
        println!("writes did not resume within {RECOVERY_P99:?} of the last repair in 99 of 100 runs");
        return Ok(ExitCode::from(1));
    }
    if quantile(&total.leader_losses, 0.99) > LEADER_LOSS_P99 {
        println!("writes did not resume within {LEADER_LOSS_P99:?} of a crash of the leader in 99 of 100 runs");
        return Ok(ExitCode::from(1));
    }
    if quantile(&total.leader_cuts, 0.99) > LEADER_CUT_P99 {
        println!("writes did not resume within {LEADER_CUT_P99:?} of a cut of the leader in 99 of 100 runs");
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}

fn summary(total: &Stats, seconds: f64) {
    println!("seeds               {}", total.seeds);
    println!("simulated           {:.1} cluster-hours", total.hours());
    println!("operations");
    for (operation, count) in &total.operations {
        println!("  {operation:<36} {count}");
    }
    println!("faults              {}", total.faults.values().sum::<u64>());
    for (fault, count) in &total.faults {
        println!("  {:<36} {count}", fault.name());
    }
    println!("checks");
    for (check, count) in &total.checks {
        println!("  {check:<36} {count}");
    }
    println!("writes resume       {}", spread(&total.recoveries));
    println!("leader crashed      {}", spread(&total.leader_losses));
    println!("leader cut off      {}", spread(&total.leader_cuts));
    println!("wall time           {seconds:.1} s");
}

fn spread(times: &[Duration]) -> String {
    let ms = |q| quantile(times, q).as_millis();
    format!("{} times: p50 {} ms, p99 {} ms, max {} ms", times.len(), ms(0.5), ms(0.99), ms(1.0))
}

fn report(outcome: &RunOutcome, mutant: Option<Mutant>) {
    let Some(violation) = &outcome.violation else { return };
    println!("seed {} violates: {violation}", outcome.seed);
    println!("last events:");
    for line in &outcome.lines {
        println!("  {line}");
    }
    let mutant = mutant.map(|mutant| format!(" --mutant {}", mutant.name())).unwrap_or_default();
    println!(
        "replay: cargo run --profile sim -p convoke-stack-sim -- replay --seed {}{mutant} --verbose",
        outcome.seed
    );
}

fn replay(seed: u64, verbose: bool, mutant: Option<&str>) -> ExitCode {
    let mut plan = Plan::new(seed);
    let mutant = match mutant {
        None => None,
        Some(name) => match Mutant::ALL.iter().copied().find(|mutant| mutant.name() == name) {
            Some(found) => Some(found),
            None => {
                let names: Vec<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
                eprintln!("unknown mutant {name:?}; known ones: {}", names.join(", "));
                return ExitCode::from(2);
            }
        },
    };
    plan.mutant = mutant;
    if verbose {
        println!("{plan:#?}");
    }
    let started = Instant::now();
    let outcome = drive::run(&plan, verbose);
    match outcome.violation {
        Some(_) => report(&outcome, mutant),
        None => summary(&outcome.stats, started.elapsed().as_secs_f64()),
    }
    println!("trace hash {:016x}", outcome.hash);
    if outcome.violation.is_some() { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

fn mutants(seeds: u64, threads: Option<usize>) -> ExitCode {
    let mut missed = false;
    for mutant in Mutant::ALL.iter().copied() {
        let (stop, mut found) = (AtomicBool::new(false), None);
        let one = |seed| drive::run(&Plan::new(seed).with(mutant), false);
        run_many(1..seeds + 1, threads.unwrap_or_else(cores), &stop, one, |outcome| {
            if let Some(violation) = outcome.violation {
                stop.store(true, Ordering::Relaxed);
                found = found.take().or(Some((outcome.seed, violation)));
            }
        });
        match found {
            Some((seed, violation)) => {
                let what = violation.split(':').next().unwrap_or_default();
                println!("{:<24} seed {seed}: {what}", mutant.name());
            }
            None => {
                missed = true;
                println!("{:<24} NOT FOUND by {seeds} seeds", mutant.name());
            }
        }
    }
    if missed { ExitCode::from(1) } else { ExitCode::SUCCESS }
}
