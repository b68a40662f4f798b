//! Which addresses checks may reach. Whoever registers a check chooses where nodes connect to, so addresses that only a node
//! can reach are denied unless the configuration lists them.

use crate::config::{Allowed, CheckerConfig, ConfigError};
use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{PoisonError, RwLock};
use tokio::net::{TcpStream, lookup_host};

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// Services with credentials of the machine, outside of the link-local networks.
const METADATA: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

#[derive(Debug)]
pub struct Guard {
    allowed: Vec<Allowed>,
    allow_loopback: bool,
    own_ports: Vec<u16>,
    /// Listeners of all known nodes.
    nodes: RwLock<HashSet<SocketAddr>>,
}

/// Why a connection was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("address {address} is denied: {reason}")]
    Denied { address: SocketAddr, reason: &'static str },
    #[error("cannot resolve {host}: {error}")]
    Unresolvable { host: String, error: io::Error },
    #[error("cannot connect to {address}: {error}")]
    Failed { address: SocketAddr, error: io::Error },
}

impl Guard {
    pub fn new(config: &CheckerConfig) -> Result<Guard, ConfigError> {
        Ok(Guard {
            allowed: config.allow.iter().map(|text| Allowed::parse(text)).collect::<Result<_, _>>()?,
            allow_loopback: config.allow_loopback,
            own_ports: Vec::new(),
            nodes: RwLock::default(),
        })
    }

    /// Ports of this node: no check reaches them.
    pub(crate) fn set_own_ports(&mut self, ports: Vec<u16>) {
        self.own_ports = ports;
    }

    /// Replaces the listeners of nodes.
    pub(crate) fn set_nodes(&self, nodes: HashSet<SocketAddr>) {
        *self.nodes.write().unwrap_or_else(PoisonError::into_inner) = nodes;
    }

    /// Why an address is denied.
    pub(crate) fn denied(&self, address: SocketAddr) -> Option<&'static str> {
        let address = SocketAddr::new(plain(address.ip()), address.port());
        if self.allowed.contains(&Allowed::Address(address)) {
            return None;
        }
        if self.nodes.read().unwrap_or_else(PoisonError::into_inner).contains(&address) {
            return Some("it is a port of a node");
        }
        let ip = address.ip();
        let is_loopback = ip.is_loopback() || ip.is_unspecified();
        if is_loopback && self.own_ports.contains(&address.port()) {
            return Some("it is a port of this node");
        }
        let listed = |allowed: &Allowed| matches!(allowed, Allowed::Network(network) if network.contains(&ip));
        if self.allowed.iter().any(listed) {
            return None;
        }
        if is_loopback {
            return (!self.allow_loopback).then_some("it is a loopback address; list it in checks.allow to check it");
        }
        let special = match ip {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.is_multicast() || v4.octets()[0] == 0,
            IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast(),
        };
        (special || METADATA.contains(&ip)).then_some("it is a link-local, metadata or multicast address")
    }

    /// Connects to `host:port`. Each address is checked after its resolution, and the connection is made to exactly that address.
    pub(crate) async fn connect(&self, address: &str) -> Result<TcpStream, ConnectError> {
        let unresolvable = |error| ConnectError::Unresolvable { host: address.to_owned(), error };
        let resolved: Vec<SocketAddr> = lookup_host(address).await.map_err(unresolvable)?.take(ADDRESSES_MAX).collect();
        let mut last = unresolvable(io::Error::other("the name has no address"));
        for address in resolved {
            if let Some(reason) = self.denied(address) {
                last = ConnectError::Denied { address, reason };
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => return self.check_connected(address, stream),
                Err(error) => last = ConnectError::Failed { address, error },
            }
        }
        Err(last)
    }

    /// A connection to another address of this machine leads to this node as well.
    fn check_connected(&self, address: SocketAddr, stream: TcpStream) -> Result<TcpStream, ConnectError> {
        let same_machine = match (stream.local_addr(), stream.peer_addr()) {
            (Ok(local), Ok(peer)) => local.ip() == peer.ip() && peer == address,
            _ => true,
        };
        let listed = self.allowed.contains(&Allowed::Address(address));
        if same_machine && self.own_ports.contains(&address.port()) && !listed {
            return Err(ConnectError::Denied { address, reason: "it is a port of this node" });
        }
        Ok(stream)
    }
}

