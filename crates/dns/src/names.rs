//! Names of the zone: parsing, and construction from ids and addresses.

use hickory_proto::rr::Name;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ZONE: &str = "convoke";
pub(crate) const SERVICES: &str = "service";
const MEMBERS: &str = "member";
pub(crate) const ADDRESSES: &str = "addr";

/// The meaning of a name in the zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The zone itself.
    Zone,
    /// The name exists and has no records, but names below it do (RFC 8020 calls it an empty non-terminal).
    EmptyNonTerminal,
    /// All interpretations of the name as service and locality, the longest service first (Q5).
    Service(Vec<Choice>),
    Member(String),
    Address(IpAddr),
    /// The name lies in the zone but does not exist.
    NonExistent,
}

/// One interpretation of a name as service, locality and endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) service: String,
    /// Empty for all localities.
    pub(crate) locality: String,
    /// Name of the endpoint to use instead of the address.
    pub(crate) endpoint: Option<String>,
}

/// Parses a name. Returns `None` for a name outside the zone.
pub(crate) fn parse(name: &Name) -> Option<Subject> {
    let mut labels = Vec::new();
    for label in name {
        // A label that is not UTF-8 matches no member or service, but the name may still lie in the zone.
        labels.push(std::str::from_utf8(label).unwrap_or("\u{fffd}"));
    }
    if !labels.pop()?.eq_ignore_ascii_case(ZONE) {
        return None;
    }
    let Some(kind) = labels.pop() else { return Some(Subject::Zone) };
    let kind = kind.to_ascii_lowercase();
    Some(match (kind.as_str(), labels.as_slice()) {
        (SERVICES | MEMBERS | ADDRESSES, []) => Subject::EmptyNonTerminal,
        (SERVICES, labels) => service(labels),
        (MEMBERS, labels) => Subject::Member(labels.join(".")),
        (ADDRESSES, [label]) => parse_address(label).map_or(Subject::NonExistent, Subject::Address),
        _ => Subject::NonExistent,
    })
}

fn service(labels: &[&str]) -> Subject {
    let choice = |service: &[&str], locality: &[&str], endpoint| Choice {
        service: service.join("."),
        locality: locality.join("."),
        endpoint,
    };
    let Some((protocol, labels)) = labels.split_last().filter(|(last, _)| last.starts_with('_')) else {
        return Subject::Service((0..labels.len()).map(|at| choice(&labels[at..], &labels[..at], None)).collect());
    };
    if labels.is_empty() {
        return Subject::EmptyNonTerminal;
    }
    let Some(at) = labels.iter().position(|label| label.starts_with('_')) else { return Subject::NonExistent };
    let endpoint = match protocol.trim_start_matches('_') {
        protocol if protocol.eq_ignore_ascii_case("tcp") || protocol.eq_ignore_ascii_case("udp") => None,
        endpoint => Some(endpoint.to_owned()),
    };
    let mut choice = choice(&labels[at..], &labels[..at], endpoint);
    choice.service.remove(0);
    Subject::Service(vec![choice])
}

pub(crate) fn parse_address(label: &str) -> Option<IpAddr> {
    match label.len() {
        // Numbers may begin with a sign, labels may not.
        _ if !label.bytes().all(|byte| byte.is_ascii_hexdigit()) => None,
        8 => u32::from_str_radix(label, 16).ok().map(|bits| Ipv4Addr::from_bits(bits).into()),
        32 => u128::from_str_radix(label, 16).ok().map(|bits| Ipv6Addr::from_bits(bits).into()),
        _ => None,
    }
}

pub(crate) fn zone() -> Name {
    Name::from_labels([ZONE]).expect("a label of letters")
}

/// Returns the name of a member, if its id is a valid host name.
pub(crate) fn of_member(id: &str) -> Option<Name> {
    is_host_name(id).then(|| Name::from_labels(id.split('.').chain([MEMBERS, ZONE])).ok()).flatten()
}

