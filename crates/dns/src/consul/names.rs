//! Names in Consul's form: parsing, and construction of the targets of answers.

use crate::names::{self, ADDRESSES, SERVICES};
use hickory_proto::rr::{Name, RecordType};
use std::net::IpAddr;

const ZONE: &str = "consul";
const NODES: &str = "node";
/// The tag that stands for no tag in names of RFC 2782.
const ANY_TAG: &str = "tcp";

/// The meaning of a name in Consul's form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The zone itself.
    Apex,
    /// The name exists and has no records, but names below it do.
    EmptyNonTerminal,
    Service {
        name: String,
        tag: Option<String>,
    },
    Node(String),
    Address(IpAddr),
    /// The name of an address, in `in-addr.arpa` or `ip6.arpa`.
    Pointer(IpAddr),
    NonExistent,
}

/// Parses a name. Returns `None` for a name that is neither in the zone nor that of an address. `datacenter` is the only
/// one, in lower case. As in Consul, a query for SRV records may omit `service` after labels with an underscore.
pub(crate) fn parse(name: &Name, datacenter: &str, wanted: RecordType) -> Option<Asked> {
    let text = |label| std::str::from_utf8(label).unwrap_or("\u{fffd}").to_ascii_lowercase();
    let mut labels: Vec<String> = name.iter().map(text).collect();
    if labels.last().is_none_or(|last| last != ZONE) {
        let net = name.parse_arpa_name().ok()?;
        return (net.prefix_len() == net.max_prefix_len()).then(|| Asked::Pointer(net.addr()));
    }
    labels.pop();
    let ends_srv = |label: &str| wanted == RecordType::SRV && label.starts_with('_');
    let kind =
        labels.iter().rposition(|label| [SERVICES, NODES, ADDRESSES].contains(&label.as_str()) || ends_srv(label));
    let Some(at) = kind else {
        return Some(match labels.join(".") {
            none if none.is_empty() => Asked::Apex,
            known if known == datacenter => Asked::EmptyNonTerminal,
            _ => Asked::NonExistent,
        });
    };
    let suffix = labels[at + 1..].join(".");
    if !suffix.is_empty() && suffix != datacenter {
        return Some(Asked::NonExistent);
    }
    Some(match (labels[at].as_str(), &labels[..at]) {
        (SERVICES | NODES | ADDRESSES, []) => Asked::EmptyNonTerminal,
        (SERVICES, labels) => service(labels),
        (NODES, labels) => Asked::Node(labels.join(".")),
        (ADDRESSES, [label]) => names::parse_address(label).map_or(Asked::NonExistent, Asked::Address),
        (ADDRESSES, _) => Asked::NonExistent,
        _ => service(&labels[..=at]),
    })
}

fn service(labels: &[String]) -> Asked {
    let asked = |name: &str, tag: String| Asked::Service {
        name: name.to_owned(),
        tag: Some(tag).filter(|tag| !tag.is_empty()),
    };
    match labels {
        [name, tag] if name.starts_with('_') && tag.starts_with('_') => {
            asked(&name[1..], if tag[1..] == *ANY_TAG { String::new() } else { tag[1..].to_owned() })
        }
        [protocol] if protocol.starts_with('_') => Asked::EmptyNonTerminal,
        [tag @ .., name] => asked(name, tag.join(".")),
        [] => Asked::EmptyNonTerminal,
    }
}

pub(crate) fn zone() -> Name {
    Name::from_labels([ZONE]).expect("a label of letters")
}

/// Returns the name of a node, if it can be part of a name.
pub(crate) fn of_node(node: &str, datacenter: &str) -> Option<Name> {
    below(node, NODES, datacenter)
}

/// Returns the name of a service, if it can be part of a name.
pub(crate) fn of_service(service: &str, datacenter: &str) -> Option<Name> {
    below(service, SERVICES, datacenter)
}

/// Returns the name that encodes an address.
pub(crate) fn of_address(address: IpAddr, datacenter: &str) -> Name {
    let label = names::address_label(address);
    below(&label, ADDRESSES, datacenter).unwrap_or_else(|| names::of_address(address))
}

