//! One handle: its session, its numbers and its calls.

use super::{Body, LinkId, Secret, StillWanted};
use crate::Error;
use crate::log::Options;
use crate::session::ClientTime;
use convoke_proto::v1;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) options: Options,
    pub(super) session: Session,
    /// Whether the lane ever had a session.
    pub(super) had_session: bool,
    /// Numbers continue across sessions and are never reused.
    pub(super) last_issued: u64,
    /// Waiting calls.
    pub(super) calls: BTreeMap<u64, Call>,
    /// Calls to be sent, in order.
    pub(super) queued: BTreeSet<u64>,
    pub(super) in_flight: usize,
    /// The highest abandoned number that may have arrived and is not known to be final. 0 means none.
    pub(super) last_abandoned: u64,
    /// The last known log time, and when it was received (LS5).
    pub(super) log_time: Option<(u64, ClientTime)>,
    /// Nothing is sent before this time.
    pub(super) retry_at: Option<ClientTime>,
    pub(super) retries: u32,
    pub(super) keep_alive_at: Option<ClientTime>,
    /// Identifies duplicates of an open (LS2) and proves the ownership of the session (LS9).
    pub(super) secret: Secret,
    pub(super) closing: bool,
}

#[derive(Debug)]
pub(super) enum Session {
    /// No session yet, or the last one has ended and none of its calls is in doubt.
    None,
    Opening {
        sent: bool,
        /// The holder of the client name, which the open replaces.
        replaces: Option<u64>,
    },
    Open {
        id: u64,
        log: v1::LogId,
    },
    /// The session has ended; the fates of calls that may have arrived are being queried.
    Ended {
        id: u64,
        log: v1::LogId,
    },
    /// Another process uses the client name, or the session cannot be opened.
    Failed(Error),
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) body: Body,
    pub(super) bytes: usize,
    /// Trace of the call; empty for none.
    pub(super) traceparent: String,
    /// When the caller stops waiting.
    pub(super) times_out_at: Option<ClientTime>,
    /// When the call must no longer be applied.
    pub(super) deadline: Option<ClientTime>,
    /// The deadline in log time, fixed at the first transmission: all copies have the same.
    pub(super) deadline_us: u64,
    /// The link over which it was sent and may be answered.
    pub(super) sent: Option<LinkId>,
    /// When the first copy was sent.
    pub(super) first_sent: ClientTime,
    /// Whether a copy was sent. Even a rejected copy counts, because networks may duplicate it.
    pub(super) left: bool,
    /// A later call superseded this one; it is not sent again.
    pub(super) superseded: bool,
    /// The session ends with it.
    pub(super) last: bool,
}

impl Call {
    pub(super) fn new(body: Body) -> Call {
        Call {
            body,
            bytes: 0,
            traceparent: String::new(),
            times_out_at: None,
            deadline: None,
            deadline_us: 0,
            sent: None,
            first_sent: ClientTime::ZERO,
            left: false,
            superseded: false,
            last: false,
        }
    }

    /// Whether a copy of it may have reached the log.
    pub(super) fn may_have_arrived(&self) -> bool {
        self.left
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.sent.is_some()
    }
}

/// Parameters of a barrier read (LR4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Barrier {
    pub(crate) session: u64,
    pub(crate) log: v1::LogId,
    pub(crate) secret: Secret,
    pub(crate) epoch: v1::Epoch,
    pub(crate) below: u64,
}

impl Lane {
    pub(super) fn new(options: Options, secret: Secret) -> Lane {
        Lane {
            options,
            session: Session::None,
            had_session: false,
            last_issued: 0,
            calls: BTreeMap::new(),
            queued: BTreeSet::new(),
            in_flight: 0,
            last_abandoned: 0,
            log_time: None,
            retry_at: None,
            retries: 0,
            keep_alive_at: None,
            secret,
            closing: false,
        }
    }

    pub(super) fn issue(&mut self, call: Call) -> u64 {
        self.last_issued += 1;
        self.calls.insert(self.last_issued, call);
        self.queued.insert(self.last_issued);
        self.last_issued
    }

