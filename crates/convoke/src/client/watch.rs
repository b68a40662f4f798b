//! `convoke watch`: changes of members, one per line.

use super::members::state;
use crate::args::{WatchArgs, filter_of};
use convoke_cli::output::{Palette, Style, clock_time, print, print_json, stdout_closed, unix_ms};
use convoke_cli::{CommandError, Result, Signals, attach, report_connection};
use convoke_client::{Client, Event, Member, ResetReason};
use convoke_core::member::ChangeKind;
use serde::Serialize;

/// Runs until a signal arrives or stdout is closed. If the node is lost, the watch resumes at another one without a
/// gap.
pub(crate) async fn watch(arguments: &WatchArgs) -> Result {
    let mut signals = Signals::listen()?;
    let client = tokio::select! {
        client = attach(&arguments.inspect.connect, Client::builder()) => client?,
        _ = signals.next() => return Ok(()),
    };
    let filter = filter_of(arguments.filter.as_deref(), arguments.service.as_deref());
    let shown = tokio::select! {
        shown = show(&client, &filter, arguments.inspect.json) => shown,
        never = report_connection(&client) => match never {},
        () = stdout_closed() => Ok(()),
        _ = signals.next() => Ok(()),
    };
    // The client has no members, so an error of closing does not matter.
    tokio::select! {
        _ = client.close() => shown,
        _ = signals.next() => shown,
    }
}

async fn show(client: &Client, filter: &str, json: bool) -> Result {
    let palette = Palette::of_stdout();
    let mut watch = client.watch(filter)?;
    while let Some(event) = watch.next().await {
        let at = unix_ms();
        if json {
            print_json(&as_json(at, &event))?;
        } else {
            print(&line(at, &event, palette))?;
        }
    }
    Err(watch.failure().map_or_else(|| CommandError::failed("the watch ended"), |error| error.clone().into()))
}

/// The event names of the HTTP API.
fn name(event: &Event) -> (&'static str, Style) {
    match event {
        Event::Snapshot(_) => ("snapshot", Style::Dim),
        Event::CaughtUp => ("caught-up", Style::Dim),
        Event::Registered(_) => (ChangeKind::Registered.as_str(), Style::Good),
        Event::Updated(_) => (ChangeKind::Updated.as_str(), Style::Plain),
        Event::StatusChanged(_) => (ChangeKind::StatusChanged.as_str(), Style::Doubtful),
        Event::OwnerChanged(_) => (ChangeKind::OwnerChanged.as_str(), Style::Plain),
        Event::Unregistered { .. } => (ChangeKind::Unregistered.as_str(), Style::Bad),
        Event::Reset(_) => ("reset", Style::Doubtful),
    }
}

/// `at` is the time at which this command received the event.
fn line(at: u64, event: &Event, palette: Palette) -> String {
    let (name, style) = name(event);
    let detail = match event {
        Event::CaughtUp => String::new(),
        Event::Reset(reason) => why(*reason).to_owned(),
        Event::Unregistered { member, .. } => format!("{:<16}  {}", member.id, member.service),
        Event::Snapshot(member)
        | Event::Registered(member)
        | Event::Updated(member)
        | Event::StatusChanged(member)
        | Event::OwnerChanged(member) => describe(member, palette),
    };
    let padded = format!("{name:<10}");
    let at = clock_time(at);
    format!("{}  {}  {detail}", palette.paint(Style::Dim, &at), palette.paint(style, &padded)).trim_end().to_owned()
        + "\n"
}

fn describe(member: &Member, palette: Palette) -> String {
    let (word, style) = state(member);
    let padded = format!("{word:<4}");
    let mut text = format!("{:<16}  {:<12}  {}", member.id, member.service, palette.paint(style, &padded));
    if !member.address.is_empty() {
        text += &format!("  {}", member.address);
    }
    text += &format!("  owner={}", member.owner.node);
    for (key, value) in &member.metadata {
        text += &format!("  {key}={value}");
    }
    text
}

fn why(reason: ResetReason) -> &'static str {
    match reason {
        ResetReason::SlowReader => "the output was read too slowly",
        ResetReason::TooOld => "disconnected for longer than nodes keep the history",
        ResetReason::NodeBehind => "the node has not received all changes shown here",
        ResetReason::Interrupted => "the connection was lost",
    }
}

/// The data of the HTTP API with the event name.
#[derive(Serialize)]
struct Line<'a> {
    /// When this command received the event, in UNIX milliseconds.
    at: u64,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<&'a Member>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

fn as_json(at: u64, event: &Event) -> Line<'_> {
    let line = Line { at, event: name(event).0, member: None, id: None, version: None, reason: None };
    match event {
        Event::CaughtUp => line,
        Event::Reset(reason) => Line { reason: Some(why(*reason)), ..line },
        Event::Unregistered { member, version } => Line { id: Some(&member.id), version: Some(version), ..line },
        Event::Snapshot(member)
        | Event::Registered(member)
        | Event::Updated(member)
        | Event::StatusChanged(member)
        | Event::OwnerChanged(member) => Line { member: Some(member), ..line },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::members::tests::member;
    use convoke_client::Status;
    use convoke_testkit::golden;
    use std::sync::Arc;

    #[test]
    fn one_line_per_event() {
        let shown = |status, drained| Arc::new(member("orders-1", status, drained));
        let events = [
            Event::Snapshot(shown(Status::Up, false)),
            Event::CaughtUp,
            Event::Registered(shown(Status::Up, false)),
            Event::Updated(shown(Status::Up, true)),
            Event::StatusChanged(shown(Status::Down, false)),
            Event::OwnerChanged(shown(Status::Up, false)),
            Event::Unregistered { member: shown(Status::Up, false), version: "4.1.0000abcd".into() },
            Event::Reset(ResetReason::TooOld),
        ];
        let at = 1_794_895_854_999;
        let text: String = events.iter().map(|event| line(at, event, Palette::PLAIN)).collect();
        golden!("golden/watch.txt", &text);
        let json: Vec<String> =
            events.iter().map(|event| serde_json::to_string(&as_json(at, event)).unwrap()).collect();
        golden!("golden/watch.jsonl", &(json.join("\n") + "\n"));
    }
}
