//! Handling of answers.

use super::lane::Session;
use super::{CallId, Core, Decided, LaneId, LinkId, Output, Tagged};
use crate::session::ClientTime;
use crate::{Error, ErrorCode};
use convoke_proto::v1::fate::Kind;
use convoke_proto::v1::submit_response::Message;
use convoke_proto::v1::{self, kept_alive};

impl Core {
    /// Handles a message of the leader. Messages of an earlier link are ignored: their requests were sent again and get
    /// the same answer (A3.3).
    pub(crate) fn received(&mut self, now: ClientTime, link: LinkId, response: v1::SubmitResponse, out: &mut Output) {
        if self.link.is_none_or(|present| present.id != link) {
            return;
        }
        self.received_at = now;
        let Some((tagged, sent)) = self.tags.remove(&response.tag) else { return };
        if !matches!(tagged, Tagged::KeepAlive(_)) {
            self.answered_at = now;
        }
        let id = match tagged {
            Tagged::Open(id) | Tagged::KeepAlive(id) | Tagged::Request((id, _)) => id,
            Tagged::Leases => return self.leases_answered(sent, response.message, out),
            Tagged::Renewal(id) | Tagged::Place(id) => return self.ask_answered(now, id, response.message, out),
        };
        if !self.lanes.contains_key(&id) {
            return;
        }
        match (tagged, response.message) {
            (Tagged::Open(id), Some(Message::Opened(opened))) => self.opened(now, id, &opened, out),
            (Tagged::Request(call), Some(Message::Answer(answer))) => self.answered(now, call, answer, out),
            (Tagged::KeepAlive(id), Some(Message::KeptAlive(kept))) => self.kept_alive(now, id, kept.state()),
            (tagged, Some(Message::Rejected(error))) => self.rejected(now, tagged, error.into(), out),
            // Outcome unknown, or a message of another protocol version.
            (tagged, _) => {
                self.requeue(tagged);
                self.leave(Vec::new(), out);
            }
        }
        self.pump(now, id, out);
        self.remove_if_closed(id);
    }

    fn opened(&mut self, now: ClientTime, id: LaneId, opened: &v1::SessionOpened, out: &mut Output) {
        let Some(log) = self.link.map(|link| link.log) else { return };
        let lane = self.lane_mut(id);
        if !matches!(lane.session, Session::Opening { .. }) {
            return;
        }
        if let Some(holder) = opened.held_by {
            if lane.closing {
                return self.fail_lane(id, &super::closed(), out);
            }
            if lane.had_session {
                // A successor has fenced this handle, which must not replace it in turn.
                let message = "another process opened a log session under this client name; this handle is closed";
                return self.fail_lane(id, &Error::new(ErrorCode::Superseded, message), out);
            }
            // The holder is a predecessor; replace it (LS2, R-68).
            lane.session = Session::Opening { sent: false, replaces: Some(holder) };
            return;
        }
        lane.session = Session::Open { id: opened.session, log };
        lane.had_session = true;
        lane.log_time = Some((opened.log_time_us, now));
        lane.retries = 0;
        self.set_keep_alive(now, id);
    }

    fn answered(&mut self, now: ClientTime, (id, number): CallId, answer: v1::LogAnswer, out: &mut Output) {
        let lane = self.lane_mut(id);
        if answer.log_time_us > 0 {
            lane.log_time = Some((answer.log_time_us, now));
        }
        let fate = answer.fate.unwrap_or_default();
        if !fate.is_final() {
            let error = answer.rejected.map_or_else(missing_reason, Error::from);
            return self.rejected(now, Tagged::Request((id, number)), error, out);
        }
        lane.retries = 0;
        // The floor is above this request (F1), so no lower one can take effect any more.
        if matches!(fate.kind(), Kind::Applied | Kind::NotApplied) {
            lane.final_below(number);
        }
        let log = lane.session_id().map(|(_, log)| log);
        let named = |request: v1::RequestId| v1::RequestId { log, ..request };
        let abandoned = answer.previous.map(named).zip(answer.previous_fate).filter(|(_, fate)| fate.is_final());
        self.settle_superseded(id, number, abandoned.as_ref(), out);
        let stored = matches!(fate.kind(), Kind::Applied | Kind::NotApplied);
        let last = stored && self.lane_mut(id).calls.get(&number).is_some_and(|call| call.last);
        let ended = answer.rejected.as_ref().is_some_and(|error| error.error_code() == ErrorCode::SessionGone);
        if ended || last {
            self.session_ended(id);
        }
        let request = named(answer.request.unwrap_or_default());
        let sent = self.lane_mut(id).calls.get(&number).map(|call| call.first_sent).unwrap_or_default();
        let result = match fate.kind() {
            Kind::Applied => Ok(Decided { request, fate, abandoned, results: answer.results, sent }),
            Kind::NotApplied => Err(fate.reason.map_or_else(missing_reason, Error::from).request(request)),
            Kind::TooOld => Err(too_old(request)),
            Kind::Never | Kind::Open | Kind::Unspecified => {
                Err(answer.rejected.map_or_else(super::superseded, Error::from).request(request))
            }
        };
        self.finish(id, number, result, out);
    }

