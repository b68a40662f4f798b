//! Moves the engine to the newest recorded configuration, one step at a time, while this replica leads (M4).
//!
//! A failed step is repeated by this leader or the next one. Each step starts from the engine's current configuration
//! and does not depend on earlier steps.

use super::{adopt, probe};
use crate::handle::{Edit, LogHandle};
use crate::net::message::Probed;
use crate::plane::{LocalReplica, Plane};
use crate::raft::Membership;
use crate::rejection::ChangeError;
use crate::state::deposed;
use convoke_log::command::{Body, GroupChange, ReplicaLocation};
use convoke_log::machine::Configuration;
use convoke_log::{Epoch, Level, ReplicaId};
use openraft::ChangeMembers;
use openraft::async_runtime::watch::WatchReceiver;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Pause after a step that failed.
const RETRY: Duration = Duration::from_millis(500);
/// How often a replica checks although nothing has changed.
const POLL: Duration = Duration::from_secs(5);
/// How often a replica checks while a change is in progress. Progress of the engine produces no log entry to wait for.
const POLL_PENDING: Duration = Duration::from_millis(100);
/// Maximum number of entries that a learner may lag behind when it becomes a voter.
const LAG_MAX: u64 = 1_000;
/// Interval between log lines about a step that keeps failing.
const REMIND: Duration = Duration::from_secs(10);

/// The next step towards the recorded configuration.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The engine's configuration equals the recorded one.
    Arrived,
    /// Make a node a replica and a learner.
    Add(u64, ReplicaLocation),
    /// Record a new address of a replica.
    Move(u64, ReplicaLocation),
    /// Change the voters. All new voters are learners already.
    Voters(BTreeSet<u64>),
    /// Remove learners.
    Remove(BTreeSet<u64>),
}

/// Runs the driver. It acts only while this replica leads.
pub(crate) async fn drive(plane: Arc<Plane>, local: LocalReplica) {
    let state = local.engine.state.clone();
    let (mut led, mut configured) = (state.term().led(), state.configured());
    let mut reminded = Instant::now();
    let mut last = None;
    loop {
        let epoch = state.term().epoch();
        let number = state.machine().configuration().number;
        let pause = match epoch {
            Some(epoch) if last != Some((epoch, number)) || number <= local.identity.inherited => {
                // A leader that has left the group gets no more messages, not even the result of its last step.
                let stepped = tokio::select! {
                    biased;
                    stepped = step(&plane, &local, epoch) => stepped,
                    () = deposed(&mut led, epoch) => Ok(false),
                };
                match stepped {
                    Ok(true) => {
                        plane.obstructed(None);
                        last = Some((epoch, number));
                        continue;
                    }
                    Ok(false) => {
                        plane.obstructed(None);
                        continue;
                    }
                    Err(error) => {
                        plane.obstructed(Some(error.clone()));
                        if reminded.elapsed() > REMIND {
                            reminded = Instant::now();
                            tracing::warn!(node = %plane.config.node, %error, "membership change pending");
                        }
                        RETRY
                    }
                }
            }
            // A follower learns the group's configuration from the leader's entries.
            _ => {
                plane.obstructed(None);
                let arrived = observe(&plane, &local);
                if let Some(epoch) = epoch.filter(|_| arrived) {
                    // As above: a deposed leader may never get an answer.
                    tokio::select! {
                        biased;
                        () = follow_moves(&plane, &local) => {}
                        () = deposed(&mut led, epoch) => {}
                    }
                }
                if arrived { POLL } else { POLL_PENDING }
            }
        };
        if pause == RETRY {
            sleep(pause).await;
        } else {
            let changed = async {
                tokio::select! {
                    biased;
                    _ = led.wait_for(|led| *led != epoch) => {}
                    _ = configured.wait_for(|configured| *configured != number) => {}
                }
            };
            let _ = timeout(pause, changed).await;
        }
    }
}

/// Records new addresses of replicas that have moved (M5). A move is accepted if the replica answers at the new address
/// and no longer at the recorded one.
async fn follow_moves(plane: &Arc<Plane>, local: &LocalReplica) {
    let machine = local.engine.state.machine();
    let configuration = machine.configuration();
    for (_, place) in configuration.replicas() {
        let Some(address) = plane.current_address(&place.node).filter(|address| *address != place.address) else {
            continue;
        };
        if is_at(plane, local, place, &place.address).await || !is_at(plane, local, place, &address).await {
            continue;
        }
        let edit = Edit::Move { node: place.node.clone(), address: address.clone() };
        match (LogHandle { plane: plane.clone() }).change_from(&edit, Some(configuration.number)).await {
            Ok(_) => {
                tracing::info!(node = %plane.config.node, moved = %place.node, from = %place.address, to = %address, "replica address changed");
            }
            // The next check retries it.
            Err(error) => {
                tracing::debug!(node = %plane.config.node, moved = %place.node, %error, "cannot record replica address");
            }
        }
        return;
    }
}

