//! One agreed log, changing leaders, and a network that keeps copies.

use super::super::{Body, CallId, Core, Decided, Issuing, LaneId, LinkId, Output};
use crate::log::Options;
use crate::{Error, ErrorCode};
use convoke_log::command::{Command, DurableClient, Open, Put, Request};
use convoke_log::machine::{ApplyRejection, Fate, Outcome, Reply};
use convoke_log::{Entry, Epoch, LogLimits, LogSessionId, LogTime, Machine, ReplicaId, RequestId};
use convoke_proto::v1;
use convoke_proto::v1::fate::Kind;
use convoke_proto::v1::submit_request::Message as SubmitMessage;
use convoke_proto::v1::submit_response::Message;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub(super) struct World {
    pub(super) core: Core,
    pub(super) machine: Machine,
    pub(super) now: Duration,
    pub(super) epoch: Epoch,
    /// Number of the log; a restored log has another one.
    pub(super) log: u128,
    pub(super) link: Option<LinkId>,
    /// Messages in flight, in order.
    pub(super) wire: VecDeque<v1::SubmitRequest>,
    /// Answers in flight.
    pub(super) answers: VecDeque<v1::SubmitResponse>,
    /// Everything ever sent: any of it may arrive again at any time.
    pub(super) copies: Vec<v1::SubmitRequest>,
    pub(super) done: BTreeMap<CallId, Result<Decided, Error>>,
    /// Number of bodies to reject for load.
    pub(super) busy: usize,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let mut world = World {
            core: Core::new(fastrand::Rng::with_seed(seed), |random| random.u128(..).to_le_bytes()),
            machine: Machine::new(LogLimits::default()).unwrap(),
            now: Duration::ZERO,
            epoch: Epoch { term: 0, leader: ReplicaId(1) },
            log: 1,
            link: None,
            wire: VecDeque::new(),
            answers: VecDeque::new(),
            copies: Vec::new(),
            done: BTreeMap::new(),
            busy: 0,
        };
        world.elect();
        world
    }

    /// Starts a new epoch and applies its first entry.
    pub(super) fn elect(&mut self) {
        self.epoch = Epoch { term: self.epoch.term + 1, leader: ReplicaId(1 + self.epoch.term % 3) };
        let at = convoke_log::Position { index: self.machine.applied().index + 1, epoch: self.epoch };
        self.machine.skip(at).unwrap();
    }

    pub(super) fn lane(&mut self, options: Options) -> LaneId {
        self.core.lane(options)
    }

    pub(super) fn issue(&mut self, lane: LaneId, key: &str) -> Result<CallId, Error> {
        self.issue_as(lane, key, false)
    }

    /// The session ends with it.
    pub(super) fn issue_last(&mut self, lane: LaneId, key: &str) -> Result<CallId, Error> {
        self.issue_as(lane, key, true)
    }

    fn issue_as(&mut self, lane: LaneId, key: &str, last: bool) -> Result<CallId, Error> {
        let body = Body::Put(v1::PutKey { key: key.to_owned().into(), ..v1::PutKey::default() });
        self.issue_body(lane, body, last)
    }

    pub(super) fn issue_body(&mut self, lane: LaneId, body: Body, last: bool) -> Result<CallId, Error> {
        let mut out = Output::default();
        let issuing = Issuing { last, ..Issuing::new(body) };
        let call = self.core.issue(self.now, lane, issuing, String::new(), &mut out);
        self.carry_out(out);
        call
    }

    pub(super) fn abandon(&mut self, call: CallId) -> Option<v1::RequestId> {
        let mut out = Output::default();
        let request = self.core.abandon(self.now, call, &mut out);
        self.carry_out(out);
        request
    }

    pub(super) fn close(&mut self, lane: LaneId, timeout: Option<Duration>) -> Option<CallId> {
        let mut out = Output::default();
        let ending = self.core.close(self.now, lane, timeout, &mut out);
        self.carry_out(out);
        ending
    }

    pub(super) fn link_up(&mut self) {
        let mut out = Output::default();
        let epoch = v1::Epoch { term: self.epoch.term, replica: self.epoch.leader.0 };
        self.link = Some(self.core.link_up(self.now, epoch, self.log.into(), &mut out));
        self.carry_out(out);
    }

    /// Ends the link. Messages in flight may still arrive as copies; answers are lost.
    pub(super) fn link_down(&mut self) {
        if let Some(link) = self.link.take() {
            self.core.link_down(link);
        }
        self.wire.clear();
        self.answers.clear();
    }

    pub(super) fn tick(&mut self, time: Duration) {
        self.now += time;
        let mut out = Output::default();
        self.core.tick(self.now, &mut out);
        self.carry_out(out);
    }

    pub(super) fn carry_out(&mut self, out: Output) {
        if self.link.is_some() || !out.sends.is_empty() {
            self.copies.extend(out.sends.iter().cloned());
            self.wire.extend(out.sends);
        }
        for (call, result) in out.done {
            assert!(self.done.insert(call, result).is_none(), "{call:?} is answered once");
        }
        if out.relink.is_some() {
            self.link = None;
            self.wire.clear();
            self.answers.clear();
        }
    }

    /// Delivers the next message to the leader.
    pub(super) fn arrive(&mut self) -> bool {
        let Some(request) = self.wire.pop_front() else { return false };
        let tag = request.tag;
        let message = if self.busy > 0 && matches!(request.message, Some(SubmitMessage::Request(_))) {
            self.busy -= 1;
            rejected(ErrorCode::ResourceExhausted)
        } else {
            self.serve(request)
        };
        self.answers.push_back(v1::SubmitResponse { tag, message: Some(message) });
        true
    }

    /// Delivers the next answer.
    pub(super) fn deliver_answer(&mut self) -> bool {
        let Some(answer) = self.answers.pop_front() else { return false };
        if let Some(link) = self.link {
            let mut out = Output::default();
            self.core.received(self.now, link, answer, &mut out);
            self.carry_out(out);
        }
        true
    }

    /// Delivers any earlier copy to the current leader; its answer is lost.
    pub(super) fn arrive_late(&mut self, at: usize) {
        if let Some(copy) = self.copies.get(at).cloned() {
            self.serve(copy);
        }
    }

    /// Runs until nothing happens any more.
    pub(super) fn settle(&mut self) {
        for _ in 0..10_000 {
            if self.link.is_none() {
                self.link_up();
            }
            let moved = self.arrive() | self.deliver_answer();
            if !moved {
                if self.core.waiting() == 0 {
                    return;
                }
                self.tick(Duration::from_millis(100));
            }
        }
        panic!("it does not come to rest: {} wait", self.core.waiting());
    }

    /// Acts as a leader: rejects at the gate, or appends and applies.
    fn serve(&mut self, request: v1::SubmitRequest) -> Message {
        let asked = request.message.unwrap();
        let (log, secret, session) = match &asked {
            SubmitMessage::KeepAlive(sent) => (sent.log, &sent.secret, Some(sent.session)),
            SubmitMessage::Open(sent) => (sent.log, &sent.secret, None),
            SubmitMessage::Request(sent) => (sent.log, &sent.secret, Some(sent.session)),
            // The log of this world has level 1.
            SubmitMessage::LeaseKeepAlive(_) | SubmitMessage::AwaitPlace(_) => return below_level_two(),
        };
        let secret = u128::from_le_bytes(secret.as_slice().try_into().unwrap());
        let session = session.and_then(|session| self.machine.session(LogSessionId(session)));
        if log != Some(self.log.into()) || session.is_some_and(|session| session.owner != secret) {
            return rejected(ErrorCode::SessionGone);
        }
        let command = match asked {
            SubmitMessage::KeepAlive(sign) => {
                let open = self.machine.session(LogSessionId(sign.session)).is_some();
                let state = if open { v1::kept_alive::State::Kept } else { v1::kept_alive::State::Unknown };
                return Message::KeptAlive(v1::KeptAlive { state: state.into() });
            }
            SubmitMessage::LeaseKeepAlive(_) | SubmitMessage::AwaitPlace(_) => return below_level_two(),
            SubmitMessage::Open(open) => Command::Open(Open {
                client: (!open.client.is_empty())
                    .then(|| DurableClient { name: open.client.into(), replaces: open.replaces.map(LogSessionId) }),
                ..Open::new(epoch(open.epoch), Duration::from_millis(open.ttl_ms), secret)
            }),
            SubmitMessage::Request(request) => Command::Request(Request {
                session: LogSessionId(request.session),
                number: request.number,
                abandon_below: request.abandon_below,
                previous: request.previous,
                epoch: epoch(request.epoch),
                deadline: (request.deadline_us > 0).then(|| LogTime::from_micros(request.deadline_us)),
                last: request.last,
                body: match request.body.unwrap() {
                    Body::Put(put) => convoke_log::command::Body::Put(Put {
                        key: put.key,
                        value: put.value,
                        if_revision: put.if_revision,
                        previous: false,
                    }),
                    Body::End(_) => convoke_log::command::Body::End(LogSessionId(request.session)),
                    // The log of this world has level 1.
                    Body::Txn(_)
                    | Body::Grant(_)
                    | Body::Revoke(_)
                    | Body::Acquire(_)
                    | Body::Release(_)
                    | Body::Proclaim(_) => return below_level_two(),
                    Body::Delete(_) => unreachable!("not asked for here"),
                },
            }),
        };
        if command.epoch() != self.epoch {
            return rejected(ErrorCode::StaleEpoch);
        }
        if let Command::Request(request) = &command
            && self.machine.session(request.session).is_none()
        {
            let fate = wire(&self.machine.peek(request.id()));
            return answer(request.id(), fate, Some(ErrorCode::SessionGone), None, 0);
        }
        let index = self.machine.applied().index + 1;
        let stamp = LogTime::from_micros(u64::try_from(self.now.as_micros()).unwrap() + 1);
        let applied = self.machine.apply(&Entry { index, epoch: self.epoch, stamp, command }).unwrap();
        let log_time = applied.log_time.as_micros();
        match applied.reply {
            Reply::Opened(Ok(opened)) => Message::Opened(v1::SessionOpened {
                session: opened.session.0,
                replaced: opened.replaced.map(|session| session.0),
                log_time_us: log_time,
                held_by: None,
            }),
            Reply::Opened(Err(ApplyRejection::NameHeld { holder })) => {
                Message::Opened(v1::SessionOpened { held_by: Some(holder.0), ..v1::SessionOpened::default() })
            }
            Reply::Opened(Err(why)) => {
                Message::Rejected(Error::new(why.code(), why.to_string()).field("sessions").into())
            }
            Reply::Request(answered) => {
                let previous = answered.previous.map(|(id, fate)| (id, wire(&fate)));
                match answered.verdict {
                    Ok(outcome) => answer(answered.id, wire(&Fate::Done(outcome)), None, previous, log_time),
                    Err(why) => {
                        let kind = if why.is_final() { Kind::Never } else { Kind::Open };
                        let code = why.code();
                        answer(answered.id, v1::Fate::of(kind), Some(code), previous, log_time)
                    }
                }
            }
            other => unreachable!("only clients propose here: {other:?}"),
        }
    }

    /// Returns the index at which a call took effect.
    pub(super) fn index(&self, session: u64, number: u64) -> Option<u64> {
        match self.machine.peek(RequestId::new(LogSessionId(session), number)) {
            Fate::Done(outcome) if outcome.is_applied() => Some(outcome.index()),
            _ => None,
        }
    }

    /// Returns how often a key was put.
    pub(super) fn puts(&self, key: &str) -> u64 {
        self.machine.keys().get(key.as_bytes()).map_or(0, |record| record.version)
    }
}

