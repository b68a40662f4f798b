//! The feature level (V), and a log that starts again from a backup (LO8).

use super::Machine;
use super::answer::{ApplyRejection, NotRaised};
use crate::command::{Body, Raise};
use crate::history::History;
use crate::id::Position;
use crate::keys::KeyChanges;
use crate::leases::Leases;
use crate::level::Level;
use crate::limits::{CoordinationLimits, LogLimits};
use crate::locks::Locks;
use crate::mutant::seam;

/// Revisions that a restored or recovered log skips. The lost log cannot have granted a fence above it (LO8).
pub const REVISION_JUMP: u64 = 1 << 40;

impl Machine {
    pub(super) fn raise(&mut self, at: Position, raise: &Raise) -> Result<Level, NotRaised> {
        if raise.level <= self.level {
            return Ok(self.level);
        }
        if raise.epoch != at.epoch {
            return Err(NotRaised::StaleEpoch { current: at.epoch });
        }
        self.check_supporters(raise)?;
        self.level = raise.level;
        self.limits.coordination = raise.limits.clone();
        self.history = History::starting_above(self.keys.revision());
        Ok(self.level)
    }

    /// A replica that was added meanwhile may not support the level (V2).
    fn check_supporters(&self, raise: &Raise) -> Result<(), NotRaised> {
        seam!(self, RaiseUncompared => return Ok(()));
        let current = self.membership.current.number;
        if raise.configuration == current { Ok(()) } else { Err(NotRaised::Reconfigured { current }) }
    }

    /// Rejects a body of a higher level (V1).
    pub(super) fn check_level(&self, body: &Body) -> Result<(), ApplyRejection> {
        seam!(self, LevelIgnored => return Ok(()));
        let needed = body.level();
        if needed <= self.level { Ok(()) } else { Err(ApplyRejection::Level { needed, current: self.level }) }
    }

    /// Prepares the state of a backup for a new log: ends all leases and locks, jumps far ahead in revisions and starts
    /// history again (LO8). Below level 2 there is nothing to do.
    #[must_use]
    pub fn begun_again(mut self) -> Self {
        if self.level < Level::COORDINATION {
            return self;
        }
        let revision = self.keys.raise_revision(REVISION_JUMP);
        let mut changes = KeyChanges::new();
        for lease in self.leases.iter().cloned().collect::<Vec<_>>() {
            for record in self.leases.keys_of(lease.id) {
                match lease.end {
                    crate::command::EndBehavior::Delete => drop(self.keys.erase(record.key(), &mut changes)),
                    crate::command::EndBehavior::Release => self.keys.detach(revision, &record, &mut changes),
                }
            }
        }
        self.leases = Leases::default();
        self.locks = Locks::default();
        self.history = History::starting_above(revision);
        self
    }
}

/// Limits of level 2 are no state below it (V4).
pub(super) fn limits_at(level: Level, limits: LogLimits) -> LogLimits {
    if level < Level::COORDINATION {
        LogLimits { coordination: CoordinationLimits::INACTIVE, ..limits }
    } else if limits.coordination == CoordinationLimits::INACTIVE {
        LogLimits { coordination: CoordinationLimits::default(), ..limits }
    } else {
        limits
    }
}
