//! Drives a run: a period with faults, then recovery, then the final checks.

use crate::checks;
use crate::clients::{Worker, probe_writer};
use crate::cluster::Cluster;
use crate::coordination;
use crate::lockers::{LEASE_TTL, LOCKERS, Locker, observe_election, watch_keys};
use crate::members::Member;
use crate::plan::Plan;
use crate::record::micros;
use crate::restores::{self, Stage};
use crate::stats::Stats;
use crate::world::Shared;
use crate::{node, operator, outsiders};
use convoke_harness::seeds::panics;
use convoke_log::machine::Machine;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc::unbounded_channel;
use turmoil::Builder;

/// Simulated time passes in pieces: messages arrive at the beginning of one, timers are exact.
const TICK: Duration = Duration::from_millis(5);
const LATENCY_MAX: Duration = Duration::from_millis(30);
/// Deadline for the creation of the log.
const BEGIN_PATIENCE: Duration = Duration::from_secs(30);
/// Deadline for writes after the last fault, in every run; the summary shows how soon they resumed in most runs.
const RECOVERY_MAX: Duration = Duration::from_secs(15);
/// Within this time in 99 of 100 runs.
pub const RECOVERY_P99: Duration = Duration::from_secs(5);
/// Deadline for the next write after the leader of a healthy cluster crashes, in every run.
const LEADER_LOSS_MAX: Duration = Duration::from_secs(5);
/// Within this time in 99 of 100 runs.
pub const LEADER_LOSS_P99: Duration = Duration::from_secs(3);
/// The same for a leader that is cut off from the other replicas, but not from the clients. Clients doubt it after 2 s.
const LEADER_CUT_MAX: Duration = Duration::from_secs(8);
pub const LEADER_CUT_P99: Duration = Duration::from_secs(5);
/// Deadline for other replicas to notice a disk that went back in time (M6).
const ROLLBACK_PATIENCE: Duration = Duration::from_secs(20);
/// Time that a rolled back node stays down so that the leader purges the entries that it lacks.
const PURGE_PATIENCE: Duration = Duration::from_secs(10);
/// Entries that a replica acknowledges between the image of its disk and the rollback.
const ROLLBACK_ENTRIES: u64 = 10;
/// Deadline for all other replicas to have evidence of an acknowledgement.
const EVIDENCE_SPREAD_MAX: Duration = Duration::from_secs(1);
const CALM: Duration = Duration::from_secs(8);
const ORDERS_PATIENCE: Duration = Duration::from_secs(200);
const CLIENTS_PATIENCE: Duration = Duration::from_secs(180);
const AGREEMENT_PATIENCE: Duration = Duration::from_secs(30);

/// Deadline for the end of leases whose clients have ended. A leader change adds a ttl.
const LEASES_PATIENCE: Duration = Duration::from_secs(10 + 4 * LEASE_TTL.as_secs());
const WATCH_PATIENCE: Duration = Duration::from_secs(30);
/// Deadline for each step of a restore.
const RESTORE_PATIENCE: Duration = Duration::from_secs(30);

/// Result of a run.
#[derive(Debug)]
pub struct RunOutcome {
    pub seed: u64,
    pub stats: Stats,
    pub violation: Option<String>,
    /// The end of the trace.
    pub lines: Vec<String>,
    /// Hash of the whole trace.
    pub hash: u64,
}

/// Runs a plan to its end, or to the first violation.
pub fn run(plan: &Plan, verbose: bool) -> RunOutcome {
    let _keeping = panics::keep();
    fastrand::seed(plan.seed);
    convoke_replica::seed_thread(plan.seed);
    let shared = Arc::new(Shared::new(plan.clone(), verbose));
    let mut run = Run::new(shared.clone());
    // The simulator itself may panic, too.
    let result = catch_unwind(AssertUnwindSafe(|| run.through())).unwrap_or_else(|_| Err("no panics".to_owned()));
    let simulated = run.cluster.elapsed();
    // Hosts are dropped with the simulation: panics during that are ignored.
    let panic = panics::take();
    drop(run);
    panics::take();
    let mut record = shared.recorder.lock();
    let panicked = panic.map(|panic| format!("no panics: {panic}"));
    let violation = panicked.or(record.violation.take()).or(result.err());
    record.stats.seeds = 1;
    record.stats.simulated = simulated;
    let (lines, hash) = (record.trace.lines.drain(..).collect(), record.trace.hash());
    RunOutcome { seed: plan.seed, stats: std::mem::take(&mut record.stats), violation, lines, hash }
}

