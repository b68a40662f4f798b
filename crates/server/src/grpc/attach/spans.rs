//! Spans of the attaches and requests on one stream, from the client's message to its answer.

use crate::traces;
use convoke_proto::{Error, v1};
use std::collections::VecDeque;
use tracing::Span;
use v1::client_message::Message as ClientMessage;
use v1::server_message::Message as ServerMessage;

#[derive(Debug)]
pub(super) struct Spans {
    /// Span of the call. The first attach takes it, because the stream may last for days.
    call: Span,
    /// Spans of the messages that are not answered. Answers have the order of their messages.
    open: VecDeque<Span>,
    /// Members in the parts of an answer that were sent.
    members: usize,
}

impl Spans {
    pub(super) fn new() -> Self {
        Spans { call: Span::current(), open: VecDeque::new(), members: 0 }
    }

    pub(super) fn received(&mut self, message: &v1::ClientMessage) {
        match &message.message {
            Some(ClientMessage::Attach(attach)) if !attach.more => {
                let call = std::mem::replace(&mut self.call, Span::none());
                self.open.push_back(traces::attach(&call, &attach.client));
            }
            Some(ClientMessage::Requests(requests)) => {
                self.open.push_back(traces::requests(requests.requests.len()));
            }
            _ => {}
        }
    }

    pub(super) fn sent(&mut self, message: &ServerMessage) {
        match message {
            ServerMessage::Attached(attached) => {
                self.members += attached.versions.len();
                if !attached.more
                    && let Some(span) = self.open.pop_front()
                {
                    traces::attached(&span, std::mem::take(&mut self.members));
                }
            }
            ServerMessage::AttachRejected(rejected) => {
                if let Some(span) = self.open.pop_front() {
                    let error = rejected.error.clone().map(Error::from);
                    traces::rejected(&span, error.map_or("", |error| error.code.as_str()));
                }
            }
            ServerMessage::Answers(answers) => {
                if let Some(span) = self.open.pop_front().filter(|span| !span.is_disabled()) {
                    let rejected = answers.answers.iter().filter(|answer| answer.error.is_some()).count();
                    span.record("convoke.rejected", rejected);
                }
            }
            _ => {}
        }
    }
}
