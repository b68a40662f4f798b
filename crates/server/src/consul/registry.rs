//! The registry as Consul's clients see it: nodes, and instances of services at nodes.

use super::failure::Failure;
use super::params::{Mode, Params};
use crate::access::Caller;
use crate::error::rejected;
use crate::surface::Surface;
use convoke_consul::{AGENTLESS_NODE, Instance, NODE_KEY, NODE_RECORDS, NodeRecord, index_of, show, split_host_port};
use convoke_core::filter::{Filter, Health};
use convoke_core::member::{Member, NODE_ID_PREFIX, NODE_SERVICE, Status};
use std::collections::{BTreeMap, BTreeSet};

/// Members read from the view at once.
const PAGE: usize = 256;
/// The service whose instances are the nodes, as in Consul.
pub(crate) const CONSUL: &str = "consul";

/// Reads with the rights of a caller.
#[derive(Debug)]
pub(crate) struct Registry<'a> {
    pub(crate) surface: &'a Surface,
    pub(crate) caller: &'a Caller,
    pub(crate) mode: Mode,
}

/// An instance and the member it is made of.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) instance: Instance,
    pub(crate) member: Member,
}

/// A node and what is known of its health.
#[derive(Clone, Debug)]
pub(crate) struct NodeRow {
    pub(crate) shown: show::Node,
    pub(crate) newest_ms: u64,
    pub(crate) kind: NodeKind,
    /// The member that stands for the node and has its checks.
    pub(crate) record: Option<Member>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// A node of Convoke: whether it is up, and the reason of its maintenance.
    Own { up: bool, maintenance: Option<String> },
    /// Registered with `catalog/register`.
    Recorded,
    /// Only named by instances.
    Named,
}

/// The nodes by name.
pub(crate) type Nodes = BTreeMap<String, NodeRow>;

/// The name of the only datacenter: that of the cluster.
pub(crate) fn datacenter(surface: &Surface) -> String {
    surface.node.cluster().to_lowercase()
}

/// The host of `host:port`, without brackets.
pub(crate) fn host_of(address: &str) -> &str {
    split_host_port(address).0
}

pub(crate) fn port_of(address: &str) -> u16 {
    split_host_port(address).1
}

/// When the record of a member was written (UNIX ms).
pub(crate) fn written_ms(member: &Member) -> u64 {
    let results = member.checks().into_iter().flat_map(|checks| checks.results());
    let checked = results.map(|result| result.since).max().unwrap_or(0);
    member.owner().since.max(member.created()).max(checked)
}

/// The indexes of creation and of the last change.
pub(crate) fn indexes(member: &Member) -> (u64, u64) {
    let state = format!("{} {:?} {}", member.version(), member.status(), member.drained());
    let modify = index_of(written_ms(member), &state);
    (index_of(member.created(), member.id()).min(modify), modify)
}