/// Returns the name that encodes an address.
pub(crate) fn of_address(address: IpAddr) -> Name {
    Name::from_labels([address_label(address).as_str(), ADDRESSES, ZONE]).expect("labels of letters and digits")
}

/// Returns the label that encodes an address.
pub(crate) fn address_label(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("{:08x}", address.to_bits()),
        IpAddr::V6(address) => format!("{:032x}", address.to_bits()),
    }
}

/// Returns whether every resolver passes the id on unchanged as part of a name.
pub(crate) fn is_host_name(id: &str) -> bool {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
    id.split('.').all(|label| (1..=63).contains(&label.len()) && label.bytes().all(plain))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn subject(name: &str) -> Option<Subject> {
        parse(&Name::from_ascii(name).unwrap())
    }

    fn choice(service: &str, locality: &str) -> Choice {
        Choice { service: service.to_owned(), locality: locality.to_owned(), endpoint: None }
    }

    #[test]
    fn names_are_parsed_by_kind() {
        assert_eq!(subject("example.org."), None);
        assert_eq!(subject("."), None);
        assert_eq!(subject("convoke."), Some(Subject::Zone));
        assert_eq!(subject("service.convoke."), Some(Subject::EmptyNonTerminal));
        assert_eq!(subject("_tcp.service.convoke."), Some(Subject::EmptyNonTerminal));
        assert_eq!(subject("Orders.SERVICE.Convoke."), Some(Subject::Service(vec![choice("Orders", "")])));
        let choices = vec![choice("eu.a.orders", ""), choice("a.orders", "eu"), choice("orders", "eu.a")];
        assert_eq!(subject("eu.a.orders.service.convoke."), Some(Subject::Service(choices)));
        assert_eq!(subject("orders-1.member.convoke."), Some(Subject::Member("orders-1".to_owned())));
        assert_eq!(subject("a.b.member.convoke."), Some(Subject::Member("a.b".to_owned())));
        assert_eq!(subject("7F000001.addr.convoke."), Some(Subject::Address([127, 0, 0, 1].into())));
        assert_eq!(parse_address("+f000001"), None, "a number, and not an address");
        for nothing in ["other.convoke.", "x.other.convoke.", "7f00.addr.convoke.", "x.7f000001.addr.convoke."] {
            assert_eq!(subject(nothing), Some(Subject::NonExistent), "{nothing}");
        }
    }

    #[test]
    fn srv_names_have_a_service_an_endpoint_and_an_optional_locality() {
        assert_eq!(subject("_orders._tcp.service.convoke."), Some(Subject::Service(vec![choice("orders", "")])));
        assert_eq!(
            subject("eu.a._orders._TCP.service.convoke."),
            Some(Subject::Service(vec![choice("orders", "eu.a")]))
        );
        assert_eq!(subject("_my.orders._udp.service.convoke."), Some(Subject::Service(vec![choice("my.orders", "")])));
        let metrics = Choice { endpoint: Some("metrics".to_owned()), ..choice("orders", "") };
        assert_eq!(subject("_orders._metrics.service.convoke."), Some(Subject::Service(vec![metrics])));
        assert_eq!(subject("orders._tcp.service.convoke."), Some(Subject::NonExistent));
    }

    #[test]
    fn only_host_names_become_target_names() {
        assert_eq!(of_member("orders-1.eu").unwrap().to_ascii(), "orders-1.eu.member.convoke.");
        for odd in ["Orders", "a/b", "a b", "a..b", &"x".repeat(64), &["y"; 130].join(".")] {
            assert_eq!(of_member(odd), None, "{odd}");
        }
        assert_eq!(of_address([10, 0, 0, 1].into()).to_ascii(), "0a000001.addr.convoke.");
        let v6: IpAddr = "::1".parse().unwrap();
        assert_eq!(parse(&of_address(v6)), Some(Subject::Address(v6)));
    }
}
