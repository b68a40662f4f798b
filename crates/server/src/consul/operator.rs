//! The reads of `/v1/operator` that the `consul` program needs.

use super::failure::Failure;
use super::reads::Read;
use super::status::peer_address;
use crate::error::no_log_plane;
use axum::response::Response;
use convoke_consul::show::node_id;
use serde_json::{Value, json};

/// `GET /v1/operator/raft/configuration`: the voters and learners of the log.
pub(crate) async fn raft(read: Read) -> Result<Response, Failure> {
    let surface = &read.surface;
    let status = surface.log_status().map_err(|_| no_log_plane())?;
    let server = |name: &String, voter: bool| -> Value {
        json!({
            "ID": node_id(surface.node.cluster(), name),
            "Node": name,
            "Address": peer_address(surface, name).unwrap_or_default(),
            "Leader": *name == status.leader,
            "ProtocolVersion": "3",
            "Voter": voter,
        })
    };
    let voters = status.voters.iter().map(|name| server(name, true));
    let servers: Vec<Value> = voters.chain(status.learners.iter().map(|name| server(name, false))).collect();
    Ok(read.plain(&json!({ "Servers": servers, "Index": 0 })))
}

/// `GET /v1/operator/autopilot/configuration`. Convoke has no such process: an operator adds and removes replicas, so nothing
/// happens after any time.
pub(crate) async fn autopilot(read: Read) -> Response {
    read.plain(&json!({
        "CleanupDeadServers": false,
        "LastContactThreshold": "0s",
        "MaxTrailingLogs": 0,
        "MinQuorum": 0,
        "ServerStabilizationTime": "0s",
        "RedundancyZoneTag": "",
        "DisableUpgradeMigration": true,
        "UpgradeVersionTag": "",
        "CreateIndex": 0,
        "ModifyIndex": 0,
    }))
}
