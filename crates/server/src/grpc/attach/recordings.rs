//! Audit records of the messages on one stream: one for an attach and one for each request, from the client's message to
//! its answer.

use crate::access::Caller;
use crate::audit::{Recorded, Recording};
use convoke_proto::{ErrorCode, v1};
use std::collections::VecDeque;
use v1::client_message::Message as ClientMessage;
use v1::request::Operation;
use v1::server_message::Message as ServerMessage;

#[derive(Debug, Default)]
pub(super) struct Recordings {
    /// The attach that is being received or executed, and the number of its members.
    attach: Option<(Caller, Recording, usize)>,
    /// Requests that are not answered. Answers have the order of their requests.
    requests: VecDeque<Recording>,
    closing: Recording,
}

impl Recordings {
    /// Begins the records of a message. Returns the caller that notes the decisions about it.
    pub(super) fn received(&mut self, caller: &Caller, message: &v1::ClientMessage) -> Caller {
        if !caller.is_recorded() {
            return caller.clone();
        }
        match &message.message {
            Some(ClientMessage::Attach(attach)) => {
                // Further parts of an attach belong to the same record.
                let (noting, recording, members) = self.attach.take().unwrap_or_else(|| {
                    let (noting, recording) = caller.message("attach", Recorded::Calls);
                    (noting, recording, 0)
                });
                let members = members + attach.members.len();
                if !attach.more {
                    recording.about("client", || attach.client.clone());
                    recording.about("members", || members.to_string());
                }
                self.attach = Some((noting.clone(), recording, members));
                noting
            }
            Some(ClientMessage::Requests(requests)) => {
                self.requests.extend(requests.requests.iter().map(|request| begin(caller, request)));
                // Each request has a record of its own.
                caller.unrecorded()
            }
            Some(ClientMessage::Close(_)) => {
                let (noting, recording) = caller.message("close", Recorded::Calls);
                self.closing = recording;
                noting
            }
            _ => caller.clone(),
        }
    }

    pub(super) fn sent(&mut self, caller: &Caller, message: &ServerMessage) {
        if !caller.is_recorded() {
            return;
        }
        let code = |error: &Option<v1::Error>| error.as_ref().map(|error| ErrorCode::from_number(error.code));
        match message {
            ServerMessage::Attached(attached) => {
                for rejected in &attached.rejected {
                    let (_, recording) = caller.message("register", Recorded::Calls);
                    recording.about("member", || rejected.id.clone());
                    recording.finish(code(&rejected.error));
                }
                if !attached.more
                    && let Some((_, recording, _)) = self.attach.take()
                {
                    recording.finish(None);
                }
            }
            ServerMessage::AttachRejected(rejected) => {
                if let Some((_, recording, _)) = self.attach.take() {
                    recording.finish(code(&rejected.error));
                }
            }
            ServerMessage::Answers(answers) => {
                for answer in &answers.answers {
                    if let Some(recording) = self.requests.pop_front() {
                        recording.finish(code(&answer.error));
                    }
                }
            }
            ServerMessage::Closed(closed) => std::mem::take(&mut self.closing).finish(code(&closed.error)),
            _ => {}
        }
    }
}

fn begin(caller: &Caller, request: &v1::Request) -> Recording {
    let (kind, member) = match &request.operation {
        Some(Operation::Register(register)) => {
            ("register", register.member.as_ref().map(|member| (&member.id, Some(&member.service))))
        }
        Some(Operation::Update(update)) => ("update", Some((&update.id, None))),
        Some(Operation::Unregister(unregister)) => ("unregister", Some((&unregister.id, None))),
        None => ("none", None),
    };
    let (_, recording) = caller.message(kind, Recorded::Calls);
    if let Some((id, service)) = member {
        recording.about("member", || id.clone());
        if let Some(service) = service {
            recording.about("service", || service.clone());
        }
    }
    recording
}
