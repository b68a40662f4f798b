//! Identifiers of sessions, requests, replicas, epochs and log positions.

use std::fmt;

/// A log session, identified by the index of the entry that opened it. Never reused (LS1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogSessionId(pub u64);

/// A request: the session and the number that the client assigned (A2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    pub session: LogSessionId,
    pub number: u64,
}

impl RequestId {
    pub fn new(session: LogSessionId, number: u64) -> Self {
        RequestId { session, number }
    }
}

/// A replica of the log. Never reused (M2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u64);

/// One leader's term (E1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    pub term: u64,
    pub leader: ReplicaId,
}

impl Epoch {
    pub fn new(term: u64, leader: u64) -> Self {
        Epoch { term, leader: ReplicaId(leader) }
    }
}

/// A position in the log with the epoch of the leader that appended the entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub index: u64,
    pub epoch: Epoch,
}

impl fmt::Display for LogSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.session, self.number)
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.term, self.leader)
    }
}
