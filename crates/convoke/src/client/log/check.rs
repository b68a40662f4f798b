//! `convoke log check`: reads the log of a stopped node.

use convoke_cli::output::{Palette, Style, facts, print, print_json};
use convoke_cli::{CommandError, Result, exit};
use convoke_replica::check::{CutTail, LogCheck, LogFinding};
use convoke_replica::offline::OfflineError;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

pub(super) fn check(directory: &Path, cut_tail: bool, json: bool) -> Result {
    let directory = log_directory(directory);
    let cut = if cut_tail { convoke_replica::check::cut_tail(&directory).map_err(failed)? } else { None };
    let found = convoke_replica::check::check(&directory).map_err(failed)?;
    if json {
        print_json(&as_json(&found, cut.as_ref()))?;
    } else {
        print(&render(&found, cut_tail.then_some(cut.as_ref()), Palette::of_stdout()))?;
    }
    if found.damage.is_empty() { Ok(()) } else { Err(CommandError::failed(advice(&found))) }
}

/// Returns the directory of the log in a data directory, or the directory itself.
fn log_directory(given: &Path) -> PathBuf {
    let inner = given.join(crate::config::LOG_DIRECTORY);
    if inner.is_dir() { inner } else { given.to_owned() }
}

fn failed(error: OfflineError) -> CommandError {
    match error {
        OfflineError::NoLog { path } => {
            let message = format!("{} contains no log (give the data directory of a node)", path.display());
            CommandError { exit: exit::NOT_FOUND, message }
        }
        error => CommandError::failed(error.to_string()),
    }
}

/// Returns what to do about damage.
fn advice(found: &LogCheck) -> String {
    let node = found.identity.as_ref().map_or("NODE", |(_, _, node)| node.as_str());
    format!(
        "the log is damaged: move its directory away, start the node and run `convoke log replace {node} {node}`; if an \
         unsynced tail is the only damage, for example after a power failure of all nodes, cut it with --cut-tail"
    )
}

fn as_json(found: &LogCheck, cut: Option<&CutTail>) -> Value {
    let finding = |finding: &LogFinding| json!({ "path": finding.path, "what": finding.what });
    json!({
        "node": found.identity.as_ref().map(|(_, _, node)| node),
        "log": found.identity.as_ref().map(|(log, _, _)| format!("{log:032x}")),
        "replica": found.identity.as_ref().map(|(_, replica, _)| replica.0),
        "segments": found.segments,
        "snapshot": found.snapshot,
        "last": found.last,
        "committed": found.committed,
        "purged": found.purged,
        "term": found.term,
        "tear": found.tear.as_ref().map(finding),
        "damage": found.damage.iter().map(finding).collect::<Vec<_>>(),
        "cut": cut.map(|cut| json!({
            "path": cut.path, "before": cut.before, "after": cut.after, "kept_in": cut.kept_in,
        })),
    })
}

/// `cut` is the result of a cut, if one was asked for.
fn render(found: &LogCheck, cut: Option<Option<&CutTail>>, palette: Palette) -> String {
    let mut lines = Vec::new();
    match cut {
        Some(Some(cut)) => lines.push((
            "Cut",
            format!(
                "{} from {} to {} bytes; rest in {}",
                cut.path.display(),
                cut.before,
                cut.after,
                cut.kept_in.display()
            ),
        )),
        Some(None) => lines.push(("Cut", "nothing to cut".to_owned())),
        None => {}
    }
    lines.push((
        "Replica",
        match &found.identity {
            Some((log, replica, node)) => format!("{replica} of log {log:032x} on node {node}"),
            None => palette.paint(Style::Bad, "unknown"),
        },
    ));
    lines.push((
        "Entries",
        format!(
            "{} in {} segments, {} committed, {} purged, snapshot at {}, term {}",
            found.last, found.segments, found.committed, found.purged, found.snapshot, found.term
        ),
    ));
    if let Some(tear) = &found.tear {
        lines.push(("Tear", format!("{}: {}", tear.path.display(), tear.what)));
    }
    for damage in &found.damage {
        lines.push(("Damage", palette.paint(Style::Bad, &format!("{}: {}", damage.path.display(), damage.what))));
    }
    if found.damage.is_empty() {
        lines.push(("Result", palette.paint(Style::Good, "no damage")));
    }
    facts(&lines, palette)
}
