//! Makes the founders of a new log replicas of it.
//!
//! The creating node writes the list of founders to disk before it asks them. Each founder agrees to one log only and
//! writes this to disk before it answers, and nothing commits without a majority. A crash at any point therefore leaves
//! at most one log that can commit entries.
//!
//! The creating node asks each founder until it agrees, records the agreement and never asks again. A founder that lost
//! its disk must not return under an id with which it has voted (M2); it must be replaced.

use super::adopt;
use crate::plane::{LocalReplica, Plane};
use convoke_log::command::ReplicaLocation;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const REMIND: Duration = Duration::from_secs(10);

/// Asks every other founder until each has agreed. After a restart it continues with those that have not.
pub(crate) async fn gather(plane: Arc<Plane>, local: LocalReplica) {
    let mut identity = (*local.identity).clone();
    let Some(founding) = &local.identity.founding else { return };
    let others = founding.nodes().filter(|(id, _)| **id != identity.replica && !identity.agreed.contains(id));
    let mut missing: Vec<(u64, ReplicaLocation)> = others.map(|(id, place)| (*id, place.clone())).collect();
    // Restore the state of before the restart first: a founder that was removed since must not be asked.
    let known = local.engine.store.committed().map_or(0, |committed| committed.index + 1);
    if local.engine.reach(known).await.is_err() {
        return;
    }
    let mut reminded = Instant::now();
    while !missing.is_empty() {
        let mut still = Vec::new();
        for (id, place) in missing {
            // Removed in the meantime.
            if !is_wanted(&local, id) {
                continue;
            }
            match adopt(&plane, &local, id, &place).await {
                Ok(()) => {
                    identity.agreed.insert(id);
                    let saved = plane.disk().map_or(Ok(()), |disk| identity.save(&*disk));
                    if let Err(error) = saved {
                        return plane.fail(format!("cannot record the agreement of a founder: {error}"));
                    }
                }
                Err(error) => {
                    if reminded.elapsed() > REMIND {
                        reminded = Instant::now();
                        tracing::warn!(node = %plane.config.node, founder = %place.node, %error, "founder has not agreed yet");
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

/// Returns whether a founder is still part of the recorded configuration.
fn is_wanted(local: &LocalReplica, id: u64) -> bool {
    let machine = local.engine.state.machine();
    let configuration = machine.configuration();
    configuration.number == 0 || configuration.replica(convoke_log::ReplicaId(id)).is_some()
}
