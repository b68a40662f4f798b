//! `convoke log add`, `promote`, `demote`, `remove`, `replace`, `transfer`

use super::{ambassador, asked};
use crate::args::LogCommand;
use convoke_cli::output::{print, print_json};
use convoke_cli::{CommandError, ConnectArgs, Result};
use convoke_client::log::{Ambassador, ReplicaChange};
use convoke_proto::v1;
use std::time::Duration;
use tokio::time::Instant;

/// After so long somebody who waits is told what for.
const FIRST_LOOK: Duration = Duration::from_secs(3);
/// Pause between two looks at the status of the log.
const LOOK: Duration = Duration::from_millis(500);

pub(super) async fn change(connect: &ConnectArgs, command: &LogCommand, json: bool) -> Result {
    let Some((change, wait, done)) = command.change() else {
        return Err(CommandError::usage("not a change of the group"));
    };
    let log = ambassador(connect)?;
    let deadline = Instant::now() + wait;
    let changed = log.change(&change, wait.min(FIRST_LOOK), Some(connect.timeout)).await;
    let mut changed = asked(connect, changed).await?;
    let mut said = String::new();
    while !changed.settled && Instant::now() < deadline {
        if !changed.obstacle.is_empty() && changed.obstacle != said {
            eprintln!("convoke: waiting: {}", changed.obstacle);
            said.clone_from(&changed.obstacle);
        }
        changed = look(&log, connect, changed).await;
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

/// What has become of a change, a moment later.
async fn look(log: &Ambassador, connect: &ConnectArgs, before: v1::MembersResponse) -> v1::MembersResponse {
    tokio::time::sleep(LOOK).await;
    // Without a leader there is nothing to say: it is looked for again.
    let Ok(status) = log.status(Some(connect.timeout)).await else { return before };
    let settled = status.settled && status.configuration >= before.configuration;
    v1::MembersResponse { settled, obstacle: status.obstacle, ..before }
}

impl LogCommand {
    /// The change, how long to wait for it, and what to say when it is done.
    fn change(&self) -> Option<(ReplicaChange, Duration, String)> {
        Some(match self {
            LogCommand::Add { node, place, wait } => {
                let add = ReplicaChange::Add { node: node.clone(), address: place.address.clone() };
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
            LogCommand::Replace { old, node, place, wait } => {
                let replace =
                    ReplicaChange::Replace { old: old.clone(), node: node.clone(), address: place.address.clone() };
                (replace, wait.wait, format!("{node} has the place of {old}"))
            }
            LogCommand::Transfer { node } => (
                ReplicaChange::Transfer(node.clone()),
                Duration::ZERO,
                format!("the leader was asked to hand over to {node}"),
            ),
            _ => return None,
        })
    }
}
