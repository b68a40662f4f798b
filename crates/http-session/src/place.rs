//! The place of a session at a node, and the session that is attached there.

use crate::mutant::{Mutant, Mutation};
use convoke_core::member::MetadataUpdate;
use convoke_core::node::{AttachMember, Attached, HandoverTarget, Notice, SessionId};
use convoke_core::version::Version;
use convoke_core::{ErrorCode, Rejection};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Ids remembered as taken over by other clients, for a better answer.
const TAKEN_MAX: usize = 256;

/// A request of a session. A clone copies no member: a request may have to be submitted again.
#[derive(Clone, Debug)]
pub enum SessionRequest {
    Heartbeat,
    Register(Arc<AttachMember>),
    Update { id: String, update: Arc<MetadataUpdate>, expected: Option<Version> },
    Unregister(String),
    Close,
}

/// A call of the core.
#[derive(Clone, Debug)]
pub enum Call {
    Heartbeat { session: SessionId },
    Register { session: SessionId, seq: u64, member: Arc<AttachMember> },
    Update { session: SessionId, seq: u64, id: String, update: Arc<MetadataUpdate>, expected: Option<Version> },
    Unregister { session: SessionId, seq: u64, id: String },
    Close { session: SessionId },
}

/// A place for a session at this node. One request at a time may work with it.
#[derive(Debug, Default)]
pub struct Place {
    pub(crate) live: Option<Live>,
    /// The node is stopping: clients go on at another one.
    handover: Option<Handover>,
}

#[derive(Debug)]
pub(crate) struct Handover(Option<HandoverTarget>);

/// A session, as long as it is attached here.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) session: SessionId,
    /// Number of the last request (C5).
    seq: u64,
    taken: BTreeSet<String>,
    pub(crate) heartbeat_interval: Duration,
    pub(crate) timeout: Duration,
}

impl Place {
    /// Whether a session is attached here. The caller keeps the connection of the session for as long.
    pub fn is_attached(&self) -> bool {
        self.live.is_some()
    }

    /// The node sent a notice to the session's connection. Notices are reported before the next request enters.
    pub fn notice(&mut self, notice: Notice) {
        let Some(live) = self.live.as_mut() else { return };
        match notice {
            Notice::TakenOver { id } => {
                if live.taken.len() < TAKEN_MAX {
                    live.taken.insert(id);
                }
            }
            Notice::Handover { target } => {
                self.handover = Some(Handover(target));
                self.live = None;
            }
            Notice::Lost { .. } | Notice::Superseded { .. } => self.live = None,
        }
    }

    /// The node closed the session's connection.
    pub fn closed(&mut self) {
        self.live = None;
    }

    pub(crate) fn attach(&mut self, attached: &Attached) -> &mut Live {
        self.live.insert(Live {
            session: attached.session,
            seq: 0,
            taken: BTreeSet::new(),
            heartbeat_interval: attached.heartbeat_interval,
            timeout: attached.timeout,
        })
    }

    pub(crate) fn take_handover(&mut self) -> Option<Handover> {
        self.handover.take()
    }
}

impl Handover {
    pub(crate) fn rejection(self) -> Rejection {
        let address = self.0.map(|target| target.client_address).unwrap_or_default();
        let message = match address.as_str() {
            "" => "this node is stopping; go on at another".to_owned(),
            address => format!("this node is stopping; go on at {address}"),
        };
        Rejection::new(ErrorCode::NotReady, message)
    }
}

impl Live {
    /// The calls that a request becomes. Whatever the core answers, the client has shown that it lives.
    pub(crate) fn calls(&mut self, request: SessionRequest, mutation: Mutation) -> [Option<Call>; 2] {
        self.seq += 1;
        let (session, seq) = (self.session, self.seq);
        let call = match request {
            SessionRequest::Heartbeat => None,
            SessionRequest::Register(member) => Some(Call::Register { session, seq, member }),
            SessionRequest::Update { id, update, expected } => {
                Some(Call::Update { session, seq, id, update, expected })
            }
            SessionRequest::Unregister(id) => Some(Call::Unregister { session, seq, id }),
            SessionRequest::Close => Some(Call::Close { session }),
        };
        if mutation.is(Mutant::RequestIsNoHeartbeat) && call.is_some() {
            return [None, call];
        }
        [Some(Call::Heartbeat { session }), call]
    }

    /// The rejection that the client receives for a rejection of the core.
    pub(crate) fn explain(&self, request: &SessionRequest, rejection: Rejection) -> Rejection {
        match request {
            SessionRequest::Update { id, .. } | SessionRequest::Unregister(id)
                if rejection.code == ErrorCode::PermissionDenied && self.taken.contains(id) =>
            {
                let message =
                    format!("another client took member {id:?}; register it again only if it should be taken back");
                Rejection::new(ErrorCode::TakenOver, message).field("id")
            }
            _ => rejection,
        }
    }
}
