//! `convoke kv watch`: changes of keys, one per line, or one run of a command for each.

use super::keys::printable;
use convoke_cli::output::{Palette, Style, print, print_json, stdout_closed};
use convoke_cli::{CommandError, Result, Signals};
use convoke_client::log::{KeyChange, KeyValue, KeyWatchEvent, Kv, WatchKeys};
use convoke_proto::json;
use serde::Serialize;
use std::ffi::OsString;
use std::process::Stdio;
use tokio::io::AsyncWriteExt;

/// Runs until a signal arrives or stdout is closed.
pub(super) async fn watch(kv: &Kv, keys: WatchKeys, command: &[OsString], json: bool) -> Result {
    let mut signals = Signals::listen()?;
    tokio::select! {
        shown = follow(kv, keys, command, json) => shown,
        () = stdout_closed() => Ok(()),
        _ = signals.next() => Ok(()),
    }
}

async fn follow(kv: &Kv, keys: WatchKeys, command: &[OsString], json: bool) -> Result {
    let palette = Palette::of_stdout();
    let mut watch = kv.watch(keys);
    while let Some(event) = watch.next().await {
        let event = event?;
        if !command.is_empty() {
            run_for(command, &event).await?;
        } else if json {
            if let Some(line) = as_json(event) {
                print_json(&line)?;
            }
        } else if let Some(line) = line(&event, palette) {
            print(&line)?;
        }
    }
    Err(CommandError::failed("the watch ended"))
}

/// A line of `--json`: the event of the HTTP API and its data.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    Put(json::KeyPut),
    Delete(json::KeyDeleted),
    Reset { reason: &'static str, revision: u64, keys: Vec<json::KeyValue> },
}

fn as_json(event: KeyWatchEvent) -> Option<Line> {
    match event {
        KeyWatchEvent::Progress { .. } => None,
        KeyWatchEvent::Reset { reason, revision, records } => {
            let keys = records.into_iter().map(json::KeyValue::from).collect();
            Some(Line::Reset { reason: reason.as_str(), revision, keys })
        }
        KeyWatchEvent::Change(KeyChange { revision, last, key, record, previous }) => {
            let prev = previous.map(json::KeyValue::from);
            match record {
                Some(record) => Some(Line::Put(json::KeyPut { revision, last, record: record.into(), prev })),
                None => {
                    let deleted = json::KeyValue::from(KeyValue { key, ..KeyValue::default() });
                    let json::KeyValue { key, key_base64, .. } = deleted;
                    Some(Line::Delete(json::KeyDeleted { revision, last, key, key_base64, prev }))
                }
            }
        }
    }
}

fn line(event: &KeyWatchEvent, palette: Palette) -> Option<String> {
    let (name, style, revision, detail) = match event {
        KeyWatchEvent::Progress { .. } => return None,
        KeyWatchEvent::Reset { reason, revision, records } => {
            let why = format!("{}: {} keys now; changes may be missing", reason.as_str(), records.len());
            ("reset", Style::Doubtful, *revision, why)
        }
        KeyWatchEvent::Change(change) => {
            let key = printable(&change.key, 200);
            let previous = change.previous.as_ref().map(|record| printable(&record.value, 200));
            let previous = previous.map(|value| format!(" (was {value})")).unwrap_or_default();
            match &change.record {
                Some(record) => (
                    "put",
                    Style::Good,
                    change.revision,
                    format!("{key} = {}{previous}", printable(&record.value, 200)),
                ),
                None => ("delete", Style::Bad, change.revision, format!("{key}{previous}")),
            }
        }
    };
    Some(format!("{revision:>8}  {}  {detail}\n", palette.paint(style, &format!("{name:<6}"))))
}

/// Runs the command for a change or a reset, and waits for it. Its failure ends the watch.
async fn run_for(command: &[OsString], event: &KeyWatchEvent) -> Result {
    let (name, key, revision, value) = match event {
        KeyWatchEvent::Progress { .. } => return Ok(()),
        KeyWatchEvent::Reset { revision, .. } => ("reset", String::new(), *revision, Vec::new()),
        KeyWatchEvent::Change(change) => {
            let key = String::from_utf8_lossy(&change.key).into_owned();
            match &change.record {
                Some(record) => ("put", key, change.revision, record.value.to_vec()),
                None => ("delete", key, change.revision, Vec::new()),
            }
        }
    };
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let failed =
        |error: std::io::Error| CommandError::failed(format!("cannot run {}: {error}", program.to_string_lossy()));
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
        .env("CONVOKE_EVENT", name)
        .env("CONVOKE_KEY", key)
        .env("CONVOKE_REVISION", revision.to_string())
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(error).of_wrapper())?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read its input may close it.
        let _ = stdin.write_all(&value).await;
    }
    let status = child.wait().await.map_err(|error| failed(error).of_wrapper())?;
    if status.success() {
        return Ok(());
    }
    let exit = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(convoke_cli::exit::WRAPPER);
    Err(CommandError {
        exit,
        message: format!("{} failed for {name} at revision {revision}", program.to_string_lossy()),
    })
}
