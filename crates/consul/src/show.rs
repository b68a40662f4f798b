//! Rows of the answers, in the order and with the names of Consul 1.8.

use crate::instance::{Instance, Weights};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::net::IpAddr;
use xxhash_rust::xxh3::xxh3_128;

/// A node of the catalog.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Node {
    #[serde(rename = "ID")]
    pub id: String,
    pub node: String,
    pub address: String,
    pub datacenter: String,
    pub tagged_addresses: Option<BTreeMap<String, String>>,
    pub meta: BTreeMap<String, String>,
    pub create_index: u64,
    pub modify_index: u64,
}

/// A further address of a service.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ServiceAddress {
    pub address: String,
    pub port: u16,
}

pub type ServiceAddresses = BTreeMap<String, ServiceAddress>;

/// A service of `agent/services`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct AgentService {
    #[serde(rename = "ID")]
    pub id: String,
    pub service: String,
    pub tags: Vec<String>,
    pub meta: BTreeMap<String, String>,
    pub port: u16,
    pub address: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tagged_addresses: ServiceAddresses,
    pub weights: Weights,
    pub enable_tag_override: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub content_hash: String,
}

/// A service of `health/service` and `catalog/node`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NodeService {
    #[serde(rename = "ID")]
    pub id: String,
    pub service: String,
    pub tags: Vec<String>,
    pub address: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tagged_addresses: ServiceAddresses,
    /// `null` if there is none, as in Consul.
    #[serde(serialize_with = "null_if_empty")]
    pub meta: BTreeMap<String, String>,
    pub port: u16,
    pub weights: Weights,
    pub enable_tag_override: bool,
    pub proxy: MeshProxy,
    pub connect: Empty,
    pub create_index: u64,
    pub modify_index: u64,
}

/// A row of `catalog/service`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CatalogService {
    #[serde(rename = "ID")]
    pub id: String,
    pub node: String,
    pub address: String,
    pub datacenter: String,
    pub tagged_addresses: Option<BTreeMap<String, String>>,
    pub node_meta: BTreeMap<String, String>,
    pub service_kind: &'static str,
    #[serde(rename = "ServiceID")]
    pub service_id: String,
    pub service_name: String,
    pub service_tags: Vec<String>,
    pub service_address: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub service_tagged_addresses: ServiceAddresses,
    pub service_weights: Weights,
    pub service_meta: BTreeMap<String, String>,
    pub service_port: u16,
    pub service_enable_tag_override: bool,
    pub service_proxy: MeshProxy,
    pub service_connect: Empty,
    pub create_index: u64,
    pub modify_index: u64,
}

/// A check.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CheckRow {
    pub node: String,
    #[serde(rename = "CheckID")]
    pub check_id: String,
    pub name: String,
    pub status: &'static str,
    pub notes: String,
    pub output: String,
    #[serde(rename = "ServiceID")]
    pub service_id: String,
    pub service_name: String,
    pub service_tags: Vec<String>,
    #[serde(rename = "Type")]
    pub kind: &'static str,
    pub definition: Empty,
    pub create_index: u64,
    pub modify_index: u64,
}

/// A row of `health/service`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Healthy {
    pub node: Node,
    pub service: NodeService,
    pub checks: Vec<CheckRow>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Empty {}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct MeshProxy {
    mesh_gateway: Empty,
    expose: Empty,
}

fn null_if_empty<S: Serializer>(map: &BTreeMap<String, String>, serializer: S) -> Result<S::Ok, S::Error> {
    if map.is_empty() { serializer.serialize_none() } else { map.serialize(serializer) }
}

impl AgentService {
    pub fn of(instance: &Instance) -> AgentService {
        AgentService {
            id: instance.id.clone(),
            service: instance.service.clone(),
            tags: instance.tags.clone(),
            meta: instance.meta.clone(),
            port: instance.port,
            address: instance.address.clone(),
            tagged_addresses: service_addresses(instance),
            weights: instance.weights(),
            enable_tag_override: instance.more.tag_override,
            content_hash: String::new(),
        }
    }
}

