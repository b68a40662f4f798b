//! The entry of a session at a node, and the session that is attached there.

use crate::mutant::{Mutation, seam};
use crate::token::SessionToken;
use convoke_core::member::MetadataUpdate;
use convoke_core::node::{AttachMember, Attached, ClientOperation, HandoverTarget, Notice, SessionId};
use convoke_core::version::{OriginId, Version};
use convoke_core::{ErrorCode, Rejection, Time};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of ids remembered as taken over by other clients, until the client registers them again.
const TAKEN_OVER_MAX: usize = 256;
/// Rejections of numbered requests that are remembered. A client repeats its latest requests only.
const REJECTIONS_MAX: usize = 64;

/// The operation that a request asks for. A clone copies no member: an operation may have to be submitted again.
#[derive(Clone, Debug)]
pub enum SessionOperation {
    Heartbeat,
    Register(Arc<AttachMember>),
    Update { id: String, update: Arc<MetadataUpdate>, expected: Option<Version> },
    Unregister(String),
    Close,
}

/// The state of one session at this node. The caller locks it: one request at a time may use it.
#[derive(Debug, Default)]
pub struct SessionEntry {
    pub(crate) live: Option<Live>,
    /// Writes of the session that this node has. Answers contain a copy, and every change makes it greater, so that of two
    /// tokens of this entry the greater one covers the other (C11).
    pub(crate) token: SessionToken,
    /// Rejections of numbered requests (C10). The record of a member remembers the request that wrote it.
    rejections: VecDeque<(u64, Rejection)>,
    /// When the search for missing writes began that no request has ended yet (C17).
    searching_since: Option<Time>,
    /// The node is stopping and hands its sessions over.
    handover: Option<Handover>,
}

#[derive(Debug)]
pub(crate) struct Handover(Option<HandoverTarget>);

/// A session that is attached here.
#[derive(Debug)]
pub(crate) struct Live {
    /// This node.
    origin: OriginId,
    pub(crate) session: SessionId,
    /// Sequence number of the last request (C5).
    seq: u64,
    /// Members that the session lost, until the client registers or unregisters them (C20).
    taken_over: BTreeSet<String>,
    /// Other clients have taken all members over.
    pub(crate) all_taken_over: bool,
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
            Notice::TakenOver { id, last } => {
                live.all_taken_over = last;
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
            origin: attached.last_write.origin.clone(),
            session: attached.session,
            seq: 0,
            taken_over: attached.taken_over.iter().take(TAKEN_OVER_MAX).cloned().collect(),
            all_taken_over: false,
            heartbeat_interval: attached.heartbeat_interval,
            timeout: attached.timeout,
        })
    }

    /// The rejection of a request with this number, if it was rejected here before.
    pub(crate) fn rejection(&self, number: Option<u64>) -> Option<Rejection> {
        let known = self.rejections.iter().find(|(known, _)| Some(*known) == number);
        known.map(|(_, rejection)| rejection.clone())
    }

    pub(crate) fn remember(&mut self, number: Option<u64>, rejection: &Rejection) {
        let Some(number) = number.filter(|number| self.rejection(Some(*number)).is_none()) else { return };
        self.rejections.push_back((number, rejection.clone()));
        if self.rejections.len() > REJECTIONS_MAX {
            self.rejections.pop_front();
        }
    }

    /// Whether this node certainly has the writes of a token.
    pub(crate) fn covers(&self, token: &SessionToken) -> bool {
        let own = self.live.as_ref().map(|live| &live.origin);
        token.dots().iter().all(|dot| Some(&dot.origin) == own) || self.token.covers(token)
    }

    /// A request searches for writes. Returns when the search began: the earlier requests of this client count, unless it was
    /// away for longer than its session lasts.
    pub(crate) fn search_begins(&mut self, now: Time, timeout: Duration) -> Time {
        let began = self.searching_since.filter(|began| now.since(*began) < timeout).unwrap_or(now);
        self.searching_since = Some(began);
        began
    }

    pub(crate) fn search_ended(&mut self) {
        self.searching_since = None;
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
    pub(crate) fn calls(
        &mut self,
        operation: SessionOperation,
        number: Option<u64>,
        mutation: Mutation,
    ) -> [Option<ClientOperation>; 2] {
        self.seq += 1;
        let (session, seq) = (self.session, self.seq);
        let call = match operation {
            SessionOperation::Heartbeat => None,
            SessionOperation::Register(member) => {
                self.all_taken_over = false;
                self.taken_over.remove(&member.spec.id);
                Some(ClientOperation::Register { session, seq, member })
            }
            SessionOperation::Update { id, update, expected } => {
                Some(ClientOperation::Update { session, seq, id, update, expected })
            }
            SessionOperation::Unregister(id) => Some(ClientOperation::Unregister { session, seq, id }),
            SessionOperation::Close => Some(ClientOperation::Close { session }),
        };
        let call = match number {
            Some(request) => call.map(|call| ClientOperation::Numbered { request, operation: Box::new(call) }),
            None => call,
        };
        let mut heartbeat = Some(ClientOperation::Heartbeat { session });
        seam!(in mutation, RequestIsNoHeartbeat => heartbeat = heartbeat.filter(|_| call.is_none()));
        seam!(in mutation, HeartbeatNotExecuted => heartbeat = heartbeat.filter(|_| call.is_some()));
        [heartbeat, call]
    }

    /// The client has unregistered a member that the session lost (C20).
    pub(crate) fn forget_lost(&mut self, id: &str) {
        self.taken_over.remove(id);
    }

    /// Returns the members that other clients took over, or that expired at another node.
    pub(crate) fn taken_over(&self) -> Vec<String> {
        self.taken_over.iter().cloned().collect()
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
