//! Making the members of a new log replicas of it.
//!
//! Whoever begins a log has written down with whom before it asks anybody. Each node agrees to be a replica of one log
//! only, durably, before it answers; and nothing is committed without a majority. So whatever crashes in between, there
//! is at most one log that can decide anything.

use super::adopt;
use crate::plane::{Member, Plane};
use convoke_log::command::Replica as Place;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const REMIND: Duration = Duration::from_secs(10);

/// Asks every other member until each has agreed. Repeated after a restart: those who have agreed do so again.
pub(crate) async fn gather(plane: Arc<Plane>, member: Member) {
    let Some(founding) = &member.identity.founding else { return };
    let me = member.identity.replica;
    let mut missing: Vec<(u64, Place)> =
        founding.nodes().filter(|(id, _)| **id != me).map(|(id, place)| (*id, place.clone())).collect();
    let mut reminded = Instant::now();
    while !missing.is_empty() {
        let mut still = Vec::new();
        for (id, place) in missing {
            // Removed in the meantime, or never needed any more.
            if !is_wanted(&member, id) {
                continue;
            }
            if let Err(error) = adopt(&plane, &member, id, &place).await {
                if reminded.elapsed() > REMIND {
                    reminded = Instant::now();
                    tracing::warn!(node = %plane.config.node, "node {} is not yet a replica: {error}", place.node);
                }
                still.push((id, place));
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
