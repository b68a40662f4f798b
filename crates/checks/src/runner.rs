//! Connects the schedule with the node and the network.

use crate::config::{CheckerConfig, ScriptCheck};
use crate::counters::{CheckCounters, Counting, add};
use crate::guard::Guard;
use crate::probe::Network;
use crate::schedule::{CheckAction, RunId, RunResult, Schedule};
use crate::scripts::run_scripts;
use crate::tls::ProbeTlsConfigs;
use convoke_core::Time;
use convoke_core::filter::Filter;
use convoke_core::member::{Check, Health, NODE_SERVICE};
use convoke_node::NodeHandle;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How often the addresses of nodes are read.
const NODES_INTERVAL: Duration = Duration::from_secs(10);
/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Nodes whose names are resolved at a time.
const NODES_MAX: usize = 1_024;

/// A checker that is set up and not running yet, or its state while it runs.
#[derive(Debug)]
pub struct Checker {
    network: Network,
    concurrency: usize,
    scripts: Vec<Arc<ScriptCheck>>,
    counting: Counting,
    members: AtomicU64,
    checks: AtomicU64,
}

impl Checker {
    /// Reads the authorities for checks with TLS. The error says which setting to change.
    pub fn new(config: &CheckerConfig) -> Result<Checker, String> {
        config.check_scripts().map_err(|error| error.to_string())?;
        let guard = Guard::new(config).map_err(|error| format!("checks.allow: {error}"))?;
        let tls = ProbeTlsConfigs::load(config.ca.as_deref()).map_err(|error| format!("checks.ca: {error}"))?;
        Ok(Checker {
            network: Network { guard, tls },
            concurrency: config.concurrency.clamp(1, 65_536),
            scripts: config.scripts.iter().cloned().map(Arc::new).collect(),
            counting: Counting::default(),
            members: AtomicU64::new(0),
            checks: AtomicU64::new(0),
        })
    }

    /// The ports of this node, which no check reaches.
    #[must_use]
    pub fn with_own_ports(mut self, ports: Vec<u16>) -> Arc<Checker> {
        self.network.guard.set_own_ports(ports);
        Arc::new(self)
    }

    pub fn counters(&self) -> CheckCounters {
        self.counting.read()
    }

    /// How many members this node checks, and how many checks they have.
    pub fn sizes(&self) -> (u64, u64) {
        (self.members.load(Ordering::Relaxed), self.checks.load(Ordering::Relaxed))
    }

    async fn probe(&self, check: &Check) -> RunResult {
        match self.network.probe(check).await {
            Ok(outcome) => {
                let failed = outcome.status == Health::Critical;
                add(if failed { &self.counting.runs_failed } else { &self.counting.runs_good }, 1);
                outcome
            }
            Err(error) => {
                add(if error.is_denied() { &self.counting.runs_denied } else { &self.counting.runs_failed }, 1);
                RunResult { status: Health::Critical, output: error.to_string() }
            }
        }
    }
}

/// Runs the checks that a node owns, and the scripts of its configuration, until the future is dropped.
pub async fn run(node: NodeHandle, checker: Arc<Checker>) {
    let nodes = follow_nodes(&node, &checker.network.guard);
    tokio::select! {
        () = nodes => {}
        () = run_checks(&node, &checker) => {}
        () = run_scripts(&node, &checker.scripts, &checker.counting) => {}
    }
}

async fn run_checks(node: &NodeHandle, checker: &Arc<Checker>) {
    let started = Instant::now();
    let now = || Time::ZERO + started.elapsed();
    let mut schedule = Schedule::new(fastrand::u64(..));
    let permits = Arc::new(Semaphore::new(checker.concurrency));
    // At most one run per check, so the tasks are bounded by the checks. Dropping the set ends them.
    let mut runs: JoinSet<Option<(RunId, RunResult)>> = JoinSet::new();
    loop {
        let due = schedule.next().map_or(SLEEP_MAX, |at| at.since(now()).min(SLEEP_MAX));
        tokio::select! {
            changes = node.check_changes() => {
                if changes.reset {
                    schedule.clear();
                }
                for (id, assigned) in changes.assigned {
                    schedule.assign(now(), &id, assigned);
                }
                for report in changes.reports {
                    let known = schedule.reported(now(), &report);
                    add(if known { &checker.counting.reports } else { &checker.counting.reports_unknown }, 1);
                }
                let (members, checks) = schedule.sizes();
                checker.members.store(members as u64, Ordering::Relaxed);
                checker.checks.store(checks as u64, Ordering::Relaxed);
            }
            Some(ended) = runs.join_next() => {
                if let Ok(Some((run, outcome))) = ended {
                    schedule.finished(now(), &run, outcome);
                }
            }
            () = tokio::time::sleep(due) => {}
        }
        for action in schedule.poll(now()) {
            match action {
                CheckAction::Run { run, checks } => {
                    let (checker, permits) = (checker.clone(), permits.clone());
                    runs.spawn(async move {
                        let _permit = permits.acquire_owned().await.ok()?;
                        let check = checks.get(run.index)?;
                        let outcome = checker.probe(check).await;
                        Some((run, outcome))
                    });
                }
                CheckAction::Publish { member, claim, checks } => {
                    if node.report_health(&member, claim, checks).await.unwrap_or(false) {
                        add(&checker.counting.published, 1);
                    }
                }
                CheckAction::Deregister { member, claim } => {
                    if node.deregister_critical(&member, claim).await.unwrap_or(false) {
                        tracing::warn!(member = %member, "deregistered: it was critical for too long");
                    }
                }
            }
        }
    }
}

/// Keeps the addresses that no check may reach: the listeners of all nodes.
async fn follow_nodes(node: &NodeHandle, guard: &Guard) {
    let mut ticks = tokio::time::interval(NODES_INTERVAL);
    loop {
        ticks.tick().await;
        guard.set_nodes(listeners(node).await);
    }
}

async fn listeners(node: &NodeHandle) -> HashSet<SocketAddr> {
    let mut texts = vec![node.peer_address().to_owned(), node.client_address().to_owned()];
    let filter = Filter::service(NODE_SERVICE);
    let page = node.held_members(&filter, None, NODES_MAX).unwrap_or_default();
    for member in &page.members {
        texts.push(member.address().to_owned());
        texts.extend(member.metadata().get("peer_address").map(str::to_owned));
    }
    texts.retain(|text| !text.is_empty());
    texts.sort_unstable();
    texts.dedup();
    let mut found = HashSet::new();
    for text in texts {
        match text.parse::<SocketAddr>() {
            Ok(address) => drop(found.insert(address)),
            Err(_) => found.extend(lookup_host(text).await.into_iter().flatten()),
        }
    }
    found
}
