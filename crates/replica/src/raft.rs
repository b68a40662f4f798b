//! Type configuration of openraft, and conversions between its ids and Convoke's.
//!
//! All openraft types that the rest of this crate names are defined here.

use crate::handle::Settling;
use bytes::Bytes;
use convoke_log::codec::CodecError;
use convoke_log::command::ReplicaLocation;
use convoke_log::machine::Applied;
use convoke_log::{Command, Epoch, LogTime, Position, ReplicaId};
use openraft::impls::leader_id_adv;
use openraft::{OptionalSend, RaftTypeConfig};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Type configuration of the engine. A leader id is (term, replica), which is an epoch (E1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Types;

impl RaftTypeConfig for Types {
    type D = Proposal;
    type R = AppliedEntry;
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

/// A command that a leader appends, encoded once, with its stamp (LS5).
#[derive(Clone)]
pub struct Proposal {
    pub stamp: LogTime,
    pub command: Bytes,
    decoded: Decoded,
}

/// The command of a proposal as it was decoded when the leader checked it, until the leader applies it. Shared by all clones of an
/// entry, so that whichever of them is applied finds it and no other keeps its memory.
type Decoded = Option<Arc<Mutex<Option<Box<Command>>>>>;

impl Proposal {
    /// Creates the proposal of a leader. `decoded` is the decoded `command`.
    pub(crate) fn new(stamp: LogTime, command: Bytes, decoded: Command) -> Self {
        Proposal { stamp, command, decoded: Some(Arc::new(Mutex::new(Some(Box::new(decoded))))) }
    }

    /// Creates a proposal that was read from disk or received from another replica.
    pub(crate) fn encoded(stamp: LogTime, command: Bytes) -> Self {
        Proposal { stamp, command, decoded: None }
    }

    /// Returns the command to apply: decoded now, unless this replica proposed it.
    pub(crate) fn take_command(&self) -> Result<Command, CodecError> {
        let decoded = self.decoded.as_ref().and_then(|decoded| lock(decoded).take());
        decoded.map_or_else(|| Command::decode(&self.command), |decoded| Ok(*decoded))
    }
}

fn lock(decoded: &Mutex<Option<Box<Command>>>) -> MutexGuard<'_, Option<Box<Command>>> {
    decoded.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The encoded bytes determine the proposal.
impl PartialEq for Proposal {
    fn eq(&self, other: &Self) -> bool {
        (self.stamp, &self.command) == (other.stamp, &other.command)
    }
}

impl Eq for Proposal {}

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

/// The result of an applied entry; `None` for entries of the engine.
#[derive(Debug)]
pub struct AppliedEntry(pub Option<Applied>);

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
