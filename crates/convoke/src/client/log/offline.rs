//! `convoke log restore` and `convoke log recover`: work on the data directory of a stopped node. Both create a new
//! log.

use crate::args::Offline;
use convoke_cli::output::{counted, print, print_json};
use convoke_cli::{CommandError, Result, exit};
use convoke_replica::offline::{self, OfflineError, Report};
use std::path::Path;

pub(super) async fn restore(offline: &Offline, backup: &Path, json: bool) -> Result {
    let id = id(offline)?;
    let mut state = super::archive::open(backup)?;
    let directory = offline.data_dir.join(crate::config::LOG_DIRECTORY);
    let done = offline::restore(&directory, &id, &offline.address, &mut *state).await;
    print_report(&id, &done.map_err(|error| failed(&error))?, json)
}

pub(super) async fn recover(offline: &Offline, confirmed: Option<&str>, json: bool) -> Result {
    let id = id(offline)?;
    let directory = offline.data_dir.join(crate::config::LOG_DIRECTORY);
    if confirmed != Some(&id) {
        return Err(CommandError::usage(format!(
            "this makes {id} the only replica of a new log. All entries that only other nodes have are LOST, acknowledged or not; \
             other nodes can come back only with an empty {}. If a majority can be brought back, do that instead. \
             To continue: --i-give-up-all-other-nodes {id}",
            directory.display()
        )));
    }
    let done = offline::recover(&directory, &id, &offline.address).await;
    print_report(&id, &done.map_err(|error| failed(&error))?, json)
}

/// Returns the node id of the data directory. Another id is rejected, because the node would not start with it.
fn id(offline: &Offline) -> Result<String> {
    let path = offline.data_dir.display();
    let known = match convoke_node::id_of_data_dir(&offline.data_dir) {
        Some(id) => Some(id),
        None => crate::node::id_of_log(&offline.data_dir)?,
    };
    match (offline.id.clone(), known) {
        (Some(given), Some(known)) if given != known => Err(CommandError::usage(format!(
            "{path} belongs to node {known}, not to {given}: omit --id or use another data directory"
        ))),
        (Some(id), _) | (None, Some(id)) => Ok(id),
        (None, None) => Err(CommandError::usage(format!("{path} contains no node id: set it with --id"))),
    }
}

fn failed(error: &OfflineError) -> CommandError {
    let exit = match error {
        OfflineError::NoLog { .. } | OfflineError::NotEmpty { .. } => exit::REJECTED,
        _ => exit::FAILED,
    };
    CommandError { exit, message: error.to_string() }
}

fn print_report(id: &str, report: &Report, json: bool) -> Result {
    let (log, applied) = (format!("{:032x}", report.log), report.applied.index);
    if json {
        return print_json(&serde_json::json!({
            "node": id,
            "log": log,
            "applied": applied,
            "revision": report.revision,
            "keys": report.keys,
            "sessions": report.sessions,
            "uncommitted": report.uncommitted,
            "kept_in": report.kept_in,
        }));
    }
    let mut text = format!(
        "{id} is the only replica of a new log {log}: {}, revision {}, all entries up to index {applied} of the old one\n",
        counted(report.keys, "key"),
        report.revision
    );
    if report.uncommitted > 0 {
        text += &format!(
            "it includes {} not known to be committed; some of them may never have been acknowledged\n",
            counted(report.uncommitted, "entry").replace("entrys", "entries")
        );
    }
    if let Some(path) = &report.kept_in {
        text += &format!("the old log is kept in {}\n", path.display());
    }
    text += "start the node; other nodes join with an empty log directory and are added with `convoke log add`\n";
    print(&text)
}
