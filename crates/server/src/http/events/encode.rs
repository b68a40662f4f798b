//! Events in the format of server-sent events.

use super::place::Place;
use convoke_core::node::Event;
use convoke_node::{MemberChange, NodeEvent, TimelineEvent};
use serde::Serialize;
use std::fmt::Write;

#[derive(Serialize)]
struct Reset {
    reason: &'static str,
}

#[derive(Serialize)]
struct CaughtUp {}

#[derive(Serialize)]
struct Missed {
    count: u64,
}

/// Something that happened to the node or its peers.
#[derive(Serialize)]
struct NodeEventJson<'a> {
    /// UNIX milliseconds.
    at: u64,
    /// The peer or member it is about; empty if it is about the node itself.
    subject: &'a str,
    /// Unexpected, as opposed to the ordinary course of things.
    warning: bool,
    text: String,
}

/// Something that happened to a member.
#[derive(Serialize)]
struct MemberEvent<'a> {
    at: u64,
    id: &'a str,
    service: &'a str,
    status: &'static str,
    drained: bool,
    /// Id of the node.
    owner: &'a str,
    version: String,
}

pub(super) fn reset(text: &mut String, place: &Place) {
    write(text, "reset", place, &Reset { reason: "another-run" });
}

pub(super) fn caught_up(text: &mut String, place: &Place) {
    write(text, "caught-up", place, &CaughtUp {});
}

pub(super) fn missed(text: &mut String, place: &Place, count: u64) {
    write(text, "missed", place, &Missed { count });
}

pub(super) fn happening(text: &mut String, place: &Place, event: &TimelineEvent) {
    let what = &event.what;
    let told =
        NodeEventJson { at: event.wall_ms, subject: subject(what), warning: what.is_warning(), text: what.to_string() };
    write(text, "node", place, &told);
}

pub(super) fn change(text: &mut String, place: &Place, change: &MemberChange) {
    let member = &change.member;
    let told = MemberEvent {
        at: change.wall_ms,
        id: member.id(),
        service: member.service(),
        status: member.status().as_str(),
        drained: member.drained(),
        owner: member.origin().node.as_str(),
        version: member.version().to_string(),
    };
    write(text, change.kind.as_str(), place, &told);
}

fn write(text: &mut String, event: &str, place: &Place, data: &impl Serialize) {
    // Texts and numbers: nothing in them cannot be written.
    let data = serde_json::to_string(data).unwrap_or_default();
    let _ = write!(text, "event: {event}\nid: {place}\ndata: {data}\n\n");
}

fn subject(what: &NodeEvent) -> &str {
    let NodeEvent::Registry(event) = what else { return "" };
    match event {
        Event::PeerUp { node }
        | Event::PeerLost { node, .. }
        | Event::PeerFailed { node, .. }
        | Event::PeerLeft { node }
        | Event::PeerRejected { node: Some(node), .. } => node.as_str(),
        Event::OriginSilent { origin } | Event::OriginReturned { origin } | Event::OriginRetired { origin } => {
            origin.node.as_str()
        }
        Event::FullMerge { from, .. } | Event::Exchanged { from, .. } => from.as_str(),
        Event::Conflict { id, .. } => id,
        Event::NameLost { name, .. } => name,
        Event::PeerRejected { node: None, .. }
        | Event::IdInUse { .. }
        | Event::Ready { .. }
        | Event::Degraded { .. }
        | Event::DegradedEnded { .. }
        | Event::Late { .. } => "",
    }
}
