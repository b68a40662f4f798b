//! Reads of `/v1/catalog`.

use super::failure::Failure;
use super::params::Params;
use super::reads::{Found, NodesOfService, Part, Read, filtered};
use super::registry::{Registry, Row, datacenter, has_node_meta, indexes, sort_near, written_ms};
use crate::http::Segments;
use axum::response::Response;
use convoke_consul::show::{CatalogService, Node, NodeService};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Names that a filter of these rows may use.
const NODE_FIELDS: [&str; 6] = ["ID", "Node", "Address", "Datacenter", "TaggedAddresses", "Meta"];
const SERVICE_FIELDS: [&str; 15] = [
    "ID",
    "Node",
    "Address",
    "Datacenter",
    "TaggedAddresses",
    "NodeMeta",
    "ServiceKind",
    "ServiceID",
    "ServiceName",
    "ServiceTags",
    "ServiceAddress",
    "ServiceTaggedAddresses",
    "ServiceWeights",
    "ServiceMeta",
    "ServicePort",
];
const NODE_SERVICE_FIELDS: [&str; 8] =
    ["ID", "Service", "Tags", "Address", "TaggedAddresses", "Meta", "Port", "EnableTagOverride"];

/// `GET /v1/catalog/datacenters`
pub(crate) async fn datacenters(read: Read) -> Response {
    read.plain(&[datacenter(&read.surface)])
}

/// `GET /v1/catalog/nodes`
pub(crate) async fn nodes(read: Read) -> Result<Response, Failure> {
    let filter = read.filter(&NODE_FIELDS)?;
    let find = |registry: &Registry<'_>| {
        let nodes: Vec<_> = registry.nodes()?.into_values().filter(|node| has_node_meta(node, &read.params)).collect();
        let newest_ms = nodes.iter().map(|node| node.newest_ms).max().unwrap_or(0);
        let mut shown = filtered(nodes.into_iter().map(|node| node.shown).collect(), filter.as_ref());
        sort_near(&mut shown, &read.surface, &read.params, |node: &Node| &node.node);
        Ok(Found { newest_ms, shown })
    };
    read.answer(Part::All, find).await
}

/// `GET /v1/catalog/services`: the tags of all services.
pub(crate) async fn services(read: Read) -> Result<Response, Failure> {
    let find = |registry: &Registry<'_>| {
        let nodes = if read.params.has("node-meta") { Some(registry.nodes()?) } else { None };
        let mut shown: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut newest_ms = 0;
        for row in registry.all()? {
            let selected = |nodes| has_node_meta(&registry.node_of(nodes, &row), &read.params);
            if nodes.as_ref().is_none_or(selected) {
                newest_ms = newest_ms.max(written_ms(&row.member));
                shown.entry(row.instance.service).or_default().extend(row.instance.tags);
            }
        }
        Ok(Found { newest_ms, shown })
    };
    read.answer(Part::All, find).await
}

/// `GET /v1/catalog/service/{name}`
pub(crate) async fn service(Segments(name): Segments<String>, read: Read) -> Result<Response, Failure> {
    let filter = read.filter(&SERVICE_FIELDS)?;
    let find = |registry: &Registry<'_>, rows: Vec<Row>, nodes: &NodesOfService| {
        let (mut newest_ms, mut shown) = (0, Vec::new());
        for row in rows {
            let node = registry.node_of(&nodes.known, &row);
            if has_tags(&read.params, &row.instance.tags) && has_node_meta(&node, &read.params) {
                newest_ms = newest_ms.max(written_ms(&row.member)).max(node.newest_ms);
                shown.push(CatalogService::of(&node.shown, &row.instance, indexes(&row.member)));
            }
        }
        shown.sort_by(|a, b| (&a.node, &a.service_id).cmp(&(&b.node, &b.service_id)));
        let mut shown = filtered(shown, filter.as_ref());
        sort_near(&mut shown, &read.surface, &read.params, |row: &CatalogService| &row.node);
        Ok(Found { newest_ms, shown })
    };
    read.answer_service("catalog", &name, find).await
}

/// Whether an instance has all the tags that `tag` asks for.
pub(crate) fn has_tags(params: &Params, tags: &[String]) -> bool {
    // Consul compares without case.
    params
        .all("tag")
        .filter(|wanted| !wanted.is_empty())
        .all(|wanted| tags.iter().any(|tag| tag.eq_ignore_ascii_case(wanted)))
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct NodeServices<S> {
    node: Node,
    services: S,
}

/// Without the node, both are `null`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct NodeServiceList {
    node: Option<Node>,
    services: Option<Vec<NodeService>>,
}

/// `GET /v1/catalog/node/{name}`: a node and its services; `null` if there is none.
pub(crate) async fn node(Segments(name): Segments<String>, read: Read) -> Result<Response, Failure> {
    let by_id = |services: Vec<NodeService>| -> BTreeMap<String, NodeService> {
        services.into_iter().map(|service| (service.id.clone(), service)).collect()
    };
    let shown = |found: Option<(Node, Vec<NodeService>)>| {
        found.map(|(node, services)| NodeServices { node, services: by_id(services) })
    };
    of_node(&name, &read, shown).await
}

/// `GET /v1/catalog/node-services/{name}`: the same with a list of the services.
pub(crate) async fn node_services(Segments(name): Segments<String>, read: Read) -> Result<Response, Failure> {
    let shown = |found: Option<(Node, Vec<NodeService>)>| {
        let (node, services) = found.unzip();
        NodeServiceList { node, services }
    };
    of_node(&name, &read, shown).await
}

/// Answers with a node and its services, in the form that `shown` gives them.
async fn of_node<T: Serialize + Send>(
    name: &str,
    read: &Read,
    shown: impl Fn(Option<(Node, Vec<NodeService>)>) -> T + Send + Sync,
) -> Result<Response, Failure> {
    let filter = read.filter(&NODE_SERVICE_FIELDS)?;
    let find = |registry: &Registry<'_>| {
        let rows = registry.at_node(name)?;
        let nodes = registry.known_nodes()?;
        let node = nodes.get(name).cloned().or_else(|| rows.first().map(|row| registry.node_of(&nodes, row)));
        let newest = rows.iter().map(|row| written_ms(&row.member)).chain(node.as_ref().map(|node| node.newest_ms));
        let newest_ms = newest.max().unwrap_or(0);
        let services = rows.iter().map(|row| NodeService::of(&row.instance, indexes(&row.member))).collect();
        let services = filtered(services, filter.as_ref());
        Ok(Found { newest_ms, shown: shown(node.map(|node| (node.shown, services))) })
    };
    read.answer(Part::All, find).await
}

/// A path that ends before the name.
pub(crate) async fn no_service() -> Failure {
    Failure::bad("Missing service name")
}

pub(crate) async fn no_node() -> Failure {
    Failure::bad("Missing node name")
}
