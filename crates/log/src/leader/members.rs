//! Decides when a leader ends the lease of a registry member (LE7).

use crate::command::{Command, EndLease, LeaseCause, LeaseId, LeaseTerm, MemberBinding};
use crate::id::Epoch;
use crate::leases::Lease;
use crate::machine::Machine;
use crate::mutant::{Mutation, seam};
use convoke_base::Time;
use std::collections::BTreeSet;
use std::time::Duration;

/// What the registry of the leader's node shows about a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberSeen {
    /// Nothing. The registration may not have arrived yet.
    Absent,
    /// The member is up under this registration.
    Up { client: String, registration: String },
    /// The member is down under this registration.
    Down { client: String, registration: String },
    /// This registration of the member has left.
    Left { client: String, registration: String },
}

/// Whether the registry of the leader's node can be relied on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistryHealth {
    /// The node sees other nodes, or is the only node of its cluster.
    pub connected: bool,
    pub ready: bool,
    pub degraded: bool,
}

/// Ends leases of members in one term of a leader.
#[derive(Clone, Debug)]
pub struct MemberLeases {
    epoch: Epoch,
    elected: Time,
    mutation: Mutation,
    /// Leases whose end is proposed.
    proposed: BTreeSet<LeaseId>,
}

impl MemberLeases {
    pub(super) fn elected(now: Time, epoch: Epoch, mutation: Mutation) -> Self {
        MemberLeases { epoch, elected: now, mutation, proposed: BTreeSet::new() }
    }

    /// Returns the commands that end leases of members that are gone. `heartbeat_timeout` is that of the registry.
    /// `seen` returns what the registry shows about a member. Each lease is returned once until it is settled.
    pub fn due(
        &mut self,
        now: Time,
        machine: &Machine,
        health: RegistryHealth,
        heartbeat_timeout: Duration,
        seen: impl Fn(&str) -> MemberSeen,
    ) -> Vec<Command> {
        if !health.connected || !health.ready || health.degraded || now.since(self.elected) < heartbeat_timeout {
            return Vec::new();
        }
        let gone = machine.leases().filter(|lease| !self.proposed.contains(&lease.id));
        let due: Vec<(LeaseId, Command)> =
            gone.filter_map(|lease| self.end(lease, &seen).map(|end| (lease.id, end))).collect();
        self.proposed.extend(due.iter().map(|(lease, _)| *lease));
        due.into_iter().map(|(_, end)| end).collect()
    }

    /// Records that a proposed end was applied or not appended.
    pub(super) fn settled(&mut self, lease: LeaseId) {
        self.proposed.remove(&lease);
    }

    fn end(&self, lease: &Lease, seen: impl Fn(&str) -> MemberSeen) -> Option<Command> {
        let LeaseTerm::Member(bound) = &lease.term else { return None };
        self.is_gone(bound, &seen(&bound.member)).then(|| {
            let cause = LeaseCause::MemberGone { registration: bound.registration.clone() };
            Command::EndLease(EndLease { epoch: self.epoch, lease: lease.id, cause })
        })
    }

    /// The registration is down, has left, or another one has replaced it. Absence proves nothing.
    fn is_gone(&self, bound: &MemberBinding, seen: &MemberSeen) -> bool {
        let is_bound = |client: &str, registration: &str| bound.client == client && bound.registration == registration;
        match seen {
            MemberSeen::Absent => {
                seam!(self, AbsenceEndsLease => return true);
                false
            }
            MemberSeen::Up { client, registration } => !is_bound(client, registration),
            MemberSeen::Down { .. } | MemberSeen::Left { .. } => true,
        }
    }
}
