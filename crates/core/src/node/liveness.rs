//! Liveness of sessions: heartbeats, silence, down and left (C6, L5, L6).

use super::attach::session_gone;
use super::{ConnId, DegradedReason, Effect, Node, Output, Phase, RegistryEvent, SessionId};
use crate::error::Rejection;
use crate::member::{Liveness, Record, Status};
use crate::mutant::seam;
use crate::time::{Duration, ReceivedAt, Time};
use crate::timers::Timer;

/// With `fast` liveness: time from losing the connection until a session is down.
const FAST_GRACE: Duration = Duration::from_millis(750);
/// Timers that may exist beyond two per session. Links and peers have far fewer.
const STALE_TIMERS_MAX: usize = 16 * 1024;
/// How long the finding of no mass failure stays valid (L6). Short compared with a heartbeat interval.
const SOUND: Duration = Duration::from_millis(100);

impl Node {
    /// Handles a heartbeat. No allocation, no lock, no replication, unless members have to be gathered.
    pub fn heartbeat(&mut self, now: Time, session: SessionId, out: &mut Output) -> Result<(), Rejection> {
        self.observe_client(now, out)?;
        self.counters.heartbeats += 1;
        let mut superseded_counts = false;
        seam!(self, OldSessionHeartbeats => superseded_counts = true);
        match self.sessions.get_mut(session) {
            Some(s) if !s.superseded || superseded_counts => {
                s.received_at = ReceivedAt::now(self.clock);
                s.cut_at = None;
                if s.down {
                    self.revive(session, out);
                }
                self.gather_members(session, out);
                Ok(())
            }
            _ => {
                self.counters.requests_rejected += 1;
                Err(session_gone())
            }
        }
    }

    /// Clean close: all members of the session are unregistered at once.
    pub fn close_session(&mut self, now: Time, session: SessionId, out: &mut Output) -> Result<(), Rejection> {
        self.observe_client(now, out)?;
        let result = self.session(session).map(|_| ());
        if result.is_ok()
            && let Some(session) = self.sessions.remove(session)
        {
            for slot in session.members {
                self.write_unregistered(slot, out);
            }
        }
        self.count_rejection(result)
    }

    /// Handles the loss of a client connection. That alone changes nothing, except with `fast` liveness.
    pub fn disconnected(&mut self, now: Time, conn: ConnId, out: &mut Output) {
        self.observe(now, out);
        for id in self.sessions.of_conn(conn) {
            self.sessions.detach(id);
            let Some(session) = self.sessions.get_mut(id) else { continue };
            if session.liveness == Liveness::Fast {
                session.cut_at = Some(self.clock.now);
                self.check_session_at(id, self.clock.now + FAST_GRACE);
            }
        }
    }