impl NodeService {
    pub fn of(instance: &Instance, (create_index, modify_index): (u64, u64)) -> NodeService {
        NodeService {
            id: instance.id.clone(),
            service: instance.service.clone(),
            tags: instance.tags.clone(),
            address: instance.address.clone(),
            tagged_addresses: service_addresses(instance),
            meta: instance.meta.clone(),
            port: instance.port,
            weights: instance.weights(),
            enable_tag_override: instance.more.tag_override,
            proxy: MeshProxy::default(),
            connect: Empty {},
            create_index,
            modify_index,
        }
    }
}

impl CatalogService {
    pub fn of(node: &Node, instance: &Instance, (create_index, modify_index): (u64, u64)) -> CatalogService {
        CatalogService {
            id: node.id.clone(),
            node: node.node.clone(),
            address: node.address.clone(),
            datacenter: node.datacenter.clone(),
            tagged_addresses: node.tagged_addresses.clone(),
            node_meta: node.meta.clone(),
            service_kind: "",
            service_id: instance.id.clone(),
            service_name: instance.service.clone(),
            service_tags: instance.tags.clone(),
            service_address: instance.address.clone(),
            service_tagged_addresses: service_addresses(instance),
            service_weights: instance.weights(),
            service_meta: instance.meta.clone(),
            service_port: instance.port,
            service_enable_tag_override: instance.more.tag_override,
            service_proxy: MeshProxy::default(),
            service_connect: Empty {},
            create_index,
            modify_index,
        }
    }
}

/// Returns the further addresses of a service. Consul adds those of its own IP address.
fn service_addresses(instance: &Instance) -> ServiceAddresses {
    let given = instance.more.tagged_addresses.iter();
    let mut all: ServiceAddresses = given
        .map(|(name, (address, port))| (name.clone(), ServiceAddress { address: address.clone(), port: *port }))
        .collect();
    for name in kinds(&instance.address) {
        let own = || ServiceAddress { address: instance.address.clone(), port: instance.port };
        all.entry((*name).to_owned()).or_insert_with(own);
    }
    all
}

fn kinds(address: &str) -> &'static [&'static str] {
    match address.parse() {
        Ok(IpAddr::V4(_)) => &["lan_ipv4", "wan_ipv4"],
        Ok(IpAddr::V6(_)) => &["lan_ipv6", "wan_ipv6"],
        Err(_) => &[],
    }
}

/// Returns the further addresses of a node of Convoke.
pub fn node_addresses(address: &str) -> BTreeMap<String, String> {
    let names = ["lan", "wan"].iter().chain(kinds(address));
    names.map(|name| ((*name).to_owned(), address.to_owned())).collect()
}

/// Returns an id in the form that Consul's clients expect, the same at every node.
pub fn node_id(cluster: &str, node: &str) -> String {
    let hash = xxh3_128(format!("{cluster}/{node}").as_bytes());
    // Version 8: the content is our own.
    let hash = (hash & !(0xf << 76) & !(0x3 << 62)) | (0x8 << 76) | (0x2 << 62);
    let text = format!("{hash:032x}");
    format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}

/// The worst of some states.
pub fn worst<'a>(states: impl IntoIterator<Item = &'a str>) -> &'static str {
    let mut found = "passing";
    for state in states {
        match state {
            "critical" => return "critical",
            "warning" => found = "warning",
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_nodes_are_stable_uuids() {
        let id = node_id("convoke", "n1");
        assert_eq!(id, node_id("convoke", "n1"));
        assert_ne!(id, node_id("convoke", "n2"));
        assert_eq!(id.len(), 36);
        assert_eq!((&id[14..15], id.split('-').count()), ("8", 5));
    }

    #[test]
    fn the_worst_state_counts() {
        assert_eq!(worst(["passing", "warning"]), "warning");
        assert_eq!(worst(["warning", "critical", "passing"]), "critical");
        assert_eq!(worst([]), "passing");
    }
}
