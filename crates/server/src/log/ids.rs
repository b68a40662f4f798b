//! Log ids in the registry: each node publishes the log of its replica, and every node notices two logs (FD6). A node
//! also reports what an operator should know about its replica.

use convoke_core::filter::Filter;
use convoke_core::member::{NODE_ID_PREFIX, Status};
use convoke_node::{NodeEvent, NodeHandle};
use convoke_replica::{LogConflict, LogHandle, NodeLog, ReplicaStatus, Role};
use std::time::Duration;

/// How often a node compares its log with those of others.
const INTERVAL: Duration = Duration::from_secs(1);
/// Nodes that are looked at.
const NODES_MAX: usize = 1_025;

/// Returns the nodes that are up and hold a replica of a log, as the registry shows them.
pub fn registered_logs(node: &NodeHandle) -> Vec<NodeLog> {
    let nodes = Filter::parse("service == \"convoke\"").expect("a valid filter");
    let Ok(page) = node.members(&nodes, None, NODES_MAX) else { return Vec::new() };
    let up = page.members.iter().filter(|member| member.status() == Status::Up);
    let logs = up.filter_map(|member| {
        let log = u128::from_str_radix(member.metadata().get("log")?, 16).ok()?;
        let node = member.id().strip_prefix(NODE_ID_PREFIX)?.to_owned();
        let address = member.metadata().get("peer_address").unwrap_or_default().to_owned();
        Some(NodeLog { log, node, address })
    });
    logs.collect()
}

/// Publishes the log of this node, and reports conflicts, divergence and limits that are nearly reached. Never ends.
pub(super) async fn watch(handle: LogHandle, node: NodeHandle) {
    let (mut published, mut diverged, mut full) = (None, false, false);
    loop {
        let status = handle.status();
        let own = own_log(&status);
        if own != published && node.set_log(&own.map(|log| format!("{log:032x}")).unwrap_or_default()).await.is_ok() {
            published = own;
        }
        compare(&handle, &node, own);
        report_quotas(&status, &node, &mut full);
        if let Some(divergence) = status.divergence.filter(|_| !std::mem::replace(&mut diverged, true)) {
            node.record_event(NodeEvent::LogDiverged { divergence });
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Records an event when a limit of the log is nearly reached, and when none is any more.
fn report_quotas(status: &ReplicaStatus, node: &NodeHandle, full: &mut bool) {
    let warning = status.quota_warning();
    let before = std::mem::replace(full, warning.is_some());
    match warning {
        Some(warning) if !before => node.record_event(NodeEvent::LogNearlyFull { warning }),
        None if before => node.record_event(NodeEvent::LogNotFull),
        _ => {}
    }
}

/// Returns the log that this node takes part in.
fn own_log(status: &ReplicaStatus) -> Option<u128> {
    status.log.filter(|_| status.role != Role::Removed)
}

fn compare(handle: &LogHandle, node: &NodeHandle, own: Option<u128>) {
    let id = node.id().as_str();
    let others = registered_logs(node).into_iter().filter(|found| found.node != id);
    let all = others.map(|found| (found.log, found.node)).chain(own.map(|log| (log, id.to_owned())));
    let (conflict, before) = (LogConflict::between(all), handle.conflict());
    if conflict == before {
        return;
    }
    match &conflict {
        Some(conflict) => node.record_event(NodeEvent::LogConflict { conflict: conflict.to_string() }),
        None => node.record_event(NodeEvent::LogConflictEnded),
    }
    handle.set_conflict(conflict);
}