    /// Closes all client streams unread: this node was paused, and their buffered messages are as old as the pause
    /// (L5).
    pub(super) fn drop_clients(&mut self, out: &mut Output) {
        let ids: Vec<SessionId> = self.sessions.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.sessions.detach(id);
        }
        self.watchers.remove_all();
        out.effects.push(Effect::CloseAllClients);
    }

    /// A session's timer: checks whether it is down or expired (C6).
    pub(super) fn check_session(&mut self, id: SessionId, out: &mut Output) {
        let now = self.clock.now;
        let Some(session) = self.sessions.get_mut(id).filter(|session| session.check_at <= now) else { return };
        session.check_at = Time::MAX;
        let timers = &self.config.timers;
        let forgiven = timers.dead_peer_timeout;
        let silence = session.received_at.silence_without_pauses(self.clock, forgiven);
        // A stopping node closes its connections itself, so their loss does not count (N6).
        let cut_at = session.cut_at.filter(|_| !session.down && !matches!(self.phase, Phase::Stopping { .. }));
        let cut = cut_at.is_some_and(|at| now >= at + FAST_GRACE);
        // A little longer than the promised timeout, so that an attach elsewhere just before the deadline can arrive.
        let down_at = session.timeout + timers.ping_interval / 2;
        let leave_at = down_at + timers.reconnect_timeout;
        let mut leaves = session.down && silence >= leave_at;
        seam!(self, DownNeverLeaves => leaves = false);
        if leaves {
            self.counters.sessions_left += 1;
            if let Some(session) = self.sessions.remove(id) {
                for slot in session.members {
                    self.write_expired(slot, out);
                }
            }
            return;
        }
        let mut next = if session.down { leave_at } else { down_at };
        if !session.down && (silence >= down_at || cut) {
            if let Some(hold) = self.hold_mass_failure(cut, out) {
                self.check_session_at(id, hold);
                return;
            }
            self.counters.sessions_down += 1;
            self.set_session_status(id, Status::Down, out);
            next = leave_at;
        }
        if let Some(session) = self.sessions.get(id) {
            let mut due = session.received_at.due(self.clock, next, forgiven);
            if let Some(cut) = cut_at.filter(|_| !session.down) {
                due = due.min(cut + FAST_GRACE);
            }
            // A due time in the past means that lateness was capped; check again soon.
            self.check_session_at(id, due.max(now + Duration::from_millis(1)));
        }
    }

    /// Sets the session's timer, if it is not due earlier anyway.
    pub(super) fn check_session_at(&mut self, id: SessionId, at: Time) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        if at < session.check_at {
            session.check_at = at;
            self.timers.set(at, Timer::Session(id));
            self.drop_stale_timers();
        }
    }

    /// Keeps the number of timers proportional to the number of sessions. The cost is shared by the timers that are dropped.
    fn drop_stale_timers(&mut self) {
        if self.timers.len() <= 2 * self.sessions.len() + STALE_TIMERS_MAX {
            return;
        }
        let sessions = &self.sessions;
        self.timers.retain(|at, timer| match timer {
            Timer::Session(id) => sessions.get(*id).is_some_and(|session| session.check_at == at),
            _ => true,
        });
    }

    /// Heartbeat interval for a client with this timeout: two heartbeats may be late or lost (C6).
    pub(super) fn heartbeat_interval(&self, timeout: Duration) -> Duration {
        self.config.timers.heartbeat_interval.min(timeout / 3)
    }

    /// Whether so many sessions fell silent at once that judgements wait first (L6). Returns until when.
    fn hold_mass_failure(&mut self, cut: bool, out: &mut Output) -> Option<Time> {
        let now = self.clock.now;
        let held = self.guard.sessions.holds(now, self.config.timers.heartbeat_timeout);
        seam!(self, NoMassFailureGuard => return None);
        if cut || now < self.guard.sessions.passing_until {
            return None;
        }
        if held.is_some() || now < self.guard.sessions.sound_until {
            return held;
        }
        let (mut silent, mut silent_members, mut members) = (0, 0, 0);
        for (_, session) in self.sessions.iter().filter(|(_, s)| !s.down && !s.superseded) {
            members += session.members.len();
            let silence = session.received_at.silence_without_pauses(self.clock, self.config.timers.dead_peer_timeout);
            if silence + self.heartbeat_interval(session.timeout) > session.timeout {
                silent += 1;
                silent_members += session.members.len();
            }
        }
        let share = silent_members as f64 / members.max(1) as f64;
        if silent < super::guard::MASS_SESSIONS_MIN || share <= self.config.mass_failure_share {
            self.guard.sessions.sound_until = now + SOUND;
            return None;
        }
        let until = self.guard.sessions.hold(now, self.config.timers.heartbeat_timeout);
        let until_ms = until.as_micros() / 1000;
        out.events.push(RegistryEvent::Degraded { reason: DegradedReason::Sessions, until_ms });
        Some(until)
    }

    fn set_session_status(&mut self, id: SessionId, status: Status, out: &mut Output) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.down = status == Status::Down;
        for slot in session.members.clone() {
            let held = self.map.at(slot).clone();
            if held.status != status {
                self.write(Record { status, seq: held.seq + 1, ..Record::clone(&held) }, out);
            }
        }
    }

    pub(super) fn revive(&mut self, id: SessionId, out: &mut Output) {
        seam!(self, HeartbeatDoesNotRevive => return);
        self.set_session_status(id, Status::Up, out);
        let timeout = self.sessions.get(id).map_or(self.config.timers.heartbeat_timeout, |s| s.timeout);
        self.check_session_at(id, self.clock.now + timeout);
    }
}
