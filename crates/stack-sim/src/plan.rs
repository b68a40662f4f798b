//! What a seed decides before the run begins.

use std::time::Duration;

/// A deliberate bug, to show that the checks can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Disks say that they have synced, and have not.
    DisksLie,
    /// Reads are answered from the state of any replica, and passed off as linearizable.
    ReadsAreLocal,
    /// A request without an answer is taken for one that did nothing.
    UnknownMeansFailed,
    /// A client sends again under a new number instead of the same one.
    RetriesAreNew,
}

impl Planted {
    pub const ALL: &'static [Planted] =
        &[Planted::DisksLie, Planted::ReadsAreLocal, Planted::UnknownMeansFailed, Planted::RetriesAreNew];

    pub fn name(self) -> &'static str {
        match self {
            Planted::DisksLie => "disks-lie",
            Planted::ReadsAreLocal => "reads-are-local",
            Planted::UnknownMeansFailed => "unknown-means-failed",
            Planted::RetriesAreNew => "retries-are-new",
        }
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// Nodes that begin the log; one more stands by.
    pub founders: usize,
    /// Workers on each of the two client machines.
    pub workers: u64,
    /// For how long things go wrong.
    pub trouble: Duration,
    /// Mean time between two faults.
    pub between_faults: Duration,
    pub planted: Option<Planted>,
}

impl Plan {
    pub fn new(seed: u64) -> Plan {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed_0f91_a400_0001);
        Plan {
            seed,
            founders: if random.u8(0..4) == 0 { 5 } else { 3 },
            workers: random.u64(1..=3),
            trouble: Duration::from_secs(random.u64(100..200)),
            between_faults: Duration::from_millis(random.u64(2_000..9_000)),
            planted: None,
        }
    }

    #[must_use]
    pub fn with(self, planted: Planted) -> Plan {
        Plan { planted: Some(planted), ..self }
    }

    pub(crate) fn is_planted(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    /// With the one that stands by.
    pub(crate) fn nodes(&self) -> usize {
        self.founders + 1
    }
}
