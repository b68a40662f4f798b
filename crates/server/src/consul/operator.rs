//! The reads of `/v1/operator` that the `consul` program needs.

use super::failure::Failure;
use super::reads::Read;
use crate::error::no_log_plane;
use axum::response::Response;
use convoke_consul::show::node_id;
use convoke_core::member::NODE_ID_PREFIX;
use serde_json::{Value, json};

/// `GET /v1/operator/raft/configuration`: the voters and learners of the log.
pub(crate) async fn raft(read: Read) -> Result<Response, Failure> {
    let surface = &read.surface;
    let status = surface.log_status().map_err(|_| no_log_plane())?;
    let server = |name: &String, voter: bool| -> Value {
        let member = surface.node.member(&format!("{NODE_ID_PREFIX}{name}"));
        let address = member.as_ref().and_then(|member| member.metadata().get("peer_address"));
        json!({
            "ID": node_id(surface.node.cluster(), name),
            "Node": name,
            "Address": address.unwrap_or_default(),
            "Leader": *name == status.leader,
            "ProtocolVersion": "3",
            "Voter": voter,
        })
    };
    let voters = status.voters.iter().map(|name| server(name, true));
    let servers: Vec<Value> = voters.chain(status.learners.iter().map(|name| server(name, false))).collect();
    Ok(read.plain(&json!({ "Servers": servers, "Index": 0 })))
}
