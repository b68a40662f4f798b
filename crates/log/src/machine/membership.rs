//! The recorded configuration of the replica group (M).

use super::Machine;
use super::outcome::{Field, Reason, Response};
use crate::command::{GroupChange, ReplicaLocation};
use crate::id::{Position, ReplicaId};
use crate::limits::LogLimits;
use crate::mutant::{Mutation, seam};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The wanted replica group. The leader moves the engine there (M4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Index of the entry that recorded it; 0 before the first one.
    pub number: u64,
    pub voters: BTreeMap<ReplicaId, ReplicaLocation>,
    pub learners: BTreeMap<ReplicaId, ReplicaLocation>,
}

impl Configuration {
    pub fn replica(&self, id: ReplicaId) -> Option<&ReplicaLocation> {
        self.voters.get(&id).or_else(|| self.learners.get(&id))
    }

    /// Iterates over voters and learners.
    pub fn replicas(&self) -> impl Iterator<Item = (ReplicaId, &ReplicaLocation)> {
        self.voters.iter().chain(&self.learners).map(|(id, replica)| (*id, replica))
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Membership {
    pub(crate) current: Arc<Configuration>,
    /// The highest replica id ever recorded (M2).
    pub(crate) highest: ReplicaId,
}

impl Machine {
    pub(super) fn configure(&mut self, at: Position, change: &GroupChange) -> Result<Response, Reason> {
        self.check_replaced(change)?;
        check_change(change, &self.limits, self.mutation)?;
        let wanted =
            Configuration { number: at.index, voters: change.voters.clone(), learners: change.learners.clone() };
        self.check_ids(&wanted)?;
        let ids = wanted.replicas().map(|(id, _)| id);
        let highest = ids.fold(self.membership.highest, ReplicaId::max);
        self.membership = Membership { current: Arc::new(wanted), highest };
        Ok(Response::Configured(at.index))
    }

    /// Compares the configuration that the change replaces with the current one (M1).
    fn check_replaced(&self, change: &GroupChange) -> Result<(), Reason> {
        seam!(self, MembershipUncompared => return Ok(()));
        let current = self.membership.current.number;
        if change.replaces == current { Ok(()) } else { Err(Reason::Replaced { current }) }
    }

    /// A new replica has an id that no replica had before (M2).
    fn check_ids(&self, wanted: &Configuration) -> Result<(), Reason> {
        seam!(self, ReplicaIdsReused => return Ok(()));
        let Membership { current, highest } = &self.membership;
        let mut used = wanted.replicas().map(|(id, _)| id).filter(|id| current.replica(*id).is_none() && id <= highest);
        used.next().map_or(Ok(()), |id| Err(Reason::ReplicaIdUsed(id)))
    }
}

/// Checks the form of a configuration (M3).
fn check_change(change: &GroupChange, limits: &LogLimits, mutation: Mutation) -> Result<(), Reason> {
    seam!(in mutation, GroupUnchecked => return Ok(()));
    if change.voters.is_empty() {
        return Err(Reason::Invalid { field: Field::Voters });
    }
    if change.learners.keys().any(|id| change.voters.contains_key(id)) {
        return Err(Reason::Invalid { field: Field::Learners });
    }
    if (change.voters.len() + change.learners.len()) as u64 > limits.replicas {
        return Err(Reason::TooMany { field: Field::Replicas, limit: limits.replicas });
    }
    for replica in change.voters.values().chain(change.learners.values()) {
        for (field, text) in [(Field::Node, &replica.node), (Field::Address, &replica.address)] {
            let (found, limit) = (text.len() as u64, limits.address_bytes);
            if found == 0 {
                return Err(Reason::Invalid { field });
            }
            if found > limit {
                return Err(Reason::TooLarge { field, found, limit });
            }
        }
    }
    Ok(())
}
