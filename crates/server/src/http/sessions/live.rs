//! A session over HTTP, as long as it is attached here.

use super::secret::Secret;
use crate::error::refused;
use crate::surface::Surface;
use crate::traces;
use convoke_node::core::member::MetadataUpdate;
use convoke_node::core::node::{AttachMember, Attached, Notice, Reattach, SessionId};
use convoke_node::core::version::Version;
use convoke_node::core::{ErrorCode as Refused, Refusal};
use convoke_node::{Answer, Connection, Delivery, Operation};
use convoke_proto::{Error, ErrorCode};
use std::collections::BTreeSet;
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

/// What a request asks of its session.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    Heartbeat,
    Register(Box<AttachMember>),
    Update { id: String, update: MetadataUpdate, expected: Option<Version> },
    Unregister(String),
    Close,
}

/// What became of it.
#[derive(Debug)]
pub(super) enum Granted {
    Written(Version),
    Done,
}

/// Why it did not.
#[derive(Debug)]
pub(super) enum Denied {
    Because(Error),
    /// There is no such session here any more: attach it again.
    Lost,
    /// The member was registered with a higher claim before: attach again with it.
    Stale,
}

impl Live {
    /// A new session, without members.
    pub(super) async fn create(surface: &Surface, secret: &Secret) -> Result<Live, Error> {
        let request = Reattach { fresh: true, ..reattach(secret)? };
        Ok(Live::attach(surface, request).await?.0)
    }

    /// A session that was attached elsewhere, or here before: with all that the registry has of it, and one member more.
    pub(super) async fn again(
        surface: &Surface,
        secret: &Secret,
        member: Option<AttachMember>,
    ) -> Result<(Live, Attached), Error> {
        let request = Reattach { member, ..reattach(secret)? };
        Live::attach(surface, request).await
    }

    async fn attach(surface: &Surface, request: Reattach) -> Result<(Live, Attached), Error> {
        let connection = surface.node.connect().map_err(refused)?;
        let span = traces::attach(&Span::current(), &request.client);
        let attaching = connection.reattach(request).instrument(span.clone());
        let attached = attaching.await.map_err(refused);
        match &attached {
            Ok(attached) => traces::attached(&span, attached.versions.len()),
            Err(error) => traces::refused(&span, error.code.as_str()),
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

    /// Takes note of what the node has said meanwhile. An error: the client should go on elsewhere.
    pub(super) fn catch_up(&mut self) -> Result<(), Denied> {
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
                        "" => "this node is stopping; go on at another".to_owned(),
                        address => format!("this node is stopping; go on at {address}"),
                    };
                    return Err(Denied::Because(Error::new(ErrorCode::NotReady, message)));
                }
                Poll::Ready(Some(Delivery::Notice(Notice::Lost { .. } | Notice::Superseded { .. })))
                | Poll::Ready(Some(Delivery::Closed(_)) | None) => return Err(Denied::Lost),
                Poll::Ready(Some(
                    Delivery::Answers(_) | Delivery::Heartbeat { .. } | Delivery::HeartbeatRefused { .. },
                )) => {}
            }
        }
    }

    /// Carries a wish out. Whatever becomes of it, the client has been heard.
    pub(super) async fn carry_out(&mut self, wish: Wish) -> Result<Granted, Denied> {
        self.seq += 1;
        let (session, seq) = (self.session, self.seq);
        let mut operations = vec![Operation::Heartbeat { session }];
        let mut id = None;
        operations.extend(match wish {
            Wish::Heartbeat => None,
            Wish::Register(member) => Some(Operation::Register { session, seq, member }),
            Wish::Update { id: member, update, expected } => {
                id = Some(member.clone());
                Some(Operation::Update { session, seq, id: member, update, expected })
            }
            Wish::Unregister(member) => {
                id = Some(member.clone());
                Some(Operation::Unregister { session, seq, id: member })
            }
            Wish::Close => Some(Operation::Close { session }),
        });
        let answers = self.connection.call(operations).await.map_err(|refusal| Denied::Because(refused(refusal)))?;
        let mut granted = Granted::Done;
        for answer in answers {
            match answer {
                Answer::Written(Ok(version)) => granted = Granted::Written(version),
                Answer::Done(Ok(())) => {}
                Answer::Written(Err(refusal)) | Answer::Done(Err(refusal)) | Answer::Attached(Err(refusal)) => {
                    return Err(self.denied(refusal, id.as_deref()));
                }
                Answer::Attached(Ok(_)) => {}
            }
        }
        Ok(granted)
    }

    fn denied(&self, refusal: Refusal, id: Option<&str>) -> Denied {
        match (refusal.code, id) {
            (Refused::SessionGone, _) => Denied::Lost,
            (Refused::StaleClaim, _) => Denied::Stale,
            (Refused::PermissionDenied, Some(id)) if self.taken.contains(id) => {
                let message =
                    format!("another client took member {id:?}; register it again only if it should be taken back");
                Denied::Because(Error::new(ErrorCode::TakenOver, message).field("id"))
            }
            _ => Denied::Because(refused(refusal)),
        }
    }
}

fn reattach(secret: &Secret) -> Result<Reattach, Error> {
    let random = getrandom::u64().map_err(no_randomness)?;
    Ok(Reattach {
        client: secret.client.clone(),
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
