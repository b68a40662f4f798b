//! What members stand for in Consul's catalog: instances of services, and nodes (docs/consul.md, "Mapping").

use crate::instance::{AGENTLESS_NODE, Instance, NodeRecord, member_id, split_host_port};
use crate::show;
use convoke_core::member::{Health, Member, NODE_ID_PREFIX, NODE_SERVICE, Status};
use std::collections::BTreeMap;

/// The service whose instances are the nodes of Convoke, as in Consul.
pub const CONSUL: &str = "consul";

/// The name of the only datacenter: that of the cluster.
pub fn datacenter_of(cluster: &str) -> String {
    cluster.to_lowercase()
}

/// The host of `host:port`, without brackets.
pub fn host_of(address: &str) -> &str {
    split_host_port(address).0
}

pub fn port_of(address: &str) -> u16 {
    split_host_port(address).1
}

/// The id of the member that stands for a node of Convoke.
pub fn own_node_id(node: &str) -> String {
    format!("{NODE_ID_PREFIX}{node}")
}

/// The id of the member that stands for a node that was registered with `catalog/register`.
pub fn recorded_node_id(node: &str) -> String {
    member_id(node, "")
}

/// Whether a member is a node of Convoke.
pub fn is_own_node(member: &Member) -> bool {
    member.service() == NODE_SERVICE
}

impl Instance {
    /// Returns the instance that a member stands for. The nodes of Convoke are the instances of the service `consul`.
    pub fn shown(member: &Member) -> Instance {
        let owner = if member.is_agentless() { AGENTLESS_NODE } else { member.owner().node };
        let mut instance = Instance::of_member(member, owner);
        if is_own_node(member) {
            instance.node = own_name(member).to_owned();
            (instance.id, instance.service) = (CONSUL.to_owned(), CONSUL.to_owned());
            // It is that of the node, as in Consul.
            instance.address = String::new();
        }
        instance
    }

    /// Returns the share of traffic with this health.
    pub fn weight(&self, health: Health) -> u16 {
        let weights = self.weights();
        if health == Health::Passing { weights.passing } else { weights.warning }
    }
}

impl NodeRecord {
    /// Returns a node of Convoke.
    pub fn of_own(member: &Member, cluster: &str) -> NodeRecord {
        let (name, address) = (own_name(member), host_of(member.address()));
        let region = member.metadata().get("region").filter(|region| !region.is_empty());
        let meta = [Some(("consul-network-segment", "")), region.map(|region| ("region", region))];
        NodeRecord {
            name: name.to_owned(),
            id: show::node_id(cluster, name),
            address: address.to_owned(),
            tagged_addresses: show::node_addresses(address),
            meta: meta.into_iter().flatten().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        }
    }

    /// Returns a node that only an instance names.
    pub fn named_by(instance: &Instance, member: &Member) -> NodeRecord {
        let address = if instance.node == AGENTLESS_NODE { "" } else { host_of(member.address()) };
        NodeRecord {
            name: instance.node.clone(),
            id: String::new(),
            address: address.to_owned(),
            tagged_addresses: BTreeMap::new(),
            meta: BTreeMap::new(),
        }
    }
}

fn own_name(member: &Member) -> &str {
    member.id().strip_prefix(NODE_ID_PREFIX).unwrap_or(member.id())
}

/// Whether no check of an instance is critical: its own ones, and those of its node if that is one of Convoke. Consul's DNS
/// answers only such instances, however few they are.
pub fn is_usable(member: &Member, own_node: Option<&Member>) -> bool {
    let up = |member: &Member| member.status() == Status::Up && !member.drained();
    up(member) && member.health() != Health::Critical && own_node.is_none_or(up)
}
