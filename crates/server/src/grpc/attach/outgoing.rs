//! Conversion of the node's answers to messages for the client.

use super::{AttachStream, State, dropped};
use crate::convert;
use crate::error::rejected;
use crate::traces;
use convoke_core::Rejection;
use convoke_core::node::Attached;
use convoke_node::{Delivery, OperationResult};
use convoke_proto::{Error, ErrorCode, PART_BYTES, v1};
use std::vec;
use tracing::Span;
use v1::server_message::Message as ServerMessage;

/// Reconnecting clients per second of a lost node that the other nodes accept. Two nodes that shared two cores
/// with the clients accepted 10,000 in four seconds; half of that rate leaves capacity for other clients
/// (docs/performance.md).
const RETURNS_PER_SECOND: usize = 1_250;

/// The pending answer to a message of the client.
#[derive(Debug)]
pub(super) enum Pending {
    Attach {
        claim: u64,
        span: Span,
    },
    /// An attach that was rejected before it was passed to the node.
    Rejected {
        claim: u64,
        error: Error,
    },
    /// Answers in the order of the requests. The node still has to answer `open` of those without an error.
    Requests {
        answers: Vec<v1::Answer>,
        open: usize,
        span: Span,
    },
    Close,
    /// A close that the node did not accept.
    CloseRejected {
        error: Error,
    },
}

impl Pending {
    /// Returns the number of answers that it waits for.
    fn awaits(&self) -> usize {
        match self {
            Pending::Attach { .. } | Pending::Close => 1,
            Pending::Rejected { .. } | Pending::CloseRejected { .. } => 0,
            Pending::Requests { open, .. } => *open,
        }
    }
}