impl Registry<'_> {
    /// Returns the members that match, ordered by service and id. Without `stale`, a node that may lack members refuses (N7).
    fn members(&self, filter: Filter) -> Result<Vec<Member>, Failure> {
        let node = self.surface.readable()?;
        if self.mode != Mode::Stale {
            node.absence().map_err(rejected)?;
        }
        let filter = self.caller.readable(filter);
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let page = node.held_members(&filter, cursor.as_deref(), PAGE).map_err(rejected)?;
            found.extend(page.members);
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(found),
            }
        }
    }

    /// Returns the instances of a service; the nodes of Convoke are those of the service `consul`.
    pub(crate) fn service(&self, service: &str) -> Result<Vec<Row>, Failure> {
        // A star would be a wildcard. `convoke` is shown as `consul`.
        if service.contains('*') || service == NODE_SERVICE || service == NODE_RECORDS {
            return Ok(Vec::new());
        }
        let mut found = self.members(Filter::service(service))?;
        if service == CONSUL {
            found.extend(self.members(Filter::service(NODE_SERVICE))?);
        }
        Ok(rows(found))
    }

    /// Returns the instances of all services.
    pub(crate) fn all(&self) -> Result<Vec<Row>, Failure> {
        Ok(rows(self.members(Filter::default())?))
    }

    /// Returns the instances at a node, by service id.
    pub(crate) fn at_node(&self, node: &str) -> Result<Vec<Row>, Failure> {
        let mut found = self.all()?;
        found.retain(|row| row.instance.node == node);
        found.sort_by(|a, b| a.instance.id.cmp(&b.instance.id));
        Ok(found)
    }

    /// Returns the nodes of Convoke and those that were registered.
    pub(crate) fn known_nodes(&self) -> Result<Nodes, Failure> {
        let own = self.members(Filter::service(NODE_SERVICE))?;
        let recorded = self.members(Filter::service(NODE_RECORDS))?;
        let recorded = recorded.into_iter().filter_map(|member| self.recorded_node(member));
        let mut nodes: Nodes = recorded.map(|row| (row.shown.node.clone(), row)).collect();
        for member in &own {
            let row = self.own_node(member);
            // A node of Convoke is not replaced by a record with its name, which has its checks only.
            let record = nodes.remove(&row.shown.node).and_then(|row| row.record);
            let newest_ms = record.as_ref().map_or(0, written_ms).max(row.newest_ms);
            nodes.insert(row.shown.node.clone(), NodeRow { newest_ms, record, ..row });
        }
        Ok(nodes)
    }

    /// Returns the nodes with a check that does not pass. They are the same for every caller: whether an instance passes must
    /// not depend on who asks.
    pub(crate) fn failing_nodes(&self) -> Result<BTreeSet<String>, Failure> {
        let caller = &Caller::unrestricted();
        let mut records = Registry { surface: self.surface, caller, mode: self.mode }.node_records()?;
        records.retain(|row| row.member.health() != Health::Passing);
        Ok(records.into_iter().map(|row| row.instance.node).collect())
    }

    /// Returns the members that stand for nodes.
    pub(crate) fn node_records(&self) -> Result<Vec<Row>, Failure> {
        Ok(self.members(Filter::service(NODE_RECORDS))?.into_iter().map(row).collect())
    }

    /// Returns all nodes, with those that only instances name.
    pub(crate) fn nodes(&self) -> Result<Nodes, Failure> {
        let mut nodes = self.known_nodes()?;
        for row in self.all()? {
            if !nodes.contains_key(&row.instance.node) {
                let node = self.node_of(&nodes, &row);
                nodes.insert(row.instance.node.clone(), node);
            }
        }
        Ok(nodes)
    }

    /// Returns the node of an instance.
    pub(crate) fn node_of(&self, nodes: &Nodes, row: &Row) -> NodeRow {
        if let Some(node) = nodes.get(&row.instance.node) {
            return node.clone();
        }
        let (created, modified) = indexes(&row.member);
        let shown = show::Node {
            id: String::new(),
            node: row.instance.node.clone(),
            address: if row.instance.node == AGENTLESS_NODE { "" } else { host_of(row.member.address()) }.to_owned(),
            datacenter: datacenter(self.surface),
            tagged_addresses: None,
            meta: BTreeMap::new(),
            create_index: created,
            modify_index: modified,
        };
        NodeRow { shown, newest_ms: written_ms(&row.member), kind: NodeKind::Named, record: None }
    }

    fn own_node(&self, member: &Member) -> NodeRow {
        let name = member.id().strip_prefix(NODE_ID_PREFIX).unwrap_or(member.id());
        let (create_index, modify_index) = indexes(member);
        let address = host_of(member.address());
        let meta = [("consul-network-segment", ""), ("region", member.metadata().get("region").unwrap_or_default())];
        let meta = meta.into_iter().filter(|(name, value)| *name != "region" || !value.is_empty());
        let shown = show::Node {
            id: show::node_id(self.surface.node.cluster(), name),
            node: name.to_owned(),
            address: address.to_owned(),
            datacenter: datacenter(self.surface),
            tagged_addresses: Some(show::node_addresses(address)),
            meta: meta.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            create_index,
            modify_index,
        };
        let maintenance = super::checks::maintenance_of(member).map(ToOwned::to_owned);
        let kind = NodeKind::Own { up: member.status() == Status::Up, maintenance };
        NodeRow { shown, newest_ms: written_ms(member), kind, record: None }
    }

    fn recorded_node(&self, member: Member) -> Option<NodeRow> {
        let NodeRecord { name, id, address, tagged_addresses, meta } = NodeRecord::of_member(&member)?;
        let (create_index, modify_index) = indexes(&member);
        let shown = show::Node {
            id,
            node: name,
            address,
            datacenter: datacenter(self.surface),
            tagged_addresses: (!tagged_addresses.is_empty()).then_some(tagged_addresses),
            meta,
            create_index,
            modify_index,
        };
        Some(NodeRow { shown, newest_ms: written_ms(&member), kind: NodeKind::Recorded, record: Some(member) })
    }
}

fn rows(members: Vec<Member>) -> Vec<Row> {
    let of_services = members.into_iter().filter(|member| member.service() != NODE_RECORDS);
    of_services.map(row).collect()
}

/// The instance that a member stands for.
pub(crate) fn row(member: Member) -> Row {
    let owner = if member.is_agentless() { AGENTLESS_NODE } else { member.owner().node };
    let mut instance = Instance::of_member(&member, owner);
    if member.service() == NODE_SERVICE {
        instance.node = member.id().strip_prefix(NODE_ID_PREFIX).unwrap_or(member.id()).to_owned();
        (instance.id, instance.service) = (CONSUL.to_owned(), CONSUL.to_owned());
        // It is that of the node, as in Consul.
        instance.address = String::new();
    }
    Row { instance, member }
}

impl Row {
    /// Whether it was registered with Consul's API.
    pub(crate) fn is_consul(&self) -> bool {
        self.member.metadata().get(NODE_KEY).is_some()
    }
}

/// Whether a node has all the metadata that `node-meta` asks for.
pub(crate) fn has_node_meta(node: &NodeRow, params: &Params) -> bool {
    params.all("node-meta").all(|wanted| {
        let (key, value) = wanted.split_once(':').unwrap_or((wanted, ""));
        node.shown.meta.get(key).is_some_and(|found| found == value)
    })
}

/// Puts the rows of the node that `near` names first. `_agent` is this node.
pub(crate) fn sort_near<T>(rows: &mut [T], surface: &Surface, params: &Params, node: impl Fn(&T) -> &str) {
    let Some(near) = params.text("near") else { return };
    let near = if near == "_agent" { surface.node.id().as_str() } else { near };
    rows.sort_by_key(|row| node(row) != near);
}

/// Whether a member is a node of Convoke.
pub(crate) fn is_node(member: &Member) -> bool {
    member.service() == NODE_SERVICE
}
