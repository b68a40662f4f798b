//! What a node is called if nobody says.

use crate::config::{LOG_DIRECTORY, PEER_PORT, Settings};
use crate::failure::{Failure, Outcome};
use convoke_node::core::version::NodeId;
use std::path::Path;

/// The configured id, else the one the data directory belongs to, else one made from the host name: the same after every
/// start on the same machine with the same port. Refuses to be anybody else than the log in the data directory is of, before anything
/// is written: a log that was restored or recovered there is a replica under that id and no other.
pub(crate) fn of(settings: &Settings) -> Outcome<String> {
    let data_dir = &settings.data_dir;
    let (recorded, of_log) = (convoke_node::id_of_data_dir(data_dir), of_log(data_dir)?);
    let id = match settings.id.as_str() {
        "" => recorded.clone().or_else(|| of_log.clone()),
        id => Some(id.to_owned()),
    };
    let id = id.unwrap_or_else(|| from_host(&rustix::system::uname().nodename().to_string_lossy(), settings.peer_port));
    if recorded.is_some_and(|recorded| recorded != id) {
        // The node itself refuses the directory.
        return Ok(id);
    }
    match of_log {
        Some(found) if found != id => Err(Failure::usage(format!(
            "{} holds the log of node {found}, not of {id}: start it with --id {found}, or use another data directory",
            data_dir.display()
        ))),
        _ => Ok(id),
    }
}

/// Id of the node whose log is in a data directory, if there is one.
pub(crate) fn of_log(data_dir: &Path) -> Outcome<Option<String>> {
    convoke_replica::offline::node_of(&data_dir.join(LOG_DIRECTORY)).map_err(|error| Failure::failed(error.to_string()))
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
