//! Leader duties: detects the end of a term, and proposes what is due: expiries and ends of lock delays.

use crate::counters::add;
use crate::engine::Engine;
use crate::plane::Plane;
use crate::raft;
use convoke_log::Command;
use openraft::async_runtime::watch::WatchReceiver;
use std::sync::Arc;
use std::time::Duration;

/// How often a replica that does not lead checks whether it does.
const IDLE: Duration = Duration::from_millis(500);

/// Ends the term in memory when the engine no longer leads it, and reports the end of the engine.
pub(crate) async fn watch(plane: Arc<Plane>, engine: Arc<Engine>) {
    let mut metrics = engine.raft.metrics();
    let mut led = None;
    loop {
        let (vote, leads, fault) = {
            let metrics = metrics.borrow_watched();
            let fault = metrics.running_state.as_ref().err().map(ToString::to_string);
            (metrics.vote, metrics.state.is_leader(), fault)
        };
        let epoch = (vote.committed && leads).then(|| raft::epoch(&vote.leader_id));
        if engine.state.end_term_if_over(&vote, leads) {
            tracing::info!(node = %plane.config.node, "leadership lost");
        }
        if epoch.is_some() && epoch != led {
            add(&engine.counting.terms_led, 1);
        }
        led = epoch.or(led);
        if let Some(fault) = fault {
            engine.state.end_term();
            engine.state.wake_waiting();
            if !plane.is_stopped() {
                plane.fail(fault);
            }
            return;
        }
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

/// Proposes the expiry of silent sessions and leases (LS6, LE3) and the end of lock delays (LO7), and checks for a majority.
pub(crate) async fn propose_due(engine: Arc<Engine>) {
    loop {
        engine.update_quorum();
        let state = &engine.state;
        let due = state.term().due(state.now(), &state.machine());
        let pause = match due {
            Some((commands, wake)) => {
                for command in commands {
                    match engine.propose(&command) {
                        Ok(_) => match command {
                            Command::EndLease(_) => add(&engine.counting.lease_expiries, 1),
                            Command::Expire(_) => add(&engine.counting.session_expiries, 1),
                            _ => {}
                        },
                        // Retry after another ttl. Otherwise the leader would wait for the result for the rest of the
                        // term, and the session would neither expire nor be renewed.
                        Err(_) => state.term().not_expired(state.now(), &command),
                    }
                }
                wake.since(state.now())
            }
            None => IDLE,
        };
        tokio::time::sleep(pause.max(Duration::from_millis(10))).await;
    }
}
