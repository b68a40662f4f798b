//! Membership changes: recorded in the log (M1), then executed by the leader's driver (M4).

use super::LogHandle;
use crate::engine::Engine;
use crate::group::probe;
use crate::net::link::LinkError;
use crate::net::message::Probed;
use crate::rejection::{ChangeError, LogRejection, SubmitError};
use convoke_log::command::{Body, GroupChange, ReplicaLocation};
use convoke_log::machine::{Configuration, Outcome, Reason, Response};
use convoke_log::{Level, Machine, ReplicaId};
use smol_str::SmolStr;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A membership change requested by an operator. Nodes are named by their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Add a node as a learner. It must be running and must not hold a replica.
    Add { node: SmolStr, address: SmolStr },
    /// Make a learner a voter once it has caught up.
    Promote { node: SmolStr },
    /// Make a voter a learner.
    Demote { node: SmolStr },
    /// Remove a replica. It never returns under its id (M2).
    Remove { node: SmolStr },
    /// Replace a replica with a new one that gets its vote. For a lost node, or for the same node after it lost its
    /// disk.
    Replace { old: SmolStr, node: SmolStr, address: SmolStr },
    /// Record a new address of a replica (M5).
    Move { node: SmolStr, address: SmolStr },
}

impl LogHandle {
    /// Records a change of the group and returns its number. Only the leader can.
    pub async fn change(&self, edit: &Edit) -> Result<u64, ChangeError> {
        self.change_from(edit, None).await
    }

    /// Records a change only if the current configuration has the given number, so that a delayed change does nothing
    /// (M1).
    pub async fn change_from(&self, edit: &Edit, replaces: Option<u64>) -> Result<u64, ChangeError> {
        let machine = self.compared(replaces).await?;
        let change = edit.apply(&machine)?;
        if let Edit::Add { node, address } | Edit::Replace { node, address, .. } = edit {
            self.welcome(node, address).await?;
        }
        let answer = self.once(Body::Membership(change), "membership").await?;
        match answer.verdict.as_deref() {
            Ok(Outcome::Applied { response: Response::Configured(number), .. }) => Ok(*number),
            Ok(Outcome::NotApplied { reason: Reason::Replaced { .. }, .. }) => Err(ChangeError::Replaced),
            Ok(Outcome::NotApplied { reason, .. }) => Err(ChangeError::NotApplied(*reason)),
            Ok(Outcome::Applied { .. }) | Err(_) => Err(SubmitError::Unknown.into()),
        }
    }

    /// Returns the current state if its configuration has the given number.
    async fn compared(&self, replaces: Option<u64>) -> Result<Arc<Machine>, ChangeError> {
        let machine = self.read(super::Consistency::Linearizable).await.map_err(SubmitError::from)?;
        if machine.configuration().number <= self.plane.inherited() {
            // The driver has not recorded the founders yet.
            return Err(SubmitError::from(LogRejection::NotReady).into());
        }
        if replaces.is_some_and(|replaces| replaces != machine.configuration().number) {
            return Err(ChangeError::Replaced);
        }
        Ok(machine)
    }

    /// Rejects a node that cannot become a replica as it is. A node that does not answer is accepted: the driver keeps
    /// asking it.
    async fn welcome(&self, node: &SmolStr, address: &SmolStr) -> Result<(), ChangeError> {
        let asked = tokio::time::timeout(self.plane.config.timers.rpc_timeout, probe(&self.plane, address)).await;
        match asked {
            Ok(Ok(found)) if found.node != *node => {
                Err(ChangeError::OtherNode { address: address.clone(), found: found.node, node: node.clone() })
            }
            Ok(Ok(found)) if found.level < self.required_level() => {
                Err(ChangeError::TooOld { node: node.clone(), supported: found.level, needed: self.required_level() })
            }
            Ok(Ok(Probed { log: Some(log), .. })) => {
                let same = self.engine().is_ok_and(|engine| engine.log == log);
                Err(ChangeError::HoldsReplica { node: node.clone(), of: if same { "this" } else { "another" } })
            }
            Ok(Err(LinkError::Rejected { why, .. })) => Err(ChangeError::NodeRejects { node: node.clone(), why }),
            Ok(Ok(_) | Err(_)) | Err(_) => Ok(()),
        }
    }

    /// Returns the feature level that a replica must support before it is added (V2).
    fn required_level(&self) -> Level {
        let required = |engine: Arc<Engine>| engine.state.term().required_level(&engine.state.machine());
        self.engine().ok().and_then(required).unwrap_or(Level::FIRST)
    }