    /// Completes the calls that this later call superseded. Their fate must be resolved unless the answer carries it.
    fn settle_superseded(
        &mut self,
        id: LaneId,
        decided: u64,
        previous: Option<&(v1::RequestId, v1::Fate)>,
        out: &mut Output,
    ) {
        let lane = self.lane_mut(id);
        let over: Vec<u64> =
            lane.calls.range(..decided).filter(|(_, call)| call.superseded).map(|(number, _)| *number).collect();
        for number in over {
            let Some(request) = self.lane_mut(id).request_id(number) else { continue };
            let result = match previous {
                Some((named, fate)) if *named == request => match fate.kind() {
                    Kind::Applied => {
                        let (fate, sent) = (fate.clone(), ClientTime::ZERO);
                        Ok(Decided { request, fate, abandoned: None, results: None, sent })
                    }
                    Kind::NotApplied => {
                        Err(fate.reason.clone().map_or_else(missing_reason, Error::from).request(request))
                    }
                    Kind::TooOld => Err(too_old(request)),
                    _ => Err(super::superseded().request(request)),
                },
                _ => {
                    let message = format!(
                        "a later request of this handle superseded this one before its answer arrived (use resolve {request})"
                    );
                    Err(Error::new(ErrorCode::OutcomeUnknown, message).request(request))
                }
            };
            self.finish(id, number, result, out);
        }
    }

    fn kept_alive(&mut self, now: ClientTime, id: LaneId, state: kept_alive::State) {
        match state {
            kept_alive::State::Unknown => self.session_ended(id),
            // The expiry is in progress. Unless a request prevents it, the next call uses another session.
            kept_alive::State::Expiring | kept_alive::State::Kept | kept_alive::State::Unspecified => {
                self.set_keep_alive(now, id);
            }
        }
    }

    /// Handles the end of a session: none of its requests can take effect any more (LS8).
    fn session_ended(&mut self, id: LaneId) {
        let lane = self.lane_mut(id);
        if let Session::Open { id: session, log } = lane.session {
            lane.session = Session::Ended { id: session, log };
            lane.final_below(u64::MAX);
        }
    }

    /// Ends the session of a lane if it belongs to another log than the current link (LS10): the log was restored or
    /// replaced. Calls that may have reached the old log have an unknown outcome; the others use a new session.
    pub(super) fn leave_other_log(&mut self, id: LaneId, log: v1::LogId, out: &mut Output) {
        let lane = self.lane_mut(id);
        if lane.session_id().is_none_or(|(_, own)| own == log) {
            return;
        }
        let left: Vec<u64> =
            lane.calls.iter().filter(|(_, call)| call.may_have_arrived()).map(|(number, _)| *number).collect();
        for number in left {
            let Some(request) = self.lane_mut(id).request_id(number) else { continue };
            let message = format!(
                "the log was replaced by log {log} before an answer arrived; request {request} may have been applied to the old log"
            );
            self.finish(id, number, Err(Error::new(ErrorCode::OutcomeUnknown, message).request(request)), out);
        }
        let secret = (self.secrets)(&mut self.random);
        let lane = self.lane_mut(id);
        lane.session = Session::None;
        (lane.last_abandoned, lane.had_session, lane.log_time) = (0, false, None);
        lane.secret = secret;
    }