fn below(name: &str, kind: &str, datacenter: &str) -> Option<Name> {
    if !names::is_host_name(&name.to_ascii_lowercase()) {
        return None;
    }
    let labels = name.split('.').chain([kind]).chain(datacenter.split('.')).chain([ZONE]);
    Name::from_labels(labels.map(str::as_bytes)).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn asked_for(name: &str, wanted: RecordType) -> Option<Asked> {
        parse(&Name::from_ascii(name).unwrap(), "dc1", wanted)
    }

    fn asked(name: &str) -> Option<Asked> {
        asked_for(name, RecordType::A)
    }

    fn service(name: &str, tag: Option<&str>) -> Option<Asked> {
        Some(Asked::Service { name: name.to_owned(), tag: tag.map(str::to_owned) })
    }

    #[test]
    fn services_have_an_optional_tag_and_datacenter() {
        assert_eq!(asked("Web.SERVICE.Consul."), service("web", None));
        assert_eq!(asked("web.service.DC1.consul."), service("web", None));
        assert_eq!(asked("v1.web.service.consul."), service("web", Some("v1")));
        assert_eq!(asked("a.b.web.service.dc1.consul."), service("web", Some("a.b")), "tags may contain dots");
        assert_eq!(asked("_web._tcp.service.consul."), service("web", None));
        assert_eq!(asked("_web._v2.service.dc1.consul."), service("web", Some("v2")));
        assert_eq!(asked("service.service.consul."), service("service", None));
        for nothing in ["web.service.dc2.consul.", "web.service.dc1.x.consul.", "web.query.consul.", "x.consul."] {
            assert_eq!(asked(nothing), Some(Asked::NonExistent), "{nothing}");
        }
        assert_eq!(asked_for("_web._v2.consul.", RecordType::SRV), service("web", Some("v2")));
        assert_eq!(asked_for("_web._tcp.dc1.consul.", RecordType::SRV), service("web", None));
        assert_eq!(asked("_web._v2.consul."), Some(Asked::NonExistent), "only SRV queries omit the label");
    }

    #[test]
    fn nodes_addresses_and_pointers_are_parsed() {
        assert_eq!(asked("Ext.One.node.consul."), Some(Asked::Node("ext.one".to_owned())));
        assert_eq!(asked("n1.node.dc1.consul."), Some(Asked::Node("n1".to_owned())));
        assert_eq!(asked("0A000001.addr.consul."), Some(Asked::Address([10, 0, 0, 1].into())));
        assert_eq!(asked("1.0.0.10.in-addr.arpa."), Some(Asked::Pointer([10, 0, 0, 1].into())));
        let six = format!("6.{}d.f.ip6.arpa.", "0.".repeat(29));
        assert_eq!(asked(&six), Some(Asked::Pointer("fd00::6".parse().unwrap())));
        for nothing in ["0a01.addr.consul.", "x.0a000001.addr.consul.", "n1.node.dc2.consul."] {
            assert_eq!(asked(nothing), Some(Asked::NonExistent), "{nothing}");
        }
        for outside in ["example.org.", ".", "0.0.10.in-addr.arpa.", "x.0.0.10.in-addr.arpa.", "convoke."] {
            assert_eq!(asked(outside), None, "{outside}");
        }
        assert_eq!(asked("consul."), Some(Asked::Apex));
        for empty in ["service.consul.", "node.dc1.consul.", "dc1.consul.", "_tcp.service.consul."] {
            assert_eq!(asked(empty), Some(Asked::EmptyNonTerminal), "{empty}");
        }
    }

    #[test]
    fn targets_name_the_datacenter() {
        assert_eq!(of_node("Ext.one", "dc1").unwrap().to_ascii(), "Ext.one.node.dc1.consul.");
        assert_eq!(of_service("web", "dc1").unwrap().to_ascii(), "web.service.dc1.consul.");
        assert_eq!(of_address([10, 0, 0, 1].into(), "dc1").to_ascii(), "0a000001.addr.dc1.consul.");
        assert_eq!(of_node("a/b", "dc1"), None);
    }
}
