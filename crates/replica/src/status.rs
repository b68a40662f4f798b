//! Status of a replica and its group.

use convoke_log::machine::Quota;
use convoke_log::{Epoch, Level, LogTime, ReplicaId};
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Role of a replica in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Leader,
    Follower,
    /// In an election.
    Candidate,
    /// Receives all entries and does not vote.
    Learner,
    /// Removed from the group. It never returns under its id; its node can be added as a new replica with an empty log
    /// directory.
    Removed,
    /// The node is not a replica: it waits to be added, or for other nodes to create a log with.
    Outside,
    /// Stopped because of a fault, see [`ReplicaStatus::fault`].
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

/// A replica and the node that hosts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupReplica {
    pub replica: ReplicaId,
    /// Id of the node.
    pub node: SmolStr,
    /// Peer address of the node, which other replicas dial.
    pub address: SmolStr,
    pub voter: bool,
    /// Whether the leader had no contact with it recently, or it is a leader without contact to this replica. Only set
    /// in [`ReplicaStatus::group`].
    pub unreachable: bool,
}

/// The group as far as this node knows it. Rejections of a non-leader carry it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Epoch of the last known leader.
    pub epoch: Option<Epoch>,
    pub leader: Option<ReplicaId>,
    /// The last known leader first, then voters, then learners.
    pub replicas: Vec<GroupReplica>,
}

impl Group {
    pub fn leader(&self) -> Option<&GroupReplica> {
        let leader = self.leader?;
        self.replicas.iter().find(|member| member.replica == leader)
    }

    /// Returns the replica on a node.
    pub fn on(&self, node: &str) -> Option<&GroupReplica> {
        self.replicas.iter().find(|member| member.node == node)
    }
}

/// Status of a node's replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// Id of the log. Every created, restored or recovered log has another id.
    pub log: Option<u128>,
    pub replica: Option<ReplicaId>,
    pub role: Role,
    pub group: Group,
    /// Number of the newest recorded configuration (M1), and whether the engine has reached it.
    pub configuration: u64,
    pub settled: bool,
    /// Why it has not, which only the leader knows; or why this replica takes no part in the group.
    pub obstacle: Option<String>,
    /// Last, committed and applied index, counted from 1; 0 for none.
    pub last: u64,
    pub commit: u64,
    pub applied: u64,
    /// Last index in a snapshot, and last purged index.
    pub snapshot: u64,
    pub purged: u64,
    /// Revision of the key store.
    pub revision: u64,
    pub keys: u64,
    pub bytes: u64,
    pub sessions: u64,
    /// Leases, locks and elections in use, and holders and waiters of all of them.
    pub leases: u64,
    pub locks: u64,
    pub places: u64,
    /// Waiters of all locks and elections.
    pub waiters: u64,
    /// The use of the limits that clients can reach (Q1).
    pub quotas: Vec<Quota>,
    pub log_time: LogTime,
    /// Matched index of each other replica; only known at the leader.
    pub matched: Vec<(ReplicaId, u64)>,
    /// Whether requests would be served now: by this replica if it leads, otherwise by the known leader.
    pub available: bool,
    /// The fault that stopped the replica.
    pub fault: Option<String>,
    /// Whether this replica takes no part in the group because its disk went back in time (M6).
    pub excluded: bool,
    /// Feature level of the log (V1), and why it is not the highest one, as far as the leader knows.
    pub level: Level,
    pub level_obstacle: Option<String>,
    /// How the state of this replica differs from the state of its leader (LH6).
    pub divergence: Option<String>,
    /// The logs of this cluster, if there is more than one (FD6).
    pub conflict: Option<LogConflict>,
}

impl ReplicaStatus {
    /// Returns a warning if a limit of the log is reached by at least 80 percent.
    pub fn quota_warning(&self) -> Option<String> {
        let nearly: Vec<String> = self.quotas.iter().filter(|quota| quota.is_nearly_reached()).map(shown).collect();
        (!nearly.is_empty()).then(|| format!("the log is nearly full: {}", nearly.join(", ")))
    }
}

fn shown(quota: &Quota) -> String {
    let Quota { field, used, limit } = quota;
    let unit = if *field == convoke_log::machine::Field::Store { " bytes" } else { "" };
    format!("{field} {used} of {limit}{unit}")
}

/// Two or more logs in one cluster (FD6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogConflict {
    /// The ids of the logs, each with the nodes that hold a replica of it.
    pub logs: BTreeMap<u128, BTreeSet<String>>,
}

impl LogConflict {
    /// Returns the conflict between the logs of nodes, if they belong to more than one log.
    pub fn between(nodes: impl IntoIterator<Item = (u128, String)>) -> Option<LogConflict> {
        let mut logs: BTreeMap<u128, BTreeSet<String>> = BTreeMap::new();
        for (log, node) in nodes {
            logs.entry(log).or_default().insert(node);
        }
        (logs.len() > 1).then_some(LogConflict { logs })
    }
}

impl fmt::Display for LogConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cluster has {} logs: ", self.logs.len())?;
        for (place, (log, nodes)) in self.logs.iter().enumerate() {
            let nodes = nodes.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            write!(f, "{}{log:032x} on {nodes}", if place == 0 { "" } else { "; " })?;
        }
        f.write_str("; stop the nodes of the wrong log, move their log directories away, and replace or add them")
    }
}
