//! What a node is called if nobody says.

use crate::config::{PEER_PORT, Settings};
use convoke_node::core::version::NodeId;

/// The configured id, else the one the data directory belongs to, else one made from the host name: the same after every
/// start on the same machine with the same port.
pub(crate) fn of(settings: &Settings) -> String {
    if !settings.id.is_empty() {
        return settings.id.clone();
    }
    convoke_node::id_of_data_dir(&settings.data_dir)
        .unwrap_or_else(|| from_host(&rustix::system::uname().nodename().to_string_lossy(), settings.peer_port))
}

/// Several nodes of a machine differ in their ports.
fn from_host(host: &str, peer_port: u16) -> String {
    let suffix = if peer_port == PEER_PORT { String::new() } else { format!("-{}", discriminator(peer_port)) };
    let short = host.split('.').next().unwrap_or_default();
    let allowed = short.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' });
    let name: String = allowed.take(NodeId::MAX_BYTES - suffix.len()).collect();
    format!("{}{suffix}", if name.is_empty() { "node" } else { &name })
}

/// A port that the system chooses says nothing; the number of the process does.
fn discriminator(peer_port: u16) -> u32 {
    if peer_port == 0 { std::process::id() } else { peer_port.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_become_node_ids() {
        for (host, port, id) in [
            ("web-7.example.org", PEER_PORT, "web-7"),
            ("web-7", 7_711, "web-7-7711"),
            ("", PEER_PORT, "node"),
            ("Bücher kiste", PEER_PORT, "B-cher-kiste"),
        ] {
            assert_eq!(from_host(host, port), id);
            assert!(NodeId::new(id).is_ok());
        }
        assert!(NodeId::new(&from_host(&"x".repeat(300), 7_711)).is_ok());
        assert_ne!(from_host("a", 0), from_host("a", PEER_PORT));
    }
}
