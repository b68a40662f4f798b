//! Leases that this process keeps alive, and how long they are certain to exist (LE2, LE3).
//!
//! One message keeps all leases alive that are due or nearly due. A lease is valid until the *sending* time of the last
//! keep-alive that was confirmed, plus its ttl, minus [`drift`]. After that the log may have ended it, so it counts as
//! lost, and this is final. Time must count suspends of the machine.

use super::{Core, Output, Tagged, Timer};
use crate::session::ClientTime;
use crate::{Error, ErrorCode};
use convoke_proto::v1::submit_request::Message;
use convoke_proto::v1::submit_response::Message as Answer;
use convoke_proto::v1::{self, kept_alive};
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of leases in one message, which the leader also enforces.
const LEASES_PER_MESSAGE: usize = 1_000;
/// Maximum number of leases that a process keeps alive.
const LEASES_MAX: usize = if cfg!(test) { 100 } else { 65_536 };
/// Part of the ttl that covers different rates of the clocks of client and leader: one percent.
const DRIFT_DIVISOR: u32 = 100;

/// Returns the part of a ttl that a client must not rely on, because the leader's clock may run faster.
fn drift(ttl: Duration) -> Duration {
    ttl / DRIFT_DIVISOR
}

#[derive(Debug, Default)]
pub(super) struct KeptLeases {
    all: BTreeMap<u64, Kept>,
    /// When the timer for the next message fires.
    timer: Option<ClientTime>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    log: v1::LogId,
    ttl: Duration,
    /// Whether the lease is bound to a member. The ttl is then the longest time without a confirmation.
    member: bool,
    /// `None` before the first confirmation.
    valid_until: Option<ClientTime>,
    due: ClientTime,
}

/// A lease to be kept alive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    pub(crate) lease: u64,
    pub(crate) log: v1::LogId,
    pub(crate) ttl: Duration,
    pub(crate) member: bool,
    /// When the request that granted it was sent first; `None` if another process granted it.
    pub(crate) granted: Option<ClientTime>,
}

/// A change of a lease.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LeaseChange {
    /// The lease exists at least until this time.
    Valid(ClientTime),
    /// The lease has ended, or may have. Nothing of it is kept.
    Lost(Error),
}

impl Kept {
    /// Two keep-alives may be lost before the lease expires.
    fn interval(&self) -> Duration {
        self.ttl / 3
    }

    fn confirm(&mut self, sent: ClientTime) {
        let until = sent + self.ttl.saturating_sub(drift(self.ttl));
        self.valid_until = Some(self.valid_until.map_or(until, |before| before.max(until)));
    }
}

impl KeptLeases {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn interval(&self) -> Option<Duration> {
        self.all.values().map(Kept::interval).min()
    }
}

impl Core {
    /// Keeps a lease alive from now on. A grant that was answered late is no confirmation; the first keep-alive is.
    pub(crate) fn keep(&mut self, now: ClientTime, keep: Keep, out: &mut Output) -> Result<(), Error> {
        if self.leases.all.len() >= LEASES_MAX {
            self.counters.leases_refused += 1;
            let message = format!("this process keeps {LEASES_MAX} leases alive; release some of them");
            return Err(Error::new(ErrorCode::ResourceExhausted, message).limit(LEASES_MAX as u64));
        }
        let Keep { lease, log, ttl, member, granted } = keep;
        let mut kept = Kept { log, ttl, member, valid_until: None, due: now };
        if let Some(granted) = granted {
            kept.confirm(granted);
            kept.valid_until = kept.valid_until.filter(|until| *until > now);
            kept.due = (granted + kept.interval()).max(now);
        }
        self.leases.all.insert(lease, kept);
        if let Some(until) = kept.valid_until {
            self.timers.insert((until, Timer::LeaseEnd(lease)));
            out.leases.push((lease, LeaseChange::Valid(until)));
        }
        self.leases_due(now, out);
        Ok(())
    }

    /// Stops keeping a lease alive.
    pub(crate) fn stop_keeping(&mut self, lease: u64) {
        if let Some(Kept { valid_until: Some(until), .. }) = self.leases.all.remove(&lease) {
            self.timers.remove(&(until, Timer::LeaseEnd(lease)));
        }
    }

