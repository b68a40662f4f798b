//! Counts the operations of workers during the measured time.

use super::cluster::Cluster;
use super::histogram::Histogram;
use super::report::Report;
use convoke_cli::{CommandError, Result};
use convoke_proto::{Error, ErrorCode};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// State shared by all workers.
#[derive(Debug)]
pub(super) struct Tally {
    done: AtomicU64,
    errors: Mutex<BTreeMap<ErrorCode, u64>>,
    latency: Histogram,
    start: Instant,
    end: Instant,
}

impl Tally {
    pub(super) fn new(duration: Duration) -> Arc<Tally> {
        let start = Instant::now();
        let (errors, latency) = (Mutex::default(), Histogram::default());
        Arc::new(Tally { done: AtomicU64::new(0), errors, latency, start, end: start + duration })
    }

    /// Whether there is time for another operation.
    pub(super) fn open(&self) -> bool {
        Instant::now() < self.end
    }

    pub(super) fn start(&self) -> Instant {
        self.start
    }

    pub(super) fn end(&self) -> Instant {
        self.end
    }

    /// Records an operation that started at the given time and has ended now.
    pub(super) fn record(&self, began: Instant) {
        self.latency.record(began.elapsed());
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an operation whose duration is not known.
    pub(super) fn count(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn record_error(&self, error: &Error) {
        *self.errors.lock().unwrap_or_else(PoisonError::into_inner).entry(error.code).or_default() += 1;
    }

    /// Waits for an operation and records its result.
    pub(super) async fn time<T>(&self, operation: impl Future<Output = Result<T, Error>>) -> Option<T> {
        let began = Instant::now();
        match operation.await {
            Ok(done) => {
                self.record(began);
                Some(done)
            }
            Err(error) => {
                self.record_error(&error);
                None
            }
        }
    }

    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    fn errors(&self) -> BTreeMap<String, u64> {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.iter().map(|(code, count)| (code.to_string(), *count)).collect()
    }
}

/// Runs workers to their end, shows their progress, and sums up.
pub(super) async fn measure(
    cluster: &Cluster,
    name: &'static str,
    tally: &Arc<Tally>,
    workers: JoinSet<Result>,
) -> Result<Report> {
    let before = cluster.cpu();
    let shown = show(name, tally);
    let finished = join(workers).await;
    let (elapsed, after) = (tally.start.elapsed(), cluster.cpu());
    shown.finish_and_clear();
    finished?;
    let operations = tally.done();
    let cpu = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    Ok(Report {
        benchmark: name,
        nodes: cluster.addresses().len(),
        seconds: elapsed.as_secs_f64(),
        operations,
        per_second: operations as f64 / elapsed.as_secs_f64(),
        errors: tally.errors(),
        latency_us: tally.latency.latency(),
        server_cpu_us: cpu.filter(|_| operations > 0).map(|cpu| cpu.as_secs_f64() * 1e6 / operations as f64),
        server_cores: cpu.map(|cpu| cpu.as_secs_f64() / elapsed.as_secs_f64()),
        figures: Vec::new(),
    })
}

/// Waits for all; the first that fails ends the others.
pub(super) async fn join(mut workers: JoinSet<Result>) -> Result {
    while let Some(finished) = workers.join_next().await {
        finished.map_err(|error| CommandError::failed(format!("a worker ended unexpectedly: {error}")))??;
    }
    Ok(())
}

/// Shows a progress bar of the elapsed time, if stderr is a terminal.
fn show(name: &'static str, tally: &Arc<Tally>) -> Shown {
    let all = tally.end.duration_since(tally.start);
    let bar = bar(name, u64::try_from(all.as_millis()).unwrap_or(u64::MAX), "{bar:40} {msg}");
    let (tally, moving) = (tally.clone(), bar.clone());
    let task = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let (elapsed, done) = (tally.start.elapsed(), tally.done());
            moving.set_position(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
            moving.set_message(format!("{done} done, {:.0} per second", done as f64 / elapsed.as_secs_f64()));
        }
    });
    Shown { bar, task: Some(task) }
}

/// Shows a progress bar for a counted preparation.
pub(super) fn preparing(what: &'static str, count: u64) -> Shown {
    Shown { bar: bar(what, count, "{bar:40} {pos} of {len}"), task: None }
}

fn bar(name: &'static str, length: u64, rest: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let style = ProgressStyle::with_template(&format!("{{prefix}} {rest}"));
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(name);
    bar
}

/// A progress bar that disappears when dropped.
#[derive(Debug)]
pub(super) struct Shown {
    bar: ProgressBar,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Shown {
    pub(super) fn advance(&self, count: u64) {
        self.bar.inc(count);
    }

    pub(super) fn finish_and_clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        self.bar.finish_and_clear();
    }
}