async fn is_at(plane: &Arc<Plane>, local: &LocalReplica, place: &ReplicaLocation, address: &str) -> bool {
    let is_it = |probed: Probed| probed.node == place.node && probed.log == Some(local.engine.log);
    probe(plane, address).await.is_ok_and(is_it)
}

/// Publishes the engine's progress at a replica that does not lead, and returns whether the change is complete. A
/// removed replica does not receive the final entry; for it, the change is complete when the leader reports a group
/// without it.
fn observe(plane: &Plane, local: &LocalReplica) -> bool {
    let engine = &local.engine;
    let machine = engine.state.machine();
    let wanted = machine.configuration();
    let outside = engine.is_recorded_removed() && engine.group_after_removal().is_some();
    let arrived = outside || next_step(wanted, &membership(local)) == Step::Arrived;
    if wanted.number > 0 && arrived {
        plane.settled.send_if_modified(|settled| std::mem::replace(settled, wanted.number) != wanted.number);
    }
    arrived
}

fn membership(local: &LocalReplica) -> Membership {
    local.engine.raft.metrics().borrow_watched().membership_config.membership().clone()
}

/// Takes one step. Returns true if none was left.
async fn step(plane: &Arc<Plane>, local: &LocalReplica, epoch: Epoch) -> Result<bool, String> {
    let machine = local.engine.state.machine();
    let wanted = machine.configuration().clone();
    if wanted.number <= local.identity.inherited {
        record(plane, local, &wanted).await?;
        return Ok(false);
    }
    let (raft, current) = (&local.engine.raft, membership(local));
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    match next_step(&wanted, &current) {
        Step::Arrived => {
            plane.settled.send_if_modified(|settled| std::mem::replace(settled, wanted.number) != wanted.number);
            return Ok(true);
        }
        Step::Add(id, place) => {
            check_level(plane, local, &place).await?;
            adopt(plane, local, id, &place).await.map_err(|error| failed(&error))?;
            raft.add_learner(id, place, false).await.map_err(|error| failed(&error))?;
        }
        Step::Move(id, place) => {
            let moved = ChangeMembers::SetNodes(BTreeMap::from([(id, place)]));
            raft.change_membership(moved, true).await.map_err(|error| failed(&error))?;
        }
        Step::Voters(voters) => {
            caught_up(local, &voters)?;
            let changed = ChangeMembers::ReplaceAllVoters(voters);
            raft.change_membership(changed, true).await.map_err(|error| failed(&error))?;
        }
        Step::Remove(ids) => {
            let removed = ChangeMembers::RemoveNodes(ids);
            raft.change_membership(removed, false).await.map_err(|error| failed(&error))?;
        }
    }
    let current = membership(local);
    let voters = nodes(&current, &current.voter_ids().collect());
    let learners = nodes(&current, &current.learner_ids().collect());
    tracing::info!(node = %plane.config.node, %epoch, voters, learners, "group changed");
    Ok(false)
}

/// Checks that a node that did not answer when it was added supports the feature level of the log (V2).
async fn check_level(plane: &Arc<Plane>, local: &LocalReplica, place: &ReplicaLocation) -> Result<(), String> {
    let supported = probe(plane, &place.address).await.map_err(|error| error.to_string())?.level;
    let needed = {
        let state = &local.engine.state;
        state.term().required_level(&state.machine()).unwrap_or(Level::FIRST)
    };
    if supported >= needed {
        return Ok(());
    }
    let node = place.node.clone();
    Err(ChangeError::TooOld { node, supported, needed }.to_string())
}

/// The nodes of these replicas, for the log.
fn nodes(membership: &Membership, ids: &BTreeSet<u64>) -> String {
    let nodes = membership.nodes().filter(|(id, _)| ids.contains(id)).map(|(_, location)| location.node.as_str());
    nodes.collect::<Vec<_>>().join(",")
}

