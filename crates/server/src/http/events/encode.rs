//! The events of the node and of its members as server-sent events.

use super::position::HistoryPosition;
use crate::http::sse::{self, CaughtUp, Reset};
use convoke_core::node::RegistryEvent;
use convoke_node::{MemberChange, NodeEvent, TimelineEvent};
use serde::Serialize;

#[derive(Serialize)]
struct Missed {
    count: u64,
}

/// An event of the node or its peers.
#[derive(Serialize)]
struct NodeEventJson<'a> {
    /// UNIX milliseconds.
    at: u64,
    /// The peer or member concerned; empty for an event of the node itself.
    subject: &'a str,
    /// Whether the event is unexpected and may need attention.
    warning: bool,
    text: String,
}

/// An event of a member.
#[derive(Serialize)]
struct MemberEvent<'a> {
    at: u64,
    id: &'a str,
    service: &'a str,
    status: &'static str,
    drained: bool,
    health: &'static str,
    /// Id of the owner node.
    owner: &'a str,
    version: String,
}

pub(super) fn reset(text: &mut String, position: &HistoryPosition) {
    write(text, "reset", position, &Reset { reason: "another-incarnation" });
}

pub(super) fn caught_up(text: &mut String, position: &HistoryPosition) {
    write(text, "caught-up", position, &CaughtUp {});
}

pub(super) fn missed(text: &mut String, position: &HistoryPosition, count: u64) {
    write(text, "missed", position, &Missed { count });
}

pub(super) fn node_event(text: &mut String, position: &HistoryPosition, event: &TimelineEvent) {
    let what = &event.what;
    let json =
        NodeEventJson { at: event.wall_ms, subject: subject(what), warning: what.is_warning(), text: what.to_string() };
    write(text, "node", position, &json);
}

pub(super) fn change(text: &mut String, position: &HistoryPosition, change: &MemberChange) {
    let member = &change.member;
    let json = MemberEvent {
        at: change.wall_ms,
        id: member.id(),
        service: member.service(),
        status: member.status().as_str(),
        drained: member.drained(),
        health: member.health().as_str(),
        owner: member.origin().node.as_str(),
        version: member.version().to_string(),
    };
    write(text, change.kind.as_str(), position, &json);
}

fn write(text: &mut String, event: &str, position: &HistoryPosition, data: &impl Serialize) {
    sse::write_event(text, event, |text| position.write(text), |text| text.push_str(&sse::json(data)));
}

fn subject(what: &NodeEvent) -> &str {
    let NodeEvent::Registry(event) = what else { return "" };
    match event {
        RegistryEvent::PeerUp { node }
        | RegistryEvent::PeerLost { node, .. }
        | RegistryEvent::PeerFailed { node, .. }
        | RegistryEvent::PeerLeft { node }
        | RegistryEvent::Diverged { node }
        | RegistryEvent::DivergenceEnded { node }
        | RegistryEvent::IdDisputed { by: node, .. }
        | RegistryEvent::Joined { node: Some(node) }
        | RegistryEvent::PeerRejected { node: Some(node), .. }
        | RegistryEvent::FrameRejected { node: Some(node), .. } => node.as_str(),
        RegistryEvent::SeedFailed { address, .. } => address,
        RegistryEvent::OriginSilent { origin }
        | RegistryEvent::OriginReturned { origin }
        | RegistryEvent::OriginRetired { origin } => origin.node.as_str(),
        RegistryEvent::FullMerge { from, .. } | RegistryEvent::Exchanged { from, .. } => from.as_str(),
        RegistryEvent::Conflict { id, .. } => id,
        RegistryEvent::NameLost { name, .. } => name,
        RegistryEvent::PeerRejected { node: None, .. }
        | RegistryEvent::FrameRejected { node: None, .. }
        | RegistryEvent::IdInUse { .. }
        | RegistryEvent::Serving { .. }
        | RegistryEvent::ServingWithout { .. }
        | RegistryEvent::Joined { node: None }
        | RegistryEvent::Degraded { .. }
        | RegistryEvent::DegradedEnded { .. }
        | RegistryEvent::Late { .. } => "",
    }
}
