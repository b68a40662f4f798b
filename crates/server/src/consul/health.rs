//! Reads of `/v1/health`.

use super::catalog::has_tags;
use super::checks;
use super::failure::Failure;
use super::reads::{Found, NodesOfService, Part, Read, filtered};
use super::registry::{Registry, Row, has_node_meta, indexes, sort_near, written_ms};
use crate::http::Segments;
use axum::response::Response;
use convoke_consul::show::{CheckRow, Healthy, NodeService};

const HEALTHY_FIELDS: [&str; 3] = ["Node", "Service", "Checks"];
const CHECK_FIELDS: [&str; 10] =
    ["Node", "CheckID", "Name", "Status", "Notes", "Output", "ServiceID", "ServiceName", "ServiceTags", "Type"];

/// `GET /v1/health/service/{name}`: instances with the checks of their nodes and their own. A warning counts as usable
/// for Consul's DNS, and not for `passing`.
pub(crate) async fn service(Segments(name): Segments<String>, read: Read) -> Result<Response, Failure> {
    let filter = read.filter(&HEALTHY_FIELDS)?;
    let passing = read.params.flag("passing")?;
    let find = |registry: &Registry<'_>, rows: Vec<Row>, nodes: &NodesOfService| {
        let (mut newest_ms, mut shown) = (0, Vec::new());
        for row in rows {
            let node = registry.node_of(&nodes.known, &row);
            if !has_tags(&read.params, &row.instance.tags) || !has_node_meta(&node, &read.params) {
                continue;
            }
            let mut checks = checks::of_node(&node);
            checks.extend(checks::of_service(&row));
            let fails = |check: &CheckRow| check.status != checks::PASSING;
            if passing && (nodes.failing.contains(&node.shown.node) || checks.iter().any(fails)) {
                continue;
            }
            newest_ms = newest_ms.max(written_ms(&row.member)).max(node.newest_ms);
            let service = NodeService::of(&row.instance, indexes(&row.member));
            shown.push(Healthy { node: node.shown, service, checks });
        }
        shown.sort_by(|a, b| (&a.node.node, &a.service.id).cmp(&(&b.node.node, &b.service.id)));
        let mut shown = filtered(shown, filter.as_ref());
        sort_near(&mut shown, &read.surface, &read.params, |row: &Healthy| &row.node.node);
        Ok(Found { newest_ms, shown })
    };
    read.answer_service("health", &name, find).await
}

/// `GET /v1/health/checks/{name}`: the checks of the instances of a service.
pub(crate) async fn of_service(Segments(name): Segments<String>, read: Read) -> Result<Response, Failure> {
    let find = |registry: &Registry<'_>| {
        let rows = registry.service(&name)?;
        let newest_ms = rows.iter().map(|row| written_ms(&row.member)).max().unwrap_or(0);
        let nodes = registry.known_of(&registry.nodes_of(&rows));
        let selected = |row: &&Row| has_node_meta(&registry.node_of(&nodes, row), &read.params);
        Ok((newest_ms, rows.iter().filter(selected).flat_map(checks::of_service).collect()))
    };
    answer(&read, Part::Service(name.clone()), find).await
}

/// `GET /v1/health/node/{name}`: the checks of a node and of its services.
pub(crate) async fn of_node(Segments(name): Segments<String>, read: Read) -> Result<Response, Failure> {
    let find = |registry: &Registry<'_>| {
        let (rows, nodes) = (registry.at_node(&name)?, registry.known_nodes()?);
        let node = nodes.get(&name);
        let newest = rows.iter().map(|row| written_ms(&row.member)).chain(node.map(|node| node.newest_ms));
        let mut found: Vec<CheckRow> = node.map(checks::of_node).unwrap_or_default();
        let newest_ms = newest.max().unwrap_or(0);
        found.extend(rows.iter().flat_map(checks::of_service));
        Ok((newest_ms, found))
    };
    answer(&read, Part::All, find).await
}

/// `GET /v1/health/state/{state}`: all checks in a state; `any` selects all.
pub(crate) async fn in_state(Segments(state): Segments<String>, read: Read) -> Result<Response, Failure> {
    let find = |registry: &Registry<'_>| {
        let (rows, nodes) = (registry.all()?, registry.known_nodes()?);
        let newest = rows.iter().map(|row| written_ms(&row.member)).chain(nodes.values().map(|node| node.newest_ms));
        let newest_ms = newest.max().unwrap_or(0);
        let mut found: Vec<CheckRow> =
            nodes.values().filter(|node| has_node_meta(node, &read.params)).flat_map(checks::of_node).collect();
        let selected = |row: &&Row| has_node_meta(&registry.node_of(&nodes, row), &read.params);
        found.extend(rows.iter().filter(selected).flat_map(checks::of_service));
        found.retain(|check| state == "any" || check.status == state);
        Ok((newest_ms, found))
    };
    answer(&read, Part::All, find).await
}

async fn answer(
    read: &Read,
    part: Part,
    find: impl Fn(&Registry<'_>) -> Result<(u64, Vec<CheckRow>), Failure> + Send + Sync,
) -> Result<Response, Failure> {
    let filter = read.filter(&CHECK_FIELDS)?;
    let find = |registry: &Registry<'_>| {
        let (newest_ms, mut checks) = find(registry)?;
        checks.sort_by(|a, b| (&a.node, &a.check_id, &a.service_id).cmp(&(&b.node, &b.check_id, &b.service_id)));
        let mut shown = filtered(checks, filter.as_ref());
        sort_near(&mut shown, &read.surface, &read.params, |check: &CheckRow| &check.node);
        Ok(Found { newest_ms, shown })
    };
    read.answer(part, find).await
}

pub(crate) async fn no_state() -> Failure {
    Failure::bad("Missing check state")
}
