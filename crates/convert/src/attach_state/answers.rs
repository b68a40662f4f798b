//! Answers of the node and their order.

use super::{AttachState, Phase};
use crate::{attached, error, rejected_member, versioned};
use convoke_core::Rejection;
use convoke_core::node::{Attached, OperationResult};
use convoke_proto::{Error, ErrorCode, v1};
use std::collections::VecDeque;
use std::vec;
use v1::server_message::Message as ServerMessage;

/// The pending answer to a message of the client.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    Attach {
        claim: u64,
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
    },
    Close,
    /// A close that was not passed to the node, or that the node did not accept.
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

impl AttachState {
    /// Takes the results of operations: one batch of them, in order.
    pub fn answered(&mut self, results: Vec<OperationResult>) {
        let mut results = results.into_iter();
        while results.len() > 0
            && let Some(pending) = self.pending.pop_front()
        {
            self.answer(pending, &mut results);
        }
        self.settle();
    }

    /// The close that is answered next has unregistered its members at this node only (C18).
    pub fn unreplicated(&mut self) {
        self.unreplicated = true;
    }

    /// Sends the answers that do not wait for the node any more.
    pub(super) fn settle(&mut self) {
        while self.pending.front().is_some_and(|pending| pending.awaits() == 0)
            && let Some(pending) = self.pending.pop_front()
        {
            self.answer(pending, &mut Vec::new().into_iter());
        }
    }

    /// The node did not accept the last `count` operations. An error ends the stream.
    pub fn not_accepted(&mut self, count: usize, rejection: Rejection) -> Result<(), Error> {
        let error = error(rejection);
        if error.code == ErrorCode::NotReady {
            return Err(error);
        }
        // Answers of earlier batches come first: the rejections are queued behind them.
        let mut left = count;
        for pending in self.pending.iter_mut().rev() {
            if left == 0 {
                break;
            }
            left -= pending.awaits().min(left);
            match pending {
                Pending::Requests { answers, open } => {
                    for answer in answers.iter_mut().filter(|answer| answer.error.is_none()) {
                        answer.error = Some(error.clone().into());
                    }
                    *open = 0;
                }
                Pending::Attach { claim } => {
                    *pending = Pending::Rejected { claim: *claim, error: error.clone() };
                    self.phase = Phase::Reading;
                }
                Pending::Close => {
                    *pending = Pending::CloseRejected { error: error.clone() };
                    self.phase = Phase::Reading;
                }
                Pending::Rejected { .. } | Pending::CloseRejected { .. } => {}
            }
        }
        self.settle();
        Ok(())
    }

    fn answer(&mut self, pending: Pending, results: &mut vec::IntoIter<OperationResult>) {
        match pending {
            Pending::Requests { mut answers, .. } => {
                for waiting in answers.iter_mut().filter(|answer| answer.error.is_none()) {
                    let seq = waiting.seq;
                    let mismatched = || rejected_answer(seq, mismatched_answer());
                    *waiting = results.next().map_or_else(mismatched, |result| answer(seq, result));
                }
                self.outgoing.push_back(ServerMessage::Answers(v1::Answers { answers }));
            }
            Pending::Attach { claim } => {
                self.phase = Phase::Reading;
                match results.next() {
                    Some(OperationResult::Attached(Ok(attached))) => self.attached(claim, attached),
                    Some(OperationResult::Attached(Err(rejection))) => self.attach_rejected(claim, error(rejection)),
                    _ => self.attach_rejected(claim, mismatched_answer()),
                }
            }
            Pending::Rejected { claim, error } => self.attach_rejected(claim, error),
            Pending::CloseRejected { error } => self.closed(Some(error)),
            Pending::Close => {
                self.phase = Phase::Reading;
                let error = match results.next() {
                    Some(OperationResult::Unregistered(Ok(_))) => {
                        self.session = None;
                        None
                    }
                    Some(OperationResult::Unregistered(Err(rejection))) => Some(error(rejection)),
                    _ => Some(mismatched_answer()),
                };
                self.closed(error);
            }
        }
    }

    fn closed(&mut self, error: Option<Error>) {
        let unreplicated = std::mem::take(&mut self.unreplicated) && error.is_none();
        self.outgoing.push_back(ServerMessage::Closed(v1::Closed { error: error.map(Into::into), unreplicated }));
    }

    fn attach_rejected(&mut self, claim: u64, error: Error) {
        let rejected = v1::AttachRejected { claim, error: Some(error.into()) };
        self.outgoing.push_back(ServerMessage::AttachRejected(rejected));
    }

    /// Accepted. A large answer is sent in parts.
    fn attached(&mut self, claim: u64, accepted: Attached) {
        self.session = Some(accepted.session);
        let head = attached(claim, &self.node, &accepted);
        let mut part = Part { message: head.clone(), bytes: 0, bytes_max: self.settings.part_bytes };
        for (id, version) in accepted.versions {
            part.make_room(&head, &mut self.outgoing);
            part.add_version(versioned(id, version));
        }
        for (id, rejection) in accepted.rejected {
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
    bytes_max: usize,
}

/// Size of an entry in addition to its strings.
const OVERHEAD: usize = 16;

impl Part {
    fn make_room(&mut self, head: &v1::Attached, outgoing: &mut VecDeque<ServerMessage>) {
        if self.bytes >= self.bytes_max {
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
        self.message.rejected.push(rejected_member(id, rejection));
    }
}

/// Returns the answer to a request.
pub fn answer(seq: u64, result: OperationResult) -> v1::Answer {
    match result {
        OperationResult::Written(Ok(version)) => {
            v1::Answer { seq, version: version.to_string(), ..v1::Answer::default() }
        }
        OperationResult::Unregistered(Ok(written)) => v1::Answer { seq, written, ..v1::Answer::default() },
        OperationResult::Written(Err(rejection)) | OperationResult::Unregistered(Err(rejection)) => {
            rejected_answer(seq, error(rejection))
        }
        OperationResult::Attached(_) | OperationResult::Heartbeat(_) => rejected_answer(seq, mismatched_answer()),
    }
}

pub(super) fn rejected_answer(seq: u64, error: Error) -> v1::Answer {
    v1::Answer { seq, error: Some(error.into()), ..v1::Answer::default() }
}

/// Unreachable: every operation has one kind of answer.
fn mismatched_answer() -> Error {
    Error::new(ErrorCode::Internal, "the answer does not belong to the request")
}
