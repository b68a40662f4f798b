//! Health of members: which checks this node runs, and their results in the records (HC1 to HC6).

use super::{Effect, Node, Output};
use crate::error::{ErrorCode, Rejection};
use crate::map::Stored;
use crate::member::{
    CheckResult, Checks, Health, OUTPUT_BYTES_MAX, Record, RecordKind, Space, Status, beginning, health_of,
};
use crate::mutant::seam;
use crate::time::Time;
use crate::version::adopted;
use crate::wire::Message;
use smol_str::SmolStr;
use std::sync::Arc;

/// With fewer up, undrained members, a service has no mass failure (HC6).
pub const PANIC_MEMBERS_MIN: usize = 3;

/// What an application reports about a check of its member (HC4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    pub id: SmolStr,
    pub check: SmolStr,
    pub status: Health,
    pub output: String,
}

/// Where a report went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportDelivery {
    /// This node owns the member.
    Here,
    /// It was sent to the owner, which does not confirm it.
    Sent,
}

impl Node {
    /// Writes the results of the checks of a member of this node (HC1). `claim` and the definitions are those with which the
    /// checks were assigned: results of another registration do not count. Returns whether a record was written.
    pub fn report_health(&mut self, now: Time, id: &str, (claim, checks): (u64, &Checks), out: &mut Output) -> bool {
        self.observe(now, out);
        let held = self.checked_here(id, claim).filter(|(_, held)| held.definitions() == checks.definitions());
        let Some((held, known)) = held else { return false };
        let since = |result: &CheckResult, old: &CheckResult| {
            if result.status == old.status { old.since } else { self.wall_ms }
        };
        let pairs = checks.results().iter().zip(known.results());
        let results = pairs.map(|(new, old)| CheckResult::new(new.status, &new.output, since(new, old))).collect();
        let checks = known.with_results(results);
        if checks == held.checks {
            return false;
        }
        self.counters.health_changes += 1;
        let mut draft =
            Record { seq: held.seq + 1, health: health_of(checks.as_ref()), checks, ..Record::clone(&held) };
        seam!(self, HealthRaisesClaim => draft.claim = crate::wire::next_claim(held.claim));
        self.write(draft, out);
        true
    }

    /// A live member of this node that has checks, if its claim is still this one.
    fn checked_here(&self, id: &str, claim: u64) -> Option<(Arc<Record>, Arc<Checks>)> {
        let held = self.map.record(Space::Member, id)?;
        let mine = held.is_live() && held.origin.index == self.map.origins.me() && held.claim == claim;
        let checks = held.checks.as_ref().filter(|_| mine)?;
        Some((held.clone(), checks.clone()))
    }

    /// Takes a report about a check, whichever node owns the member (HC4).
    pub fn report_check(
        &mut self,
        now: Time,
        report: CheckReport,
        out: &mut Output,
    ) -> Result<ReportDelivery, Rejection> {
        self.observe(now, out);
        let result = self.deliver_report(report, out);
        self.count_rejection(result)
    }

    fn deliver_report(&mut self, report: CheckReport, out: &mut Output) -> Result<ReportDelivery, Rejection> {
        let CheckReport { id, check, .. } = &report;
        let shown = |record: &&Arc<Record>| self.map.shown(record) != Status::Left;
        let Some(held) = self.map.record(Space::Member, id).filter(shown).cloned() else {
            let unknown = Rejection::new(ErrorCode::NotFound, format!("no member {id:?}")).field("id");
            return Err(if self.is_alone() { self.absence_unknown() } else { unknown });
        };
        let found = held.checks.iter().flat_map(|checks| checks.iter()).find(|(known, _)| known.id == *check);
        match found {
            None => {
                let message = format!("member {id:?} has no check {check:?}");
                return Err(Rejection::new(ErrorCode::NotFound, message).field("check"));
            }
            Some((known, _)) if known.probe.ttl_ms().is_none() => {
                let message =
                    format!("check {check:?} of member {id:?} is run by a node; only ttl checks are reported");
                return Err(Rejection::new(ErrorCode::FailedPrecondition, message).field("check"));
            }
            Some(_) => {}
        }
        if held.origin.index == self.map.origins.me() {
            out.effects.push(Effect::CheckReported(report));
            return Ok(ReportDelivery::Here);
        }
        let owner = &held.origin.id.node;
        let Some(link) = self.peers.link_to(owner).map(|link| link.id) else {
            let message = format!("member {id:?} belongs to node {owner}, which this node cannot reach now");
            return Err(Rejection::new(ErrorCode::NotReady, message).field("id"));
        };
        let CheckReport { id, check, status, output } = &report;
        let output = beginning(output, OUTPUT_BYTES_MAX);
        self.send(link, &Message::CheckReport { id, check, status: *status, output }, out);
        Ok(ReportDelivery::Sent)
    }

