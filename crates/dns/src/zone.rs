//! The zone: computes the response to a query.

use crate::consul::{self, Consul};
use crate::counters::{Counters, Counting};
use crate::members::{self, Host, Rotation, Target};
use crate::message::{self, Answer, Parsed, Question};
use crate::names::{self, Choice, Subject};
use convoke_node::{NodeHandle, Phase};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SOA, SRV};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of records in one answer.
const RECORDS_MAX: usize = 512;

/// Minimum sizes of an address record and of an SRV record, with a compressed owner name.
const ADDRESS_BYTES: usize = 16;
const SRV_BYTES: usize = 20;

/// The transport of a query. It determines the maximum size of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
}

/// Decides which services the zone shows. By default all.
#[derive(Clone, Default)]
pub struct Shown(Option<Arc<IsShown>>);

/// Whether the members of a service are shown.
type IsShown = dyn Fn(&str) -> bool + Send + Sync;

impl Shown {
    pub fn only(readable: impl Fn(&str) -> bool + Send + Sync + 'static) -> Shown {
        Shown(Some(Arc::new(readable)))
    }

    pub(crate) fn shows(&self, service: &str) -> bool {
        self.0.as_ref().is_none_or(|readable| readable(service))
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Shown(some)" } else { "Shown(all)" })
    }
}

/// The zone `convoke`, built from the registry of one node, and on request the zone `consul`.
#[derive(Debug)]
pub struct Zone {
    pub(crate) node: NodeHandle,
    ttl: u32,
    pub(crate) rotation: Rotation,
    pub(crate) shown: Shown,
    /// `None`: names in Consul's form lie outside.
    consul: Option<Consul>,
    pub(crate) counting: Counting,
}

