//! Statistics of runs, summed up for the summary.

use crate::faults::Fault;
use std::collections::BTreeMap;
use std::time::Duration;

/// Every kind of fault occurs at least once in this many seeds, on average.
const SEEDS_PER_FAULT: u64 = 10;

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
    /// Times from the loss of the leader to the next write, in an otherwise healthy cluster.
    pub leader_losses: Vec<Duration>,
    /// The same for a leader that clients still reach.
    pub leader_cuts: Vec<Duration>,
}

impl Stats {
    pub fn add(&mut self, other: &Stats) {
        self.seeds += other.seeds;
        self.simulated += other.simulated;
        merge(&mut self.operations, &other.operations);
        merge(&mut self.faults, &other.faults);
        merge(&mut self.checks, &other.checks);
        self.recoveries.extend(&other.recoveries);
        self.leader_losses.extend(&other.leader_losses);
        self.leader_cuts.extend(&other.leader_cuts);
    }

    pub fn hours(&self) -> f64 {
        self.simulated.as_secs_f64() / 3600.0
    }

    /// Returns the kinds of faults that occurred too rarely, with their counts: the run proves little about them.
    pub fn too_rare(&self) -> Vec<(Fault, u64)> {
        let counts = Fault::ALL.iter().map(|fault| (*fault, self.faults.get(fault).copied().unwrap_or(0)));
        counts.filter(|(_, count)| *count < self.seeds.div_ceil(SEEDS_PER_FAULT)).collect()
    }
}

/// Returns the time that the share `q` of all does not exceed.
pub fn quantile(times: &[Duration], q: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let index = ((sorted.len() as f64 * q).ceil() as usize).saturating_sub(1);
    sorted.get(index).copied().unwrap_or_default()
}

fn merge<K: Ord + Copy>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
    for (key, count) in from {
        *into.entry(*key).or_default() += count;
    }
}
