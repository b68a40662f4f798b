//! The term that this replica leads, if it leads.

use convoke_base::Time;
use convoke_log::command::LeaseId;
use convoke_log::leader::{
    Admission, AwaitedPlaces, Barrier, KeepAlive, LeaderTerm, LevelPace, LevelVerdict, MemberSeen, NotAppended,
    PlaceState, RegistryHealth,
};
use convoke_log::machine::Applied;
use convoke_log::{
    Command, CoordinationLimits, Epoch, Level, LogSessionId, LogTime, Machine, Mutation, Position, ReplicaId,
};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// Volatile state of a leader for its term; empty at other replicas.
#[derive(Debug)]
pub(crate) struct Term {
    leadership: Option<LeaderTerm>,
    /// Clients that wait for a change of their place in a lock (LO9).
    pub(crate) awaited: AwaitedPlaces<oneshot::Sender<PlaceState>>,
    /// The current epoch, for tasks that wait for its end.
    led: watch::Sender<Option<Epoch>>,
}

impl Default for Term {
    fn default() -> Self {
        Term { leadership: None, awaited: AwaitedPlaces::new(Mutation::none()), led: watch::Sender::default() }
    }
}

/// This replica leads no term, or has not applied its first entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoTerm;

/// A command that may be appended, with its stamp.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) epoch: Epoch,
    pub(crate) admission: Admission,
    pub(crate) stamp: LogTime,
}

/// Waits until the replica of this receiver no longer leads in an epoch.
pub(crate) async fn deposed(led: &mut watch::Receiver<Option<Epoch>>, epoch: Epoch) {
    // An error means that the replica has stopped.
    let _ = led.wait_for(|led| *led != Some(epoch)).await;
}

