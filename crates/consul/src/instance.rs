//! Service instances and nodes of Consul as members of Convoke (docs/consul.md, "Mapping").

use convoke_core::member::{Member, MemberSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Metadata key of the Consul node of an instance. Consul's own keys contain no dot, so none is in the way.
pub const NODE_KEY: &str = "consul.node";
const TAGS_KEY: &str = "consul.tags";
const MORE_KEY: &str = "consul.more";
/// Service of the members that stand for nodes registered with `catalog/register`.
pub const NODE_RECORDS: &str = "consul.node";
/// The node of members without a client that were not registered with Consul's API.
pub const AGENTLESS_NODE: &str = "agentless";
/// Longest key and value of Consul's metadata, and most pairs.
const META_KEY_MAX: usize = 128;
const META_VALUE_MAX: usize = 512;
const META_PAIRS_MAX: usize = 61;

/// Why an instance cannot be registered. The text is the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidInstance(pub String);

impl fmt::Display for InvalidInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An instance of a service at a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    pub node: String,
    pub id: String,
    pub service: String,
    pub tags: Vec<String>,
    pub meta: BTreeMap<String, String>,
    /// Empty: the address of the node.
    pub address: String,
    pub port: u16,
    pub more: More,
}

/// What has no equivalent in a member and is only given back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct More {
    /// The service has no address of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_address: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<Weights>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tagged_addresses: BTreeMap<String, (String, u16)>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tag_override: bool,
}

/// Shares of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Weights {
    pub passing: u16,
    pub warning: u16,
}

impl Default for Weights {
    fn default() -> Weights {
        Weights { passing: 1, warning: 1 }
    }
}

/// Returns the id of the member of a service instance: ids of services are unique at one node only.
pub fn member_id(node: &str, service_id: &str) -> String {
    format!("{}:{service_id}", node.replace('%', "%25").replace(':', "%3A"))
}

/// Returns node and service id of a member id that [`member_id`] made.
pub fn split_member_id(id: &str) -> Option<(String, &str)> {
    let (node, service_id) = id.split_once(':')?;
    Some((node.replace("%3A", ":").replace("%25", "%"), service_id))
}

impl Instance {
    pub fn weights(&self) -> Weights {
        self.more.weights.unwrap_or_default()
    }

    /// Returns the member that stands for the instance. `node_address` is used by instances without an address.
    pub fn to_member(&self, node_address: &str) -> Result<MemberSpec, InvalidInstance> {
        check_meta(&self.meta)?;
        let mut more = self.more.clone();
        more.no_address = self.address.is_empty();
        let host = if self.address.is_empty() { node_address } else { &self.address };
        let mut spec = MemberSpec::new(member_id(&self.node, &self.id), self.service.clone());
        spec.address = if host.is_empty() { String::new() } else { host_port(host, self.port) };
        // A member without an address cannot hold a port, and the port must not be lost silently.
        if host.is_empty() && self.port != 0 {
            return Err(InvalidInstance(format!("the service has port {} and its node no address", self.port)));
        }
        spec.weight = self.weights().passing;
        spec.metadata.clone_from(&self.meta);
        spec.metadata.insert(NODE_KEY.to_owned(), self.node.clone());
        if !self.tags.is_empty() {
            spec.metadata.insert(TAGS_KEY.to_owned(), json(&self.tags));
        }
        if more != More::default() {
            spec.metadata.insert(MORE_KEY.to_owned(), json(&more));
        }
        Ok(spec)
    }

    /// Returns the instance that a member stands for. `owner` is the node of a member that was registered natively.
    pub fn of_member(member: &Member, owner: &str) -> Instance {
        let (host, port) = split_host_port(member.address());
        let metadata = member.metadata();
        let meta = || metadata.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        let (Some(node), Some((_, id))) = (metadata.get(NODE_KEY), split_member_id(member.id())) else {
            let weights = Weights { passing: member.weight(), warning: 1 };
            return Instance {
                node: owner.to_owned(),
                id: member.id().to_owned(),
                service: member.service().to_owned(),
                tags: Vec::new(),
                meta: meta().collect(),
                address: host.to_owned(),
                port,
                more: More { weights: Some(weights), ..More::default() },
            };
        };
        // Written by `to_member`; members that others wrote with these keys show what can be read.
        let read = |key: &str| metadata.get(key).unwrap_or_default();
        let more: More = serde_json::from_str(read(MORE_KEY)).unwrap_or_default();
        Instance {
            node: node.to_owned(),
            id: id.to_owned(),
            service: member.service().to_owned(),
            tags: serde_json::from_str(read(TAGS_KEY)).unwrap_or_default(),
            meta: meta().filter(|(key, _)| !is_ours(key)).collect(),
            address: if more.no_address { String::new() } else { host.to_owned() },
            port,
            more,
        }
    }
}

/// Returns the node in the metadata of a member that was registered with Consul's API.
pub fn node_name(member: &Member) -> Option<&str> {
    member.metadata().get(NODE_KEY)
}

/// Whether the member has a tag. Case does not count, as in names of DNS.
pub fn has_tag(member: &Member, tag: &str) -> bool {
    let tags = member.metadata().get(TAGS_KEY).filter(|_| node_name(member).is_some());
    let tags: Vec<String> = tags.and_then(|tags| serde_json::from_str(tags).ok()).unwrap_or_default();
    tags.iter().any(|known| known.eq_ignore_ascii_case(tag))
}

