//! Status of a replica.

use super::LogHandle;
use crate::counters::Counters;
use crate::engine::Engine;
use crate::raft;
use crate::rejection::LogRejection;
use crate::state_hashes::Divergence;
use crate::status::{Group, GroupReplica, LogConflict, ReplicaStatus, Role};
use convoke_log::{Epoch, Level, LogTime, ReplicaId};
use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use prometheus_client::metrics::histogram::Histogram;
use std::sync::Arc;
use std::time::Duration;

/// How often a node without a replica checks whether it has one.
const REPLICA_POLL: Duration = Duration::from_millis(500);

impl LogHandle {
    pub fn status(&self) -> ReplicaStatus {
        let stopped = self.plane.is_stopped();
        match self.plane.engine.load_full() {
            Some(engine) => {
                let status = engine.status(*self.plane.settled.borrow(), stopped);
                let obstacle = engine.excluded().or_else(|| self.plane.obstacle().filter(|_| !status.settled));
                let level_obstacle = self.plane.level_obstacle().filter(|_| status.role == Role::Leader);
                ReplicaStatus { obstacle, level_obstacle, conflict: self.conflict(), ..status }
            }
            None => {
                let status = outside(self.plane.known(), stopped, self.plane.fault());
                let available = status.available && self.plane.is_group_available();
                let group = if available { status.group } else { unconfirmed(status.group) };
                let status = ReplicaStatus { group, ..status };
                ReplicaStatus { available, obstacle: self.plane.obstacle(), conflict: self.conflict(), ..status }
            }
        }
    }

    /// Returns the logs of this cluster, if there is more than one (FD6).
    pub fn conflict(&self) -> Option<LogConflict> {
        self.plane.conflict.load_full().map(|conflict| LogConflict::clone(&conflict))
    }

    /// Sets or ends the conflict between two logs. While it lasts, requests that name no log are rejected.
    pub fn set_conflict(&self, conflict: Option<LogConflict>) {
        self.plane.conflict.store(conflict.map(Arc::new));
    }

    /// Returns whether this node may serve a request that names this log, or none: always, unless the cluster has two
    /// logs and the request does not name the one of this node (FD6).
    pub fn check_conflict(&self, named: Option<u128>) -> Result<(), LogRejection> {
        let Some(conflict) = self.plane.conflict.load_full() else { return Ok(()) };
        let own = self.plane.engine.load().as_ref().map(|engine| engine.log);
        if named.is_some() && named == own {
            return Ok(());
        }
        crate::counters::add(&self.plane.counting.commands_rejected, 1);
        Err(LogRejection::Conflict(LogConflict::clone(&conflict)))
    }

    /// Returns the address of a node for clients, as the node itself told this replica.
    pub fn client_address(&self, node: &str) -> Option<String> {
        self.plane.client_address(node).map(String::from)
    }

    /// Waits until this node's replica knows a leader of a later epoch than `known`.
    pub async fn later_leader(&self, known: Option<Epoch>) -> Epoch {
        loop {
            // Do not hold the engine while waiting: a stop waits until it is released.
            let metrics = self.plane.engine.load_full().map(|engine| engine.raft.metrics());
            let Some(mut metrics) = metrics else {
                tokio::time::sleep(REPLICA_POLL).await;
                continue;
            };
            loop {
                let vote = metrics.borrow_watched().vote;
                let epoch = Some(vote).filter(|vote| vote.committed).map(|vote| raft::epoch(&vote.leader_id));
                if let Some(epoch) = epoch.filter(|epoch| Some(*epoch) > known) {
                    return epoch;
                }
                if metrics.changed().await.is_err() {
                    break;
                }
            }
            tokio::time::sleep(REPLICA_POLL).await;
        }
    }

    /// Returns the group as far as this node knows it.
    pub fn group(&self) -> Group {
        match self.plane.engine.load_full() {
            Some(engine) => engine.group(),
            None => self.plane.known(),
        }
    }

    /// Returns the highest committed index that a replica is known to have stored (M6).
    pub fn evidence_of(&self, replica: ReplicaId) -> Option<u64> {
        Some(self.engine().ok()?.acknowledgements.of(replica.0)?.committed)
    }

    /// Returns the last index at which this replica compared its state with that of its leader (LH6).
    pub fn compared_states(&self) -> Option<u64> {
        self.engine().ok()?.acknowledgements.hashes.compared()
    }

    pub fn counters(&self) -> Counters {
        self.plane.counting.read()
    }

    /// Returns the numbers of requests and of reads that this replica has accepted and not answered yet.
    pub fn in_flight(&self) -> (usize, usize) {
        self.engine().map_or((0, 0), |engine| engine.in_flight())
    }

    /// Returns the times that this replica took to write batches and sync them.
    pub fn sync_times(&self) -> Histogram {
        self.plane.counting.syncs.clone()
    }

    /// Returns whether a leader can serve requests, as far as this node knows (`/readyz?log`).
    pub fn is_available(&self) -> bool {
        self.status().available
    }
}

/// The group as this node knew it when it last reached a leader: the leader may be gone.
fn unconfirmed(group: Group) -> Group {
    let last = group.leader;
    let replicas = group.replicas.into_iter();
    let replicas =
        replicas.map(|member| GroupReplica { unreachable: last == Some(member.replica), ..member }).collect();
    Group { leader: None, replicas, ..group }
}