impl Zone {
    pub fn new(node: NodeHandle, ttl: Duration) -> Self {
        let ttl = u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX);
        let (rotation, shown, counting) = (Rotation::default(), Shown::default(), Counting::default());
        Zone { node, ttl, rotation, shown, consul: None, counting }
    }

    /// Answers names in Consul's form as well, if it is on (Q12).
    #[must_use]
    pub fn with_consul(self, on: bool) -> Self {
        let consul = on.then(|| Consul::new(&self.node));
        Zone { consul, ..self }
    }

    /// Limits the answers to services that callers without credentials may read. Others do not exist in the zone.
    #[must_use]
    pub fn limited(self, shown: Shown) -> Self {
        Zone { shown, ..self }
    }

    pub fn counters(&self) -> Counters {
        self.counting.read()
    }

    /// Returns the response to a packet, or `None` if the packet gets no response.
    pub fn answer(&self, packet: &[u8], transport: Transport) -> Option<Vec<u8>> {
        self.counting.query(transport == Transport::Tcp);
        match message::read(packet) {
            Parsed::Ignored => {
                self.counting.ignored();
                None
            }
            Parsed::Invalid(metadata, code) => {
                self.counting.answer(code);
                message::write_error(metadata, code).ok()
            }
            Parsed::Question(question) => self.written(&question, transport),
        }
    }

    /// Returns a response that rejects a packet of a client that gets no answers (Q10).
    pub(crate) fn refuse(&self, packet: &[u8], transport: Transport) -> Option<Vec<u8>> {
        self.counting.query(transport == Transport::Tcp);
        let metadata = match message::read(packet) {
            Parsed::Question(question) => question.metadata,
            Parsed::Invalid(metadata, _) => metadata,
            Parsed::Ignored => {
                self.counting.ignored();
                return None;
            }
        };
        self.counting.answer(ResponseCode::Refused);
        message::write_error(metadata, ResponseCode::Refused).ok()
    }

    /// Returns a response that makes a real client retry over TCP (Q11).
    pub(crate) fn truncate(&self, packet: &[u8]) -> Option<Vec<u8>> {
        self.counting.rate_limited();
        match message::read(packet) {
            Parsed::Question(question) => message::write_truncated(&question).ok(),
            Parsed::Invalid(..) | Parsed::Ignored => None,
        }
    }

    fn written(&self, question: &Question, transport: Transport) -> Option<Vec<u8>> {
        let bytes_max = match transport {
            Transport::Udp => question.udp_bytes(),
            Transport::Tcp => u16::MAX,
        };
        let answer = self.reply(question, bytes_max);
        match message::write(question, &answer, bytes_max) {
            Ok((bytes, cut)) => {
                self.counting.answer(answer.code);
                if cut {
                    self.counting.truncated();
                }
                Some(bytes)
            }
            Err(error) => {
                tracing::warn!(query = %question.query, %error, "cannot encode DNS response");
                self.counting.answer(ResponseCode::ServFail);
                message::write_error(question.metadata, ResponseCode::ServFail).ok()
            }
        }
    }

    fn reply(&self, question: &Question, bytes_max: u16) -> Answer {
        if question.edns_version() > 0 {
            return Answer::code(ResponseCode::BADVERS);
        }
        let query = &question.query;
        let known_class = matches!(query.query_class, DNSClass::IN | DNSClass::ANY);
        let transfer = matches!(query.query_type, RecordType::AXFR | RecordType::IXFR);
        let zone_of = |subject: Subject| ZoneName::Convoke(subject);
        let of_consul = || {
            let consul = self.consul.as_ref()?;
            Some(ZoneName::Consul(consul, consul.parse(&query.name, query.query_type)?))
        };
        let known = names::parse(&query.name).map(zone_of).or_else(of_consul);
        let Some(known) = known.filter(|_| known_class && !transfer) else {
            return Answer::code(ResponseCode::Refused);
        };
        if !self.node.is_ready() && self.node.phase() != Phase::Alone {
            return Answer::code(ResponseCode::ServFail);
        }
        let absence = self.node.absence();
        let most = records_max(query.query_type, bytes_max);
        let answer = match known {
            ZoneName::Convoke(subject) => self.about(subject, &query.name, query.query_type, most),
            ZoneName::Consul(consul, asked) => self.about_consul(consul, asked, &query.name, query.query_type, most),
        };
        // Also without a record of this type: a member that is unknown here may have one (N7).
        if answer.answers.is_empty() && absence.is_err() { Answer::code(ResponseCode::ServFail) } else { answer }
    }

    /// Builds the answer for a name. `most` is the number of records that fill the response.
    fn about(&self, subject: Subject, name: &Name, wanted: RecordType, most: usize) -> Answer {
        let found = match subject {
            Subject::Zone if wanted == RecordType::SOA => {
                Some(Records { answers: vec![self.soa(&names::zone())], ..Records::default() })
            }
            Subject::Zone | Subject::EmptyNonTerminal => Some(Records::default()),
            Subject::Service(choices) => self.service(&choices, name, wanted, most),
            Subject::Member(id) => self.member(&id, name, wanted),
            Subject::Address(address) => Some(self.address(name, address, wanted)),
            Subject::NonExistent => None,
        };
        self.of_zone(found, &names::zone())
    }

    /// Builds the answer of a zone. `None`: the name does not exist.
    pub(crate) fn of_zone(&self, found: Option<Records>, zone: &Name) -> Answer {
        let code = if found.is_some() { ResponseCode::NoError } else { ResponseCode::NXDomain };
        let Records { answers, additionals } = found.unwrap_or_default();
        let authorities = if answers.is_empty() { vec![self.soa(zone)] } else { Vec::new() };
        Answer { code, authoritative: true, answers, authorities, additionals }
    }

    fn service(&self, choices: &[Choice], name: &Name, wanted: RecordType, most: usize) -> Option<Records> {
        let found = self.rotation.of_service(&self.node, choices, |service| self.shown.shows(service))?;
        if wanted == RecordType::SRV {
            return Some(self.srv(name, found.targets(), most));
        }
        let near = self.addresses(name, found.targets().filter(|target| target.near), wanted, most);
        let answers = if near.is_empty() { self.addresses(name, found.targets(), wanted, most) } else { near };
        Some(Records { answers, additionals: Vec::new() })
    }

    /// Returns the address records. Members with the same address and different ports share one record.
    fn addresses<'a>(
        &self,
        name: &Name,
        targets: impl Iterator<Item = Target<'a>>,
        wanted: RecordType,
        most: usize,
    ) -> Vec<Record> {
        let mut seen = HashSet::new();
        let addresses = targets.filter_map(|target| match target.host {
            Host::Ip(address) if is_of(address, wanted) && seen.insert(address) => Some(address),
            _ => None,
        });
        addresses.take(most).map(|address| self.record(name, address_data(address))).collect()
    }

    fn srv<'a>(&self, name: &Name, targets: impl Iterator<Item = Target<'a>>, most: usize) -> Records {
        let mut records = Records::default();
        for target in targets {
            if records.answers.len() >= most {
                break;
            }
            let host = match target.host {
                Host::Ip(address) => {
                    let own = target.by_name.then(|| names::of_member(target.id)).flatten();
                    let host = own.unwrap_or_else(|| names::of_address(address));
                    records.additionals.push(self.record(&host, address_data(address)));
                    host
                }
                // If the address is not a valid host name, clients could not resolve it.
                Host::Name(host) => match host_name(host) {
                    Some(host) => host,
                    None => continue,
                },
            };
            let data = SRV::new(u16::from(!target.near), target.weight, target.port, host);
            records.answers.push(self.record(name, RData::SRV(data)));
        }
        records
    }

    fn member(&self, id: &str, name: &Name, wanted: RecordType) -> Option<Records> {
        let member = members::of_id(&self.node, id).filter(|member| self.shown.shows(member.service()))?;
        let place = Host::parse(member.address()).filter(|_| self.node.may_route(&member));
        Some(match place {
            None => Records::default(),
            Some((Host::Ip(address), port)) if wanted == RecordType::SRV => {
                let host = Host::Ip(address);
                let target = Target { id, by_name: true, host, port, weight: 1, near: true };
                self.srv(name, [target].into_iter(), 1)
            }
            Some((Host::Ip(address), _)) => self.address(name, address, wanted),
            Some((Host::Name(host), _)) => self.alias(name, host),
        })
    }

    /// Returns the record of a name whose address is that of a host name.
    pub(crate) fn alias(&self, name: &Name, host: &str) -> Records {
        let answers = host_name(host).map(|host| self.record(name, RData::CNAME(CNAME(host))));
        Records { answers: answers.into_iter().collect(), ..Records::default() }
    }

    pub(crate) fn address(&self, name: &Name, address: IpAddr, wanted: RecordType) -> Records {
        let answers = is_of(address, wanted).then(|| self.record(name, address_data(address)));
        Records { answers: answers.into_iter().collect(), ..Records::default() }
    }

    pub(crate) fn record(&self, name: &Name, data: RData) -> Record {
        Record::from_rdata(name.clone(), self.ttl, data)
    }

    /// Only the minimum TTL matters: the time for which resolvers cache negative answers. The other values are
    /// customary.
    pub(crate) fn soa(&self, zone: &Name) -> Record {
        let below = |label: &str| zone.prepend_label(label).unwrap_or_else(|_| zone.clone());
        let (hour, week) = (3_600, 604_800);
        let data = SOA::new(below("ns"), below("hostmaster"), 1, hour, 600, week, self.ttl);
        self.record(zone, RData::SOA(data))
    }
}

/// A name in one of the zones.
enum ZoneName<'a> {
    Convoke(Subject),
    Consul(&'a Consul, consul::Asked),
}

/// The records of a name for one record type, and their additional records.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) answers: Vec<Record>,
    pub(crate) additionals: Vec<Record>,
}

/// Returns how many records to build for a response of this size: the most that can fit, plus one to detect
/// truncation.
fn records_max(wanted: RecordType, bytes_max: u16) -> usize {
    let each = if wanted == RecordType::SRV { SRV_BYTES } else { ADDRESS_BYTES };
    (usize::from(bytes_max) / each + 1).min(RECORDS_MAX)
}

/// Returns a host name as the target of a record, if it is valid.
pub(crate) fn host_name(host: &str) -> Option<Name> {
    let mut host = Name::from_ascii(host).ok()?;
    host.set_fqdn(true);
    Some(host)
}

pub(crate) fn is_of(address: IpAddr, wanted: RecordType) -> bool {
    match wanted {
        RecordType::A => address.is_ipv4(),
        RecordType::AAAA => address.is_ipv6(),
        wanted => wanted == RecordType::ANY,
    }
}

pub(crate) fn address_data(address: IpAddr) -> RData {
    match address {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    }
}
