//! A replica that was taken out of the group is told nothing: nobody speaks to it any more. When it hears no leader, it asks.

use super::probe;
use crate::engine::Engine;
use crate::net::message::Probed;
use crate::plane::Plane;
use crate::status::Group;
use convoke_log::ReplicaId;
use futures_util::future::join_all;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How often it asks.
const LOOK: Duration = Duration::from_secs(2);
/// The same while it knows that it is to go: whoever has asked for that waits.
const LOOK_FOR_THE_END: Duration = Duration::from_millis(200);

/// Asks the others of the group while no leader is heard, or while it waits to be let go.
pub(crate) async fn look(plane: Arc<Plane>, engine: Arc<Engine>) {
    let goes = || engine.is_recorded_out() && engine.without().is_none();
    let mut progress = engine.state.progress();
    loop {
        // What is recorded comes with an entry.
        let told_to_go = async {
            while !goes() {
                if progress.changed().await.is_err() {
                    return pending().await;
                }
                sleep(LOOK_FOR_THE_END).await;
            }
            sleep(LOOK_FOR_THE_END).await;
        };
        let _ = timeout(LOOK, told_to_go).await;
        if engine.is_led() && !goes() || engine.state.term().epoch().is_some() {
            continue;
        }
        let (me, own) = (engine.state.me(), engine.own_group());
        // Those it was told of may have been replaced, too; those they named lead on.
        let told = engine.without().unwrap_or_default();
        let mut addresses: Vec<_> =
            own.members.iter().chain(&told.members).filter(|member| member.replica != me).collect();
        addresses.sort_by(|a, b| a.address.cmp(&b.address));
        addresses.dedup_by(|a, b| a.address == b.address);
        let asking = join_all(addresses.into_iter().map(|member| probe(&plane, &member.address)));
        let answers: Vec<Probed> = asking.await.into_iter().flatten().collect();
        let found = judge(engine.log, me, &own, &answers);
        // Asked meanwhile, and a leader spoke: that counts more, unless it is known how it ends.
        if (!engine.is_led() || goes()) && engine.goes_on_without(found) {
            tracing::warn!(
                node = %plane.config.node,
                "replica {me} is not in the group any more; to add this node again, stop it, move its log directory away and start it"
            );
        }
    }
}

/// The group, if its leader says that it is one without this replica. Only a leader knows: others may lag, and not have heard yet of a
/// replica that was just added.
fn judge(log: u128, me: ReplicaId, own: &Group, answers: &[Probed]) -> Option<Group> {
    let leads = |probed: &&Probed| {
        probed.log == Some(log)
            && probed.group.epoch >= own.epoch
            && probed.group.leader().is_some_and(|leader| leader.node == probed.node)
    };
    let newest = answers.iter().filter(leads).max_by_key(|probed| probed.group.epoch)?;
    let group = &newest.group;
    group.members.iter().all(|member| member.replica != me).then(|| group.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Member;
    use convoke_log::Epoch;

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
        assert_eq!(judge(7, me, &own, &[says(1, 7, without.clone())]), Some(without.clone()));
        assert_eq!(judge(7, me, &own, &[says(2, 7, without.clone())]), None, "a follower may lag");
        assert_eq!(judge(7, me, &own, &[says(1, 8, without.clone())]), None, "another log");
        assert_eq!(judge(7, me, &own, &[says(1, 7, group(3, 1, &[1, 2]))]), None, "deposed long ago");
        assert_eq!(judge(7, me, &own, &[says(1, 7, own.clone())]), None, "it is still in it");
        let newer = group(6, 2, &[1, 2, 3]);
        assert_eq!(judge(7, me, &own, &[says(1, 7, without), says(2, 7, newer)]), None, "the newest knows best");
        assert_eq!(judge(7, me, &own, &[]), None);
    }
}
