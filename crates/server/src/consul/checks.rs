//! Checks as Consul shows them: those of nodes, and those of members.

use super::registry::{NodeKind, NodeRow, Row, indexes};
use convoke_consul::show::{CheckRow, Empty};
use convoke_core::member::{Maintenance, Member, Status};

pub(crate) const PASSING: &str = "passing";
pub(crate) const CRITICAL: &str = "critical";

/// Prefix of the check id of a service in maintenance.
pub(crate) const SERVICE_MAINTENANCE: &str = "_service_maintenance:";
/// Check id of a node in maintenance.
pub(crate) const NODE_MAINTENANCE: &str = "_node_maintenance";
const NO_SERVICE_REASON: &str =
    "Maintenance mode is enabled for this service, but no reason was provided. This is a default message.";
const NO_NODE_REASON: &str =
    "Maintenance mode is enabled for this node, but no reason was provided. This is a default message.";

/// Returns the reason of the maintenance of a member, empty if none was given. `None` without maintenance.
pub(crate) fn maintenance_of(member: &Member) -> Option<&str> {
    member.drained().then(|| member.maintenance().map_or("", Maintenance::reason))
}

/// Returns the checks of a node, by id: whether it is reachable, and whether it is drained.
pub(crate) fn of_node(node: &NodeRow) -> Vec<CheckRow> {
    let NodeKind::Own { up, maintenance } = &node.kind else { return Vec::new() };
    let check = |id: &str, name: &str, status, notes: &str, output: &str, kind| CheckRow {
        node: node.shown.node.clone(),
        check_id: id.to_owned(),
        name: name.to_owned(),
        status,
        notes: notes.to_owned(),
        output: output.to_owned(),
        service_id: String::new(),
        service_name: String::new(),
        service_tags: Vec::new(),
        kind,
        definition: Empty {},
        create_index: node.shown.create_index,
        modify_index: node.shown.modify_index,
    };
    let mut found = Vec::new();
    if let Some(reason) = maintenance {
        let notes = if reason.is_empty() { NO_NODE_REASON } else { reason };
        found.push(check(NODE_MAINTENANCE, "Node Maintenance Mode", CRITICAL, notes, "", "maintenance"));
    }
    let (status, output) =
        if *up { (PASSING, "Agent alive and reachable") } else { (CRITICAL, "Agent not live or unreachable") };
    found.push(check("serfHealth", "Serf Health Status", status, "", output, ""));
    found
}

/// Returns the checks of a service instance, by id.
pub(crate) fn of_service(row: &Row) -> Vec<CheckRow> {
    let Row { instance, member } = row;
    let (create_index, modify_index) = indexes(member);
    let check = |id: String, name: &str, status, notes: &str, output: &str, kind| CheckRow {
        node: instance.node.clone(),
        check_id: id,
        name: name.to_owned(),
        status,
        notes: notes.to_owned(),
        output: output.to_owned(),
        service_id: instance.id.clone(),
        service_name: instance.service.clone(),
        service_tags: instance.tags.clone(),
        kind,
        definition: Empty {},
        create_index,
        modify_index,
    };
    let mut found = Vec::new();
    // The service `consul` is the node itself: its checks are those of the node.
    if super::registry::is_node(member) {
        return found;
    }
    if let Some(reason) = maintenance_of(member) {
        let id = format!("{SERVICE_MAINTENANCE}{}", instance.id);
        let notes = if reason.is_empty() { NO_SERVICE_REASON } else { reason };
        found.push(check(id, "Service Maintenance Mode", CRITICAL, notes, "", "maintenance"));
    }
    if !member.is_agentless() {
        let (status, output) = match member.status() {
            Status::Up => (PASSING, "The client sends heartbeats"),
            Status::Down | Status::Left => (CRITICAL, "The client sends no heartbeats"),
        };
        found.push(check(format!("session:{}", instance.id), "Convoke session", status, "", output, "ttl"));
    }
    for (definition, result) in member.checks().iter().flat_map(|checks| checks.iter()) {
        let (status, kind) = (result.status.as_str(), definition.probe.kind());
        let id = definition.id.clone();
        found.push(check(id, &definition.name, status, &definition.notes, &result.output, kind));
    }
    found.sort_by(|a, b| a.check_id.cmp(&b.check_id));
    found
}
