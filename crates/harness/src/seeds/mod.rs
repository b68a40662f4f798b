//! Shared code of the simulators: many seeds on all cores, a progress bar, and panics kept as findings.

pub mod panics;

use indicatif::{ProgressBar, ProgressStyle};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

/// Runs seeds on some threads until all are done or `stop` is set; outcomes are handed over as they come.
pub fn run_many<Outcome: Send>(
    seeds: Range<u64>,
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

/// Returns the number of available threads.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}

/// A bar that shows how far a search has come; `what` is counted.
pub fn progress(count: u64, what: &str) -> ProgressBar {
    let template = format!("{{bar:40}} {{pos}}/{{len}} {what} {{elapsed}} (left {{eta}}) {{msg}}");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(count).with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_run_once_whatever_the_threads() {
        for threads in [0, 1, 7] {
            let mut seen = Vec::new();
            run_many(3..50, threads, &AtomicBool::new(false), |seed| seed, |seed| seen.push(seed));
            seen.sort_unstable();
            assert_eq!(seen, (3..50).collect::<Vec<_>>());
        }
    }

    #[test]
    fn nothing_more_is_begun_after_a_stop() {
        let (stop, mut seen) = (AtomicBool::new(false), 0);
        run_many(0..1_000_000, 2, &stop, |_| stop.store(true, Ordering::Relaxed), |()| seen += 1);
        assert!((1..=2).contains(&seen), "{seen}");
    }
}