impl Term {
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.leadership.as_ref().map(|leadership| leadership.first().epoch)
    }

    pub(crate) fn begin(&mut self, now: Time, first: Position, highest: LogTime, machine: &Machine) {
        self.leadership = Some(LeaderTerm::elected(now, first, highest, machine));
        self.awaited = AwaitedPlaces::new(Mutation::none());
        self.led.send_replace(self.epoch());
    }

    pub(crate) fn end(&mut self) {
        self.leadership = None;
        // Their clients learn that this replica no longer leads, and ask again.
        self.awaited = AwaitedPlaces::new(Mutation::none());
        self.led.send_replace(None);
    }

    /// Returns a receiver for the epoch.
    pub(crate) fn led(&self) -> watch::Receiver<Option<Epoch>> {
        self.led.subscribe()
    }

    /// Records an applied entry. Returns the number of clients that were told about their place in a lock.
    pub(crate) fn applied(&mut self, now: Time, command: &Command, applied: &Applied, machine: &Machine) -> usize {
        if let Some(leadership) = &mut self.leadership {
            leadership.applied(now, command, applied, machine);
        }
        let woken = self.awaited.applied(applied, machine);
        // A client may be gone.
        woken.into_iter().filter_map(|(client, place)| client.send(place).ok()).count()
    }

    pub(crate) fn admit(
        &mut self,
        now: Time,
        command: &Command,
        machine: &Machine,
    ) -> Result<Result<Admitted, NotAppended>, NoTerm> {
        let leadership = self.leadership.as_mut().ok_or(NoTerm)?;
        let admission = match leadership.gate.admit(command, machine) {
            Ok(admission) => admission,
            Err(why) => return Ok(Err(why)),
        };
        Ok(Ok(Admitted { epoch: leadership.first().epoch, admission, stamp: leadership.stamper.stamp(now) }))
    }

    /// Settles an admission, unless its term is over.
    pub(crate) fn settle(&mut self, epoch: Epoch, admission: Admission, index: Option<u64>) {
        if let Some(leadership) = self.of(epoch) {
            leadership.gate.settle(admission, index);
        }
    }

    pub(crate) fn keep_alive(&mut self, now: Time, session: LogSessionId) -> Result<KeepAlive, NoTerm> {
        Ok(self.leadership.as_mut().ok_or(NoTerm)?.expiry.renew(now, session))
    }

    /// Renews a lease. It is kept for its client only after a leadership round that begins later (LE2).
    pub(crate) fn renew_lease(&mut self, now: Time, lease: LeaseId) -> KeepAlive {
        self.leadership.as_mut().map_or(KeepAlive::Unknown, |leadership| leadership.expiry.renew(now, lease))
    }

    /// Returns the time that a lease has left in a term, unless the term is over.
    pub(crate) fn lease_left(&self, epoch: Epoch, now: Time, lease: LeaseId) -> Option<Duration> {
        let leadership = self.leadership.as_ref().filter(|leadership| leadership.first().epoch == epoch)?;
        leadership.expiry.left_at(now, lease)
    }

    /// Returns the log time that the next entry of this leader would have.
    pub(crate) fn log_time(&mut self, now: Time) -> Option<LogTime> {
        self.leadership.as_mut().map(|leadership| leadership.stamper.stamp(now))
    }

    /// Returns the commands that end leases of members that are gone (LE7).
    pub(crate) fn members_due(
        &mut self,
        now: Time,
        machine: &Machine,
        health: RegistryHealth,
        heartbeat_timeout: Duration,
        seen: impl Fn(&str) -> MemberSeen,
    ) -> Vec<Command> {
        let Some(leadership) = &mut self.leadership else { return Vec::new() };
        leadership.members.due(now, machine, health, heartbeat_timeout, seen)
    }

    pub(crate) fn barrier(
        &mut self,
        session: LogSessionId,
        epoch: Epoch,
        below: u64,
        machine: &Machine,
    ) -> Result<Result<Barrier, NotAppended>, NoTerm> {
        Ok(self.leadership.as_mut().ok_or(NoTerm)?.barrier(session, epoch, below, machine))
    }

    /// Returns the index that a barrier read waits for, or `Ok(None)` if it is not known yet.
    pub(crate) fn wait_for(&mut self, epoch: Epoch, barrier: &Barrier, read_index: u64) -> Result<Option<u64>, NoTerm> {
        Ok(self.of(epoch).ok_or(NoTerm)?.gate.wait_for(barrier, read_index))
    }

    /// Returns the commands to propose (expiries, ended delays of locks), and when to call again.
    pub(crate) fn due(&mut self, now: Time, machine: &Machine) -> Option<(Vec<Command>, Time)> {
        let leadership = self.leadership.as_mut()?;
        let due = leadership.due(now, machine);
        Some((due, leadership.expiry.wake()))
    }

    /// Records that a due command could not be proposed.
    pub(crate) fn not_expired(&mut self, now: Time, command: &Command) {
        if let Some(leadership) = &mut self.leadership {
            leadership.not_proposed(now, command);
        }
    }

    /// Records the feature level that a replica supports (V3).
    pub(crate) fn report_level(&mut self, now: Time, replica: ReplicaId, level: Level) {
        if let Some(leadership) = &mut self.leadership {
            leadership.level.report(now, replica, level);
        }
    }

    /// Decides about the next feature level.
    pub(crate) fn level(
        &self,
        now: Time,
        machine: &Machine,
        pace: LevelPace,
        limits: &CoordinationLimits,
    ) -> Option<LevelVerdict> {
        Some(self.leadership.as_ref()?.level.verdict(now, machine, pace, limits))
    }

    /// Returns the level that a replica must support before it is added.
    pub(crate) fn required_level(&self, machine: &Machine) -> Option<Level> {
        Some(self.leadership.as_ref()?.gate.required_level(machine))
    }

    fn of(&mut self, epoch: Epoch) -> Option<&mut LeaderTerm> {
        self.leadership.as_mut().filter(|leadership| leadership.first().epoch == epoch)
    }
}