    /// Sends keep-alives for leases that are due, together with those that are due soon, and sets the timer.
    pub(super) fn leases_due(&mut self, now: ClientTime, out: &mut Output) {
        if self.leases.all.values().any(|kept| kept.due <= now) {
            let soon = |kept: &Kept| kept.due <= now + kept.interval() / 2;
            self.keep_alive_leases(now, soon, out);
        }
        let next = self.leases.all.values().map(|kept| kept.due).min();
        if let Some(before) = std::mem::replace(&mut self.leases.timer, next) {
            self.timers.remove(&(before, Timer::Leases));
        }
        self.timers.extend(next.map(|next| (next, Timer::Leases)));
    }

    /// Renews all leases over a new link; those of another log have ended.
    pub(super) fn leases_linked(&mut self, now: ClientTime, log: v1::LogId, out: &mut Output) {
        let gone: Vec<u64> = self.leases.all.iter().filter(|(_, kept)| kept.log != log).map(|(id, _)| *id).collect();
        for lease in gone {
            let message = format!("the log was replaced by log {log}, and lease {lease} has ended with the old one");
            self.lose(lease, Error::new(ErrorCode::NotFound, message), out);
        }
        self.keep_alive_leases(now, |_| true, out);
        self.leases_due(now, out);
    }

    fn keep_alive_leases(&mut self, now: ClientTime, which: impl Fn(&Kept) -> bool, out: &mut Output) {
        self.now = now;
        let mut leases = Vec::new();
        for (lease, kept) in self.leases.all.iter_mut().filter(|(_, kept)| which(kept)) {
            // Without a link, the next link renews it.
            kept.due = now + kept.interval();
            leases.push(*lease);
        }
        let Some(link) = self.link else { return };
        for leases in leases.chunks(LEASES_PER_MESSAGE) {
            let (epoch, log) = (Some(link.epoch), Some(link.log));
            let keep_alive = v1::LeaseKeepAlive { epoch, log, leases: leases.to_vec() };
            self.send(Tagged::Leases, Message::LeaseKeepAlive(keep_alive), String::new(), out);
        }
    }

    /// Handles the answer to a message that was sent at `sent`.
    pub(super) fn leases_answered(&mut self, sent: ClientTime, answer: Option<Answer>, out: &mut Output) {
        match answer {
            Some(Answer::LeasesKept(kept)) => {
                for kept in kept.leases {
                    match kept.state() {
                        kept_alive::State::Kept => self.lease_confirmed(kept.lease, sent, out),
                        kept_alive::State::Unknown => {
                            let message = format!("lease {} has ended: it expired or was revoked", kept.lease);
                            self.lose(kept.lease, Error::new(ErrorCode::NotFound, message), out);
                        }
                        // Its end is proposed. Whether it takes effect is not known yet.
                        kept_alive::State::Expiring | kept_alive::State::Unspecified => {}
                    }
                }
            }
            Some(Answer::Rejected(error)) => self.rejected_stateless(error.into(), out),
            _ => self.leave(Vec::new(), out),
        }
    }

    fn lease_confirmed(&mut self, lease: u64, sent: ClientTime, out: &mut Output) {
        let Some(kept) = self.leases.all.get_mut(&lease) else { return };
        let before = kept.valid_until;
        kept.confirm(sent);
        let Some(until) = kept.valid_until.filter(|until| before != Some(*until)) else { return };
        if let Some(before) = before {
            self.timers.remove(&(before, Timer::LeaseEnd(lease)));
        }
        self.timers.insert((until, Timer::LeaseEnd(lease)));
        out.leases.push((lease, LeaseChange::Valid(until)));
    }

    /// Handles the end of the time for which a lease was confirmed.
    pub(super) fn lease_ended(&mut self, lease: u64, out: &mut Output) {
        let Some(kept) = self.leases.all.get(&lease) else { return };
        let (ttl, member) = (kept.ttl.as_secs_f64(), kept.member);
        let message = if member {
            format!("the log confirmed nothing for {ttl} s, so lease {lease} of the member may have ended")
        } else {
            format!("no keep-alive of lease {lease} was confirmed for its ttl of {ttl} s, so it may have ended")
        };
        self.lose(lease, Error::new(ErrorCode::Timeout, message), out);
    }

    fn lose(&mut self, lease: u64, error: Error, out: &mut Output) {
        if self.leases.all.contains_key(&lease) {
            self.stop_keeping(lease);
            out.leases.push((lease, LeaseChange::Lost(error.field("lease"))));
        }
    }
}
