//! The reads of `/v1/operator` that the `consul` program needs.

use super::agent::CONSUL_VERSION;
use super::failure::Failure;
use super::reads::Read;
use super::status::peer_address;
use crate::error::no_log_plane;
use ::http::StatusCode;
use axum::response::Response;
use convoke_consul::show::node_id;
use convoke_core::member::{NODE_ID_PREFIX, Status};
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

/// `GET /v1/operator/autopilot/health`: whether the replicas of the log are up, and how many voters can be lost.
pub(crate) async fn health(read: Read) -> Result<Response, Failure> {
    let surface = &read.surface;
    let status = surface.log_status().map_err(|_| no_log_plane())?;
    let is_up = |name: &String| {
        let member = surface.node.member(&format!("{NODE_ID_PREFIX}{name}"));
        member.is_some_and(|member| member.status() == Status::Up)
    };
    let server = |name: &String, voter: bool| -> Value {
        json!({
            "ID": node_id(surface.node.cluster(), name),
            "Name": name,
            "Address": peer_address(surface, name).unwrap_or_default(),
            "SerfStatus": if is_up(name) { "alive" } else { "failed" },
            "Version": CONSUL_VERSION,
            "Leader": *name == status.leader,
            "LastContact": "0s",
            "LastTerm": 0,
            "LastIndex": 0,
            "Healthy": is_up(name),
            "Voter": voter,
            "StableSince": "0001-01-01T00:00:00Z",
        })
    };
    let voters = status.voters.iter().map(|name| server(name, true));
    let servers: Vec<Value> = voters.chain(status.learners.iter().map(|name| server(name, false))).collect();
    let up = status.voters.iter().filter(|name| is_up(name)).count();
    let healthy = !status.leader.is_empty() && servers.iter().all(|server| server["Healthy"] == true);
    let tolerance = up.saturating_sub(status.voters.len() / 2 + 1);
    let shown = json!({ "Healthy": healthy, "FailureTolerance": tolerance, "Servers": servers });
    let mut response = read.plain(&shown);
    if !healthy {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    }
    Ok(response)
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