    /// Makes a lane unusable.
    fn fail_lane(&mut self, id: LaneId, error: &Error, out: &mut Output) {
        self.fail_calls(id, error, out);
        self.lane_mut(id).session = Session::Failed(error.clone());
    }

    /// Fails all waiting calls of a lane without a session. None of them was sent.
    fn fail_calls(&mut self, id: LaneId, error: &Error, out: &mut Output) {
        let waiting: Vec<u64> = self.lane_mut(id).calls.keys().copied().collect();
        for number in waiting {
            self.finish(id, number, Err(error.clone()), out);
        }
    }

    /// Leaves a node that does not lead. Unanswered messages have an unknown outcome.
    pub(super) fn leave(&mut self, replicas: Vec<v1::Replica>, out: &mut Output) {
        out.relink = Some(replicas);
        if let Some(link) = self.link {
            self.link_down(link.id);
        }
    }

    /// Handles a rejection of a message without a log session. Only a node that does not lead is left.
    pub(super) fn rejected_stateless(&mut self, error: Error, out: &mut Output) {
        if super::is_not_leading(error.code) {
            self.leave(error.log.map(|log| log.replicas).unwrap_or_default(), out);
        }
    }

    /// Handles a rejection: this copy did nothing.
    fn rejected(&mut self, now: ClientTime, tagged: Tagged, error: Error, out: &mut Output) {
        match error.code {
            code if super::is_not_leading(code) => {
                self.requeue(tagged);
                self.leave(error.log.map(|log| log.replicas).unwrap_or_default(), out);
            }
            // All places for sessions, or those of this client, are taken (LS7). Another attempt is up to the caller.
            ErrorCode::ResourceExhausted if matches!(tagged, Tagged::Open(_)) && error.field.is_some() => {
                if let Tagged::Open(id) = tagged {
                    self.fail_calls(id, &error, out);
                    self.lane_mut(id).session = Session::None;
                }
            }
            ErrorCode::ResourceExhausted => {
                self.requeue(tagged);
                if let Tagged::Open(id) | Tagged::Request((id, _)) = tagged {
                    self.retry_later(now, id, error.retry_after());
                }
            }
            // The previous request is missing: it was rejected as well, or is being sent again.
            // A request that the feature level of the log does not allow fails; it is up to the caller to try again.
            ErrorCode::FailedPrecondition
                if matches!(tagged, Tagged::Request(_)) && error.field.as_deref() != Some("level") =>
            {
                self.requeue(tagged);
            }
            // The session is not this client's, or not of this log.
            ErrorCode::SessionGone if !matches!(tagged, Tagged::Open(_)) => {
                let Some(id) = tagged.lane() else { return };
                if let Tagged::Request((_, number)) = tagged {
                    let request = self.lane_mut(id).request_id(number);
                    let error = request.into_iter().fold(error, Error::request);
                    self.finish(id, number, Err(error), out);
                }
                self.session_ended(id);
            }
            _ => match tagged {
                Tagged::Request((id, number)) => self.finish(id, number, Err(error), out),
                Tagged::KeepAlive(_) | Tagged::Leases | Tagged::Renewal(_) | Tagged::Place(_) => {}
                Tagged::Open(id) => self.fail_lane(id, &error, out),
            },
        }
    }

    /// Marks a message to be sent again.
    fn requeue(&mut self, tagged: Tagged) {
        match tagged {
            Tagged::Request((id, number)) => self.lane_mut(id).requeue_call(number),
            Tagged::Open(id) => {
                if let Session::Opening { sent, .. } = &mut self.lane_mut(id).session {
                    *sent = false;
                }
            }
            Tagged::KeepAlive(_) | Tagged::Leases | Tagged::Renewal(_) | Tagged::Place(_) => {}
        }
    }
}

fn too_old(request: v1::RequestId) -> Error {
    let message = format!("the outcome of request {request} is no longer stored; it can no longer take effect");
    Error::new(ErrorCode::Compacted, message).request(request)
}

fn missing_reason() -> Error {
    Error::new(ErrorCode::Internal, "the node gave no reason")
}
