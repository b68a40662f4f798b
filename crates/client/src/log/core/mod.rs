//! Decisions of the ambassador: numbers, order, abandoning and retries (docs/log-protocol.md, A2, LS, LR4).
//!
//! Synchronous: time is an argument, messages and answers are data. One core serves all handles of a process; a *lane*
//! is one handle with its log session. There is at most one link, to a node that reported to lead.
//!
//! The order of `issue` is the order of the lane: nothing is sent before an earlier call. An abandoned call is not sent
//! again, and every later request reports it as abandoned.

mod answers;
mod asks;
mod counters;
mod lane;
mod leases;
mod sending;
#[cfg(test)]
mod tests;

use super::Options;
use crate::session::ClientTime;
use crate::{Error, ErrorCode};
pub(crate) use asks::{Ask, AskId, Asked};
use convoke_proto::v1;
pub use counters::LimitCounters;
pub(crate) use lane::Barrier;
use lane::{Call, Lane, Session};
pub(crate) use leases::{Keep, LeaseChange};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Maximum number of waiting calls of all lanes; further calls are rejected.
const CALLS_MAX: usize = 65_536;
/// Maximum bytes of waiting calls.
const BYTES_MAX: usize = 256 * 1024 * 1024;

pub(crate) type LaneId = u64;
/// Number of a link. Answers of an earlier link are ignored.
pub(crate) type LinkId = u64;

/// Body of a request.
pub(crate) type Body = v1::log_request::Body;

/// A call to be issued.
#[derive(Clone, Debug)]
pub(crate) struct Issuing {
    pub(crate) body: Body,
    /// It is not to be applied later than this from now.
    pub(crate) deadline: Option<Duration>,
    /// The session ends with it.
    pub(crate) last: bool,
    /// The timeout of the lane does not apply to it.
    pub(crate) patient: bool,
}

impl Issuing {
    pub(crate) fn new(body: Body) -> Issuing {
        Issuing { body, deadline: None, last: false, patient: false }
    }
}

/// A call: the lane and its number there.
pub(crate) type CallId = (LaneId, u64);

/// Effects to be performed now.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Messages to send over the link, in this order.
    pub(crate) sends: Vec<v1::SubmitRequest>,
    pub(crate) done: Vec<(CallId, Result<Decided, Error>)>,
    /// Changes of leases that are kept alive.
    pub(crate) leases: Vec<(u64, LeaseChange)>,
    pub(crate) asked: Vec<(AskId, Result<Asked, Error>)>,
    /// Set if the node at the other end does not lead: the replicas it named, leader first.
    pub(crate) relink: Option<Vec<v1::Replica>>,
}

/// A request that took effect.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decided {
    pub(crate) request: v1::RequestId,
    pub(crate) fate: v1::Fate,
    /// A request abandoned before this one, with its fate.
    pub(crate) abandoned: Option<(v1::RequestId, v1::Fate)>,
    /// Results of a transaction.
    pub(crate) results: Option<v1::TxnResults>,
    /// When its first copy was sent.
    pub(crate) sent: ClientTime,
}

/// Secret of a log session (LS9).
pub(crate) type Secret = [u8; 16];

#[derive(Debug)]
pub(crate) struct Core {
    random: fastrand::Rng,
    secrets: fn(&mut fastrand::Rng) -> Secret,
    lanes: BTreeMap<LaneId, Lane>,
    lanes_made: u64,
    link: Option<Link>,
    links_made: u64,
    tags_made: u64,
    /// Messages sent over the current link and not answered.
    tags: BTreeMap<u64, (Tagged, ClientTime)>,
    /// Time of the current call.
    now: ClientTime,
    /// When a request or an open was answered last, and when the leader sent anything last.
    answered_at: ClientTime,
    received_at: ClientTime,
    timers: BTreeSet<(ClientTime, Timer)>,
    calls: usize,
    bytes: usize,
    leases: leases::KeptLeases,
    asks: asks::Asks,
    pub(crate) counters: LimitCounters,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    id: LinkId,
    epoch: v1::Epoch,
    log: v1::LogId,
}

/// Subject of an answer.
#[derive(Clone, Copy, Debug)]
enum Tagged {
    Open(LaneId),
    Request(CallId),
    KeepAlive(LaneId),
    /// Keep-alives of leases.
    Leases,
    Renewal(AskId),
    Place(AskId),
}

