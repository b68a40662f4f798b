//! A replica that was taken out of the group is told nothing: nobody speaks to it any more. When it hears no leader, it asks.

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

/// How often it asks.
const LOOK: Duration = Duration::from_secs(2);
/// The same while it knows that it is to go: whoever has asked for that waits.
const LOOK_FOR_THE_END: Duration = Duration::from_millis(200);
/// How many times it asks so often. The end may be long in coming: there may be no leader, or something in its way.
const LOOKS_FOR_THE_END: u32 = 50;

/// What leaders say of a replica.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// This group goes on without it.
    Out(Group),
    In,
    /// Nobody says that it leads.
    Nothing,
}

impl Said {
    /// Notes it as the group that goes on without the replica, if there is one. True if it is news that there is.
    pub(crate) fn note(self, without: &mut Option<Group>) -> bool {
        match self {
            Said::Out(group) => without.replace(group).is_none(),
            Said::In => {
                *without = None;
                false
            }
            // What was said before holds, and those who were named then are those to ask.
            Said::Nothing => false,
        }
    }
}

/// Asks the others of the group while no leader is heard, or while it waits to be let go.
pub(crate) async fn look(plane: Arc<Plane>, engine: Arc<Engine>) {
    let goes = || engine.is_recorded_out() && engine.without().is_none();
    let mut progress = engine.state.progress();
    let mut looks = 0;
    loop {
        let pause = if looks < LOOKS_FOR_THE_END { LOOK_FOR_THE_END } else { LOOK };
        // What is recorded comes with an entry.
        let told_to_go = async {
            while !goes() {
                if progress.changed().await.is_err() {
                    return pending().await;
                }
                sleep(LOOK_FOR_THE_END).await;
            }
            sleep(pause).await;
        };
        let _ = timeout(LOOK, told_to_go).await;
        if engine.is_led() && !goes() || engine.state.term().epoch().is_some() {
            continue;
        }
        let (me, own) = (engine.state.me(), engine.own_group());
        // Those it was told of may have been replaced, too; those they named lead on.
        let told = engine.without().unwrap_or_default();
        let known = own.epoch.max(told.epoch);
        let mut addresses: Vec<_> =
            own.members.iter().chain(&told.members).filter(|member| member.replica != me).collect();
        addresses.sort_by(|a, b| a.address.cmp(&b.address));
        addresses.dedup_by(|a, b| a.address == b.address);
        let asking = join_all(addresses.into_iter().map(|member| probe(&plane, &member.address)));
        let answers: Vec<Probed> = asking.await.into_iter().flatten().collect();
        let said = judge(engine.log, me, known, &answers);
        // Asked meanwhile, and a leader spoke: that counts more, unless it is known how it ends.
        if (!engine.is_led() || goes()) && engine.was_told(said) {
            tracing::warn!(
                node = %plane.config.node,
                "replica {me} is not in the group any more; to add this node again, stop it, move its log directory away and start it"
            );
        }
        looks = if goes() { looks.saturating_add(1) } else { 0 };
    }
}

/// What the newest leader says, if it is not older than what is known. Only a leader knows: others may lag, and not have heard yet of a
/// replica that was just added.
fn judge(log: u128, me: ReplicaId, known: Option<Epoch>, answers: &[Probed]) -> Said {
    let leads = |probed: &&Probed| {
        probed.log == Some(log)
            && probed.group.epoch >= known
            && probed.group.leader().is_some_and(|leader| leader.node == probed.node)
    };
    match answers.iter().filter(leads).max_by_key(|probed| probed.group.epoch) {
        Some(Probed { group, .. }) if group.members.iter().all(|member| member.replica != me) => {
            Said::Out(group.clone())
        }
        Some(_) => Said::In,
        None => Said::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Member;

    fn group(term: u64, leader: u64, members: &[u64]) -> Group {
        let member = |id: &u64| Member {
            replica: ReplicaId(*id),
            node: format!("n{id}").into(),
            address: format!("n{id}:1").into(),
            voter: true,
        };
        Group {
            epoch: Some(Epoch::new(term, leader)),
            leader: Some(ReplicaId(leader)),
            members: members.iter().map(member).collect(),
        }
    }

    fn says(node: u64, log: u128, group: Group) -> Probed {
        let node = format!("n{node}");
        let address = format!("{node}:1").into();
        Probed { node: node.into(), address, nonce: 0, join: Vec::new(), log: Some(log), group }
    }

    #[test]
    fn only_a_leader_of_the_same_log_that_is_not_older_is_believed() {
        let (me, own) = (ReplicaId(3), group(4, 1, &[1, 2, 3]));
        let without = group(4, 1, &[1, 2]);
        let judged = |answers: &[Probed]| judge(7, me, own.epoch, answers);
        assert_eq!(judged(&[says(1, 7, without.clone())]), Said::Out(without.clone()));
        assert_eq!(judged(&[says(2, 7, without.clone())]), Said::Nothing, "a follower may lag");
        assert_eq!(judged(&[says(1, 8, without.clone())]), Said::Nothing, "another log");
        assert_eq!(judged(&[says(1, 7, group(3, 1, &[1, 2]))]), Said::Nothing, "deposed long ago");
        assert_eq!(judged(&[says(1, 7, own.clone())]), Said::In);
        let newer = group(6, 2, &[1, 2, 3]);
        assert_eq!(judged(&[says(1, 7, without), says(2, 7, newer)]), Said::In, "the newest knows best");
        assert_eq!(judged(&[]), Said::Nothing);
    }

    #[test]
    fn that_nobody_leads_is_no_reason_to_forget() {
        let mut without = None;
        assert!(!Said::Nothing.note(&mut without) && without.is_none());
        let (told, later) = (group(4, 1, &[1, 2]), group(5, 2, &[1, 2]));
        assert!(Said::Out(told.clone()).note(&mut without), "news");
        assert!(!Said::Nothing.note(&mut without));
        assert_eq!(without, Some(told));
        assert!(!Said::Out(later.clone()).note(&mut without), "the same with others");
        assert_eq!(without, Some(later));
        assert!(!Said::In.note(&mut without) && without.is_none());
    }
}