/// The host of a member that it does not share with its node; empty if it has none.
pub fn own_address(member: &Member) -> &str {
    let more = member.metadata().get(MORE_KEY).filter(|_| node_name(member).is_some());
    let more: More = more.and_then(|more| serde_json::from_str(more).ok()).unwrap_or_default();
    if more.no_address { "" } else { split_host_port(member.address()).0 }
}

/// A node that was registered with `catalog/register`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRecord {
    pub name: String,
    pub id: String,
    pub address: String,
    pub tagged_addresses: BTreeMap<String, String>,
    pub meta: BTreeMap<String, String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct NodeMore {
    id: String,
    address: String,
    tagged_addresses: BTreeMap<String, String>,
}

impl NodeRecord {
    /// Returns the member that stands for the node.
    pub fn to_member(&self) -> Result<MemberSpec, InvalidInstance> {
        check_meta(&self.meta)?;
        let mut spec = MemberSpec::new(member_id(&self.name, ""), NODE_RECORDS);
        spec.metadata.clone_from(&self.meta);
        spec.metadata.insert(NODE_KEY.to_owned(), self.name.clone());
        let (id, address) = (self.id.clone(), self.address.clone());
        let more = NodeMore { id, address, tagged_addresses: self.tagged_addresses.clone() };
        spec.metadata.insert(MORE_KEY.to_owned(), json(&more));
        Ok(spec)
    }

    /// Returns the node that a member of the service [`NODE_RECORDS`] stands for.
    pub fn of_member(member: &Member) -> Option<NodeRecord> {
        let metadata = member.metadata();
        let more: NodeMore = serde_json::from_str(metadata.get(MORE_KEY)?).ok()?;
        let meta = metadata.iter().filter(|(key, _)| !is_ours(key));
        Some(NodeRecord {
            name: metadata.get(NODE_KEY)?.to_owned(),
            id: more.id,
            address: more.address,
            tagged_addresses: more.tagged_addresses,
            meta: meta.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        })
    }
}

fn is_ours(key: &str) -> bool {
    [NODE_KEY, TAGS_KEY, MORE_KEY].contains(&key)
}

fn json(value: &impl Serialize) -> String {
    // Strings, numbers and maps with string keys always serialize.
    serde_json::to_string(value).unwrap_or_default()
}

fn check_meta(meta: &BTreeMap<String, String>) -> Result<(), InvalidInstance> {
    let refused = |why: String| Err(InvalidInstance(format!("Invalid Service Meta: {why}")));
    if meta.len() > META_PAIRS_MAX {
        return refused(format!("{} pairs, Convoke keeps at most {META_PAIRS_MAX}", meta.len()));
    }
    for (key, value) in meta {
        let why = match (key.as_str(), value.len()) {
            ("", _) => "Key cannot be blank".to_owned(),
            (key, _) if key.len() > META_KEY_MAX => format!("Key is too long (limit: {META_KEY_MAX} characters)"),
            (key, _) if !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) => {
                "Key contains invalid characters".to_owned()
            }
            (_, length) if length > META_VALUE_MAX => {
                format!("Value is too long (limit: {META_VALUE_MAX} characters)")
            }
            _ => continue,
        };
        return refused(format!("Couldn't load metadata pair ('{key}', '{value}'): {why}"));
    }
    Ok(())
}

fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Splits `host:port`; IPv6 addresses are returned without brackets.
pub fn split_host_port(address: &str) -> (&str, u16) {
    let Some((host, port)) = address.rsplit_once(':') else { return (address, 0) };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (host, port.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;
    use convoke_core::Limits;

    #[test]
    fn member_ids_are_unique_per_node_and_service_id() {
        for (node, id) in [("n1", "web:80"), ("a:b", "c"), ("a", "b:c"), ("a%3Ab", "c"), ("", "x"), ("n", "")] {
            let member = member_id(node, id);
            assert_eq!(split_member_id(&member), Some((node.to_owned(), id)), "{member}");
        }
        assert_ne!(member_id("a:b", "c"), member_id("a", "b:c"));
        assert_ne!(member_id("a%3Ab", "c"), member_id("a:b", "c"));
    }

    #[test]
    fn members_of_instances_are_valid() {
        let mut instance =
            Instance { node: "n1".into(), id: "web1".into(), service: "web".into(), ..Default::default() };
        let valid = |instance: &Instance, node_address: &str| {
            let spec = instance.to_member(node_address).unwrap();
            spec.check(&Limits::default()).unwrap();
            spec
        };
        assert_eq!(valid(&instance, "10.0.0.1").address, "10.0.0.1:0");
        assert_eq!(valid(&instance, "").address, "");
        instance.port = 80;
        assert!(instance.to_member("").is_err(), "a port without a host");
        assert_eq!(valid(&instance, "::1").address, "[::1]:80");
        instance.address = "web.example".into();
        instance.tags = vec!["a,b".into(), "c".into()];
        instance.meta.insert("k".into(), "v".into());
        let spec = valid(&instance, "10.0.0.1");
        assert_eq!(spec.address, "web.example:80");
        assert_eq!(spec.metadata["consul.tags"], r#"["a,b","c"]"#);
        assert_eq!(spec.metadata["k"], "v");
        instance.meta.insert("a b".into(), "1".into());
        let message = "Invalid Service Meta: Couldn't load metadata pair ('a b', '1'): Key contains invalid characters";
        assert_eq!(instance.to_member("h").unwrap_err().0, message);
    }
}