impl AttachStream {
    pub(super) fn delivered(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Heartbeat { echo, result } => {
                self.unanswered -= 1;
                let error = result.err().map(|rejection| rejected(rejection).into());
                let ack = v1::HeartbeatAck { sent: echo, error, spread_ms: self.spread_ms() };
                self.outgoing.push_back(ServerMessage::HeartbeatAck(ack));
            }
            Delivery::Answers(answers) => {
                self.unanswered -= answers.len();
                let mut answers = answers.into_iter();
                while answers.len() > 0
                    && let Some(pending) = self.pending.pop_front()
                {
                    self.answer(pending, &mut answers);
                }
                self.settle();
            }
            Delivery::Notice(notice) => self.outgoing.push_back(ServerMessage::Notice(convert::notice(notice))),
            // The heartbeats of this stream request an answer, which reports the rejection.
            Delivery::HeartbeatRejected { .. } => {}
            Delivery::Closed(_) => self.end_with(dropped()),
        }
    }

    /// Returns the time over which all clients of this node should spread their reconnects.
    fn spread_ms(&self) -> u32 {
        let attached = self.surface.attached();
        u32::try_from(attached * 1_000 / RETURNS_PER_SECOND).unwrap_or(u32::MAX)
    }

    /// Sends the answers that do not wait for the node any more.
    pub(super) fn settle(&mut self) {
        while self.pending.front().is_some_and(|pending| pending.awaits() == 0)
            && let Some(pending) = self.pending.pop_front()
        {
            self.answer(pending, &mut Vec::new().into_iter());
        }
    }

    /// The node did not accept the last `count` operations.
    pub(super) fn reject_pending(&mut self, count: usize, error: &Error) {
        if error.code == ErrorCode::NotReady {
            return self.end_with(error.clone());
        }
        // Answers of earlier batches come first: the rejections are queued behind them.
        let mut left = count;
        for pending in self.pending.iter_mut().rev() {
            if left == 0 {
                break;
            }
            left -= pending.awaits().min(left);
            match pending {
                Pending::Requests { answers, open, .. } => {
                    for answer in answers.iter_mut().filter(|answer| answer.error.is_none()) {
                        answer.error = Some(error.clone().into());
                    }
                    *open = 0;
                }
                Pending::Attach { claim, span } => {
                    traces::rejected(span, error.code.as_str());
                    *pending = Pending::Rejected { claim: *claim, error: error.clone() };
                    self.state = State::Reading;
                }
                Pending::Close => {
                    *pending = Pending::CloseRejected { error: error.clone() };
                    self.state = State::Reading;
                }
                Pending::Rejected { .. } | Pending::CloseRejected { .. } => {}
            }
        }
    }

    fn answer(&mut self, pending: Pending, answers: &mut vec::IntoIter<OperationResult>) {
        match pending {
            Pending::Requests { answers: mut answered, span, .. } => {
                for waiting in answered.iter_mut().filter(|answer| answer.error.is_none()) {
                    match answers.next() {
                        Some(OperationResult::Written(Ok(version))) => waiting.version = version.to_string(),
                        Some(OperationResult::Written(Err(rejection)) | OperationResult::Done(Err(rejection))) => {
                            waiting.error = Some(rejected(rejection).into());
                        }
                        Some(OperationResult::Done(Ok(()))) => {}
                        Some(OperationResult::Attached(_)) | None => waiting.error = Some(mismatched_answer().into()),
                    }
                }
                if !span.is_disabled() {
                    span.record("convoke.rejected", answered.iter().filter(|answer| answer.error.is_some()).count());
                }
                self.outgoing.push_back(ServerMessage::Answers(v1::Answers { answers: answered }));
            }
            Pending::Attach { claim, span } => {
                self.state = State::Reading;
                let error = match answers.next() {
                    Some(OperationResult::Attached(Ok(attached))) => {
                        traces::attached(&span, attached.versions.len());
                        return self.attached(claim, attached);
                    }
                    Some(OperationResult::Attached(Err(rejection))) => rejected(rejection),
                    _ => mismatched_answer(),
                };
                traces::rejected(&span, error.code.as_str());
                self.attach_rejected(claim, error);
            }
            Pending::Rejected { claim, error } => self.attach_rejected(claim, error),
            Pending::CloseRejected { error } => {
                self.outgoing.push_back(ServerMessage::Closed(v1::Closed { error: Some(error.into()) }));
            }
            Pending::Close => {
                self.state = State::Reading;
                let error = match answers.next() {
                    Some(OperationResult::Done(Ok(()))) => {
                        self.session = None;
                        None
                    }
                    Some(OperationResult::Done(Err(rejection))) => Some(rejected(rejection).into()),
                    _ => Some(mismatched_answer().into()),
                };
                self.outgoing.push_back(ServerMessage::Closed(v1::Closed { error }));
            }
        }
    }

    fn attach_rejected(&mut self, claim: u64, error: Error) {
        let rejected = v1::AttachRejected { claim, error: Some(error.into()) };
        self.outgoing.push_back(ServerMessage::AttachRejected(rejected));
    }

    /// Accepted. A large answer is sent in parts.
    fn attached(&mut self, claim: u64, attached: Attached) {
        self.session = Some(attached.session);
        let head = convert::attached(claim, self.surface.node.id().as_str(), &attached);
        let mut part = Part { message: head.clone(), bytes: 0 };
        for (id, version) in attached.versions {
            part.make_room(&head, &mut self.outgoing);
            part.add_version(convert::versioned(id, version));
        }
        for (id, rejection) in attached.rejected {
            part.make_room(&head, &mut self.outgoing);
            part.add_rejected(id, rejection);
        }
        self.outgoing.push_back(ServerMessage::Attached(part.message));
    }
}

/// One part of the answer to an attach.
struct Part {
    message: v1::Attached,
    bytes: usize,
}

/// Size of an entry in addition to its strings.
const OVERHEAD: usize = 16;

impl Part {
    fn make_room(&mut self, head: &v1::Attached, outgoing: &mut std::collections::VecDeque<ServerMessage>) {
        if self.bytes >= PART_BYTES {
            let mut full = std::mem::replace(&mut self.message, head.clone());
            full.more = true;
            outgoing.push_back(ServerMessage::Attached(full));
            self.bytes = 0;
        }
    }

    fn add_version(&mut self, versioned: v1::Versioned) {
        self.bytes += versioned.id.len() + versioned.version.len() + OVERHEAD;
        self.message.versions.push(versioned);
    }

    fn add_rejected(&mut self, id: String, rejection: Rejection) {
        self.bytes += id.len() + rejection.message.len() + 2 * OVERHEAD;
        self.message.rejected.push(convert::rejected_member(id, rejection));
    }
}

pub(super) fn answer(seq: u64, error: Error) -> v1::Answer {
    v1::Answer { seq, error: Some(error.into()), ..v1::Answer::default() }
}

/// Unreachable: every operation has one kind of answer.
fn mismatched_answer() -> Error {
    Error::new(ErrorCode::Internal, "the answer does not belong to the request")
}
