//! `/v1/status`: who leads the log.

use super::answer::plain;
use super::params::Params;
use crate::surface::Surface;
use axum::extract::State;
use axum::response::Response;
use convoke_core::filter::Filter;
use convoke_core::member::{NODE_ID_PREFIX, NODE_SERVICE, Status};
use std::sync::Arc;

type Shared = State<Arc<Surface>>;

/// `GET /v1/status/leader`: the peer address of the leader of the log, empty without one.
pub(crate) async fn leader(State(surface): Shared, params: Params) -> Response {
    let leader = surface.log_status().map(|status| status.leader).unwrap_or_default();
    plain(&params, &peer_address(&surface, &leader).unwrap_or_default())
}

/// `GET /v1/status/peers`: the peer addresses of the voters of the log, or of all nodes without a log.
pub(crate) async fn peers(State(surface): Shared, params: Params) -> Response {
    let mut addresses: Vec<String> = match surface.log_status() {
        Ok(status) => status.voters.iter().filter_map(|voter| peer_address(&surface, voter)).collect(),
        Err(_) => all_peers(&surface),
    };
    addresses.sort();
    plain(&params, &addresses)
}

pub(crate) fn peer_address(surface: &Surface, node: &str) -> Option<String> {
    let member = surface.node.member(&format!("{NODE_ID_PREFIX}{node}"))?;
    member.metadata().get("peer_address").map(ToOwned::to_owned)
}

fn all_peers(surface: &Surface) -> Vec<String> {
    let Ok(page) = surface.node.held_members(&Filter::service(NODE_SERVICE), None, surface.config.limits.page_members)
    else {
        return Vec::new();
    };
    let up = page.members.into_iter().filter(|member| member.status() == Status::Up);
    up.filter_map(|member| member.metadata().get("peer_address").map(ToOwned::to_owned)).collect()
}