struct Run<'a> {
    cluster: Cluster<'a>,
    shared: Arc<Shared>,
}

impl Run<'_> {
    fn new(shared: Arc<Shared>) -> Self {
        let plan = &shared.plan;
        let mut builder = Builder::new();
        builder
            .rng_seed(plan.seed)
            .epoch(SystemTime::UNIX_EPOCH)
            .simulation_duration(Duration::MAX)
            .tick_duration(TICK)
            .max_message_latency(LATENCY_MAX)
            .tcp_capacity(1024);
        let mut sim = builder.build();
        for place in 0..plan.nodes() {
            let shared = shared.clone();
            sim.host(node::name(place), move || node::run(shared.clone(), place));
        }
        for machine in 0..2 {
            let shared = shared.clone();
            sim.client(machine_name(machine), async move {
                for worker in 0..shared.plan.workers {
                    tokio::spawn(Worker::new(shared.clone(), 2 * worker + machine)?.work());
                }
                for locker in 0..LOCKERS {
                    tokio::spawn(Locker::new(shared.clone(), 2 * locker + machine)?.work());
                }
                tokio::spawn(Member::new(shared.clone(), machine)?.work());
                match machine {
                    0 => watch_keys(shared.clone()).await,
                    _ => observe_election(shared.clone()).await,
                }
                std::future::pending().await
            });
        }
        #[allow(clippy::disallowed_methods, reason = "one driver, which waits for its orders")]
        let (orders, taken) = unbounded_channel();
        sim.client("probe_writer", probe_writer(shared.clone()));
        for number in 0..outsiders::WATCHES.len() {
            let shared = shared.clone();
            sim.client(format!("w{number}"), async move {
                outsiders::watch(shared, number).await;
                Ok(())
            });
        }
        sim.client("operator", operator::work(shared.clone(), taken));
        Run { cluster: Cluster::new(sim, shared.clone(), orders), shared }
    }

    fn through(&mut self) -> Result<(), String> {
        let begun = self.until(BEGIN_PATIENCE, |run| run.shared.recorder.lock().answered > 0)?;
        if !begun {
            return Err(format!("a log begins: nothing was written within {BEGIN_PATIENCE:?}"));
        }
        let end = self.cluster.elapsed() + self.shared.plan.fault_period;
        while self.cluster.elapsed() < end {
            self.cluster.inject_due()?;
            self.step()?;
        }
        self.cluster.heal();
        self.recover()?;
        let calm = self.cluster.elapsed() + CALM;
        while self.cluster.elapsed() < calm {
            self.step()?;
        }
        if !self.until(ORDERS_PATIENCE, |run| run.shared.recorder.lock().orders_left == 0)? {
            return Err(format!("membership arrives: not within {ORDERS_PATIENCE:?}"));
        }
        self.roll_back()?;
        self.lose_leader(LeaderLoss::Crash)?;
        self.lose_leader(LeaderLoss::Cut)?;
        self.shared.recorder.lock().closing = true;
        if !self.until(CLIENTS_PATIENCE, |run| run.shared.recorder.lock().workers_left == 0)? {
            return Err(format!("clients finish: not within {CLIENTS_PATIENCE:?}"));
        }
        if !self.until(AGREEMENT_PATIENCE, |run| run.cluster.agree())? {
            return Err(format!("replicas agree: {}", self.cluster.differences()));
        }
        if !self.until(LEASES_PATIENCE, |run| run.cluster.machine().is_some_and(|machine| is_released(&machine)))? {
            return Err(format!("leases and locks of ended clients end: not within {LEASES_PATIENCE:?}"));
        }
        let caught_up = |run: &mut Self| {
            let record = run.shared.recorder.lock();
            run.cluster.machine().is_some_and(|machine| coordination::caught_up(&record, &machine))
        };
        if !self.until(WATCH_PATIENCE, caught_up)? {
            return Err(format!("watches catch up: not within {WATCH_PATIENCE:?}"));
        }
        let Some(machine) = self.cluster.machine() else { return Err("no replica runs at the end".to_owned()) };
        let mut record = self.shared.recorder.lock();
        let coordination = coordination::check(&record, &machine)?;
        for (name, count) in
            checks::check(&record, coordination::key_revisions(&machine))?.into_iter().chain(coordination)
        {
            *record.stats.checks.entry(name).or_default() += count;
        }
        *record.stats.checks.entry("replicas agree").or_default() += 1;
        drop(record);
        self.restore()
    }

    /// Loses all disks, restores a backup on one node and requires that clients go on in the new log (LO8). The other checks
    /// are done: they are about one log.
    fn restore(&mut self) -> Result<(), String> {
        let stage = |run: &mut Self| run.shared.recorder.lock().restoring.stage;
        self.cluster.run("holder", restores::hold(self.shared.clone()));
        if !self.until(RESTORE_PATIENCE, |run| stage(run) == Stage::Prepared)? {
            return Err(format!("a backup is taken: not within {RESTORE_PATIENCE:?}"));
        }
        let Some(lost) = self.cluster.log() else { return Err("no replica runs before the restore".to_owned()) };
        self.shared.recorder.lock().restoring.stage = Stage::Lost;
        self.cluster.lose_all();
        let place = usize::try_from(self.shared.plan.seed).unwrap_or(0) % self.shared.plan.founders;
        self.cluster.run("restorer", restores::restore(self.shared.clone(), place));
        if !self.until(RESTORE_PATIENCE, |run| stage(run) == Stage::Restored)? {
            return Err(format!("a backup is restored: not within {RESTORE_PATIENCE:?}"));
        }
        restores::check_report(&self.shared.recorder.lock(), lost)?;
        self.cluster.start_restored(place);
        if !self.until(RECOVERY_MAX, |run| run.cluster.leader().is_some() && run.cluster.machine().is_some())? {
            return Err(format!("a restored log has a leader: not within {RECOVERY_MAX:?}"));
        }
        if let Some(machine) = self.cluster.machine() {
            restores::check_state(&self.shared.recorder.lock(), &machine)?;
        }
        self.shared.recorder.lock().restoring.stage = Stage::Serving;
        self.cluster.add_another(place);
        let complete = |run: &mut Self| {
            let record = run.shared.recorder.lock();
            record.restoring.is_complete() && record.orders_left == 0
        };
        if !self.until(ORDERS_PATIENCE, complete)? {
            let restoring = format!("{:?}", self.shared.recorder.lock().restoring);
            return Err(format!("clients go on after a restore: not within {ORDERS_PATIENCE:?}: {restoring}"));
        }
        if !self.until(AGREEMENT_PATIENCE, |run| run.cluster.agree())? {
            return Err(format!("replicas agree after a restore: {}", self.cluster.differences()));
        }
        let mut record = self.shared.recorder.lock();
        for check in ["a restore ends leases and locks", "fences grow over a restore", "watches are reset by a restore"]
        {
            *record.stats.checks.entry(check).or_default() += 1;
        }
        Ok(())
    }

    /// Ends all faults and requires that writes resume in time.
    fn recover(&mut self) -> Result<(), String> {
        self.shared.recorder.lock().healed = Some(micros(self.cluster.elapsed()));
        if !self.until(RECOVERY_MAX, |run| run.shared.recorder.lock().recovered.is_some())? {
            return Err(format!("writes resume: not within {RECOVERY_MAX:?}"));
        }
        let mut record = self.shared.recorder.lock();
        let took = Duration::from_micros(record.recovered.unwrap_or_default());
        record.stats.recoveries.push(took);
        *record.stats.checks.entry("writes resume").or_default() += 1;
        Ok(())
    }

    /// Restores an earlier image of a follower's disk and requires that the others exclude it; then it is replaced.
    fn roll_back(&mut self) -> Result<(), String> {
        // Without a spare node it could not be replaced.
        let Some((place, image, before)) = self.cluster.image_of_a_follower() else { return Ok(()) };
        let grown = |run: &mut Self| run.cluster.applied(place).is_some_and(|now| now >= before + ROLLBACK_ENTRIES);
        if !self.until(RECOVERY_MAX, grown)? {
            return Err(format!("a healthy replica follows: n{place} not within {RECOVERY_MAX:?}"));
        }
        // What no other replica has evidence of yet cannot be noticed (docs/log-replicas.md).
        let known = |run: &mut Self| run.cluster.is_known_to_have(place, before + ROLLBACK_ENTRIES);
        if !self.until(EVIDENCE_SPREAD_MAX, known)? {
            return Err(format!("evidence spreads: not within {EVIDENCE_SPREAD_MAX:?}: {}", self.cluster.describe()));
        }
        self.cluster.roll_back(place, image);
        if self.shared.plan.churn {
            // With small logs, the leader soon lacks the entries that the image lacks, and sends a snapshot at once.
            self.until(PURGE_PATIENCE, |run| run.cluster.has_purged(before))?;
        }
        self.cluster.start_again(place);
        if !self.until(ROLLBACK_PATIENCE, |run| run.cluster.is_excluded(place))? {
            let replicas = self.cluster.describe();
            return Err(format!(
                "a disk that went back is excluded: n{place} not within {ROLLBACK_PATIENCE:?}, image up to entry \
                 {before}: {replicas}"
            ));
        }
        self.cluster.replace(place);
        if !self.until(ORDERS_PATIENCE, |run| run.shared.recorder.lock().orders_left == 0)? {
            return Err(format!("membership arrives: not within {ORDERS_PATIENCE:?}"));
        }
        *self.shared.recorder.lock().stats.checks.entry("a disk that went back is excluded").or_default() += 1;
        Ok(())
    }

    /// Takes the leader of the healthy cluster away and requires that writes resume in time without it.
    fn lose_leader(&mut self, loss: LeaderLoss) -> Result<(), String> {
        if !self.until(RECOVERY_MAX, |run| run.cluster.leader().is_some())? {
            return Err("a healthy cluster has a leader: none is visible".to_owned());
        }
        let lost = self.cluster.elapsed();
        {
            let mut record = self.shared.recorder.lock();
            (record.leader_lost, record.leader_replaced) = (Some(micros(lost)), None);
        }
        let (_, limit, check) = match loss {
            LeaderLoss::Crash => {
                (self.cluster.crash_leader(), LEADER_LOSS_MAX, "writes resume without the lost leader")
            }
            LeaderLoss::Cut => {
                (self.cluster.isolate_leader(), LEADER_CUT_MAX, "writes resume without the leader that is cut off")
            }
        };
        if !self.until(limit, |run| run.shared.recorder.lock().leader_replaced.is_some())? {
            return Err(format!("{check}: not within {limit:?}"));
        }
        self.cluster.heal();
        let mut record = self.shared.recorder.lock();
        let took = Duration::from_micros(record.leader_replaced.unwrap_or_default()).saturating_sub(lost);
        match loss {
            LeaderLoss::Crash => record.stats.leader_losses.push(took),
            LeaderLoss::Cut => record.stats.leader_cuts.push(took),
        }
        *record.stats.checks.entry(check).or_default() += 1;
        Ok(())
    }

    fn until(&mut self, patience: Duration, condition: impl Fn(&mut Self) -> bool) -> Result<bool, String> {
        let end = self.cluster.elapsed() + patience;
        while !condition(self) {
            if self.cluster.elapsed() >= end {
                return Ok(false);
            }
            self.step()?;
        }
        Ok(true)
    }

    fn step(&mut self) -> Result<(), String> {
        self.cluster.step()?;
        if let Some(panic) = panics::first() {
            return Err(format!("no panics: {panic}"));
        }
        self.shared.recorder.lock().violation.take().map_or(Ok(()), Err)
    }
}

/// Nobody holds a lock or a lease any more.
fn is_released(machine: &Machine) -> bool {
    machine.lock_count() == 0 && machine.lease_count() == 0
}

/// How the leader of a healthy cluster is lost.
#[derive(Clone, Copy, Debug)]
enum LeaderLoss {
    Crash,
    /// It is cut off from the other replicas, but not from the clients.
    Cut,
}

/// Machines that clients run on.
pub(crate) fn machine_name(machine: u64) -> String {
    format!("c{machine}")
}
