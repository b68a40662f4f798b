//! Grants and ends of leases (LE).

use super::Machine;
use super::answer::NotEnded;
use super::effects::Effects;
use super::outcome::{Field, Reason, Response};
use crate::command::{EndBehavior, EndLease, GrantLease, LeaseCause, LeaseId, LeaseTerm, MemberBinding};
use crate::id::{LogSessionId, Position};
use crate::keys::KeyChanges;
use crate::leases::Lease;
use crate::limits::micros;
use crate::mutant::seam;
use smol_str::SmolStr;

impl Machine {
    /// Returns a lease.
    pub fn lease(&self, id: LeaseId) -> Option<&Lease> {
        self.leases.get(id).map(|lease| &**lease)
    }

    /// Iterates over all leases in order of their ids.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.iter().map(|lease| &**lease)
    }

    /// Iterates over leases with a higher id than `after`.
    pub fn leases_after(&self, after: LeaseId) -> impl Iterator<Item = &Lease> {
        self.leases.iter_from(LeaseId(after.0.saturating_add(1))).map(|lease| &**lease)
    }

    pub fn lease_count(&self) -> usize {
        self.leases.len()
    }

    /// Returns the keys that are attached to a lease (LE5).
    pub fn keys_of_lease(&self, id: LeaseId) -> Vec<std::sync::Arc<crate::keys::KeyRecord>> {
        self.leases.keys_of(id)
    }

    pub(super) fn grant(
        &mut self,
        at: Position,
        session: LogSessionId,
        grant: &GrantLease,
    ) -> Result<Response, Reason> {
        self.check_grant(grant)?;
        let id = LeaseId(at.index);
        let (term, end, owner) = (grant.term.clone(), grant.end, self.principal_of(session));
        self.leases.insert(Lease { id, term, end, granted_at: self.log_time, owner, keys: 0 });
        Ok(Response::Granted(id))
    }

    /// Returns the principal that a session belongs to, or nothing (LE8).
    fn principal_of(&self, session: LogSessionId) -> SmolStr {
        let opener = self.sessions.open.get(&session).map(|session| &session.opener);
        opener.filter(|opener| opener.principal().is_some()).map(|opener| opener.name.clone()).unwrap_or_default()
    }

    fn check_grant(&self, grant: &GrantLease) -> Result<(), Reason> {
        seam!(self, GrantUnchecked => return Ok(()));
        let limits = &self.limits.coordination;
        match &grant.term {
            LeaseTerm::Ttl(ttl) => {
                let (min, max, found) = (micros(limits.lease_ttl_min), micros(limits.lease_ttl_max), micros(*ttl));
                if found < min || found > max {
                    return Err(Reason::OutOfRange { field: Field::Ttl, found, min, max });
                }
            }
            LeaseTerm::Member(MemberBinding { member, client, registration }) => {
                let (min, max) = (1, self.limits.client_name_bytes);
                for text in [member, client, registration] {
                    let found = text.len() as u64;
                    if found < min || found > max {
                        return Err(Reason::OutOfRange { field: Field::Member, found, min, max });
                    }
                }
            }
        }
        let limit = limits.leases;
        if self.leases.len() as u64 >= limit { Err(Reason::Full { field: Field::Leases, limit }) } else { Ok(()) }
    }

    /// Ends a lease at the request of a client (LE4).
    pub(super) fn revoke(&mut self, id: LeaseId, effects: &mut Effects) -> Result<Response, Reason> {
        match self.end_lease(id, effects) {
            Some(keys) => Ok(Response::Revoked { keys }),
            None => Err(Reason::NoLease(id)),
        }
    }

    /// Ends a lease that the leader proposes to end (LE3, LE6).
    pub(super) fn end_lease_by_leader(
        &mut self,
        at: Position,
        end: &EndLease,
        effects: &mut Effects,
    ) -> Result<(), NotEnded> {
        let lease = self.leases.get(end.lease).ok_or(NotEnded::NoLease)?;
        self.check_leader_epoch(at, end.epoch)?;
        self.check_end(lease, &end.cause)?;
        self.end_lease(end.lease, effects);
        Ok(())
    }

    /// A proposal of a deposed leader has no effect.
    pub(super) fn check_leader_epoch(&self, at: Position, epoch: crate::Epoch) -> Result<(), NotEnded> {
        seam!(self, LeaseEndIgnoresEpoch => return Ok(()));
        if epoch == at.epoch { Ok(()) } else { Err(NotEnded::StaleEpoch { current: at.epoch }) }
    }

    fn check_end(&self, lease: &Lease, cause: &LeaseCause) -> Result<(), NotEnded> {
        match (&lease.term, cause) {
            (LeaseTerm::Ttl(ttl), LeaseCause::Expired) => self.check_lease_age(lease, *ttl),
            (LeaseTerm::Member(bound), LeaseCause::MemberGone { registration }) => {
                self.check_registration(bound, registration)
            }
            _ => Err(NotEnded::OtherTerm),
        }
    }

    /// A lease lives for at least its ttl in log time, whatever the clock of a leader does (LE3).
    fn check_lease_age(&self, lease: &Lease, ttl: std::time::Duration) -> Result<(), NotEnded> {
        seam!(self, LeaseAgeUnchecked => return Ok(()));
        if self.log_time.since(lease.granted_at) < ttl { Err(NotEnded::TooEarly) } else { Ok(()) }
    }

    /// The end of another registration than the bound one ends nothing (LE6).
    fn check_registration(&self, bound: &MemberBinding, registration: &str) -> Result<(), NotEnded> {
        seam!(self, RegistrationIgnored => return Ok(()));
        if bound.registration == registration { Ok(()) } else { Err(NotEnded::OtherRegistration) }
    }

    /// Ends a lease: its keys and its places in locks, in one revision (LE4). Returns the number of keys.
    fn end_lease(&mut self, id: LeaseId, effects: &mut Effects) -> Option<u64> {
        let lease = self.leases.get(id)?.clone();
        let keys = self.keys_of_ended(&lease);
        if !keys.is_empty() {
            let revision = self.revise(effects);
            let mut changes = KeyChanges::new();
            for record in &keys {
                match lease.end {
                    EndBehavior::Delete => drop(self.keys.erase(record.key(), &mut changes)),
                    EndBehavior::Release => self.keys.detach(revision, record, &mut changes),
                }
            }
            self.keys_changed(revision, changes, effects);
        }
        self.leases.remove(id);
        effects.ended_leases.push(id);
        self.end_places(id, effects);
        Some(keys.len() as u64)
    }

    fn keys_of_ended(&self, lease: &Lease) -> Vec<std::sync::Arc<crate::keys::KeyRecord>> {
        seam!(self, LeaseKeysStay => return Vec::new());
        self.leases.keys_of(lease.id)
    }
}