    /// Returns why the group has not reached the recorded configuration, if this node leads.
    pub fn obstacle(&self) -> Option<String> {
        self.plane.obstacle()
    }

    /// Waits until the engine has reached a recorded configuration or a later one.
    pub async fn settled(&self, number: u64, timeout: Duration) -> Result<(), ChangeError> {
        let mut watch = self.plane.settled.subscribe();
        let arrived = watch.wait_for(|settled| *settled >= number);
        match tokio::time::timeout(timeout, arrived).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(SubmitError::from(LogRejection::Stopped).into()),
            Err(_) => Err(ChangeError::NotSettled),
        }
    }

    /// Starts a leadership transfer to another voter. It is complete when [`status`](Self::status) shows the new
    /// leader.
    pub async fn transfer(&self, node: &str) -> Result<(), ChangeError> {
        self.transfer_from(node, None).await
    }

    /// Starts a leadership transfer only if the current configuration has the given number.
    pub async fn transfer_from(&self, node: &str, replaces: Option<u64>) -> Result<(), ChangeError> {
        let engine = self.engine().map_err(SubmitError::from)?;
        self.epoch().map_err(SubmitError::from)?;
        self.compared(replaces).await?;
        let group = engine.group();
        let member = group.on(node).ok_or_else(|| ChangeError::NoReplica(node.into()))?;
        if !member.voter {
            return Err(ChangeError::NotVoter(node.into()));
        }
        if group.leader == Some(member.replica) {
            return Ok(());
        }
        let handed = engine.raft.trigger().transfer_leader(member.replica.0).await;
        handed.map_err(|_| SubmitError::from(LogRejection::Stopped).into())
    }
}

impl Edit {
    /// Applies the edit to the current configuration.
    fn apply(&self, machine: &Machine) -> Result<GroupChange, ChangeError> {
        let current = machine.configuration();
        let mut change = GroupChange {
            replaces: current.number,
            voters: current.voters.clone(),
            learners: current.learners.clone(),
        };
        let next = ReplicaId(machine.highest_replica().0 + 1);
        match self {
            Edit::Add { node, address } => {
                if find(current, node).is_some() {
                    return Err(ChangeError::IsReplica(node.clone()));
                }
                change.learners.insert(next, ReplicaLocation { node: node.clone(), address: address.clone() });
            }
            Edit::Promote { node } => {
                let id = known(current, node)?;
                let Some(replica) = change.learners.remove(&id) else {
                    return Err(ChangeError::IsVoter(node.clone()));
                };
                change.voters.insert(id, replica);
            }
            Edit::Demote { node } => {
                let id = known(current, node)?;
                let Some(replica) = change.voters.remove(&id) else {
                    return Err(ChangeError::NotVoter(node.clone()));
                };
                change.learners.insert(id, replica);
            }
            Edit::Remove { node } => {
                let id = known(current, node)?;
                change.voters.remove(&id);
                change.learners.remove(&id);
            }
            Edit::Replace { old, node, address } => {
                let id = known(current, old)?;
                if node != old && find(current, node).is_some() {
                    return Err(ChangeError::IsReplica(node.clone()));
                }
                let replica = ReplicaLocation { node: node.clone(), address: address.clone() };
                let side: &mut BTreeMap<_, _> =
                    if change.voters.remove(&id).is_some() { &mut change.voters } else { &mut change.learners };
                side.remove(&id);
                side.insert(next, replica);
            }
            Edit::Move { node, address } => {
                let id = known(current, node)?;
                let place = change.voters.get_mut(&id).or_else(|| change.learners.get_mut(&id));
                place.ok_or_else(|| ChangeError::NoReplica(node.clone()))?.address = address.clone();
            }
        }
        if change.voters.is_empty() {
            let (Edit::Remove { node }
            | Edit::Demote { node }
            | Edit::Promote { node }
            | Edit::Add { node, .. }
            | Edit::Move { node, .. }
            | Edit::Replace { old: node, .. }) = self;
            return Err(ChangeError::LastVoter(node.clone()));
        }
        Ok(change)
    }
}

fn find(configuration: &Configuration, node: &str) -> Option<ReplicaId> {
    configuration.replicas().find(|(_, replica)| replica.node == node).map(|(id, _)| id)
}

fn known(configuration: &Configuration, node: &SmolStr) -> Result<ReplicaId, ChangeError> {
    find(configuration, node).ok_or_else(|| ChangeError::NoReplica(node.clone()))
}
