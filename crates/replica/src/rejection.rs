//! Rejections, and errors with an unknown outcome.

use crate::status::{Group, LogConflict};
use convoke_base::ErrorCode;
use convoke_log::codec::CodecError;
use convoke_log::leader::NotAppended;
use convoke_log::machine::{ApplyRejection, Reason};
use convoke_log::{Epoch, Level, LogSessionId};
use smol_str::SmolStr;

/// Why a copy of a request was not appended, or a read was not served. Other copies may have been appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogRejection {
    #[error("this node is not the leader of the log{}", leader(.0))]
    NotLeader(Group),
    #[error("this node holds no replica of the log: {}", elsewhere(.0))]
    NoReplica(Group),
    #[error("the log has no quorum: the leader cannot reach a majority of the voters")]
    NoQuorum(Group),
    #[error("the leader has not applied the first entry of its term yet; retry")]
    NotReady,
    #[error("the request names another epoch; the current epoch is {current}")]
    StaleEpoch { current: Epoch },
    #[error("the log session is not open; use peek for the fate of the request")]
    SessionNotOpen,
    #[error("the log session belongs to another client: the secret does not match")]
    NotOwner,
    #[error("the log session belongs to log {named:032x}; this node holds a replica of log {own:032x}")]
    OtherLog { named: u128, own: u128 },
    #[error("{0}")]
    NoRoom(ApplyRejection),
    #[error("the client abandoned all requests below {floor} in a barrier read")]
    Abandoned { floor: u64 },
    #[error("{0}")]
    Level(NotAppended),
    #[error("a membership change is in progress; retry")]
    ChangeInProgress,
    #[error("{what} in progress at this node have reached the limit of {limit}; retry")]
    Busy { what: &'static str, limit: u64 },
    #[error("the command has {found} bytes; the limit is {limit}")]
    TooLarge { found: u64, limit: u64 },
    #[error("replicas cannot decode the command: {0}")]
    Unreadable(CodecError),
    #[error("log session {session} does not exist yet; the last applied entry is {applied}")]
    NoSession { session: LogSessionId, applied: u64 },
    #[error("the request names no log, or not the log of this node, and {0}")]
    Conflict(LogConflict),
    #[error("the log of this node has stopped; use another node")]
    Stopped,
}

fn leader(group: &Group) -> String {
    match group.leader() {
        Some(leader) => format!("; the leader is node {}", leader.node),
        None => ", and no leader is known".to_owned(),
    }
}

fn elsewhere(group: &Group) -> String {
    let nodes: Vec<&str> = group.replicas.iter().map(|member| member.node.as_str()).collect();
    match nodes.as_slice() {
        [] => "it knows no replica; send the request to a node that holds one".to_owned(),
        nodes => format!("read at {}, or add a replica with `convoke log add`", nodes.join(" or ")),
    }
}

impl LogRejection {
    /// Returns the error code.
    pub fn code(&self) -> ErrorCode {
        match self {
            LogRejection::NotLeader(_) => ErrorCode::NotLeader,
            LogRejection::NoQuorum(_) => ErrorCode::NoQuorum,
            LogRejection::NotReady
            | LogRejection::NoReplica(_)
            | LogRejection::Stopped
            | LogRejection::ChangeInProgress => ErrorCode::NotReady,
            LogRejection::StaleEpoch { .. } => ErrorCode::StaleEpoch,
            LogRejection::SessionNotOpen | LogRejection::NotOwner | LogRejection::OtherLog { .. } => {
                ErrorCode::SessionGone
            }
            LogRejection::Conflict(_) | LogRejection::Level(_) => ErrorCode::FailedPrecondition,
            LogRejection::NoRoom(why) => why.code(),
            LogRejection::Abandoned { .. } => ErrorCode::Superseded,
            LogRejection::Busy { .. } => ErrorCode::ResourceExhausted,
            LogRejection::TooLarge { .. } => ErrorCode::TooLarge,
            LogRejection::Unreadable(_) => ErrorCode::InvalidArgument,
            LogRejection::NoSession { .. } => ErrorCode::NotFound,
        }
    }

