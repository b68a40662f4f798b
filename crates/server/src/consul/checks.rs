//! Checks as Consul shows them: those of nodes, and those of members.

use super::check_results::is_result;
use super::registry::{NodeKind, NodeRow, Row, indexes};
use convoke_consul::is_own_node;
use convoke_consul::show::CheckRow;
use convoke_core::member::{Maintenance, Member, Status};

pub(crate) const PASSING: &str = "passing";
pub(crate) const CRITICAL: &str = "critical";

/// Prefix of the check id of a service in maintenance.
pub(crate) const SERVICE_MAINTENANCE: &str = "_service_maintenance:";
/// Check id of a node in maintenance.
pub(crate) const NODE_MAINTENANCE: &str = "_node_maintenance";
/// Check id of the reachability of a node.
pub(crate) const SERF_HEALTH: &str = "serfHealth";
const NO_SERVICE_REASON: &str =
    "Maintenance mode is enabled for this service, but no reason was provided. This is a default message.";
const NO_NODE_REASON: &str =
    "Maintenance mode is enabled for this node, but no reason was provided. This is a default message.";

/// Returns the reason of the maintenance of a member, empty if none was given. `None` without maintenance.
pub(crate) fn maintenance_of(member: &Member) -> Option<&str> {
    member.drained().then(|| member.maintenance().map_or("", Maintenance::reason))
}

/// Returns the checks of a node, by id: whether it is reachable, whether it is drained, and those that were registered.
pub(crate) fn of_node(node: &NodeRow) -> Vec<CheckRow> {
    let like = CheckRow {
        node: node.shown.node.clone(),
        create_index: node.shown.create_index,
        modify_index: node.shown.modify_index,
        ..CheckRow::default()
    };
    let mut found = node.record.as_ref().map_or_else(Vec::new, |record| registered(record, &like));
    let NodeKind::Own { up, maintenance } = &node.kind else { return found };
    if let Some(reason) = maintenance {
        found.push(CheckRow {
            check_id: NODE_MAINTENANCE.to_owned(),
            name: "Node Maintenance Mode".to_owned(),
            status: CRITICAL,
            notes: if reason.is_empty() { NO_NODE_REASON } else { reason }.to_owned(),
            kind: "maintenance",
            ..like.clone()
        });
    }
    let (status, output) =
        if *up { (PASSING, "Agent alive and reachable") } else { (CRITICAL, "Agent not live or unreachable") };
    found.push(CheckRow {
        check_id: SERF_HEALTH.to_owned(),
        name: "Serf Health Status".to_owned(),
        status,
        output: output.to_owned(),
        ..like
    });
    found.sort_by(|a, b| a.check_id.cmp(&b.check_id));
    found
}

/// Returns the checks of a service instance, by id.
pub(crate) fn of_service(row: &Row) -> Vec<CheckRow> {
    let Row { instance, member } = row;
    // The service `consul` is the node itself: its checks are those of the node.
    if is_own_node(member) {
        return Vec::new();
    }
    let like = CheckRow {
        node: instance.node.clone(),
        service_id: instance.id.clone(),
        service_name: instance.service.clone(),
        service_tags: instance.tags.clone(),
        ..CheckRow::default()
    };
    let mut found = registered(member, &like);
    let (create_index, modify_index) = indexes(member);
    let like = CheckRow { create_index, modify_index, ..like };
    if let Some(reason) = maintenance_of(member) {
        found.push(CheckRow {
            check_id: format!("{SERVICE_MAINTENANCE}{}", instance.id),
            name: "Service Maintenance Mode".to_owned(),
            status: CRITICAL,
            notes: if reason.is_empty() { NO_SERVICE_REASON } else { reason }.to_owned(),
            kind: "maintenance",
            ..like.clone()
        });
    }
    if !member.is_agentless() {
        let (status, output) = match member.status() {
            Status::Up => (PASSING, "The client sends heartbeats"),
            Status::Down | Status::Left => (CRITICAL, "The client sends no heartbeats"),
        };
        found.push(CheckRow {
            check_id: format!("session:{}", instance.id),
            name: "Convoke session".to_owned(),
            status,
            output: output.to_owned(),
            kind: "ttl",
            ..like
        });
    }
    found.sort_by(|a, b| a.check_id.cmp(&b.check_id));
    found
}

/// Returns the checks that a member was registered with.
fn registered(member: &Member, like: &CheckRow) -> Vec<CheckRow> {
    let (create_index, modify_index) = indexes(member);
    let pairs = member.checks().into_iter().flat_map(|checks| checks.iter());
    let shown = pairs.map(|(definition, result)| CheckRow {
        check_id: definition.id.clone(),
        name: definition.name.clone(),
        status: result.status.as_str(),
        notes: definition.notes.clone(),
        output: result.output.clone(),
        kind: if is_result(definition) { "" } else { definition.probe.kind() },
        create_index,
        modify_index,
        ..like.clone()
    });
    shown.collect()
}
