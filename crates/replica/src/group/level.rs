//! Raises the feature level of the log while this replica leads (V3).
//!
//! The leader probes all replicas for the level that they support, and proposes the next level when the policy of the
//! log allows it. A log at the highest level needs no probes.

use super::probe;
use crate::engine::Engine;
use crate::handle::LogHandle;
use crate::plane::Plane;
use crate::rejection::{ChangeError, LogRejection, SubmitError};
use convoke_log::leader::{HeldBackBy, LevelPace, LevelVerdict};
use convoke_log::machine::{NotRaised, Reply};
use convoke_log::{Command, Level, ReplicaId};
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How often a leader probes the replicas.
const INTERVAL: Duration = Duration::from_secs(5);

/// Runs until the log stops. It acts only while this replica leads.
pub(crate) async fn keep(plane: Arc<Plane>, engine: Arc<Engine>) {
    loop {
        if engine.state.term().epoch().is_some() && engine.state.machine().level() < plane.config.supported {
            let pace = if plane.config.hold_level { LevelPace::Hold } else { LevelPace::Automatic };
            let obstacle = match advance(&plane, &engine, pace).await {
                Ok(LevelVerdict::Highest | LevelVerdict::Propose(_)) => None,
                Ok(verdict) => Some(describe(&engine, &verdict)),
                Err(error) => Some(error.to_string()),
            };
            plane.set_level_obstacle(obstacle);
        } else {
            plane.set_level_obstacle(None);
        }
        sleep(INTERVAL).await;
    }
}

/// Probes all replicas and raises the level if the policy allows it. Returns the verdict that it acted on.
async fn advance(plane: &Arc<Plane>, engine: &Arc<Engine>, pace: LevelPace) -> Result<LevelVerdict, SubmitError> {
    let state = &engine.state;
    let machine = state.machine();
    let me = state.me();
    let replicas: Vec<(ReplicaId, String)> = machine
        .configuration()
        .replicas()
        .filter(|(replica, _)| *replica != me)
        .map(|(replica, place)| {
            let address = plane.current_address(&place.node).unwrap_or_else(|| place.address.clone());
            (replica, address.into())
        })
        .collect();
    let answers = join_all(replicas.iter().map(|(_, address)| probe(plane, address))).await;
    let verdict = {
        let (now, mut term) = (state.now(), state.term());
        term.report_level(now, me, plane.config.supported);
        let mut silent = Vec::new();
        for ((replica, _), answer) in replicas.iter().zip(answers) {
            match answer {
                Ok(probed) => term.report_level(now, *replica, probed.level),
                Err(_) => silent.push(HeldBackBy { replica: *replica, supported: None }),
            }
        }
        let verdict = term.level(now, &state.machine(), pace, &plane.config.state.coordination);
        match verdict.ok_or_else(|| engine.not_leading())? {
            // A node that does not answer now may start an earlier version next.
            LevelVerdict::Propose(raise) if !silent.is_empty() => {
                LevelVerdict::HeldBack { level: raise.level, by: silent }
            }
            verdict => verdict,
        }
    };
    if let LevelVerdict::Propose(raise) = &verdict {
        let level = raise.level;
        match engine.decide(&Command::Raise(raise.clone())).await?.reply {
            Reply::Raised(Ok(_)) => {
                tracing::info!(node = %plane.config.node, %level, "feature level of the log raised");
            }
            Reply::Raised(Err(NotRaised::StaleEpoch { current })) => {
                return Err(LogRejection::StaleEpoch { current }.into());
            }
            Reply::Raised(Err(NotRaised::Reconfigured { .. })) => return Err(LogRejection::ChangeInProgress.into()),
            other => unreachable!("a raise is answered as one, not with {other:?}"),
        }
    }
    Ok(verdict)
}

/// Describes why the level is not raised now.
fn describe(engine: &Engine, verdict: &LevelVerdict) -> String {
    match verdict {
        LevelVerdict::Highest | LevelVerdict::Propose(_) => String::new(),
        LevelVerdict::Waiting { level, until } => {
            let left = until.since(engine.state.now());
            format!("all replicas support level {level}; the leader raises it in {} s", left.as_secs().max(1))
        }
        LevelVerdict::Held { level } => {
            format!("all replicas support level {level}; `log.hold_level` is set, raise it with `convoke log upgrade`")
        }
        LevelVerdict::HeldBack { level, by } => {
            let machine = engine.state.machine();
            let node = |replica: ReplicaId| machine.configuration().replica(replica).map(|place| place.node.clone());
            let each = |held: &HeldBackBy| {
                let node = node(held.replica).unwrap_or_else(|| held.replica.to_string().into());
                match held.supported {
                    Some(supported) => format!("node {node} supports level {supported}"),
                    None => format!("node {node} has not answered"),
                }
            };
            let by: Vec<String> = by.iter().map(each).collect();
            format!("level {level} is held back: {}", by.join(", "))
        }
    }
}

impl LogHandle {
    /// Raises the log to the highest feature level that all replicas support, without waiting. Returns the level. Only
    /// the leader can.
    pub async fn upgrade(&self) -> Result<Level, ChangeError> {
        let engine = self.engine().map_err(SubmitError::from)?;
        loop {
            match advance(&self.plane, &engine, LevelPace::AtOnce).await? {
                LevelVerdict::Highest => return Ok(engine.state.machine().level()),
                LevelVerdict::Propose(_) => {}
                verdict => {
                    let level = Level(engine.state.machine().level().0 + 1);
                    return Err(ChangeError::HeldBack { level, why: describe(&engine, &verdict) });
                }
            }
        }
    }
}