    /// Returns the group, so that the client can find the leader.
    pub fn group(&self) -> Option<&Group> {
        match self {
            LogRejection::NotLeader(group) | LogRejection::NoReplica(group) | LogRejection::NoQuorum(group) => {
                Some(group)
            }
            _ => None,
        }
    }
}

impl From<NotAppended> for LogRejection {
    fn from(why: NotAppended) -> Self {
        match why {
            NotAppended::StaleEpoch { current } => LogRejection::StaleEpoch { current },
            NotAppended::NotReady => LogRejection::NotReady,
            NotAppended::SessionNotOpen => LogRejection::SessionNotOpen,
            NotAppended::NoRoom(why) => LogRejection::NoRoom(why),
            NotAppended::Abandoned { floor } => LogRejection::Abandoned { floor },
            NotAppended::Level { .. } => LogRejection::Level(why),
            NotAppended::ChangeInProgress => LogRejection::ChangeInProgress,
        }
    }
}

/// Why a submission has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    #[error(transparent)]
    Rejected(#[from] LogRejection),
    /// It may have been applied, or may still be. `resolve` makes its fate final.
    #[error("the leader was deposed before it knew the outcome; the request may have been applied")]
    Unknown,
}

/// Why a membership change failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    #[error(transparent)]
    Submit(#[from] SubmitError),
    #[error("node {0} is not a replica of this log")]
    NoReplica(SmolStr),
    #[error("node {0} already holds a replica of this log; remove or replace it first")]
    IsReplica(SmolStr),
    #[error("node {0} is already a voter")]
    IsVoter(SmolStr),
    #[error("node {0} is the last voter; a log needs at least one voter")]
    LastVoter(SmolStr),
    #[error("node {0} is not a voter; promote it first")]
    NotVoter(SmolStr),
    #[error(
        "node {node} still holds a replica of {of} log: stop it, move the log directory out of its data directory, start it, then try again"
    )]
    HoldsReplica { node: SmolStr, of: &'static str },
    #[error("the node at {address} is {found}, not {node}; use the peer address of {node}")]
    OtherNode { address: SmolStr, found: SmolStr, node: SmolStr },
    #[error("node {node} rejected the replica: {why}")]
    NodeRejects { node: SmolStr, why: String },
    #[error("node {node} supports feature level {supported}, and the log needs level {needed}; upgrade the node first")]
    TooOld { node: SmolStr, supported: Level, needed: Level },
    #[error("the log cannot be raised to feature level {level}: {why}")]
    HeldBack { level: Level, why: String },
    #[error("another change of the group was recorded in the meantime; check the status and retry")]
    Replaced,
    #[error("{0}")]
    NotApplied(Reason),
    #[error("the change was recorded, but the group has not reached it in time; the leader continues")]
    NotSettled,
}

impl ChangeError {
    /// Returns the error code.
    pub fn code(&self) -> ErrorCode {
        match self {
            ChangeError::Submit(SubmitError::Rejected(rejection)) => rejection.code(),
            ChangeError::Submit(SubmitError::Unknown) => ErrorCode::OutcomeUnknown,
            ChangeError::NoReplica(_) => ErrorCode::NotFound,
            ChangeError::NotSettled => ErrorCode::Timeout,
            ChangeError::NotApplied(reason) => reason.code(),
            ChangeError::IsReplica(_)
            | ChangeError::IsVoter(_)
            | ChangeError::LastVoter(_)
            | ChangeError::NotVoter(_)
            | ChangeError::HoldsReplica { .. }
            | ChangeError::OtherNode { .. }
            | ChangeError::NodeRejects { .. }
            | ChangeError::TooOld { .. }
            | ChangeError::HeldBack { .. }
            | ChangeError::Replaced => ErrorCode::FailedPrecondition,
        }
    }
}
