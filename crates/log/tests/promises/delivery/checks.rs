//! Checks of the promises from outside: based on the effects of entries and the answers to clients, not on the
//! machine's own statements.

use super::client::Client;
use super::cluster::LogEntry;
use super::{Check, Tally, Violation};
use convoke_log::command::{Body, Request};
use convoke_log::machine::{Applied, ApplyRejection, Fate, Outcome, Reply, RequestAnswer};
use convoke_log::{Command, LogSessionId, LogTime, Machine, Position, RequestId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A final answer about a request.
#[derive(Clone, Debug, PartialEq)]
enum Final {
    Done(Arc<Outcome>),
    Never,
}

#[derive(Debug, Default)]
pub(super) struct Checks {
    /// State hash after each entry.
    hashes: Vec<u128>,
    /// Requests with an effect, and their index.
    effects: BTreeMap<RequestId, u64>,
    /// The highest number with an effect.
    highest: BTreeMap<LogSessionId, u64>,
    ended: BTreeSet<LogSessionId>,
    /// Barrier reads: the number and the index.
    reads: BTreeMap<LogSessionId, Vec<(u64, u64)>>,
    reported: BTreeMap<RequestId, Final>,
    /// Index and log time of the last outcome, or of the opening, and the ttl.
    activity: BTreeMap<LogSessionId, (u64, LogTime, Duration)>,
    /// Client and process of a session.
    nonces: BTreeMap<LogSessionId, u128>,
    /// Current and removed replicas.
    replicas: (BTreeSet<u64>, BTreeSet<u64>),
    log_time: LogTime,
    coordination: super::coordination::Coordination,
    pub(super) tally: Tally,
}

/// Observable parts of a state.
pub(super) struct Seen {
    revision: u64,
    configuration: u64,
    /// Leases, and places in locks.
    held: [usize; 2],
}

impl Seen {
    pub(super) fn of(machine: &Machine) -> Self {
        let held = [machine.lease_count(), machine.place_count()];
        Seen { revision: machine.keys().revision(), configuration: machine.configuration().number, held }
    }
}

fn broken(check: &'static str, message: String) -> Check {
    Err(Violation::new(check, message))
}

impl Checks {
    pub(super) fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    /// Records that a replica has applied an entry.
    pub(super) fn applied(
        &mut self,
        at: Position,
        entry: &LogEntry,
        before: &Seen,
        machine: &Machine,
        applied: Option<&Applied>,
    ) -> Check {
        let hash = machine.state_hash();
        match self.hashes.get(at.index as usize - 1) {
            Some(known) if *known != hash => {
                return broken("replicas agree", format!("two states after entry {}: {entry:?}", at.index));
            }
            Some(_) => return Ok(()),
            None => self.hashes.push(hash),
        }
        self.log_time = self.log_time.max(entry.stamp);
        let (Some(applied), Some(command)) = (applied, &entry.command) else { return Ok(()) };
        let after = Seen::of(machine);
        let changed = after.revision != before.revision
            || after.configuration != before.configuration
            || after.held != before.held;
        for what in self.coordination.applied(at, command, applied, machine, self.log_time)? {
            self.count(what);
        }
        match (command, &applied.reply) {
            (Command::Request(request), Reply::Request(answer)) => {
                let ends = (request.last || matches!(request.body, Body::End(_))) && !applied.ended.is_empty();
                if changed || ends {
                    self.effect(at, request, &after, before, machine)?;
                }
                if answer.verdict.as_ref().is_ok_and(|outcome| outcome.index() == at.index) {
                    self.active(request.session, at.index);
                }
                self.count_answer(request, answer);
            }
            (Command::Open(open), Reply::Opened(Ok(opened))) => {
                if let Some(replaced) = opened.replaced {
                    self.replaced(replaced, open.owner)?;
                }
                self.nonces.insert(opened.session, open.owner);
                self.activity.entry(opened.session).or_insert((at.index, self.log_time, open.ttl));
            }
            (Command::Expire(expire), Reply::Expired(Ok(()))) => {
                self.count("session expired");
                if expire.epoch != at.epoch {
                    return broken("expiry", format!("proposed in {}, effective in {}", expire.epoch, at.epoch));
                }
                let Some((index, time, ttl)) = self.activity.get(&expire.session) else { return Ok(()) };
                if *index > expire.activity || self.log_time.since(*time) < *ttl {
                    return broken("expiry", format!("session {} was active meanwhile", expire.session));
                }
            }
            _ => {}
        }
        self.ended.extend(applied.ended.iter().map(|(session, _)| *session));
        Ok(())
    }

    fn active(&mut self, session: LogSessionId, at: u64) {
        if let Some((index, time, _)) = self.activity.get_mut(&session) {
            (*index, *time) = (at, self.log_time);
        }
    }

    /// Checks an effect of a request.
    fn effect(&mut self, at: Position, request: &Request, after: &Seen, before: &Seen, machine: &Machine) -> Check {
        let (id, index) = (request.id(), at.index);
        self.count("update applied");
        if let Some(first) = self.effects.insert(id, index) {
            return broken("exactly once", format!("{id} took effect at {first} and at {index}"));
        }
        let highest = self.highest.entry(id.session).or_default();
        if id.number < *highest {
            return broken("R-63", format!("{id} took effect at {index}, after number {highest}"));
        }
        *highest = id.number;
        if request.epoch != at.epoch {
            return broken("R-65", format!("{id} for {} took effect in {}", request.epoch, at.epoch));
        }
        if self.ended.contains(&id.session) {
            return broken("ended sessions", format!("{id} took effect at {index}, after its session"));
        }
        if request.deadline.is_some_and(|deadline| self.log_time > deadline) {
            return broken("deadlines", format!("{id} took effect at {:?}: {request:?}", self.log_time));
        }
        if let Some(reported) = self.reported.get(&id) {
            return broken("R-67", format!("{id} took effect at {index}, but was reported as {reported:?}"));
        }
        let reads = self.reads.get(&id.session).into_iter().flatten();
        if let Some((below, read)) = reads.into_iter().find(|(below, read)| id.number < *below && index > *read) {
            return broken("R-64", format!("{id} took effect at {index}, after a read at {read} below {below}"));
        }
        if after.configuration != before.configuration {
            self.configured(request, before, machine)?;
        }
        Ok(())
    }

    fn configured(&mut self, request: &Request, before: &Seen, machine: &Machine) -> Check {
        self.count("membership changed");
        let Body::Membership(change) = &request.body else { return Ok(()) };
        if change.replaces != before.configuration {
            return broken("M1", format!("{} replaced {}", change.replaces, before.configuration));
        }
        let group: BTreeSet<u64> = machine.configuration().voters.keys().map(|id| id.0).collect();
        if let Some(id) = group.intersection(&self.replicas.1).next() {
            return broken("M2", format!("replica {id} came back"));
        }
        self.replicas.1.extend(self.replicas.0.difference(&group).copied());
        self.replicas.0 = group;
        Ok(())
    }

    fn replaced(&mut self, session: LogSessionId, by: u128) -> Check {
        self.count("name fenced a predecessor");
        let holder = self.nonces.get(&session).copied().unwrap_or(0);
        if Client::of_nonce(holder) != Client::of_nonce(by) || holder > by {
            return broken("LS2", format!("process {by} ended the session of process {holder}"));
        }
        Ok(())
    }

    /// Records a barrier read at `index`.
    pub(super) fn read(&mut self, session: LogSessionId, below: u64, index: u64) -> Check {
        self.count("barrier read");
        let early = self.effects.range(RequestId::new(session, 0)..RequestId::new(session, below));
        if let Some((id, at)) = early.into_iter().find(|(_, at)| **at > index) {
            return broken("R-64", format!("{id} took effect at {at}, after a read at {index} below {below}"));
        }
        self.reads.entry(session).or_default().push((below, index));
        Ok(())
    }

    /// Records an answer to a client.
    pub(super) fn answered(&mut self, answer: &RequestAnswer, body: Option<&Body>) -> Check {
        match &answer.verdict {
            Ok(outcome) => self.record_final(answer.id, Final::Done(outcome.clone()))?,
            Err(ApplyRejection::Superseded | ApplyRejection::SessionEnded(_)) => {
                self.record_final(answer.id, Final::Never)?;
            }
            Err(_) => {}
        }
        let Some((id, fate)) = &answer.previous else { return Ok(()) };
        let decides = match (&answer.verdict, body) {
            (Ok(outcome), Some(Body::Fence(_))) => outcome.is_applied(),
            (Ok(_), _) => true,
            _ => false,
        };
        if decides && !fate.is_final() {
            return broken("A5", format!("{} has its outcome, and {id} is still open", answer.id));
        }
        self.fate(*id, fate)
    }

    pub(super) fn fate(&mut self, id: RequestId, fate: &Fate) -> Check {
        match fate {
            Fate::Done(outcome) => self.record_final(id, Final::Done(outcome.clone())),
            Fate::Never => self.record_final(id, Final::Never),
            Fate::TooOld => {
                self.count("outcome too old");
                Ok(())
            }
            Fate::Open => Ok(()),
        }
    }

    fn record_final(&mut self, id: RequestId, reported: Final) -> Check {
        if let Some(before) = self.reported.get(&id)
            && *before != reported
        {
            return broken("R-67", format!("{id} was {before:?}, then {reported:?}"));
        }
        let effect = self.effects.get(&id).copied();
        let possible = match &reported {
            Final::Never => effect.is_none(),
            Final::Done(outcome) if outcome.is_applied() => effect.is_none_or(|index| index == outcome.index()),
            Final::Done(_) => effect.is_none(),
        };
        if !possible {
            return broken("R-67", format!("{id} took effect at {effect:?}, but is reported as {reported:?}"));
        }
        self.reported.insert(id, reported);
        Ok(())
    }

    fn count_answer(&mut self, request: &Request, answer: &RequestAnswer) {
        use convoke_log::machine::Reason;
        match &answer.verdict {
            Ok(outcome) => match **outcome {
                _ if outcome.index() < self.hashes.len() as u64 => self.count("copy of an applied request"),
                Outcome::NotApplied { reason: Reason::Expired, .. } => self.count("deadline passed"),
                Outcome::NotApplied { reason: Reason::Replaced { .. }, .. } => {
                    self.count("membership change failed its compare");
                }
                _ => match request.body {
                    Body::Fence(id) if id.session == request.session => self.count("fence of an own request"),
                    Body::Fence(_) => self.count("fence of another session"),
                    _ => {}
                },
            },
            Err(ApplyRejection::Gap { .. }) => self.count("gap"),
            Err(ApplyRejection::StaleEpoch { .. }) => self.count("copy crossed into another epoch"),
            Err(ApplyRejection::Superseded) => self.count("abandoned request superseded"),
            Err(_) => {}
        }
    }

    pub(super) fn has_ended(&self, session: LogSessionId) -> bool {
        self.ended.contains(&session)
    }
}