    /// A report that another node received. If the member has moved meanwhile, the next report finds its owner.
    pub(super) fn handle_check_report(
        &mut self,
        id: &str,
        check: &str,
        status: Health,
        output: &str,
        out: &mut Output,
    ) {
        seam!(self, ReportNotDelivered => return);
        let held = self.map.record(Space::Member, id);
        if held.is_none_or(|held| !held.is_live() || held.origin.index != self.map.origins.me()) {
            self.counters.check_reports_lost += 1;
            return;
        }
        let (id, check, output) = (SmolStr::new(id), SmolStr::new(check), output.to_owned());
        out.effects.push(Effect::CheckReported(CheckReport { id, check, status, output }));
    }

    /// Deregisters an agentless member that has been critical for too long (HC5). Returns whether it was.
    pub fn deregister_critical(&mut self, now: Time, id: &str, claim: u64, out: &mut Output) -> bool {
        self.observe(now, out);
        let held = self.checked_here(id, claim).map(|(held, _)| held);
        let Some(held) = held.filter(|held| held.is_agentless() && held.health == Health::Critical) else {
            return false;
        };
        if self.is_degraded() || self.is_panicking(&held.deployment.service) {
            return false;
        }
        self.counters.critical_deregistered += 1;
        let mut draft = Record { health: Health::Critical, ..held.expired() };
        seam!(self, CriticalEndIsFinal => draft.health = Health::Passing);
        self.write(draft, out);
        true
    }

    /// Whether so many members of a service are critical that all are routable (HC6).
    pub fn is_panicking(&self, service: &str) -> bool {
        seam!(self, MassFailureOfChecksIgnored => return false);
        let slots = self.map.services().get(service).into_iter().flatten();
        let members = slots.map(|slot| self.map.at(*slot)).filter(|record| record.kind == RecordKind::Live);
        let candidates = members.filter(|record| !record.drained() && self.map.shown(record) == Status::Up);
        let (total, critical) = candidates.fold((0, 0), |(total, critical), record| {
            (total + 1, critical + usize::from(record.health == Health::Critical))
        });
        is_mass_failure(total, critical, self.config.panic_share)
    }

    /// The record with which this node goes on checking a member that another node deregistered because of its health:
    /// here it is not critical (HC5).
    pub(super) fn not_critical_here(&self, stored: &Stored) -> Option<Record> {
        let Stored { old, new, .. } = stored;
        let me = self.map.origins.me();
        let old = old.as_ref().filter(|old| old.origin.index == me && old.is_live() && old.is_agentless())?;
        let inferred = new.origin.index != me && !new.is_live() && new.health == Health::Critical;
        let void = inferred && new.claim == old.claim && old.health != Health::Critical;
        void.then(|| Record { seq: adopted(new.seq), ..Record::clone(old) })
    }

    /// Tells the shell which checks this node runs (HC3).
    pub(super) fn assign_checks(&self, old: Option<&Arc<Record>>, new: &Record, out: &mut Output) {
        let me = self.map.origins.me();
        let mine = |record: &Record| record.origin.index == me && record.is_live();
        let mut had = old.is_some_and(|old| mine(old) && old.checks.is_some());
        seam!(self, ChecksNotHandedOver => had = false);
        let checks = new.checks.as_ref().filter(|_| mine(new));
        if had || checks.is_some() {
            let checks = checks.map(|checks| (new.claim, checks.clone()));
            out.effects.push(Effect::Checks { id: new.id.clone(), checks });
        }
    }

    /// A record was removed without another in its place.
    pub(super) fn unassign_checks(&self, old: &Record, out: &mut Output) {
        if old.origin.index == self.map.origins.me() && old.checks.is_some() {
            out.effects.push(Effect::Checks { id: old.id.clone(), checks: None });
        }
    }
}

/// Whether of `total` up, undrained members so many are `critical` that the others would not carry the load (HC6).
pub fn is_mass_failure(total: usize, critical: usize, panic_share: f64) -> bool {
    total >= PANIC_MEMBERS_MIN && ((total - critical) as f64) < total as f64 * panic_share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mass_failure_needs_three_members_and_fewer_than_the_share() {
        let panics = |total, critical| is_mass_failure(total, critical, 0.5);
        assert!(!panics(2, 2), "too few members");
        assert!(!panics(4, 2), "half is enough");
        assert!(panics(4, 3) && panics(3, 2) && panics(3, 3));
        assert!(!is_mass_failure(100, 100, 0.0), "switched off");
    }
}
