//! Parameters of a run, decided by its seed.

use std::time::Duration;

/// A deliberate bug, to show that the checks can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Disks report syncs that they did not perform.
    DisksLie,
    /// Reads are answered from the state of any replica but reported as linearizable.
    ReadsAreLocal,
    /// A request without an answer is treated as one that did nothing.
    UnknownMeansFailed,
    /// A client sends a retry with a new number instead of the same one.
    RetriesAreNew,
    /// Replicas ignore evidence that a disk went back in time (M6).
    RollbackIgnored,
    /// Holders of a lock do not require it in their writes.
    WritesUnguarded,
    /// Holders of a lock ignore that their lease is lost.
    LossIgnored,
    /// A watch loses events.
    EventsLost,
    /// A restored log keeps its revisions, leases and locks (LO8).
    RestoredAsIs,
    /// A leader ends leases of members although its node is alone, not ready or degraded (LE7).
    RegistryTrusted,
    /// A leader ends leases of members right after its election (LE7).
    NewLeaderTrusted,
}

impl Mutant {
    pub const ALL: &'static [Mutant] = &[
        Mutant::DisksLie,
        Mutant::ReadsAreLocal,
        Mutant::UnknownMeansFailed,
        Mutant::RetriesAreNew,
        Mutant::RollbackIgnored,
        Mutant::WritesUnguarded,
        Mutant::LossIgnored,
        Mutant::EventsLost,
        Mutant::RestoredAsIs,
        Mutant::RegistryTrusted,
        Mutant::NewLeaderTrusted,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Mutant::DisksLie => "disks-lie",
            Mutant::ReadsAreLocal => "reads-are-local",
            Mutant::UnknownMeansFailed => "unknown-means-failed",
            Mutant::RetriesAreNew => "retries-are-new",
            Mutant::RollbackIgnored => "rollback-ignored",
            Mutant::WritesUnguarded => "writes-unguarded",
            Mutant::LossIgnored => "loss-ignored",
            Mutant::EventsLost => "events-lost",
            Mutant::RestoredAsIs => "restored-as-is",
            Mutant::RegistryTrusted => "registry-trusted",
            Mutant::NewLeaderTrusted => "new-leader-trusted",
        }
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// Nodes that create the log; one more is a spare.
    pub founders: usize,
    /// Workers on each of the two client machines.
    pub workers: u64,
    /// Duration of the period with faults.
    pub fault_period: Duration,
    /// Mean time between two faults.
    pub between_faults: Duration,
    /// Whether most faults are membership changes and crashes, with small logs, so that most new replicas receive a
    /// snapshot while the group changes.
    pub churn: bool,
    pub mutant: Option<Mutant>,
}

impl Plan {
    pub fn new(seed: u64) -> Plan {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed_0f91_a400_0001);
        Plan {
            seed,
            founders: if random.u8(0..4) == 0 { 5 } else { 3 },
            workers: random.u64(1..=3),
            fault_period: Duration::from_secs(random.u64(100..200)),
            between_faults: Duration::from_millis(random.u64(2_000..9_000)),
            churn: random.u8(0..4) == 0,
            mutant: None,
        }
    }

    #[must_use]
    pub fn with(self, mutant: Mutant) -> Plan {
        Plan { mutant: Some(mutant), ..self }
    }

    pub(crate) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Including the spare.
    pub(crate) fn nodes(&self) -> usize {
        self.founders + 1
    }
}
