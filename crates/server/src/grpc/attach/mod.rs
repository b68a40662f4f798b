//! A client's session: one stream without a task or a queue.
//!
//! Polling the response stream reads the request stream. Messages become operations, which are passed to the node in
//! batches; the node's answers become messages. The requests of a client that does not read its answers are not read
//! either, so its answers need no unbounded queue.

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

/// Largest number of operations in one batch.
const BATCH: usize = 1_024;
/// Largest number of unanswered operations. At this number, the client's messages are not read.
const UNANSWERED: usize = 8_192;
/// Largest number of messages read from the client in one poll, so that other tasks get their turn.
const MESSAGES: usize = 256;

pub(crate) struct AttachStream {
    inbound: Streaming<v1::ClientMessage>,
    connection: ClientConnection,
    surface: Arc<Surface>,
    /// Session of the last accepted attach.
    session: Option<SessionId>,
    /// Answers that the client waits for, in order.
    pending: VecDeque<Pending>,
    /// Operations and heartbeats passed to the node and not yet answered.
    unanswered: usize,
    /// Messages for the client.
    outgoing: VecDeque<ServerMessage>,
    parts: Parts,
    state: State,
    /// Span of the call. The first attach takes it, because the stream may last for days.
    call: Span,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum State {
    /// Only an attach is accepted.
    First,
    Reading,
    /// The outcome of an attach or a close decides how the next message is handled.
    Waiting,
    /// The client has closed its half of the stream and still waits for answers.
    Finishing,
    /// The stream ends after this status.
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

    /// Reads the client's messages and passes them to the node. Returns true if there was any.
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

/// The client has disconnected or sent bytes that are not a message.
fn unreadable(status: Status) -> Status {
    match status.code() {
        tonic::Code::OutOfRange => {
            let limit = convoke_proto::MESSAGE_BYTES_MAX as u64;
            Error::new(ErrorCode::TooLarge, "the message is too large; send the attach in parts").limit(limit).into()
        }
        tonic::Code::Internal => invalid("message", status.message()).into(),
        _ => status,
    }
}
