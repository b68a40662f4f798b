//! Type configuration of openraft, and conversions between its ids and Convoke's.
//!
//! All openraft types that the rest of this crate names are defined here.

use crate::handle::Settling;
use bytes::Bytes;
use convoke_log::command::ReplicaLocation;
use convoke_log::machine::Applied;
use convoke_log::{Epoch, LogTime, Position, ReplicaId};
use openraft::impls::leader_id_adv;
use openraft::{OptionalSend, RaftTypeConfig};
use std::fmt;

/// Type configuration of the engine. A leader id is (term, replica), which is an epoch (E1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Types;

impl RaftTypeConfig for Types {
    type D = Proposal;
    type R = Effect;
    type NodeId = u64;
    type Node = ReplicaLocation;
    type Term = u64;
    type LeaderId = LeaderId;
    type Vote = Vote;
    type Payload = Payload;
    type Entry = Entry;
    type AsyncRuntime = crate::runtime::Runtime;
    type Responder<T>
        = Settling<T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

pub(crate) type Raft = openraft::Raft<Types, crate::state::StateMachine>;
pub(crate) type LeaderId = leader_id_adv::LeaderId<u64, u64>;
pub(crate) type LogId = openraft::LogId<LeaderId>;
pub(crate) type Vote = openraft::impls::Vote<LeaderId>;
pub(crate) type Payload = openraft::EntryPayload<Proposal, u64, ReplicaLocation>;
pub(crate) type Entry = openraft::Entry<LeaderId, Payload>;
pub(crate) type Membership = openraft::Membership<u64, ReplicaLocation>;
pub(crate) type StoredMembership = openraft::StoredMembership<LeaderId, u64, ReplicaLocation>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<LeaderId, u64, ReplicaLocation>;
pub(crate) type EngineSnapshot = openraft::storage::Snapshot<LeaderId, u64, ReplicaLocation, crate::state::Image>;
pub(crate) type WriteResult = openraft::raft::ClientWriteResult<Types>;

/// The content of a normal entry: an encoded command and its stamp (LS5).
#[derive(Clone, PartialEq, Eq)]
pub struct Proposal {
    pub stamp: LogTime,
    pub command: Bytes,
}

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {}", self.command.len(), self.stamp)
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The effect of an entry; `None` for entries of the engine.
#[derive(Debug)]
pub struct Effect(pub Option<Applied>);

/// Converts a log id. The engine counts entries from 0, the machine from 1.
pub(crate) fn position(log_id: &LogId) -> Position {
    Position { index: log_id.index + 1, epoch: epoch(&log_id.leader_id) }
}

/// Converts a position. Returns `None` for the position before the first entry.
pub(crate) fn log_id(position: Position) -> Option<LogId> {
    let index = position.index.checked_sub(1)?;
    Some(LogId { leader_id: leader_id(position.epoch), index })
}

pub(crate) fn epoch(leader: &LeaderId) -> Epoch {
    Epoch { term: leader.term, leader: ReplicaId(leader.node_id) }
}

pub(crate) fn leader_id(epoch: Epoch) -> LeaderId {
    LeaderId { term: epoch.term, node_id: epoch.leader.0 }
}
