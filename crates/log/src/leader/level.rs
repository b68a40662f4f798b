//! Decides when a leader raises the feature level (V3).

use crate::command::Raise;
use crate::id::{Epoch, ReplicaId};
use crate::level::Level;
use crate::limits::CoordinationLimits;
use crate::machine::Machine;
use crate::mutant::{Mutation, seam};
use convoke_base::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long every replica must support a level before a leader raises the log to it. An upgrade can be reverted
/// meanwhile.
pub const LEVEL_WAIT: Duration = Duration::from_secs(10 * 60);

/// What one leader knows about the levels that the replicas support.
///
/// The leader probes every replica, including itself, and passes the answers to [`report`](LevelPolicy::report). A
/// replica that answers a probe without a level supports [`Level::FIRST`].
#[derive(Debug)]
pub struct LevelPolicy {
    epoch: Epoch,
    mutation: Mutation,
    /// Latest report of each replica.
    supported: BTreeMap<ReplicaId, Report>,
}

#[derive(Clone, Copy, Debug)]
struct Report {
    level: Level,
    /// Since when this leader has seen this level or a higher one at the replica, without a lower one in between.
    since: Time,
}

/// When a leader raises the level after all replicas support it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LevelPace {
    /// After [`LEVEL_WAIT`].
    #[default]
    Automatic,
    /// Never by itself (`log.hold_level`).
    Hold,
    /// Now: an operator asked for it (`convoke log upgrade`).
    AtOnce,
}

/// What the leader does about the level now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LevelVerdict {
    /// The log has the highest level that this version supports.
    Highest,
    /// Append this command.
    Propose(Raise),
    /// Every replica supports the level. The leader raises the log to it at this time.
    Waiting { level: Level, until: Time },
    /// Every replica supports the level, and the configuration (`log.hold_level`) holds it.
    Held { level: Level },
    /// These replicas hold the level back: they support a lower level, or have not answered a probe yet.
    HeldBack { level: Level, by: Vec<HeldBackBy> },
}

/// A replica that holds the level back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBackBy {
    pub replica: ReplicaId,
    /// The level that it supports; `None` if it has not answered a probe of this leader.
    pub supported: Option<Level>,
}

impl LevelPolicy {
    pub(super) fn new(epoch: Epoch, mutation: Mutation) -> Self {
        LevelPolicy { epoch, mutation, supported: BTreeMap::new() }
    }

    /// Records the answer of a replica to a probe.
    pub fn report(&mut self, now: Time, replica: ReplicaId, level: Level) {
        let report = self.supported.entry(replica).or_insert(Report { level, since: now });
        if level != report.level {
            *report = Report { level, since: now };
        }
    }

    /// Returns the level that a replica supports, if it has answered a probe of this leader.
    pub fn supported(&self, replica: ReplicaId) -> Option<Level> {
        self.supported.get(&replica).map(|report| report.level)
    }

    /// Decides about the next level. `limits` are the leader's configured limits, which the level makes part of the
    /// state.
    pub fn verdict(&self, now: Time, machine: &Machine, pace: LevelPace, limits: &CoordinationLimits) -> LevelVerdict {
        let level = Level(machine.level().0 + 1);
        if level > Level::SUPPORTED {
            return LevelVerdict::Highest;
        }
        let by = self.held_back_by(machine, level);
        if !by.is_empty() {
            return LevelVerdict::HeldBack { level, by };
        }
        let raise =
            Raise { epoch: self.epoch, level, configuration: machine.configuration().number, limits: limits.clone() };
        match pace {
            LevelPace::AtOnce => LevelVerdict::Propose(raise),
            LevelPace::Hold => LevelVerdict::Held { level },
            LevelPace::Automatic => {
                let until = self.since(machine) + self.wait();
                if now < until { LevelVerdict::Waiting { level, until } } else { LevelVerdict::Propose(raise) }
            }
        }
    }

    fn held_back_by(&self, machine: &Machine, level: Level) -> Vec<HeldBackBy> {
        seam!(self, LevelWithoutAll => return Vec::new());
        let replicas = machine.configuration().replicas().map(|(replica, _)| replica);
        let reports = replicas.map(|replica| HeldBackBy { replica, supported: self.supported(replica) });
        reports.filter(|report| report.supported.is_none_or(|supported| supported < level)).collect()
    }

    /// Returns since when all replicas support their levels.
    fn since(&self, machine: &Machine) -> Time {
        let replicas = machine.configuration().replicas();
        let since = replicas.filter_map(|(replica, _)| self.supported.get(&replica)).map(|report| report.since);
        since.max().unwrap_or(Time::ZERO)
    }

    fn wait(&self) -> Duration {
        seam!(self, LevelWithoutWait => return Duration::ZERO);
        LEVEL_WAIT
    }
}
