//! `convoke log add`, `promote`, `demote`, `remove`, `replace`, `transfer`

use super::{ambassador, asked};
use crate::args::{Connect, LogCommand};
use crate::failure::{Failure, Outcome};
use crate::output::{print, print_json};
use convoke_client::log::Change;
use std::time::Duration;

pub(super) async fn change(connect: &Connect, command: &LogCommand, json: bool) -> Outcome {
    let Some((change, wait, done)) = command.change() else {
        return Err(Failure::usage("this is no change of the group"));
    };
    let changed = ambassador(connect)?.change(&change, wait, Some(connect.timeout)).await;
    let changed = asked(connect, changed).await?;
    if json {
        print_json(&changed)?;
    } else if changed.configuration == 0 {
        print(&format!("{done}\n"))?;
    } else {
        print(&format!("{done}: configuration {}\n", changed.configuration))?;
    }
    if changed.settled || wait.is_zero() {
        return Ok(());
    }
    Err(Failure::failed(
        "it is recorded, but the group has not arrived there yet; the leader goes on trying: see `convoke log status`",
    ))
}

impl LogCommand {
    /// The change, how long to wait for it, and what to say when it is done.
    fn change(&self) -> Option<(Change, Duration, String)> {
        Some(match self {
            LogCommand::Add { node, place, wait } => {
                let add = Change::Add { node: node.clone(), address: place.address.clone() };
                (add, wait.wait, format!("{node} is a learner"))
            }
            LogCommand::Promote { node, wait } => {
                (Change::Promote(node.clone()), wait.wait, format!("{node} is a voter"))
            }
            LogCommand::Demote { node, wait } => {
                (Change::Demote(node.clone()), wait.wait, format!("{node} is a learner"))
            }
            LogCommand::Remove { node, wait } => {
                (Change::Remove(node.clone()), wait.wait, format!("{node} has left the group"))
            }
            LogCommand::Replace { old, node, place, wait } => {
                let replace = Change::Replace { old: old.clone(), node: node.clone(), address: place.address.clone() };
                (replace, wait.wait, format!("{node} has the place of {old}"))
            }
            LogCommand::Transfer { node } => {
                (Change::Transfer(node.clone()), Duration::ZERO, format!("the leader was asked to hand over to {node}"))
            }
            _ => return None,
        })
    }
}
