//! A session over HTTP, as long as it is attached here.

use super::secret::Secret;
use crate::error::rejected;
use crate::surface::Surface;
use crate::traces;
use convoke_core::member::MetadataUpdate;
use convoke_core::node::{AttachMember, Attached, Notice, Reattach, SessionId};
use convoke_core::version::Version;
use convoke_core::{ErrorCode as Rejected, Rejection};
use convoke_node::{Answer, Connection, Delivery, Operation};
use convoke_proto::{Error, ErrorCode};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tracing::{Instrument, Span};

/// Ids remembered as taken over by other clients, for a better answer.
const TAKEN_MAX: usize = 256;
/// Two nodes that attach one session at once differ in their claims, so that one of them wins all of its members.
const RAISE_MAX: u64 = 64;

#[derive(Debug)]
pub(super) struct Live {
    connection: Connection,
    session: SessionId,
    /// Number of the last request (C5).
    seq: u64,
    taken: BTreeSet<String>,
    pub(super) heartbeat_interval: Duration,
    pub(super) timeout: Duration,
}

/// A request of a session. Cloning it copies no member: it may have to be submitted again.
#[derive(Clone, Debug)]
pub(super) enum SessionRequest {
    Heartbeat,
    Register(Arc<AttachMember>),
    Update { id: String, update: Arc<MetadataUpdate>, expected: Option<Version> },
    Unregister(String),
    Close,
}

/// A request that was submitted to the event loop, to be awaited without the session.
#[derive(Debug)]
pub(super) struct Submitted<A> {
    answers: A,
    pub(super) session: SessionId,
}

/// What became of it.
#[derive(Debug)]
pub(super) enum SessionReply {
    Written(Version),
    Done,
}

/// Why it did not.
#[derive(Debug)]
pub(super) enum SessionError {
    Because(Error),
    /// There is no such session here any more: attach it again.
    Lost,
}

impl Live {
    /// A new session, without members.
    pub(super) async fn create(surface: &Surface, secret: &Secret) -> Result<Live, Error> {
        let request = Reattach { fresh: true, ..reattach(secret)? };
        Ok(Live::attach(surface, request).await?.0)
    }

    /// A session that was attached elsewhere, or here before: with all that the registry has of it, and one member more.
    pub(super) async fn reattach(
        surface: &Surface,
        secret: &Secret,
        member: Option<AttachMember>,
    ) -> Result<(Live, Attached), Error> {
        let request = Reattach { member, ..reattach(secret)? };
        Live::attach(surface, request).await
    }

    async fn attach(surface: &Surface, request: Reattach) -> Result<(Live, Attached), Error> {
        let connection = surface.node.connect().map_err(rejected)?;
        let span = traces::attach(&Span::current(), &request.client);
        let attaching = connection.reattach(request).instrument(span.clone());
        let attached = attaching.await.map_err(rejected);
        match &attached {
            Ok(attached) => traces::attached(&span, attached.versions.len()),
            Err(error) => traces::rejected(&span, error.code.as_str()),
        }
        let attached = attached?;
        let live = Live {
            connection,
            session: attached.session,
            seq: 0,
            taken: BTreeSet::new(),
            heartbeat_interval: attached.heartbeat_interval,
            timeout: attached.timeout,
        };
        Ok((live, attached))
    }

    /// Processes the notices of the node. An error: the client has to use another node, or to attach again.
    pub(super) fn catch_up(&mut self) -> Result<(), SessionError> {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match self.connection.poll_next(&mut context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Some(Delivery::Notice(Notice::TakenOver { id }))) => {
                    if self.taken.len() < TAKEN_MAX {
                        self.taken.insert(id);
                    }
                }
                Poll::Ready(Some(Delivery::Notice(Notice::Handover { target }))) => {
                    let whereto = target.map(|target| target.client_address).unwrap_or_default();
                    let message = match whereto.as_str() {
                        "" => "this node is stopping; attach to another node".to_owned(),
                        address => format!("this node is stopping; attach to {address} instead"),
                    };
                    return Err(SessionError::Because(Error::new(ErrorCode::NotReady, message)));
                }
                Poll::Ready(Some(Delivery::Notice(Notice::Lost { .. } | Notice::Superseded { .. })))
                | Poll::Ready(Some(Delivery::Closed(_)) | None) => return Err(SessionError::Lost),
                Poll::Ready(Some(
                    Delivery::Answers(_) | Delivery::Heartbeat { .. } | Delivery::HeartbeatRejected { .. },
                )) => {}
            }
        }
    }

    /// Submits a request: its place in the order of the session is fixed when this returns, so that others can follow before it is
    /// answered. Whatever the answer is, the client has shown that it lives.
    pub(super) fn submit(&mut self, wish: SessionRequest) -> Result<Submitted<impl Answering + use<>>, SessionError> {
        self.seq += 1;
        let (session, seq) = (self.session, self.seq);
        let heartbeat = Operation::Heartbeat { session };
        let operations = match wish {
            SessionRequest::Heartbeat => vec![heartbeat],
            SessionRequest::Register(member) => vec![heartbeat, Operation::Register { session, seq, member }],
            SessionRequest::Update { id, update, expected } => {
                vec![heartbeat, Operation::Update { session, seq, id, update, expected }]
            }
            SessionRequest::Unregister(id) => vec![heartbeat, Operation::Unregister { session, seq, id }],
            SessionRequest::Close => vec![heartbeat, Operation::Close { session }],
        };
        let answers =
            self.connection.start(operations).map_err(|rejection| SessionError::Because(rejected(rejection)))?;
        Ok(Submitted { answers, session })
    }

    /// Whether this is the session that a request was submitted to.
    pub(super) fn is(&self, session: SessionId) -> bool {
        self.session == session
    }

    /// What the client is to know of a rejection.
    pub(super) fn explain(&self, wish: &SessionRequest, rejection: Rejection) -> Error {
        match wish {
            SessionRequest::Update { id, .. } | SessionRequest::Unregister(id)
                if rejection.code == Rejected::PermissionDenied && self.taken.contains(id) =>
            {
                let message =
                    format!("another client took member {id:?}; register it again only if it should be taken back");
                Error::new(ErrorCode::TakenOver, message).field("id")
            }
            _ => rejected(rejection),
        }
    }
}

/// The answers of the event loop.
pub(super) trait Answering: Future<Output = Result<Vec<Answer>, Rejection>> + Send + 'static {}

impl<F: Future<Output = Result<Vec<Answer>, Rejection>> + Send + 'static> Answering for F {}

impl<A: Answering> Submitted<A> {
    /// Waits for the answer; an error is a rejection of the registry.
    pub(super) async fn answer(self) -> Result<SessionReply, Rejection> {
        let mut granted = SessionReply::Done;
        for answer in self.answers.await? {
            match answer {
                Answer::Written(result) => granted = SessionReply::Written(result?),
                Answer::Done(result) => result?,
                Answer::Attached(result) => drop(result?),
            }
        }
        Ok(granted)
    }
}

fn reattach(secret: &Secret) -> Result<Reattach, Error> {
    let random = getrandom::u64().map_err(no_randomness)?;
    Ok(Reattach {
        client: secret.client(),
        nonce: secret.nonce,
        liveness: secret.liveness,
        timeout: secret.timeout,
        raise: 1 + random % RAISE_MAX,
        ..Reattach::default()
    })
}

pub(super) fn no_randomness(error: getrandom::Error) -> Error {
    Error::new(ErrorCode::Internal, format!("the system gives no random numbers: {error}"))
}
