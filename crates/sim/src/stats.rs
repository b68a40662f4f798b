//! Statistics of a run, summed up for the summary.

use crate::faults::Fault;
use crate::invariants;
use crate::network::Micros;
use crate::plan::Kind;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub seeds: u64,
    pub simulated: Micros,
    pub events: u64,
    pub operations: u64,
    pub faults: BTreeMap<Fault, u64>,
    /// Checks made, by invariant.
    pub checks: BTreeMap<&'static str, u64>,
    /// Acknowledged writes of HTTP clients that faults have undone, as documented.
    pub http_writes_lost: u64,
    /// Times from the last heal to convergence.
    pub convergence: Vec<Convergence>,
}

/// One heal.
#[derive(Clone, Debug)]
pub struct Convergence {
    pub healed: Micros,
    pub took: Micros,
    /// The last missing condition.
    pub awaited: String,
}

impl Stats {
    pub fn add(&mut self, other: &Stats) {
        self.seeds += other.seeds;
        self.simulated += other.simulated;
        self.events += other.events;
        self.operations += other.operations;
        for (fault, count) in &other.faults {
            *self.faults.entry(*fault).or_default() += count;
        }
        for (invariant, count) in &other.checks {
            *self.checks.entry(invariant).or_default() += count;
        }
        self.http_writes_lost += other.http_writes_lost;
        self.convergence.extend(other.convergence.iter().cloned());
    }

    pub fn hours(&self) -> f64 {
        self.simulated as f64 / 3.6e9
    }

    pub fn fault_count(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Returns the convergence time that the share `q` of all does not exceed.
    pub fn quantile(&self, q: f64) -> Micros {
        let mut sorted: Vec<Micros> = self.convergence.iter().map(|one| one.took).collect();
        sorted.sort_unstable();
        let index = ((sorted.len() as f64 * q).ceil() as usize).saturating_sub(1);
        sorted.get(index).copied().unwrap_or(0)
    }

    /// Returns the fault kinds that occurred less often than required in this many seeds ("sometimes" assertions).
    pub fn scarce_faults(&self, kind: Kind) -> Vec<(Fault, u64)> {
        let count = |fault: Fault| self.faults.get(&fault).copied().unwrap_or(0);
        let least = |fault: Fault| (fault.least() * self.seeds / 100).max(1);
        let required = Fault::ALL.iter().copied().filter(|fault| fault.is_required(kind));
        required.map(|fault| (fault, count(fault))).filter(|(fault, count)| *count < least(*fault)).collect()
    }

    /// Returns the invariants that were checked less often than required in this many seeds.
    pub fn scarce_checks(&self, kind: Kind) -> Vec<(&'static str, u64)> {
        let count = |name: &str| self.checks.get(name).copied().unwrap_or(0);
        let scarce = |name: &&'static str| count(name) < invariants::least_checks(name, kind) * self.seeds / 100;
        invariants::names().into_iter().filter(scarce).map(|name| (name, count(name))).collect()
    }
}
