//! `convoke log add`, `promote`, `demote`, `remove`, `replace`, `transfer`

use super::{ambassador, or_explain};
use crate::args::LogCommand;
use convoke_cli::output::{print, print_json};
use convoke_cli::{CommandError, ConnectArgs, Result};
use convoke_client::log::{Ambassador, ReplicaChange};
use convoke_proto::v1;
use std::time::Duration;
use tokio::time::Instant;

/// Time after which a waiting command starts to report the obstacle.
const FIRST_REPORT: Duration = Duration::from_secs(3);
/// Pause between two reads of the log status.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

pub(super) async fn change(connect: &ConnectArgs, command: &LogCommand, json: bool) -> Result {
    let Some((change, wait, done)) = command.change() else {
        return Err(CommandError::usage("not a change of the group"));
    };
    let log = ambassador(connect)?;
    let deadline = Instant::now() + wait;
    let changed = log.change(&change, wait.min(FIRST_REPORT), Some(connect.timeout)).await;
    let mut changed = or_explain(connect, changed).await?;
    let mut reported = String::new();
    while !changed.settled && Instant::now() < deadline {
        if !changed.obstacle.is_empty() && changed.obstacle != reported {
            eprintln!("convoke: waiting: {}", changed.obstacle);
            reported.clone_from(&changed.obstacle);
        }
        changed = next_state(&log, connect, changed).await;
    }
    if json {
        print_json(&changed)?;
    } else if changed.configuration == 0 {
        print(&format!("{done}\n"))?;
    } else if changed.settled || wait.is_zero() {
        print(&format!("{done}: configuration {}\n", changed.configuration))?;
    }
    if changed.settled || wait.is_zero() {
        return Ok(());
    }
    let why = if changed.obstacle.is_empty() { String::new() } else { format!(" ({})", changed.obstacle) };
    Err(CommandError::failed(format!(
        "configuration {} is committed but has not taken effect yet{why}; the leader keeps trying: see `convoke log status`",
        changed.configuration
    )))
}

/// Returns the state of a change after a pause.
async fn next_state(log: &Ambassador, connect: &ConnectArgs, before: v1::MembersResponse) -> v1::MembersResponse {
    tokio::time::sleep(STATUS_INTERVAL).await;
    // Without a leader there is no news; the next read tries again.
    let Ok(status) = log.status(Some(connect.timeout)).await else { return before };
    let settled = status.settled && status.configuration >= before.configuration;
    v1::MembersResponse { settled, obstacle: status.obstacle, ..before }
}

impl LogCommand {
    /// Returns the change, the time to wait for it, and the message for its completion.
    fn change(&self) -> Option<(ReplicaChange, Duration, String)> {
        Some(match self {
            LogCommand::Add { node, peer_address, wait } => {
                let add = ReplicaChange::Add { node: node.clone(), address: peer_address.address.clone() };
                (add, wait.wait, format!("{node} is a learner"))
            }
            LogCommand::Promote { node, wait } => {
                (ReplicaChange::Promote(node.clone()), wait.wait, format!("{node} is a voter"))
            }
            LogCommand::Demote { node, wait } => {
                (ReplicaChange::Demote(node.clone()), wait.wait, format!("{node} is a learner"))
            }
            LogCommand::Remove { node, wait } => {
                (ReplicaChange::Remove(node.clone()), wait.wait, format!("{node} has left the group"))
            }
            LogCommand::Replace { old, node, peer_address, wait } => {
                let replace = ReplicaChange::Replace {
                    old: old.clone(),
                    node: node.clone(),
                    address: peer_address.address.clone(),
                };
                (replace, wait.wait, format!("{node} has replaced {old}"))
            }
            LogCommand::Transfer { node } => (
                ReplicaChange::Transfer(node.clone()),
                Duration::ZERO,
                format!("the leader transfers leadership to {node}"),
            ),
            _ => return None,
        })
    }
}
