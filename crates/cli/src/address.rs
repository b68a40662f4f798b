//! Addresses as people write them.

use std::net::Ipv6Addr;

/// Default port for clients.
pub const CLIENT_PORT: u16 = 7700;
/// Default port for other nodes.
pub const PEER_PORT: u16 = 7701;

/// Joins a host and a port; an IPv6 address gets its brackets.
pub fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Adds a port where none is given.
pub fn with_port(address: &str, port: u16) -> String {
    let bare_v6 = address.parse::<Ipv6Addr>().is_ok();
    let has_port = !bare_v6 && address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { address.to_owned() } else { host_port(address, port) }
}