fn outside(group: Group, stopped: bool, fault: Option<String>) -> ReplicaStatus {
    let role = match (stopped, &fault) {
        (_, Some(_)) => Role::Failed,
        (true, None) => Role::Stopped,
        (false, None) => Role::Outside,
    };
    ReplicaStatus {
        log: None,
        replica: None,
        role,
        available: group.leader.is_some() && role == Role::Outside,
        group,
        configuration: 0,
        settled: false,
        obstacle: None,
        last: 0,
        commit: 0,
        applied: 0,
        snapshot: 0,
        purged: 0,
        revision: 0,
        keys: 0,
        bytes: 0,
        sessions: 0,
        leases: 0,
        locks: 0,
        places: 0,
        waiters: 0,
        quotas: Vec::new(),
        log_time: LogTime::ZERO,
        matched: Vec::new(),
        fault,
        excluded: false,
        level: Level::FIRST,
        level_obstacle: None,
        divergence: None,
        conflict: None,
    }
}

impl Engine {
    fn role(&self, state: ServerState, failed: bool, stopped: bool) -> Role {
        match state {
            _ if failed => Role::Failed,
            _ if stopped => Role::Stopped,
            ServerState::Leader => Role::Leader,
            _ if self.is_removed() => Role::Removed,
            ServerState::Candidate => Role::Candidate,
            ServerState::Follower => Role::Follower,
            ServerState::Learner | ServerState::Shutdown => Role::Learner,
        }
    }

    /// Returns whether this replica knows a leader that can serve requests.
    pub(crate) fn is_available(&self) -> bool {
        let state = self.raft.metrics().borrow_watched().state;
        self.is_available_as(self.role(state, self.failed(), false))
    }

    fn is_available_as(&self, role: Role) -> bool {
        match role {
            _ if self.excluded().is_some() => false,
            Role::Leader => {
                self.state.term().epoch().is_some() && self.has_quorum() && !self.acknowledgements.is_stalled()
            }
            Role::Failed | Role::Stopped | Role::Outside => false,
            // A leader reported so recently.
            Role::Removed => self.group_after_removal().is_some(),
            _ => self.own_group().leader.is_some() && self.is_led() && !self.acknowledgements.is_stalled(),
        }
    }

    /// Returns the group to show: without a leader that has fallen silent, and with the replicas that the leader does
    /// not reach.
    fn shown_group(&self, group: Group, role: Role) -> Group {
        let silent = !matches!(role, Role::Leader | Role::Removed) && !self.is_led();
        let (last, unreachable) = (group.leader, self.acknowledgements.unreachable());
        let lost = |replica: ReplicaId| unreachable.contains(&replica.0) || (silent && last == Some(replica));
        let replicas = group.replicas.into_iter();
        let replicas = replicas.map(|member| GroupReplica { unreachable: lost(member.replica), ..member }).collect();
        Group { leader: group.leader.filter(|_| !silent), replicas, ..group }
    }

    pub(crate) fn status(&self, settled: u64, stopped: bool) -> ReplicaStatus {
        let machine = self.state.machine();
        // Before the metrics are borrowed below: borrowing them twice can block the engine for ever.
        let state = self.raft.metrics().borrow_watched().state;
        let role = self.role(state, self.failed() && !stopped, stopped);
        let available = self.is_available_as(role);
        let group = self.shown_group(self.group(), role);
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let fault = metrics.running_state.as_ref().err().filter(|_| !stopped).map(ToString::to_string);
        let number = machine.configuration().number;
        let index = |log_id: &Option<raft::LogId>| log_id.as_ref().map_or(0, |log_id| log_id.index + 1);
        ReplicaStatus {
            log: Some(self.log),
            replica: Some(self.state.me()),
            role,
            available,
            group,
            configuration: number,
            settled: settled >= number && number > 0,
            obstacle: None,
            last: metrics.last_log_index.map_or(0, |index| index + 1),
            commit: index(&metrics.local_committed),
            applied: machine.applied().index,
            snapshot: index(&metrics.snapshot),
            purged: index(&metrics.purged),
            revision: machine.keys().revision(),
            keys: machine.keys().len() as u64,
            bytes: machine.keys().bytes(),
            sessions: machine.session_count() as u64,
            leases: machine.lease_count() as u64,
            locks: machine.lock_count() as u64,
            places: machine.place_count() as u64,
            waiters: machine.waiter_count() as u64,
            quotas: machine.quotas(),
            log_time: machine.log_time(),
            matched: metrics
                .replication
                .iter()
                .flatten()
                .map(|(id, matched)| (ReplicaId(*id), index(matched)))
                .collect(),
            fault,
            excluded: self.excluded().is_some(),
            level: machine.level(),
            level_obstacle: None,
            divergence: self.acknowledgements.hashes.divergence().map(|divergence| {
                let Divergence { index, own, leader } = divergence;
                format!("the state after entry {index} has hash {own:032x}, that of the leader {leader:032x}")
            }),
            conflict: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_outside_of_a_silent_group_shows_no_leader() {
        let member = |id: u64| GroupReplica {
            replica: ReplicaId(id),
            node: format!("n{id}").into(),
            address: String::new().into(),
            voter: true,
            unreachable: false,
        };
        let group = Group { leader: Some(ReplicaId(2)), replicas: vec![member(1), member(2)], ..Group::default() };
        let shown = unconfirmed(group);
        assert_eq!(shown.leader, None);
        assert_eq!(shown.replicas.iter().map(|one| one.unreachable).collect::<Vec<_>>(), [false, true]);
    }
}
