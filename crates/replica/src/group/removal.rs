//! Detection of the own removal.
//!
//! A removed replica gets no messages from the group. While it has no contact to a leader, it asks the other replicas.

use super::probe;
use crate::engine::Engine;
use crate::net::message::Probed;
use crate::plane::Plane;
use crate::status::Group;
use convoke_log::{Epoch, ReplicaId};
use futures_util::future::join_all;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How often a replica without a leader asks.
const POLL: Duration = Duration::from_secs(2);
/// How often it asks while the record already excludes it, because an operator waits for the end of the removal.
const REMOVAL_POLL: Duration = Duration::from_millis(200);
/// How many times it asks at the short interval. The removal can take long if there is no leader or a step fails.
const REMOVAL_POLLS: u32 = 50;

/// The newest leader's report about this replica.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The group continues without this replica.
    Removed(Group),
    /// The group includes this replica.
    InGroup,
    /// No leader answered.
    NoLeader,
}

impl Verdict {
    /// Updates the group that continues without the replica. Returns true if the removal is new.
    pub(crate) fn record(self, without: &mut Option<Group>) -> bool {
        match self {
            Verdict::Removed(group) => without.replace(group).is_none(),
            Verdict::InGroup => {
                *without = None;
                false
            }
            // The earlier answer remains valid, and its replicas are the ones to ask.
            Verdict::NoLeader => false,
        }
    }
}

/// Asks the other replicas while there is no leader, or while the removal of this replica is in progress.
pub(crate) async fn watch(plane: Arc<Plane>, engine: Arc<Engine>) {
    let is_leaving = || engine.is_recorded_removed() && engine.group_after_removal().is_none();
    let mut progress = engine.state.progress();
    let mut polls = 0;
    loop {
        let pause = if polls < REMOVAL_POLLS { REMOVAL_POLL } else { POLL };
        // A new record arrives with an entry.
        let leaving = async {
            while !is_leaving() {
                if progress.changed().await.is_err() {
                    return pending().await;
                }
                sleep(REMOVAL_POLL).await;
            }
            sleep(pause).await;
        };
        let _ = timeout(POLL, leaving).await;
        if engine.is_led() && !is_leaving() || engine.state.term().epoch().is_some() {
            continue;
        }
        let (me, own) = (engine.state.me(), engine.own_group());
        // The replicas reported earlier may have been replaced too, so ask those they named as well.
        let reported = engine.group_after_removal().unwrap_or_default();
        let known = own.epoch.max(reported.epoch);
        let mut addresses: Vec<_> =
            own.replicas.iter().chain(&reported.replicas).filter(|member| member.replica != me).collect();
        addresses.sort_by(|a, b| a.address.cmp(&b.address));
        addresses.dedup_by(|a, b| a.address == b.address);
        let asking = join_all(addresses.into_iter().map(|member| probe(&plane, &member.address)));
        let answers: Vec<Probed> = asking.await.into_iter().flatten().collect();
        let verdict = judge(engine.log, me, known, &answers);
        // A leader may have made contact in the meantime; that counts more, unless the removal is already recorded.
        if (!engine.is_led() || is_leaving()) && engine.record_verdict(verdict) {
            tracing::warn!(
                node = %plane.config.node,
                replica = %me,
                hint = "to add the node again, stop it, move its log directory away, start it and run `convoke log add`",
                "replica removed from group"
            );
        }
        polls = if is_leaving() { polls.saturating_add(1) } else { 0 };
    }
}

/// Returns the report of the newest leader, if its epoch is not older than the known one. Only a leader is trusted: a
/// lagging follower may not know a replica that was just added.
fn judge(log: u128, me: ReplicaId, known: Option<Epoch>, answers: &[Probed]) -> Verdict {
    let leads = |probed: &&Probed| {
        probed.log == Some(log)
            && probed.group.epoch >= known
            && probed.group.leader().is_some_and(|leader| leader.node == probed.node)
    };
    match answers.iter().filter(leads).max_by_key(|probed| probed.group.epoch) {
        Some(Probed { group, .. }) if group.replicas.iter().all(|member| member.replica != me) => {
            Verdict::Removed(group.clone())
        }
        Some(_) => Verdict::InGroup,
        None => Verdict::NoLeader,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::GroupReplica;

    fn group(term: u64, leader: u64, replicas: &[u64]) -> Group {
        let member = |id: &u64| GroupReplica {
            replica: ReplicaId(*id),
            node: format!("n{id}").into(),
            address: format!("n{id}:1").into(),
            voter: true,
            unreachable: false,
        };
        Group {
            epoch: Some(Epoch::new(term, leader)),
            leader: Some(ReplicaId(leader)),
            replicas: replicas.iter().map(member).collect(),
        }
    }

    fn report(node: u64, log: u128, group: Group) -> Probed {
        let node = format!("n{node}");
        let address = format!("{node}:1").into();
        Probed {
            node: node.into(),
            address,
            nonce: 0,
            join: Vec::new(),
            expected: 0,
            sees: Vec::new(),
            log: Some(log),
            group,
            available: true,
            level: convoke_log::Level::FIRST,
        }
    }

    #[test]
    fn only_a_leader_of_the_same_log_that_is_not_older_is_believed() {
        let (me, own) = (ReplicaId(3), group(4, 1, &[1, 2, 3]));
        let without = group(4, 1, &[1, 2]);
        let judged = |answers: &[Probed]| judge(7, me, own.epoch, answers);
        assert_eq!(judged(&[report(1, 7, without.clone())]), Verdict::Removed(without.clone()));
        assert_eq!(judged(&[report(2, 7, without.clone())]), Verdict::NoLeader, "a follower may lag");
        assert_eq!(judged(&[report(1, 8, without.clone())]), Verdict::NoLeader, "another log");
        assert_eq!(judged(&[report(1, 7, group(3, 1, &[1, 2]))]), Verdict::NoLeader, "an older epoch");
        assert_eq!(judged(&[report(1, 7, own.clone())]), Verdict::InGroup);
        let newer = group(6, 2, &[1, 2, 3]);
        assert_eq!(judged(&[report(1, 7, without), report(2, 7, newer)]), Verdict::InGroup, "the newest leader wins");
        assert_eq!(judged(&[]), Verdict::NoLeader);
    }

    #[test]
    fn a_missing_leader_does_not_clear_the_removal() {
        let mut without = None;
        assert!(!Verdict::NoLeader.record(&mut without) && without.is_none());
        let (reported, later) = (group(4, 1, &[1, 2]), group(5, 2, &[1, 2]));
        assert!(Verdict::Removed(reported.clone()).record(&mut without), "a new removal");
        assert!(!Verdict::NoLeader.record(&mut without));
        assert_eq!(without, Some(reported));
        assert!(!Verdict::Removed(later.clone()).record(&mut without), "the same removal with other replicas");
        assert_eq!(without, Some(later));
        assert!(!Verdict::InGroup.record(&mut without) && without.is_none());
    }
}
