//! Creation and order of outgoing messages.

use super::lane::Session;
use super::{CallId, Core, LaneId, Link, Output, Tagged, Timer};
use crate::session::ClientTime;
use convoke_proto::v1;
use convoke_proto::v1::submit_request::Message;
use std::time::Duration;

/// Pauses after a rejection for load: the first one, and the longest.
const RETRY_BASE: Duration = Duration::from_millis(10);
const RETRY_CAP: Duration = Duration::from_secs(1);

impl Core {
    /// Sends the messages of a lane that can be sent: in order of issue, up to the window.
    pub(super) fn pump(&mut self, now: ClientTime, id: LaneId, out: &mut Output) {
        self.now = now;
        let Some(link) = self.link else { return };
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if lane.retry_at.is_some_and(|at| at > now) {
            return;
        }
        if let Session::Ended { .. } = lane.session
            && !lane.calls.values().any(super::Call::may_have_arrived)
        {
            // No call of the old session is in doubt. The next session has its own secret (LS2).
            lane.session = Session::None;
            lane.last_abandoned = 0;
            lane.secret = (self.secrets)(&mut self.random);
        }
        if matches!(lane.session, Session::None) && lane.closing {
            // The session to be ended has already ended; no session is opened for that.
            let over: Vec<u64> = lane.calls.keys().copied().collect();
            for number in over {
                self.finish(id, number, Err(super::closed()), out);
            }
            return;
        }
        if matches!(lane.session, Session::None) && !lane.queued.is_empty() {
            lane.session = Session::Opening { sent: false, replaces: None };
        }
        match lane.session {
            Session::None | Session::Failed(_) | Session::Opening { sent: true, .. } => {}
            Session::Opening { sent: false, .. } => self.send_open(id, link, out),
            Session::Open { id: session, .. } => {
                let window = lane.options.window;
                while let Some(lane) = self.lanes.get(&id)
                    && lane.in_flight < window
                    && let Some(number) = lane.queued.first().copied()
                {
                    self.send_request((id, number), session, out);
                }
            }
            Session::Ended { id: session, .. } => {
                // Query the fates of calls that may have arrived. Queries change nothing, so superseded calls are
                // queried too. Other calls wait for the next session.
                let asking = lane.calls.iter().filter(|(_, call)| call.left && call.sent.is_none());
                let asking: Vec<u64> = asking.map(|(number, _)| *number).collect();
                for number in asking {
                    self.send_request((id, number), session, out);
                }
            }
        }
    }

    fn send_open(&mut self, id: LaneId, link: Link, out: &mut Output) {
        let lane = self.lane_mut(id);
        let Session::Opening { sent, replaces } = &mut lane.session else { return };
        *sent = true;
        let open = v1::OpenSession {
            epoch: Some(link.epoch),
            log: Some(link.log),
            ttl_ms: u64::try_from(lane.options.ttl.as_millis()).unwrap_or(u64::MAX),
            secret: lane.secret.to_vec(),
            node: lane.options.node.clone().unwrap_or_default(),
            principal: lane.options.principal.clone().unwrap_or_default(),
            client: lane.options.client.clone().unwrap_or_default(),
            replaces: *replaces,
        };
        self.send(Tagged::Open(id), Message::Open(open), String::new(), out);
    }

    fn send_request(&mut self, (id, number): CallId, session: u64, out: &mut Output) {
        let (Some(link), now) = (self.link, self.now) else { return };
        let lane = self.lane_mut(id);
        let (abandon_below, previous) = (lane.abandon_below(number), lane.previous(number));
        lane.fix_deadline(number);
        let Some(call) = lane.calls.get(&number) else { return };
        let traceparent = call.traceparent.clone();
        let request = v1::LogRequest {
            session,
            number,
            abandon_below,
            previous,
            epoch: Some(link.epoch),
            deadline_us: call.deadline_us,
            last: call.last,
            log: Some(link.log),
            secret: lane.secret.to_vec(),
            body: Some(call.body.clone()),
        };
        lane.sent(now, number, link.id);
        self.send(Tagged::Request((id, number)), Message::Request(request), traceparent, out);
    }

    pub(super) fn send(&mut self, tagged: Tagged, message: Message, traceparent: String, out: &mut Output) {
        self.tags_made += 1;
        self.tags.insert(self.tags_made, (tagged, self.now));
        out.sends.push(v1::SubmitRequest { tag: self.tags_made, traceparent, message: Some(message) });
    }

    /// Sends a keep-alive and sets the timer for the next one.
    pub(super) fn keep_alive(&mut self, now: ClientTime, id: LaneId, out: &mut Output) {
        self.now = now;
        let Some(link) = self.link else { return };
        let lane = self.lane_mut(id);
        if let Session::Open { id: session, log } = lane.session {
            let secret = lane.secret.to_vec();
            let keep_alive = v1::KeepAlive { session, epoch: Some(link.epoch), log: Some(log), secret };
            self.send(Tagged::KeepAlive(id), Message::KeepAlive(keep_alive), String::new(), out);
            self.set_keep_alive(now, id);
        }
    }

    pub(super) fn keep_alive_due(&mut self, now: ClientTime, id: LaneId, out: &mut Output) {
        if self.link.is_some() {
            self.keep_alive(now, id, out);
        } else {
            self.set_keep_alive(now, id);
        }
    }

    pub(super) fn set_keep_alive(&mut self, now: ClientTime, id: LaneId) {
        let lane = self.lane_mut(id);
        let next = now + lane.keep_alive_interval();
        if let Some(before) = lane.keep_alive_at.replace(next) {
            self.timers.remove(&(before, Timer::KeepAlive(id)));
        }
        self.timers.insert((next, Timer::KeepAlive(id)));
    }

    /// Retries later because of load, with growing pauses, and not before the time that the node named (AU20).
    pub(super) fn retry_later(&mut self, now: ClientTime, id: LaneId, named: Duration) {
        let lane = self.lane_mut(id);
        if lane.retry_at.is_none() {
            let pause = (RETRY_BASE * 2_u32.saturating_pow(lane.retries.min(10))).min(RETRY_CAP);
            lane.retries += 1;
            let at = now + named + pause.mul_f64(0.5 + self.random.f64() / 2.0);
            self.lane_mut(id).retry_at = Some(at);
            self.timers.insert((at, Timer::Retry(id)));
        }
    }
}