    /// Abandons a call. If no copy was sent, the call leaves no trace.
    pub(super) fn abandon(&mut self, number: u64) {
        if self.calls.get(&number).is_some_and(Call::may_have_arrived) {
            self.last_abandoned = self.last_abandoned.max(number);
        }
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Call> {
        let call = self.calls.remove(&number)?;
        self.queued.remove(&number);
        if call.sent.is_some() {
            self.in_flight -= 1;
        }
        Some(call)
    }

    /// Converts a deadline to log time (LS5).
    pub(super) fn fix_deadline(&mut self, number: u64) {
        if let (Some(call), Some((log_time, at))) = (self.calls.get_mut(&number), self.log_time)
            && let (Some(deadline), 0) = (call.deadline, call.deadline_us)
        {
            let left = u64::try_from(deadline.saturating_sub(at).as_micros()).unwrap_or(u64::MAX);
            call.deadline_us = log_time.saturating_add(left).max(1);
        }
    }

    /// Records that a copy was sent.
    pub(super) fn sent(&mut self, now: ClientTime, number: u64, link: LinkId) {
        self.queued.remove(&number);
        if let Some(call) = self.calls.get_mut(&number) {
            call.sent = Some(link);
            if !call.left {
                call.first_sent = now;
            }
            call.left = true;
            self.in_flight += 1;
        }
    }

    /// Queues a call again after its copy did nothing or its outcome is unknown, unless it is no longer wanted.
    pub(super) fn requeue_call(&mut self, number: u64) {
        if let Some(call) = self.calls.get_mut(&number) {
            if call.sent.take().is_some() {
                self.in_flight -= 1;
            }
            if !call.superseded {
                self.queued.insert(number);
            }
        }
    }

    /// Records that the link will deliver no more answers.
    pub(super) fn cut_off(&mut self) {
        let sent: Vec<u64> = self.calls.iter().filter(|(_, call)| call.is_in_flight()).map(|(n, _)| *n).collect();
        for number in sent {
            self.requeue_call(number);
        }
        if let Session::Opening { sent, .. } = &mut self.session {
            *sent = false;
        }
        self.retry_at = None;
    }

    /// Records that no request below this number can take effect any more.
    pub(super) fn final_below(&mut self, below: u64) {
        if self.last_abandoned < below {
            self.last_abandoned = 0;
        }
    }

    /// Returns the keep-alive interval: two keep-alives may be lost before the session expires.
    pub(super) fn keep_alive_interval(&self) -> Duration {
        self.options.ttl / 3
    }

    pub(super) fn session_id(&self) -> Option<(u64, v1::LogId)> {
        match self.session {
            Session::Open { id, log } | Session::Ended { id, log } => Some((id, log)),
            _ => None,
        }
    }

    pub(super) fn request_id(&self, number: u64) -> Option<v1::RequestId> {
        self.session_id().map(|(session, log)| v1::RequestId { session, number, log: Some(log) })
    }

    /// Returns the lowest wanted number, as seen from a call (A2).
    pub(super) fn abandon_below(&self, number: u64) -> u64 {
        let wanted = self.calls.range(..number).find(|(_, call)| !call.superseded);
        wanted.map_or(number, |(lowest, _)| *lowest)
    }

    /// Returns the `previous` of a call (A2): the last wanted number, so that the call waits for it; otherwise the last
    /// abandoned one, so that the answer carries its fate.
    pub(super) fn previous(&self, number: u64) -> u64 {
        let wanted = self.calls.range(..number).rev().find(|(_, call)| !call.superseded);
        match wanted {
            Some((last, _)) => *last,
            None if self.last_abandoned < number => self.last_abandoned,
            None => 0,
        }
    }

    pub(super) fn barrier(&self, epoch: v1::Epoch) -> Result<Option<Barrier>, StillWanted> {
        let Session::Open { id: session, log } = self.session else { return Ok(None) };
        if self.last_abandoned == 0 {
            return Ok(None);
        }
        if self.calls.range(..self.last_abandoned).any(|(_, call)| !call.superseded) {
            return Err(StillWanted);
        }
        Ok(Some(Barrier { session, log, secret: self.secret, epoch, below: self.last_abandoned + 1 }))
    }
}
