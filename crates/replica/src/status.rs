//! How a replica sees the group, and itself in it.

use convoke_log::{Epoch, LogTime, ReplicaId};
use smol_str::SmolStr;

/// What a replica does in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Leader,
    Follower,
    /// Stands for election.
    Candidate,
    /// Gets everything, votes on nothing.
    Learner,
    /// It was taken out of the group, which goes on without it. It never comes back under its id; its node does as a new replica, with
    /// an empty log directory.
    Removed,
    /// The node is no replica of any log (yet): it waits to be added, or for others to begin one with.
    Outside,
    /// It stopped because of a fault: see [`Status::fault`].
    Failed,
    Stopped,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Leader => "leader",
            Role::Follower => "follower",
            Role::Candidate => "candidate",
            Role::Learner => "learner",
            Role::Removed => "removed",
            Role::Outside => "outside",
            Role::Failed => "failed",
            Role::Stopped => "stopped",
        }
    }
}

/// A replica and the node it lives on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub replica: ReplicaId,
    /// Id of the node.
    pub node: SmolStr,
    /// Where other replicas dial it: the node's peer address.
    pub address: SmolStr,
    pub voter: bool,
}

/// The group as far as this node knows it. What whoever asked the wrong replica is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Of the leader last heard of.
    pub epoch: Option<Epoch>,
    pub leader: Option<ReplicaId>,
    /// The last known leader first, then voters, then learners.
    pub members: Vec<Member>,
}

impl Group {
    pub fn leader(&self) -> Option<&Member> {
        let leader = self.leader?;
        self.members.iter().find(|member| member.replica == leader)
    }

    /// The member that lives on a node.
    pub fn on(&self, node: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.node == node)
    }
}

/// A replica's own account of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Which log it is a replica of: different for every log that was ever begun, restored or recovered.
    pub log: Option<u128>,
    pub replica: Option<ReplicaId>,
    pub role: Role,
    pub group: Group,
    /// Number of the newest recorded configuration (M1), and whether the engine has arrived there.
    pub configuration: u64,
    pub settled: bool,
    /// Why it has not, as the leader sees it; only a leader knows.
    pub obstacle: Option<String>,
    /// Last index in the log, committed, applied. Counted from 1; 0 for none.
    pub last: u64,
    pub commit: u64,
    pub applied: u64,
    /// Last index in a snapshot, and last index no longer in the log.
    pub snapshot: u64,
    pub purged: u64,
    /// Of the keys.
    pub revision: u64,
    pub keys: u64,
    pub bytes: u64,
    pub sessions: u64,
    pub log_time: LogTime,
    /// How far each other replica has got; only a leader knows.
    pub matched: Vec<(ReplicaId, u64)>,
    /// Whether requests would be served now: by this replica if it leads, else by the leader it knows.
    pub available: bool,
    /// What stopped it.
    pub fault: Option<String>,
}
