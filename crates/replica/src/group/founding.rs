//! Making the members of a new log replicas of it.
//!
//! Whoever begins a log has written down with whom before it asks anybody. Each node agrees to be a replica of one log
//! only, durably, before it answers; and nothing is committed without a majority. So whatever crashes in between, there
//! is at most one log that can decide anything.
//!
//! Each is asked until it has agreed, which is written down, and never again: a node that lost its disk since is not to come back under
//! the id with which it has voted (M2). It is replaced.

use super::adopt;
use crate::plane::{Member, Plane};
use convoke_log::command::Replica as Place;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const REMIND: Duration = Duration::from_secs(10);

/// Asks every other member until each has agreed. After a restart it goes on with those who have not.
pub(crate) async fn gather(plane: Arc<Plane>, member: Member) {
    let mut identity = (*member.identity).clone();
    let Some(founding) = &member.identity.founding else { return };
    let others = founding.nodes().filter(|(id, _)| **id != identity.replica && !identity.agreed.contains(id));
    let mut missing: Vec<(u64, Place)> = others.map(|(id, place)| (*id, place.clone())).collect();
    // What it knew before a restart, it knows again before it asks: who was removed meanwhile is not wanted any more.
    let known = member.engine.store.committed().map_or(0, |committed| committed.index + 1);
    if member.engine.reach(known).await.is_err() {
        return;
    }
    let mut reminded = Instant::now();
    while !missing.is_empty() {
        let mut still = Vec::new();
        for (id, place) in missing {
            // Removed in the meantime, or never needed any more.
            if !is_wanted(&member, id) {
                continue;
            }
            match adopt(&plane, &member, id, &place).await {
                Ok(()) => {
                    identity.agreed.insert(id);
                    let saved = plane.disk().map_or(Ok(()), |disk| identity.save(&*disk));
                    if let Err(error) = saved {
                        return plane.fail(format!("cannot write who has agreed to the log: {error}"));
                    }
                }
                Err(error) => {
                    if reminded.elapsed() > REMIND {
                        reminded = Instant::now();
                        tracing::warn!(node = %plane.config.node, "node {} is not yet a replica: {error}", place.node);
                    }
                    still.push((id, place));
                }
            }
        }
        missing = still;
        if !missing.is_empty() {
            sleep(plane.config.timers.join_interval).await;
        }
    }
}

/// Whether a founding member is still to be a replica, as far as is recorded.
fn is_wanted(member: &Member, id: u64) -> bool {
    let machine = member.engine.state.machine();
    let configuration = machine.configuration();
    configuration.number == 0 || configuration.replica(convoke_log::ReplicaId(id)).is_some()
}