impl Tagged {
    /// Returns the lane of a message of a log session.
    fn lane(self) -> Option<LaneId> {
        match self {
            Tagged::Open(id) | Tagged::KeepAlive(id) | Tagged::Request((id, _)) => Some(id),
            Tagged::Leases | Tagged::Renewal(_) | Tagged::Place(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The timeout of a call.
    CallTimeout(LaneId, u64),
    /// A keep-alive is due.
    KeepAlive(LaneId),
    /// A lane may retry after a rejection for load.
    Retry(LaneId),
    /// Keep-alives of leases are due.
    Leases,
    /// The time for which a lease was confirmed is over.
    LeaseEnd(u64),
    /// Questions may be sent again after a rejection for load.
    Asks,
}

impl Core {
    /// `secrets` makes the secrets of sessions. Nobody else may be able to guess them.
    pub(crate) fn new(random: fastrand::Rng, secrets: fn(&mut fastrand::Rng) -> Secret) -> Core {
        Core {
            random,
            secrets,
            lanes: BTreeMap::new(),
            lanes_made: 0,
            link: None,
            links_made: 0,
            tags_made: 0,
            tags: BTreeMap::new(),
            now: ClientTime::ZERO,
            answered_at: ClientTime::ZERO,
            received_at: ClientTime::ZERO,
            timers: BTreeSet::new(),
            calls: 0,
            bytes: 0,
            leases: leases::KeptLeases::default(),
            asks: asks::Asks::default(),
            counters: LimitCounters::default(),
        }
    }

    /// Creates a lane for a new handle. Its first call opens the session.
    pub(crate) fn lane(&mut self, options: Options) -> LaneId {
        self.lanes_made += 1;
        self.lanes.insert(self.lanes_made, Lane::new(options, (self.secrets)(&mut self.random)));
        self.lanes_made
    }

    /// Issues a call and fixes its order. `traceparent` identifies its trace; empty for none.
    pub(crate) fn issue(
        &mut self,
        now: ClientTime,
        id: LaneId,
        Issuing { body, deadline, last, patient }: Issuing,
        traceparent: String,
        out: &mut Output,
    ) -> Result<CallId, Error> {
        let bytes = prost::Message::encoded_len(&v1::LogRequest { body: Some(body.clone()), ..Default::default() });
        if self.calls >= CALLS_MAX || self.bytes + bytes > BYTES_MAX {
            self.counters.requests_refused += 1;
            let message =
                format!("{CALLS_MAX} requests or {BYTES_MAX} bytes of them wait to be answered; wait for some");
            return Err(Error::new(ErrorCode::ResourceExhausted, message).limit(CALLS_MAX as u64));
        }
        let lane = self.lanes.get_mut(&id).ok_or_else(closed)?;
        if let Session::Failed(error) = &lane.session {
            return Err(error.clone());
        }
        let timeout = lane.options.timeout.filter(|_| !patient);
        let times_out_at = timeout.map(|timeout| now.saturating_add(timeout));
        let deadline = deadline.map(|deadline| now.saturating_add(deadline));
        let call = Call { bytes, traceparent, times_out_at, deadline, last, ..Call::new(body) };
        let number = lane.issue(call);
        self.calls += 1;
        self.bytes += bytes;
        if let Some(at) = times_out_at {
            self.timers.insert((at, Timer::CallTimeout(id, number)));
        }
        if !self.lane_mut(id).options.pipelined {
            self.supersede(id, number, out);
        }
        self.pump(now, id, out);
        Ok((id, number))
    }

    /// Abandons a call: it is not sent again, and later requests report it. Returns its id if a copy was sent. Returns
    /// `None` if no copy was or will be sent, or if it was already answered.
    pub(crate) fn abandon(&mut self, now: ClientTime, (id, number): CallId, out: &mut Output) -> Option<v1::RequestId> {
        let lane = self.lanes.get_mut(&id)?;
        let has_left = lane.calls.get(&number).is_some_and(Call::may_have_arrived);
        let request = lane.request_id(number).filter(|_| has_left);
        lane.abandon(number);
        self.forget(id, number);
        self.pump(now, id, out);
        self.remove_if_closed(id);
        request
    }

    /// Ends the session of a dropped handle. With `timeout`, the core retries over any link until the time is over,
    /// and a caller waits for the call. Without it, the end is sent only if a link exists. A session that was not ended
    /// expires.
    pub(crate) fn close(
        &mut self,
        now: ClientTime,
        id: LaneId,
        timeout: Option<Duration>,
        out: &mut Output,
    ) -> Option<CallId> {
        let lane = self.lanes.get_mut(&id).filter(|lane| !lane.closing)?;
        lane.closing = true;
        let there_is_one = match lane.session {
            Session::Open { .. } => self.link.is_some() || timeout.is_some(),
            // The session is about to be opened without a handle.
            Session::Opening { sent, .. } => sent,
            Session::None | Session::Ended { .. } | Session::Failed(_) => false,
        };
        let mut ending = None;
        if there_is_one {
            let times_out_at = timeout.map(|timeout| now.saturating_add(timeout));
            let number = lane.issue(Call { times_out_at, ..Call::new(Body::End(v1::EndSession {})) });
            self.calls += 1;
            if let Some(at) = times_out_at {
                self.timers.insert((at, Timer::CallTimeout(id, number)));
            }
            ending = Some((id, number));
            self.pump(now, id, out);
        }
        self.remove_if_closed(id);
        ending
    }

    /// Records a link to a leader of this epoch. Everything that is wanted is sent there, in order.
    /// Sessions of another log are gone.
    pub(crate) fn link_up(&mut self, now: ClientTime, epoch: v1::Epoch, log: v1::LogId, out: &mut Output) -> LinkId {
        self.links_made += 1;
        self.link = Some(Link { id: self.links_made, epoch, log });
        let lanes: Vec<LaneId> = self.lanes.keys().copied().collect();
        for id in lanes {
            self.leave_other_log(id, log, out);
            // Renew a session that was cut off for a while at once.
            self.keep_alive(now, id, out);
            self.pump(now, id, out);
        }
        self.leases_linked(now, log, out);
        self.send_asks(now, out);
        self.links_made
    }

    /// Ends a link, and with it the answers to sent messages.
    pub(crate) fn link_down(&mut self, link: LinkId) {
        if self.link.is_none_or(|present| present.id != link) {
            return;
        }
        self.link = None;
        self.tags.clear();
        self.asks.cut_off();
        for lane in self.lanes.values_mut() {
            lane.cut_off();
        }
        let closing: Vec<LaneId> = self.lanes.iter().filter(|(_, lane)| lane.closing).map(|(id, _)| *id).collect();
        for id in closing {
            self.remove_if_closed(id);
        }
    }

    /// Returns whether a link is needed.
    pub(crate) fn wants_link(&self) -> bool {
        let wants = |lane: &Lane| !lane.calls.is_empty() || matches!(lane.session, Session::Open { .. });
        self.lanes.values().any(wants) || !self.leases.is_empty() || !self.asks.is_empty()
    }

    /// Returns whether time decides about a lease.
    pub(crate) fn keeps_leases(&self) -> bool {
        !self.leases.is_empty()
    }

    /// Returns the shortest keep-alive interval of all sessions and leases.
    pub(crate) fn keep_alive_interval(&self) -> Option<Duration> {
        let open = self.lanes.values().filter(|lane| matches!(lane.session, Session::Open { .. }));
        open.map(lane::Lane::keep_alive_interval).chain(self.leases.interval()).min()
    }

    /// Returns whether the end of a session is in progress.
    pub(crate) fn is_ending(&self) -> bool {
        self.lanes.values().any(|lane| lane.closing)
    }

    /// Returns since when requests, or only keep-alives, wait for an answer of the current leader. Answers to keep-alives
    /// of sessions do not count as answers to requests: a leader without a majority sends them, too. It does not answer
    /// keep-alives of leases (LE2). A question about a place is answered at any time.
    pub(crate) fn unanswered_since(&self) -> Option<ClientTime> {
        let is_keep_alive = |tagged: &Tagged| matches!(tagged, Tagged::KeepAlive(_));
        let is_request = |tagged: &Tagged| !matches!(tagged, Tagged::KeepAlive(_) | Tagged::Place(_));
        let request = self.tags.values().find(|(tagged, _)| is_request(tagged)).map(|(_, sent)| *sent);
        let keep_alive = self.tags.values().find(|(tagged, _)| is_keep_alive(tagged)).map(|(_, sent)| *sent);
        let request = request.map(|sent| sent.max(self.answered_at));
        let keep_alive = keep_alive.map(|sent| sent.max(self.received_at));
        request.into_iter().chain(keep_alive).min()
    }

    /// Returns when `tick` is due.
    pub(crate) fn next_wake(&self) -> Option<ClientTime> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Handles due timers.
    pub(crate) fn tick(&mut self, now: ClientTime, out: &mut Output) {
        while let Some((at, timer)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, timer));
            match timer {
                Timer::CallTimeout(id, number) => self.call_timed_out(now, id, number, out),
                Timer::KeepAlive(id) => self.keep_alive_due(now, id, out),
                Timer::Retry(id) => {
                    self.lane_mut(id).retry_at = None;
                    self.pump(now, id, out);
                }
                Timer::Leases => self.leases_due(now, out),
                Timer::LeaseEnd(lease) => self.lease_ended(lease, out),
                Timer::Asks => self.retry_asks(now, out),
            }
        }
    }

    /// Returns the parameters of a barrier read of a lane (LR4), or `None` if nothing was abandoned. Fails if a call
    /// below the abandoned one is still wanted; try again when it is answered.
    pub(crate) fn barrier(&self, id: LaneId) -> Result<Option<Barrier>, StillWanted> {
        match (self.lanes.get(&id), self.link) {
            (Some(lane), Some(link)) => lane.barrier(link.epoch),
            _ => Ok(None),
        }
    }

    /// Records a successful barrier read: the requests it covered can no longer take effect.
    pub(crate) fn barrier_passed(&mut self, id: LaneId, below: u64) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.final_below(below);
        }
    }

    /// Returns the session of a lane, if one is open.
    pub(crate) fn session(&self, id: LaneId) -> Option<u64> {
        self.lanes.get(&id)?.session_id().map(|(session, _)| session)
    }

    /// Returns the log of the current link.
    pub(crate) fn log(&self) -> Option<v1::LogId> {
        self.link.map(|link| link.log)
    }

    /// Returns the number of waiting calls of all lanes.
    pub(crate) fn waiting(&self) -> usize {
        self.calls
    }

    fn call_timed_out(&mut self, now: ClientTime, id: LaneId, number: u64, out: &mut Output) {
        let lane = self.lane_mut(id);
        let Some(call) = lane.calls.get(&number) else { return };
        let error = match lane.request_id(number).filter(|_| call.may_have_arrived()) {
            None => {
                Error::new(ErrorCode::Timeout, "no leader of the log accepted the request in time; it was not executed")
            }
            Some(request) => {
                let message = format!(
                    "no answer in time; the request may or may not have been applied; call resolve {request} for the final outcome"
                );
                Error::new(ErrorCode::OutcomeUnknown, message).request(request)
            }
        };
        lane.abandon(number);
        self.finish(id, number, Err(error), out);
        self.pump(now, id, out);
        self.remove_if_closed(id);
    }

    /// In a lane with one request at a time, abandons all earlier calls.
    fn supersede(&mut self, id: LaneId, by: u64, out: &mut Output) {
        let lane = self.lane_mut(id);
        let unsent: Vec<u64> =
            lane.calls.range(..by).filter(|(_, call)| !call.may_have_arrived()).map(|(number, _)| *number).collect();
        for call in lane.calls.range_mut(..by) {
            call.1.superseded = true;
        }
        lane.queued.retain(|number| *number >= by);
        if let Some(last) = lane.calls.range(..by).rev().find(|(_, call)| call.may_have_arrived()) {
            lane.last_abandoned = lane.last_abandoned.max(*last.0);
        }
        for number in unsent {
            self.finish(id, number, Err(superseded()), out);
        }
    }

    /// Completes a call.
    fn finish(&mut self, id: LaneId, number: u64, result: Result<Decided, Error>, out: &mut Output) {
        if self.forget(id, number) {
            out.done.push(((id, number), result));
        }
    }

    /// Removes a call. Returns true if it was waiting.
    fn forget(&mut self, id: LaneId, number: u64) -> bool {
        let Some(call) = self.lanes.get_mut(&id).and_then(|lane| lane.remove(number)) else { return false };
        self.calls -= 1;
        self.bytes -= call.bytes;
        if let Some(at) = call.times_out_at {
            self.timers.remove(&(at, Timer::CallTimeout(id, number)));
        }
        true
    }

    /// Removes a lane whose handle was dropped, once nothing of it is pending.
    fn remove_if_closed(&mut self, id: LaneId) {
        let over = self.lanes.get(&id).is_some_and(|lane| {
            let opening = matches!(lane.session, Session::Opening { sent: true, .. });
            let wanted = |call: &Call| call.is_in_flight() || call.times_out_at.is_some() || opening;
            lane.closing && !lane.calls.values().any(wanted)
        });
        if over && let Some(lane) = self.lanes.remove(&id) {
            self.calls -= lane.calls.len();
            self.bytes -= lane.calls.values().map(|call| call.bytes).sum::<usize>();
            self.timers.retain(|(_, timer)| timer.lane() != Some(id));
        }
    }

    /// Returns an existing lane. Timers and tags are removed with their lane.
    fn lane_mut(&mut self, id: LaneId) -> &mut Lane {
        self.lanes.get_mut(&id).expect("timers and tags of a lane are removed with it")
    }
}

impl Timer {
    fn lane(&self) -> Option<LaneId> {
        match self {
            Timer::CallTimeout(id, _) | Timer::KeepAlive(id) | Timer::Retry(id) => Some(*id),
            Timer::Leases | Timer::LeaseEnd(_) | Timer::Asks => None,
        }
    }
}

/// A call issued before an abandoned one is still wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StillWanted;

/// Returns whether a node rejects messages because it does not lead.
fn is_not_leading(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NotLeader | ErrorCode::NoQuorum | ErrorCode::NotReady | ErrorCode::StaleEpoch)
}

fn closed() -> Error {
    Error::new(ErrorCode::FailedPrecondition, "this handle of the log is closed; open another one")
}

fn superseded() -> Error {
    Error::new(
        ErrorCode::Superseded,
        "a later request of this handle was sent first; this one has not been and will not be applied",
    )
}