fn epoch(epoch: Option<v1::Epoch>) -> Epoch {
    let epoch = epoch.unwrap();
    Epoch { term: epoch.term, leader: ReplicaId(epoch.replica) }
}

fn below_level_two() -> Message {
    Message::Rejected(Error::new(ErrorCode::FailedPrecondition, "level 2 is required").field("level").into())
}

pub(super) fn rejected(code: ErrorCode) -> Message {
    Message::Rejected(Error::new(code, "no").into())
}

fn answer(
    id: RequestId,
    fate: v1::Fate,
    why: Option<ErrorCode>,
    previous: Option<(RequestId, v1::Fate)>,
    log_time_us: u64,
) -> Message {
    let wire_id = |id: RequestId| v1::RequestId { session: id.session.0, number: id.number, log: None };
    Message::Answer(v1::LogAnswer {
        request: Some(wire_id(id)),
        fate: Some(fate),
        rejected: why.map(|code| Error::new(code, "no").into()),
        previous: previous.as_ref().map(|(id, _)| wire_id(*id)),
        previous_fate: previous.map(|(_, fate)| fate),
        log_time_us,
        results: None,
    })
}

fn wire(fate: &Fate) -> v1::Fate {
    match fate {
        Fate::Done(outcome) => match &**outcome {
            Outcome::Applied { index, revision, .. } => {
                v1::Fate { index: *index, revision: *revision, ..v1::Fate::of(Kind::Applied) }
            }
            Outcome::NotApplied { index, reason } => {
                let reason = Error::new(reason.code(), reason.to_string());
                v1::Fate { index: *index, reason: Some(reason.into()), ..v1::Fate::of(Kind::NotApplied) }
            }
        },
        Fate::Never => v1::Fate::of(Kind::Never),
        Fate::Open => v1::Fate::of(Kind::Open),
        Fate::TooOld => v1::Fate::of(Kind::TooOld),
    }
}
