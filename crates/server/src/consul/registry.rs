//! The registry as Consul's clients see it: nodes, and instances of services at nodes.

use super::checks::maintenance_of;
use super::failure::Failure;
use super::params::{Mode, Params};
use crate::access::Caller;
use crate::error::rejected;
use crate::surface::Surface;
use convoke_consul::{
    CONSUL, Instance, NODE_RECORDS, NodeRecord, datacenter_of, index_of, node_name, own_node_id, recorded_node_id, show,
};
use convoke_core::filter::{Filter, Health};
use convoke_core::member::{Member, NODE_SERVICE, Status};
use std::collections::{BTreeMap, BTreeSet};

/// Members read from the view at once.
const PAGE: usize = 256;

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
    /// The member that was registered for the node and has its checks.
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

/// The members that stand for a node; none for a node that only instances name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeMembers {
    /// That of a node of Convoke.
    own: Option<Member>,
    /// That which was registered, with the checks of the node.
    record: Option<Member>,
    /// Whether a check of the node does not pass. It is the same for every caller: whether an instance passes must not depend on
    /// who asks.
    pub(crate) failing: bool,
}

/// The nodes by name.
pub(crate) type Nodes = BTreeMap<String, NodeRow>;

/// The name of the only datacenter: that of the cluster.
pub(crate) fn datacenter(surface: &Surface) -> String {
    datacenter_of(surface.node.cluster())
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

    /// Returns the instances of a service.
    pub(crate) fn service(&self, service: &str) -> Result<Vec<Row>, Failure> {
        Ok(rows(self.members_of(service)?))
    }

    /// Returns the members of a service; the nodes of Convoke are those of the service `consul`.
    pub(crate) fn members_of(&self, service: &str) -> Result<Vec<Member>, Failure> {
        // A star would be a wildcard. `convoke` is shown as `consul`.
        if service.contains('*') || service == NODE_SERVICE || service == NODE_RECORDS {
            return Ok(Vec::new());
        }
        let mut found = self.members(Filter::service(service))?;
        if service == CONSUL {
            found.extend(self.members(Filter::service(NODE_SERVICE))?);
        }
        Ok(found)
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
        let records = self.members(Filter::service(NODE_RECORDS))?;
        let mut nodes: BTreeMap<String, NodeMembers> = BTreeMap::new();
        for record in records {
            if let Some(NodeRecord { name, .. }) = NodeRecord::of_member(&record) {
                nodes.entry(name).or_default().record = Some(record);
            }
        }
        for member in own {
            let NodeRecord { name, .. } = NodeRecord::of_own(&member, self.surface.node.cluster());
            nodes.entry(name).or_default().own = Some(member);
        }
        Ok(self.known_of(nodes.iter()))
    }

    /// Returns the members that stand for nodes and were registered.
    pub(crate) fn node_records(&self) -> Result<Vec<Row>, Failure> {
        Ok(self.members(Filter::service(NODE_RECORDS))?.into_iter().map(row).collect())
    }

    /// Returns what stands for the nodes of these instances. Reading all nodes would make each lookup as expensive as their
    /// number.
    pub(crate) fn nodes_of(&self, rows: &[Row]) -> BTreeMap<String, NodeMembers> {
        let names: BTreeSet<&str> = rows.iter().map(|row| row.instance.node.as_str()).collect();
        names.into_iter().map(|name| (name.to_owned(), self.node_members(name))).collect()
    }

    pub(crate) fn node_members(&self, name: &str) -> NodeMembers {
        let member = |id: &str, service: &str| {
            let found = self.surface.node.member(id);
            found.filter(|member| member.service() == service)
        };
        let (own, record) = (member(&own_node_id(name), NODE_SERVICE), member(&recorded_node_id(name), NODE_RECORDS));
        let failing = record.as_ref().is_some_and(|record| record.health() != Health::Passing);
        NodeMembers { own: self.caller.visible(own), record: self.caller.visible(record), failing }
    }

    /// Returns the nodes that these members stand for.
    pub(crate) fn known_of<'b>(&self, members: impl IntoIterator<Item = (&'b String, &'b NodeMembers)>) -> Nodes {
        let known = members.into_iter().filter_map(|(name, members)| Some((name.clone(), self.known_node(members)?)));
        known.collect()
    }

    /// A node of Convoke is not replaced by a record with its name, which has its checks only.
    fn known_node(&self, members: &NodeMembers) -> Option<NodeRow> {
        let NodeMembers { own, record, .. } = members;
        let Some(own) = own else { return self.recorded_node(record.as_ref()?) };
        let row = self.own_node(own);
        let newest_ms = record.as_ref().map_or(0, written_ms).max(row.newest_ms);
        Some(NodeRow { newest_ms, record: record.clone(), ..row })
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
        self.node_row(NodeRecord::named_by(&row.instance, &row.member), &row.member, NodeKind::Named)
    }

    fn own_node(&self, member: &Member) -> NodeRow {
        let maintenance = maintenance_of(member).map(ToOwned::to_owned);
        let kind = NodeKind::Own { up: member.status() == Status::Up, maintenance };
        self.node_row(NodeRecord::of_own(member, self.surface.node.cluster()), member, kind)
    }

    fn recorded_node(&self, member: &Member) -> Option<NodeRow> {
        let row = self.node_row(NodeRecord::of_member(member)?, member, NodeKind::Recorded);
        Some(NodeRow { record: Some(member.clone()), ..row })
    }

    fn node_row(&self, record: NodeRecord, member: &Member, kind: NodeKind) -> NodeRow {
        let NodeRecord { name, id, address, tagged_addresses, meta } = record;
        let (create_index, modify_index) = indexes(member);
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
        NodeRow { shown, newest_ms: written_ms(member), kind, record: None }
    }
}

pub(crate) fn rows(members: Vec<Member>) -> Vec<Row> {
    let of_services = members.into_iter().filter(|member| member.service() != NODE_RECORDS);
    of_services.map(row).collect()
}

/// The instance that a member stands for.
pub(crate) fn row(member: Member) -> Row {
    Row { instance: Instance::shown(&member), member }
}

impl Row {
    /// Whether it was registered with Consul's API.
    pub(crate) fn is_consul(&self) -> bool {
        node_name(&self.member).is_some()
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