/// An IPv4 address that is written as one of IPv6 reaches the same machine.
fn plain(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = ip else { return ip };
    if let Some(v4) = v6.to_ipv4_mapped() {
        return v4.into();
    }
    let [a, b, c, d, e, f, high, low] = v6.segments();
    let embedded = |high: u16, low: u16| {
        let ([first, second], [third, fourth]) = (high.to_be_bytes(), low.to_be_bytes());
        IpAddr::V4(Ipv4Addr::new(first, second, third, fourth))
    };
    match [a, b, c, d, e, f] {
        // NAT64, and addresses that were once compatible with IPv4.
        [0x64, 0xff9b, 0, 0, 0, 0] => embedded(high, low),
        [0, 0, 0, 0, 0, 0] if high != 0 => embedded(high, low),
        _ => ip,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn guard(change: impl FnOnce(&mut CheckerConfig)) -> Guard {
        let mut config = CheckerConfig::default();
        change(&mut config);
        let mut guard = Guard::new(&config).unwrap();
        guard.set_own_ports(vec![7700]);
        guard
    }

    fn denied(guard: &Guard, address: &str) -> bool {
        guard.denied(address.parse().unwrap()).is_some()
    }

    #[test]
    fn addresses_that_only_a_node_reaches_are_denied() {
        let guard = guard(|_| {});
        for address in [
            "127.0.0.1:80",
            "127.9.9.9:80",
            "0.0.0.0:80",
            "0.1.2.3:80",
            "[::1]:80",
            "[::]:80",
            "[::ffff:127.0.0.1]:80",
            "[::127.0.0.1]:80",
            "[64:ff9b::7f00:1]:80",
            "169.254.169.254:80",
            "[::ffff:169.254.169.254]:80",
            "[fe80::1]:80",
            "[fd00:ec2::254]:80",
            "100.100.100.200:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
            "[ff02::1]:80",
        ] {
            assert!(denied(&guard, address), "{address}");
        }
        for address in ["10.0.0.1:80", "192.168.1.1:7700", "[2001:db8::1]:80", "[fd00::1]:80", "[::ffff:10.0.0.1]:80"] {
            assert!(!denied(&guard, address), "{address}");
        }
    }

    #[test]
    fn listed_addresses_are_allowed_but_ports_of_nodes_only_one_by_one() {
        let guard = guard(|config| {
            config.allow = ["127.0.0.0/8", "169.254.7.7", "10.0.0.9:7701"].map(str::to_owned).into();
        });
        guard.set_nodes(["10.0.0.9:7700", "10.0.0.9:7701"].map(|address| address.parse().unwrap()).into());
        assert!(!denied(&guard, "127.0.0.1:80") && !denied(&guard, "169.254.7.7:80"));
        assert!(denied(&guard, "127.0.0.1:7700"), "the network is listed, the port of the node is not");
        assert!(denied(&guard, "10.0.0.9:7700") && !denied(&guard, "10.0.0.9:7701"));
        assert!(denied(&guard, "[::1]:80"));
        let error = Guard::new(&CheckerConfig { allow: vec!["localhost".to_owned()], ..CheckerConfig::default() });
        assert_eq!(error.unwrap_err(), ConfigError::Allow("localhost".to_owned()));
    }

    #[tokio::test]
    async fn a_name_is_checked_by_what_it_resolves_to() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let name = format!("localhost:{port}");
        let error = guard(|_| {}).connect(&name).await.unwrap_err();
        assert!(matches!(error, ConnectError::Denied { .. }), "{error}");
        let loopback = guard(|config| config.allow_loopback = true);
        loopback.connect(&format!("127.0.0.1:{port}")).await.unwrap();
        let mut own = guard(|config| config.allow_loopback = true);
        own.set_own_ports(vec![port]);
        let error = own.connect(&format!("127.0.0.1:{port}")).await.unwrap_err();
        assert!(error.to_string().contains("port of this node"), "{error}");
    }
}
