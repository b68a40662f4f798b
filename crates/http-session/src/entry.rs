//! The entry of a session at a node, and the session that is attached there.

use crate::mutant::{Mutation, seam};
use convoke_core::member::MetadataUpdate;
use convoke_core::node::{AttachMember, Attached, HandoverTarget, Notice, SessionId};
use convoke_core::version::Version;
use convoke_core::{ErrorCode, Rejection};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of ids remembered as taken over by other clients. They are used for error messages only.
const TAKEN_OVER_MAX: usize = 256;

/// The operation that a request asks for. A clone copies no member: an operation may have to be submitted again.
#[derive(Clone, Debug)]
pub enum SessionOperation {
    Heartbeat,
    Register(Arc<AttachMember>),
    Update { id: String, update: Arc<MetadataUpdate>, expected: Option<Version> },
    Unregister(String),
    Close,
}

/// A call of the core.
#[derive(Clone, Debug)]
pub enum CoreCall {
    Heartbeat { session: SessionId },
    Register { session: SessionId, seq: u64, member: Arc<AttachMember> },
    Update { session: SessionId, seq: u64, id: String, update: Arc<MetadataUpdate>, expected: Option<Version> },
    Unregister { session: SessionId, seq: u64, id: String },
    Close { session: SessionId },
}

/// The state of one session at this node. The caller locks it: one request at a time may use it.
#[derive(Debug, Default)]
pub struct SessionEntry {
    pub(crate) live: Option<Live>,
    /// The node is stopping and hands its sessions over.
    handover: Option<Handover>,
}

#[derive(Debug)]
pub(crate) struct Handover(Option<HandoverTarget>);

/// A session that is attached here.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) session: SessionId,
    /// Sequence number of the last request (C5).
    seq: u64,
    taken_over: BTreeSet<String>,
    pub(crate) heartbeat_interval: Duration,
    pub(crate) timeout: Duration,
}

impl SessionEntry {
    /// Returns whether a session is attached here. While it is, the caller keeps the connection of the session.
    pub fn is_attached(&self) -> bool {
        self.live.is_some()
    }

    /// Applies a notice that the node sent to the session's connection. The caller reports notices before the next request
    /// enters.
    pub fn notice(&mut self, notice: Notice) {
        let Some(live) = self.live.as_mut() else { return };
        match notice {
            Notice::TakenOver { id } => {
                if live.taken_over.len() < TAKEN_OVER_MAX {
                    live.taken_over.insert(id);
                }
            }
            Notice::Handover { target } => {
                self.handover = Some(Handover(target));
                self.live = None;
            }
            Notice::Lost { .. } | Notice::Superseded { .. } => self.live = None,
        }
    }

    /// Records that the node closed the session's connection.
    pub fn closed(&mut self) {
        self.live = None;
    }

    pub(crate) fn attach(&mut self, attached: &Attached) -> &mut Live {
        self.live.insert(Live {
            session: attached.session,
            seq: 0,
            taken_over: BTreeSet::new(),
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
            "" => "this node is stopping; use another node".to_owned(),
            address => format!("this node is stopping; use {address}"),
        };
        Rejection::new(ErrorCode::NotReady, message)
    }
}

impl Live {
    /// Returns the core calls of an operation. Each operation includes a heartbeat, which counts even if the core rejects
    /// the rest.
    pub(crate) fn calls(&mut self, operation: SessionOperation, mutation: Mutation) -> [Option<CoreCall>; 2] {
        self.seq += 1;
        let (session, seq) = (self.session, self.seq);
        let call = match operation {
            SessionOperation::Heartbeat => None,
            SessionOperation::Register(member) => Some(CoreCall::Register { session, seq, member }),
            SessionOperation::Update { id, update, expected } => {
                Some(CoreCall::Update { session, seq, id, update, expected })
            }
            SessionOperation::Unregister(id) => Some(CoreCall::Unregister { session, seq, id }),
            SessionOperation::Close => Some(CoreCall::Close { session }),
        };
        let mut heartbeat = Some(CoreCall::Heartbeat { session });
        seam!(in mutation, RequestIsNoHeartbeat => heartbeat = heartbeat.filter(|_| call.is_none()));
        seam!(in mutation, HeartbeatNotExecuted => heartbeat = heartbeat.filter(|_| call.is_some()));
        [heartbeat, call]
    }

    /// Returns the rejection that the client receives for a rejection of the core.
    pub(crate) fn explain(&self, operation: &SessionOperation, rejection: Rejection) -> Rejection {
        match operation {
            SessionOperation::Update { id, .. } | SessionOperation::Unregister(id)
                if rejection.code == ErrorCode::PermissionDenied && self.taken_over.contains(id) =>
            {
                let message =
                    format!("another client took member {id:?} over; to take it back, register it with takeover=true");
                Rejection::new(ErrorCode::TakenOver, message).field("id")
            }
            _ => rejection,
        }
    }
}
