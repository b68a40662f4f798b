//! A client's session: one stream, no task and no queue of its own.
//!
//! The response stream reads the request stream: messages become operations of one hand-off to the node, its answers become
//! messages. A client that does not take its answers is not read any further, so nothing piles up for it.

mod incoming;
mod outgoing;
mod parts;

use crate::error::{invalid, rejected};
use crate::surface::Surface;
use convoke_core::node::SessionId;
use convoke_node::{ClientConnection, ClientOperation};
use convoke_proto::{Error, ErrorCode, v1};
use futures_core::Stream;
use outgoing::Pending;
use parts::Parts;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::OwnedSemaphorePermit;
use tonic::{Status, Streaming};
use tracing::Span;
use v1::server_message::Message as ServerMessage;

/// Operations handed over at once.
const BATCH: usize = 1_024;
/// Operations that may be under way before the client is read further.
const UNANSWERED: usize = 8_192;
/// Messages taken from the client in one go: others want their turn.
const MESSAGES: usize = 256;

pub(crate) struct AttachStream {
    inbound: Streaming<v1::ClientMessage>,
    connection: ClientConnection,
    surface: Arc<Surface>,
    /// Of the last accepted attach.
    session: Option<SessionId>,
    /// What the client is owed, in order.
    pending: VecDeque<Pending>,
    /// Operations and heartbeats handed over and not yet answered.
    unanswered: usize,
    /// Messages for the client.
    outgoing: VecDeque<ServerMessage>,
    parts: Parts,
    state: State,
    /// Of the call, until its first attach takes it: the stream may go on for days.
    call: Span,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum State {
    /// Nothing but an attach is accepted.
    First,
    Reading,
    /// What follows an attach or a close depends on its outcome.
    Waiting,
    /// The client says no more; it is still owed answers.
    Finishing,
    /// Over after this.
    Ended(Option<Status>),
}

impl AttachStream {
    pub(crate) fn new(
        inbound: Streaming<v1::ClientMessage>,
        connection: ClientConnection,
        surface: Arc<Surface>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let parts = Parts::new(&surface.config.limits);
        AttachStream {
            inbound,
            connection,
            surface,
            session: None,
            pending: VecDeque::new(),
            unanswered: 0,
            outgoing: VecDeque::new(),
            parts,
            state: State::First,
            call: Span::current(),
            _permit: permit,
        }
    }

    /// Takes what the client has sent and hands it over. True if there was anything.
    fn read(&mut self, context: &mut Context<'_>) -> bool {
        let mut operations = Vec::new();
        let mut messages = 0;
        while matches!(self.state, State::First | State::Reading)
            && messages < MESSAGES
            && operations.len() < BATCH
            && self.unanswered + operations.len() < UNANSWERED
        {
            match Pin::new(&mut self.inbound).poll_next(context) {
                Poll::Ready(Some(Ok(message))) => self.message(message, &mut operations),
                Poll::Ready(Some(Err(status))) => self.end(Some(unreadable(status))),
                Poll::Ready(None) => self.state = State::Finishing,
                Poll::Pending => break,
            }
            messages += 1;
        }
        self.hand_over(operations);
        messages > 0
    }

    fn hand_over(&mut self, operations: Vec<ClientOperation>) {
        let count = operations.len();
        if count > 0 {
            match self.connection.submit(operations) {
                Ok(()) => self.unanswered += count,
                Err(rejection) => self.reject_pending(count, &rejected(rejection)),
            }
        }
        self.settle();
    }

    fn end(&mut self, status: Option<Status>) {
        self.outgoing.clear();
        self.state = State::Ended(status);
    }

    fn end_with(&mut self, error: Error) {
        self.end(Some(error.into()));
    }
}

impl Stream for AttachStream {
    type Item = Result<v1::ServerMessage, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(message) = this.outgoing.pop_front() {
                return Poll::Ready(Some(Ok(v1::ServerMessage { message: Some(message) })));
            }
            match &mut this.state {
                State::Ended(status) => return Poll::Ready(status.take().map(Err)),
                State::Finishing if this.pending.is_empty() && this.unanswered == 0 => return Poll::Ready(None),
                _ => {}
            }
            match this.connection.poll_next(context) {
                Poll::Ready(Some(delivery)) => this.delivered(delivery),
                Poll::Ready(None) => this.end_with(dropped()),
                Poll::Pending => {
                    if !this.read(context) {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

fn dropped() -> Error {
    Error::new(ErrorCode::NotReady, "the node has dropped this stream; attach again, here or elsewhere")
}

/// The client is gone, or what it sent is no message.
fn unreadable(status: Status) -> Status {
    match status.code() {
        tonic::Code::OutOfRange => {
            let limit = convoke_proto::MESSAGE_BYTES_MAX as u64;
            Error::new(ErrorCode::TooLarge, "a message is too large; send what it holds in parts").limit(limit).into()
        }
        tonic::Code::Internal => invalid("message", status.message()).into(),
        _ => status,
    }
}
