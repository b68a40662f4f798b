//! The zone `consul`: names in the form of Consul's DNS (Q12). Instances, tags and nodes are mapped as docs/consul.md says.

mod index;
mod names;

pub(crate) use names::Asked;

use crate::members::Candidate;
use crate::message::Answer;
use crate::zone::{Records, Zone, address_data, host_name, is_of};
use convoke_consul::{
    AGENTLESS_NODE, CONSUL, Instance, NODE_RECORDS, NodeRecord, datacenter_of, has_tag, host_of, is_own_node,
    is_usable, node_name, own_node_id, recorded_node_id,
};
use convoke_core::filter::Filter;
use convoke_core::member::{Member, NODE_SERVICE, Status};
use convoke_node::NodeHandle;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::{NS, PTR, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use index::{Cached, INSTANCES_MAX, Nodes, Pointer, ServiceNames};
use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::watch;

/// The priority of all SRV records, as in Consul.
const PRIORITY: u16 = 1;
/// Nodes that are named as name servers.
const NAME_SERVERS: usize = 3;
/// Nodes among which they are searched.
const NODES_MAX: usize = 64;
/// Longest string in a TXT record.
const TXT_BYTES: usize = 255;
/// Metadata with this prefix is shown without its key.
const PLAIN_TEXT: &str = "rfc1035-";

/// What the zone `consul` needs beside the registry.
#[derive(Debug)]
pub(crate) struct Consul {
    datacenter: String,
    changes: watch::Receiver<u64>,
    services: Cached<ServiceNames>,
    nodes: Cached<Nodes>,
}

impl Consul {
    pub(crate) fn new(node: &NodeHandle) -> Consul {
        Consul {
            datacenter: datacenter_of(node.cluster()),
            changes: node.changes(),
            services: Cached::default(),
            nodes: Cached::default(),
        }
    }

    pub(crate) fn parse(&self, name: &Name, wanted: RecordType) -> Option<Asked> {
        names::parse(name, &self.datacenter, wanted)
    }

    fn last_change(&self) -> u64 {
        *self.changes.borrow()
    }
}

/// An instance as an answer shows it.
struct Endpoint {
    /// An IP address or a host name.
    host: String,
    port: u16,
    weight: u16,
    /// The instance has the address of its node.
    at_node: bool,
    node: NodeRecord,
}

impl Endpoint {
    fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl Zone {
    /// Builds the answer for a name in Consul's form. `most` is the number of records that fill the response.
    pub(crate) fn about_consul(
        &self,
        consul: &Consul,
        asked: Asked,
        name: &Name,
        wanted: RecordType,
        most: usize,
    ) -> Answer {
        let found = match asked {
            Asked::Apex => return self.apex(consul, wanted),
            Asked::Pointer(address) => return self.pointer(consul, name, address, wanted),
            Asked::EmptyNonTerminal => Some(Records::default()),
            Asked::Service { name: service, tag } => self.instances(consul, &service, tag.as_deref()).map(|found| {
                if wanted == RecordType::SRV {
                    self.service_records(consul, name, &found, most)
                } else {
                    self.service_addresses(name, &found, wanted, most)
                }
            }),
            Asked::Node(node) => self.nodes(consul).named(&node).map(|node| self.node_records(name, node, wanted)),
            Asked::Address(address) => Some(self.address(name, address, wanted)),
            Asked::NonExistent => None,
        };
        self.of_zone(found, &names::zone())
    }

    fn nodes(&self, consul: &Consul) -> Arc<Nodes> {
        consul.nodes.current(consul.last_change(), || Nodes::build(&self.node, &self.shown, INSTANCES_MAX))
    }

    /// Returns the usable instances of a service, or `None` if there is none: as in Consul, such a name does not exist.
    fn instances(&self, consul: &Consul, service: &str, tag: Option<&str>) -> Option<Vec<Member>> {
        let known = consul.services.current(consul.last_change(), || index::services(&self.node));
        let variants = known.get(service).into_iter().flatten().map(String::as_str);
        let mut names: BTreeSet<&str> = variants.chain([service]).collect();
        // The nodes of Convoke are shown as `consul` only.
        names.retain(|name| *name != NODE_SERVICE && *name != NODE_RECORDS);
        if service == CONSUL {
            names.insert(NODE_SERVICE);
        }
        let keep = |member: Member| {
            let tagged = tag.is_none_or(|tag| has_tag(&member, tag));
            // A member that was not registered as an instance does not have the address of its node (Q4).
            let placed = node_name(&member).is_some() || !member.address().is_empty();
            let usable = tagged && placed && is_usable(&member, self.own_node_of(&member).as_ref());
            usable.then_some(Candidate { member, near: true })
        };
        let (mut found, mut complete) = (Vec::new(), true);
        for name in names.into_iter().filter(|name| self.shown.shows(name)) {
            let Some(gathered) = self.rotation.gather(&self.node, name, keep) else { continue };
            complete &= gathered.complete;
            found.extend(gathered.candidates.into_iter().map(|candidate| candidate.member));
        }
        // Without having considered all of them, the name may exist.
        (!found.is_empty() || !complete).then_some(found)
    }

    /// The node of Convoke that an instance is at.
    fn own_node_of(&self, member: &Member) -> Option<Member> {
        if is_own_node(member) {
            return None;
        }
        let native = if member.is_agentless() { AGENTLESS_NODE } else { member.owner().node };
        self.node.member(&own_node_id(node_name(member).unwrap_or(native))).filter(is_own_node)
    }

    fn endpoint(&self, member: &Member) -> Endpoint {
        let instance = Instance::shown(member);
        let node = self.node_of(&instance, member);
        let at_node = instance.address.is_empty();
        let host = match (at_node, node.address.as_str()) {
            (false, _) => instance.address.as_str(),
            // The member has the address that its node had when it was registered.
            (true, "") => host_of(member.address()),
            (true, address) => address,
        };
        Endpoint { host: host.to_owned(), port: instance.port, weight: instance.weight(member.health()), at_node, node }
    }

    /// The node of an instance as far as callers without credentials may read it.
    fn node_of(&self, instance: &Instance, member: &Member) -> NodeRecord {
        let held = |service: &str, id: String| {
            let found = self.shown.shows(service).then(|| self.node.member(&id)).flatten();
            found.filter(|found| found.service() == service)
        };
        let own = held(NODE_SERVICE, own_node_id(&instance.node));
        let own = own.map(|own| NodeRecord::of_own(&own, self.node.cluster()));
        let recorded = || NodeRecord::of_member(&held(NODE_RECORDS, recorded_node_id(&instance.node))?);
        own.or_else(recorded).unwrap_or_else(|| NodeRecord::named_by(instance, member))
    }

    /// Instances with the same address and different ports share one record.
    fn service_addresses(&self, name: &Name, found: &[Member], wanted: RecordType, most: usize) -> Records {
        let mut records = Records::default();
        if !is_address(wanted) {
            return records;
        }
        let (mut seen, mut alias) = (HashSet::new(), None);
        for endpoint in found.iter().map(|member| self.endpoint(member)) {
            match endpoint.address() {
                Some(address) if is_of(address, wanted) && seen.insert(address) => {
                    records.answers.push(self.record(name, address_data(address)));
                }
                Some(address) => drop(seen.insert(address)),
                None if endpoint.host.is_empty() => {}
                None => alias = alias.or(Some(endpoint.host)),
            }
            if records.answers.len() >= most {
                break;
            }
        }
        // A name with an alias has no other records.
        alias.filter(|_| seen.is_empty()).map_or(records, |host| self.alias(name, &host))
    }

    fn service_records(&self, consul: &Consul, name: &Name, found: &[Member], most: usize) -> Records {
        let mut records = Records::default();
        for endpoint in found.iter().map(|member| self.endpoint(member)) {
            if records.answers.len() >= most {
                break;
            }
            let of_node = names::of_node(&endpoint.node.name, &consul.datacenter);
            let target = match endpoint.address() {
                Some(address) => {
                    let own = of_node.clone().filter(|_| endpoint.at_node);
                    let target = own.unwrap_or_else(|| names::of_address(address, &consul.datacenter));
                    add(&mut records.additionals, self.record(&target, address_data(address)));
                    target
                }
                None if endpoint.host.is_empty() => continue,
                None => match host_name(&endpoint.host) {
                    Some(host) => host,
                    // Clients could not resolve it.
                    None => continue,
                },
            };
            let data = SRV::new(PRIORITY, endpoint.weight, endpoint.port, target);
            records.answers.push(self.record(name, RData::SRV(data)));
            for text in of_node.iter().flat_map(|owner| self.texts(owner, &endpoint.node)) {
                add(&mut records.additionals, text);
            }
        }
        records
    }

    fn node_records(&self, name: &Name, node: &NodeRecord, wanted: RecordType) -> Records {
        let texts = self.texts(name, node);
        let mut records = match node.address.parse::<IpAddr>() {
            Ok(address) => self.address(name, address, wanted),
            Err(_) if node.address.is_empty() || !is_address(wanted) => Records::default(),
            Err(_) => self.alias(name, &node.address),
        };
        match wanted {
            RecordType::TXT => records.answers = texts,
            RecordType::ANY if !records.answers.iter().any(is_alias) => records.answers.extend(texts),
            RecordType::A | RecordType::AAAA => records.additionals = texts,
            _ => {}
        }
        records
    }

    /// The metadata of a node (RFC 1464).
    fn texts(&self, owner: &Name, node: &NodeRecord) -> Vec<Record> {
        let text = |(key, value): (&String, &String)| {
            let text = if key.starts_with(PLAIN_TEXT) { value.clone() } else { format!("{key}={value}") };
            let mut parts: Vec<&[u8]> = text.as_bytes().chunks(TXT_BYTES).collect();
            if parts.is_empty() {
                parts.push(b"");
            }
            self.record(owner, RData::TXT(TXT::from_bytes(parts)))
        };
        node.meta.iter().map(text).collect()
    }

    fn pointer(&self, consul: &Consul, name: &Name, address: IpAddr, wanted: RecordType) -> Answer {
        let target = self.nodes(consul).at(address).and_then(|found| match found {
            Pointer::Node(node) => names::of_node(node, &consul.datacenter),
            Pointer::Service(service) => names::of_service(service, &consul.datacenter),
        });
        // This node is not the authority for addresses that it does not know.
        let Some(target) = target else { return Answer::code(ResponseCode::Refused) };
        let is_wanted = matches!(wanted, RecordType::PTR | RecordType::ANY);
        let answers = is_wanted.then(|| self.record(name, RData::PTR(PTR(target)))).into_iter().collect();
        Answer { authoritative: true, answers, ..Answer::default() }
    }

    fn apex(&self, consul: &Consul, wanted: RecordType) -> Answer {
        let zone = names::zone();
        let mut records = Records::default();
        if matches!(wanted, RecordType::SOA | RecordType::ANY) {
            records.answers.push(self.soa(&zone));
        }
        let (mut servers, mut additionals) = (Vec::new(), Vec::new());
        if matches!(wanted, RecordType::SOA | RecordType::NS | RecordType::ANY) {
            for (server, address) in self.name_servers(consul) {
                additionals.push(self.record(&server, address_data(address)));
                servers.push(self.record(&zone, RData::NS(NS(server))));
            }
        }
        let authorities = if wanted == RecordType::SOA { std::mem::take(&mut servers) } else { Vec::new() };
        records.answers.extend(servers);
        records.additionals = additionals;
        let answer = self.of_zone(Some(records), &zone);
        if wanted == RecordType::SOA { Answer { authorities, ..answer } } else { answer }
    }

    /// Some nodes of Convoke that are up, and their addresses.
    fn name_servers(&self, consul: &Consul) -> Vec<(Name, IpAddr)> {
        if !self.shown.shows(NODE_SERVICE) {
            return Vec::new();
        }
        let page = self.node.held_members(&Filter::service(NODE_SERVICE), None, NODES_MAX).unwrap_or_default();
        let up = page.members.iter().filter(|member| member.status() == Status::Up);
        let server = |member: &Member| {
            let record = NodeRecord::of_own(member, self.node.cluster());
            Some((names::of_node(&record.name, &consul.datacenter)?, record.address.parse().ok()?))
        };
        up.filter_map(server).take(NAME_SERVERS).collect()
    }
}

fn is_address(wanted: RecordType) -> bool {
    matches!(wanted, RecordType::A | RecordType::AAAA | RecordType::ANY)
}

fn is_alias(record: &Record) -> bool {
    record.record_type() == RecordType::CNAME
}

/// Adds a record, unless it is there: instances share nodes and addresses.
fn add(records: &mut Vec<Record>, record: Record) {
    if !records.contains(&record) {
        records.push(record);
    }
}
