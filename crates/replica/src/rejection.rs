//! Answers that say: nothing happened; or: nobody knows.

use crate::status::Group;
use convoke_base::ErrorCode;
use convoke_log::codec::CodecError;
use convoke_log::leader::NotAppended;
use convoke_log::machine::Reason;
use convoke_log::{Epoch, LogSessionId};
use smol_str::SmolStr;

/// This copy was not appended, this read not served. Nothing is said about other copies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogRejection {
    #[error("this node does not lead the log{}", leader(.0))]
    NotLeader(Group),
    #[error("this node holds no replica of the log: {}", elsewhere(.0))]
    NoReplica(Group),
    #[error("the log has no quorum: the leader cannot reach a majority of the voters")]
    NoQuorum(Group),
    #[error("the leader has not applied the beginning of its term yet; try again in a moment")]
    NotReady,
    #[error("meant for another epoch than {current}; ask for the present one and send again")]
    StaleEpoch { current: Epoch },
    #[error("the session is not open; peek tells what is known of the request")]
    SessionNotOpen,
    #[error("the client has given up everything below {floor} in a barrier read")]
    GivenUp { floor: u64 },
    #[error("{what} under way at this node are at their limit of {limit}; try again in a moment")]
    Busy { what: &'static str, limit: u64 },
    #[error("the command has {found} bytes, at most {limit} are allowed")]
    TooLarge { found: u64, limit: u64 },
    #[error("no replica could read the command: {0}")]
    Unreadable(CodecError),
    #[error("no session {session} has been opened so far; the log is at entry {applied}")]
    NoSession { session: LogSessionId, applied: u64 },
    #[error("the log plane of this node has stopped; use another node")]
    Stopped,
}

fn leader(group: &Group) -> String {
    match group.leader() {
        Some(leader) => format!("; node {} does", leader.node),
        None => ", and knows of no leader".to_owned(),
    }
}

fn elsewhere(group: &Group) -> String {
    let nodes: Vec<&str> = group.members.iter().map(|member| member.node.as_str()).collect();
    match nodes.as_slice() {
        [] => "it knows of no node that does; ask one that takes part".to_owned(),
        nodes => format!("read at {}, or make it one with `convoke log add`", nodes.join(" or ")),
    }
}

impl LogRejection {
    /// The error code of the interface.
    pub fn code(&self) -> ErrorCode {
        match self {
            LogRejection::NotLeader(_) => ErrorCode::NotLeader,
            LogRejection::NoQuorum(_) => ErrorCode::NoQuorum,
            LogRejection::NotReady | LogRejection::NoReplica(_) | LogRejection::Stopped => ErrorCode::NotReady,
            LogRejection::StaleEpoch { .. } => ErrorCode::StaleEpoch,
            LogRejection::SessionNotOpen => ErrorCode::SessionGone,
            LogRejection::GivenUp { .. } => ErrorCode::Superseded,
            LogRejection::Busy { .. } => ErrorCode::ResourceExhausted,
            LogRejection::TooLarge { .. } => ErrorCode::TooLarge,
            LogRejection::Unreadable(_) => ErrorCode::InvalidArgument,
            LogRejection::NoSession { .. } => ErrorCode::NotFound,
        }
    }

    /// What the sender should know of the group to ask better next time.
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
            NotAppended::GivenUp { floor } => LogRejection::GivenUp { floor },
        }
    }
}

/// Why a submission has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    #[error(transparent)]
    Rejected(#[from] LogRejection),
    /// It may have been applied, or may still be. `resolve` makes it final.
    #[error("the leader lost its place before the request was decided; it may have been applied")]
    Unknown,
}

/// Why the group was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    #[error(transparent)]
    Submit(#[from] SubmitError),
    #[error("node {0} is not a replica of this log")]
    NoReplica(SmolStr),
    #[error("node {0} is a replica of this log already; remove it first, or replace it")]
    IsReplica(SmolStr),
    #[error("node {0} is a voter already")]
    IsVoter(SmolStr),
    #[error("node {0} is the last voter; a log without voters cannot be changed any more")]
    LastVoter(SmolStr),
    #[error("node {0} is not a voter; promote it first")]
    NotVoter(SmolStr),
    #[error(
        "node {node} still holds a replica of {of} log: stop it, move the log directory out of its data directory, start it, then try again"
    )]
    HoldsReplica { node: SmolStr, of: &'static str },
    #[error("at {address} is node {found}, not {node}; give the peer address of {node}")]
    OtherNode { address: SmolStr, found: SmolStr, node: SmolStr },
    #[error("node {node} rejects to be a replica: {why}")]
    NodeRejects { node: SmolStr, why: String },
    #[error("somebody else changed the group in the meantime; look at the status and try again")]
    Replaced,
    #[error("{0}")]
    NotApplied(Reason),
    #[error("it was recorded, but the group has not arrived there in time; the leader goes on trying")]
    NotSettled,
}

impl ChangeError {
    /// The error code of the interface.
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
            | ChangeError::Replaced => ErrorCode::FailedPrecondition,
        }
    }
}
