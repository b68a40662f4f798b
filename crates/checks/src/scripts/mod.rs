//! Scripts that the configuration file of this node names: their results are reported as those of applications (HC4). Nothing
//! but that file can set a script.

mod process;
mod schedule;

pub(crate) use schedule::ScriptSchedule;

use crate::config::ScriptCheck;
use crate::counters::{Counting, add};
use crate::schedule::RunResult;
use convoke_core::member::Health;
use convoke_core::node::CheckReport;
use convoke_core::{Rejection, Time};
use convoke_node::NodeHandle;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Runs the scripts until the future is dropped, which kills those that run.
pub(crate) async fn run_scripts(node: &NodeHandle, scripts: &[Arc<ScriptCheck>], counting: &Counting) {
    if scripts.is_empty() {
        return std::future::pending().await;
    }
    let started = Instant::now();
    let now = || Time::ZERO + started.elapsed();
    let mut schedule = ScriptSchedule::new(now(), scripts.iter().map(|script| script.interval), fastrand::u64(..));
    // Whether the last result was not taken, by script.
    let mut untaken = vec![false; scripts.len()];
    // As many as the schedule allows at a time.
    let mut runs = JoinSet::new();
    loop {
        for index in schedule.poll(now()) {
            let (node, script) = (node.clone(), scripts[index].clone());
            runs.spawn(async move {
                let outcome = process::run(&script).await;
                let status = outcome.status;
                (index, status, report(&node, &script, outcome).await)
            });
        }
        let due = schedule.next().map_or(SLEEP_MAX, |at| at.since(now()).min(SLEEP_MAX));
        tokio::select! {
            Some(ended) = runs.join_next() => {
                let Ok((index, status, reported)) = ended else { continue };
                schedule.finished(now(), index);
                let failed = status == Health::Critical;
                add(if failed { &counting.scripts_failed } else { &counting.scripts_good }, 1);
                if reported.is_err() {
                    add(&counting.scripts_unreported, 1);
                }
                log_change(&scripts[index], &mut untaken[index], reported.as_ref().err());
            }
            () = tokio::time::sleep(due) => {}
        }
    }
}

async fn report(node: &NodeHandle, script: &ScriptCheck, outcome: RunResult) -> Result<(), Rejection> {
    let (id, check) = (script.member.as_str().into(), script.check.as_str().into());
    node.report_check(CheckReport { id, check, status: outcome.status, output: outcome.output }).await.map(drop)
}

/// Logs once that results are not taken, and once that they are again.
fn log_change(script: &ScriptCheck, untaken: &mut bool, rejection: Option<&Rejection>) {
    let (member, check) = (&script.member, &script.check);
    match rejection {
        Some(error) if !*untaken => {
            tracing::warn!(%member, %check, reason = error.message, "result of a script not taken; the node tries again");
        }
        None if *untaken => tracing::info!(%member, %check, "results of a script are taken again"),
        _ => {}
    }
    *untaken = rejection.is_some();
}
