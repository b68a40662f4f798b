//! Copies the nodes of a Consul: their addresses and metadata are part of what clients of Consul read about an instance.

use super::consul::Consul;
use super::services::ConsulInstances;
use super::{Copied, members};
use crate::args::ImportConsulArgs;
use convoke_cli::Result;
use convoke_consul::NodeRecord;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A row of `/v1/catalog/nodes`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CatalogNode {
    #[serde(rename = "ID", default)]
    id: String,
    node: String,
    #[serde(default)]
    address: String,
    #[serde(default)]
    tagged_addresses: Option<BTreeMap<String, String>>,
    #[serde(default)]
    meta: Option<BTreeMap<String, String>>,
}

/// Copies all nodes except the servers of Consul, which end with it. A server with instances is copied too.
pub(super) async fn import(
    arguments: &ImportConsulArgs,
    consul: &mut Consul,
    instances: &ConsulInstances,
) -> Result<Copied> {
    let mut copied = Copied::default();
    let nodes = consul.get::<Vec<CatalogNode>>("/v1/catalog/nodes").await?.unwrap_or_default();
    for node in nodes {
        if instances.servers.contains(&node.node) && !instances.nodes.contains(&node.node) {
            continue;
        }
        let CatalogNode { id, node: name, address, tagged_addresses, meta } = node;
        let shown = name.clone();
        let (tagged_addresses, meta) = (tagged_addresses.unwrap_or_default(), meta.unwrap_or_default());
        match (NodeRecord { name, id, address, tagged_addresses, meta }).to_member() {
            Ok(spec) => members::copy(arguments, shown, spec, &mut copied).await?,
            Err(invalid) => copied.skip(&shown, invalid.0),
        }
    }
    Ok(copied)
}
