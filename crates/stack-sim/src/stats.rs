//! Statistics of runs, summed up for the summary.

use crate::faults::Fault;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub seeds: u64,
    pub simulated: Duration,
    /// Client operations by kind.
    pub operations: BTreeMap<&'static str, u64>,
    pub faults: BTreeMap<Fault, u64>,
    /// Checks, and how often they were made.
    pub checks: BTreeMap<&'static str, u64>,
    /// Times from the last heal to the next write that was answered.
    pub recoveries: Vec<Duration>,
}

impl Stats {
    pub fn add(&mut self, other: &Stats) {
        self.seeds += other.seeds;
        self.simulated += other.simulated;
        merge(&mut self.operations, &other.operations);
        merge(&mut self.faults, &other.faults);
        merge(&mut self.checks, &other.checks);
        self.recoveries.extend(&other.recoveries);
    }

    pub fn hours(&self) -> f64 {
        self.simulated.as_secs_f64() / 3600.0
    }

    /// Returns the recovery time that the share `q` of all does not exceed.
    pub fn quantile(&self, q: f64) -> Duration {
        let mut sorted = self.recoveries.clone();
        sorted.sort_unstable();
        let index = ((sorted.len() as f64 * q).ceil() as usize).saturating_sub(1);
        sorted.get(index).copied().unwrap_or_default()
    }

    /// Returns the kinds of faults that never occurred: the run proves nothing about them.
    pub fn missing(&self) -> Vec<Fault> {
        Fault::ALL.iter().copied().filter(|fault| !self.faults.contains_key(fault)).collect()
    }
}

fn merge<K: Ord + Copy>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
    for (key, count) in from {
        *into.entry(*key).or_default() += count;
    }
}