fn next_step(wanted: &Configuration, current: &Membership) -> Step {
    let nodes: BTreeMap<u64, &ReplicaLocation> = current.nodes().map(|(id, place)| (*id, place)).collect();
    for (ReplicaId(id), place) in wanted.replicas() {
        match nodes.get(&id) {
            None => return Step::Add(id, place.clone()),
            Some(found) if *found != place => return Step::Move(id, place.clone()),
            Some(_) => {}
        }
    }
    let voters: BTreeSet<u64> = wanted.voters.keys().map(|id| id.0).collect();
    // A previous leader left a joint membership behind.
    if current.get_joint_config().len() != 1 || current.voter_ids().collect::<BTreeSet<_>>() != voters {
        return Step::Voters(voters);
    }
    let gone: BTreeSet<u64> = nodes.keys().copied().filter(|id| wanted.replica(ReplicaId(*id)).is_none()).collect();
    if gone.is_empty() { Step::Arrived } else { Step::Remove(gone) }
}

/// Checks that new voters have caught up, so that they do not delay commits.
fn caught_up(local: &LocalReplica, voters: &BTreeSet<u64>) -> Result<(), String> {
    let metrics = local.engine.raft.metrics();
    let metrics = metrics.borrow_watched();
    let present: BTreeSet<u64> = metrics.membership_config.membership().voter_ids().collect();
    let last = metrics.last_log_index.unwrap_or(0);
    for id in voters.difference(&present) {
        let matched = metrics.replication.as_ref().and_then(|replication| replication.get(id)).copied().flatten();
        if matched.is_none_or(|matched| matched.index + LAG_MAX < last) {
            let matched = matched.map_or(0, |matched| matched.index + 1);
            return Err(format!("replica {id} has {matched} of {} entries and is not ready to vote", last + 1));
        }
    }
    Ok(())
}

/// Records the engine's group if no configuration of this log is recorded yet: the founders.
async fn record(plane: &Arc<Plane>, local: &LocalReplica, before: &Configuration) -> Result<(), String> {
    let current = membership(local);
    let voters: BTreeSet<u64> = current.voter_ids().collect();
    let split = |voting: bool| -> BTreeMap<ReplicaId, ReplicaLocation> {
        let side = current.nodes().filter(|(id, _)| voters.contains(id) == voting);
        side.map(|(id, place)| (ReplicaId(*id), place.clone())).collect()
    };
    let change = GroupChange { replaces: before.number, voters: split(true), learners: split(false) };
    let handle = LogHandle { plane: plane.clone() };
    let answer = handle.once(Body::Membership(change), "membership").await.map_err(|error| error.to_string())?;
    match answer.verdict {
        Ok(outcome) => match &*outcome {
            convoke_log::machine::Outcome::Applied { .. } => Ok(()),
            convoke_log::machine::Outcome::NotApplied { reason, .. } => Err(reason.to_string()),
        },
        Err(rejected) => Err(rejected.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(id: u64) -> ReplicaLocation {
        ReplicaLocation { node: format!("n{id}").into(), address: format!("h:{id}").into() }
    }

    fn wanted(voters: &[u64], learners: &[u64]) -> Configuration {
        let side = |ids: &[u64]| ids.iter().map(|id| (ReplicaId(*id), place(*id))).collect();
        Configuration { number: 9, voters: side(voters), learners: side(learners) }
    }

    fn group(configs: &[&[u64]], nodes: &[u64]) -> Membership {
        let configs = configs.iter().map(|ids| ids.iter().copied().collect()).collect();
        Membership::new(configs, nodes.iter().map(|id| (*id, place(*id))).collect::<BTreeMap<_, _>>()).unwrap()
    }

    #[test]
    fn one_step_at_a_time_from_wherever_the_engine_is() {
        let three = group(&[&[1, 2, 3]], &[1, 2, 3]);
        assert_eq!(next_step(&wanted(&[1, 2, 3], &[]), &three), Step::Arrived);
        let replaced = wanted(&[1, 2, 4], &[]);
        assert_eq!(next_step(&replaced, &three), Step::Add(4, place(4)));
        let added = group(&[&[1, 2, 3]], &[1, 2, 3, 4]);
        assert_eq!(next_step(&replaced, &added), Step::Voters(BTreeSet::from([1, 2, 4])));
        let joint = group(&[&[1, 2, 3], &[1, 2, 4]], &[1, 2, 3, 4]);
        assert_eq!(
            next_step(&replaced, &joint),
            Step::Voters(BTreeSet::from([1, 2, 4])),
            "left incomplete by an earlier leader"
        );
        let voting = group(&[&[1, 2, 4]], &[1, 2, 3, 4]);
        assert_eq!(next_step(&replaced, &voting), Step::Remove(BTreeSet::from([3])));
        let mut moved = wanted(&[1, 2, 3], &[]);
        moved.voters.insert(ReplicaId(2), ReplicaLocation { node: "n2".into(), address: "elsewhere:2".into() });
        assert!(matches!(next_step(&moved, &three), Step::Move(2, _)));
    }
}
