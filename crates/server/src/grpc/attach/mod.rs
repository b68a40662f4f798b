//! A client's session: one stream without a task or a queue.
//!
//! Polling the response stream reads the request stream. Messages become operations, which are passed to the node in
//! batches; the node's answers become messages. The requests of a client that does not read its answers are not read
//! either, so its answers need no unbounded queue.

mod recordings;
mod spans;

use crate::access::Caller;
use crate::error::invalid;
use crate::rates::Used;
use crate::service::ClientConnection as OuterConnection;
use crate::surface::Surface;
use convoke_access::Verb;
use convoke_convert::{AttachSettings, AttachState, Calls, Registrations};
use convoke_core::node::AttachMember;
use convoke_node::{ClientConnection, Delivery};
use convoke_proto::{Error, ErrorCode, v1};
use futures_core::Stream;
use recordings::Recordings;
use spans::Spans;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use tonic::{Status, Streaming};

/// Largest number of operations in one batch.
const BATCH: usize = 1_024;
/// Largest number of unanswered operations. At this number, the client's messages are not read.
const UNANSWERED: usize = 8_192;
/// Largest number of messages read from the client in one poll, so that other tasks get their turn.
const MESSAGES: usize = 256;

pub(crate) struct AttachStream {
    inbound: Streaming<v1::ClientMessage>,
    connection: ClientConnection,
    /// The connection on which the stream arrived, for the rate limits.
    arrived_on: Option<Arc<OuterConnection>>,
    /// The client has sent too much. Its messages are not read before this time.
    paused: Option<Pin<Box<Sleep>>>,
    surface: Arc<Surface>,
    caller: Caller,
    attach: AttachState,
    /// Operations and heartbeats passed to the node and not yet answered.
    unanswered: usize,
    state: State,
    spans: Spans,
    recordings: Recordings,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum State {
    Reading,
    /// The client has closed its half of the stream and still waits for answers.
    Finishing,
    /// The stream ends after this status.
    Ended(Option<Status>),
}

impl AttachStream {
    pub(crate) fn new(
        inbound: Streaming<v1::ClientMessage>,
        connection: ClientConnection,
        arrived_on: Option<Arc<OuterConnection>>,
        surface: Arc<Surface>,
        caller: Caller,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let limits = &surface.config.limits;
        let settings = AttachSettings::new(limits.attach_members, limits.attach_bytes);
        let attach = AttachState::new(surface.node.id().to_string(), settings).of_principal(caller.registrant());
        AttachStream {
            inbound,
            connection,
            arrived_on,
            paused: None,
            surface,
            caller,
            attach,
            unanswered: 0,
            state: State::Reading,
            spans: Spans::new(),
            recordings: Recordings::default(),
            _permit: permit,
        }
    }

    /// Reads the client's messages and passes them to the node. Returns true if there was any.
    fn read(&mut self, context: &mut Context<'_>) -> bool {
        let mut calls = Calls::default();
        let mut messages = 0;
        if self.paused.as_mut().is_some_and(|paused| paused.as_mut().poll(context).is_pending()) {
            return false;
        }
        self.paused = None;
        while self.paused.is_none()
            && matches!(self.state, State::Reading)
            && self.attach.is_reading()
            && messages < MESSAGES
            && calls.operations.len() < BATCH
            && self.unanswered + calls.operations.len() + calls.heartbeats.len() < UNANSWERED
        {
            match Pin::new(&mut self.inbound).poll_next(context) {
                Poll::Ready(Some(Ok(message))) => {
                    self.spans.received(&message);
                    self.count();
                    let caller = self.recordings.received(&self.caller, &message);
                    if let Err(error) =
                        self.attach.message_checked(message, &mut calls, &Checked(&self.surface, &caller))
                    {
                        self.end_with(error);
                    }
                }
                Poll::Ready(Some(Err(status))) => self.end(Some(unreadable(status))),
                Poll::Ready(None) => self.state = State::Finishing,
                Poll::Pending => break,
            }
            messages += 1;
        }
        self.hand_over(calls);
        messages > 0
    }

    /// Counts a message for the rate limits. The messages of a client above its rate wait: a rejection would end
    /// registrations that it holds.
    fn count(&mut self) {
        let Some(connection) = self.arrived_on.as_ref().filter(|_| self.surface.rates.is_on()) else { return };
        let (rates, received) = (&self.surface.rates, connection.take_received());
        let admitted = rates.admit_address(connection, Used::Request, received);
        let admitted = admitted.and_then(|()| rates.admit(&self.caller, Used::Request, received));
        if let Err(Error { retry_after_ms: Some(wait), .. }) = admitted {
            self.paused = Some(Box::pin(tokio::time::sleep(Duration::from_millis(wait))));
        }
    }

    fn hand_over(&mut self, calls: Calls) {
        for heartbeat in calls.heartbeats {
            match self.connection.heartbeat_echoed(heartbeat.session, heartbeat.sent) {
                Ok(()) => self.unanswered += 1,
                Err(rejection) => self.attach.heartbeat_rejected(heartbeat.sent, convoke_convert::error(rejection)),
            }
        }
        let count = calls.operations.len();
        if count > 0 {
            match self.connection.submit(calls.operations) {
                Ok(()) => self.unanswered += count,
                Err(rejection) => {
                    if let Err(error) = self.attach.not_accepted(count, rejection) {
                        self.end_with(error);
                    }
                }
            }
        }
    }

    fn delivered(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Heartbeat { echo, result, replicated } => {
                self.unanswered -= 1;
                self.attach.heartbeat_answered(echo, result, self.surface.attached(), replicated);
            }
            Delivery::Answers(results) => {
                self.unanswered -= results.len();
                self.attach.answered(results);
            }
            Delivery::Unreplicated => self.attach.unreplicated(),
            Delivery::Notice(notice) => self.attach.notice(notice),
            // The heartbeats of this stream request an answer, which reports the rejection.
            Delivery::HeartbeatRejected { .. } => {}
            Delivery::Closed(_) => self.end_with(dropped()),
        }
    }

    fn end(&mut self, status: Option<Status>) {
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
            if let State::Ended(status) = &mut this.state {
                return Poll::Ready(status.take().map(Err));
            }
            if let Some(message) = this.attach.next_message() {
                this.spans.sent(&message);
                this.recordings.sent(&this.caller, &message);
                return Poll::Ready(Some(Ok(v1::ServerMessage { message: Some(message) })));
            }
            if matches!(this.state, State::Finishing) && this.attach.is_settled() && this.unanswered == 0 {
                return Poll::Ready(None);
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

/// Decides about the registrations of a stream.
#[derive(Debug)]
struct Checked<'a>(&'a Surface, &'a Caller);

impl Registrations for Checked<'_> {
    fn register(&self, member: &AttachMember) -> Result<(), Error> {
        self.0.check_registration(self.1, &member.spec, member.takeover)
    }

    fn unregister(&self, id: &str) -> Result<(), Error> {
        self.0.check_member(self.1, Verb::Register, id)
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
