//! The id of a node without a configured id.

use crate::config::{LOG_DIRECTORY, Settings};
use convoke_cli::{CommandError, PEER_PORT, Result};
use convoke_core::version::NodeId;
use convoke_replica::StoreError;
use std::io;
use std::path::Path;

/// Returns the configured id, or the id in the data directory, or an id derived from host name and port.
///
/// The id must be the one of the log in the data directory: a restored or recovered log is a replica under that id and
/// no other. The check runs before anything is written.
pub(crate) fn of(settings: &Settings) -> Result<String> {
    let data_dir = &settings.data_dir;
    let recorded = convoke_node::id_of_data_dir(data_dir);
    let of_log = ignore_unusable_log(read(data_dir), settings.log.enabled)?;
    let id = match settings.id.as_str() {
        "" => recorded.clone().or_else(|| of_log.clone()),
        id => Some(id.to_owned()),
    };
    let id = id.unwrap_or_else(|| from_host(&rustix::system::uname().nodename().to_string_lossy(), settings.peer_port));
    if recorded.is_some_and(|recorded| recorded != id) {
        // The node itself rejects the directory.
        return Ok(id);
    }
    match of_log {
        Some(found) if found != id => Err(CommandError::usage(format!(
            "{} holds the log of node {found}, not of {id}: start the node with --id {found}, or use another data directory",
            data_dir.display()
        ))),
        _ => Ok(id),
    }
}

/// Id of the node whose log is in a data directory, if there is one.
pub(crate) fn of_log(data_dir: &Path) -> Result<Option<String>> {
    read(data_dir).map_err(|error| failed(&error))
}

fn read(data_dir: &Path) -> Result<Option<String>, StoreError> {
    convoke_replica::offline::node_of(&data_dir.join(LOG_DIRECTORY))
}

/// Ignores a damaged log if the log is off, and a log that this user cannot read: `convoke config check` may run as
/// another user than the node. A node fails later, when it opens the log.
fn ignore_unusable_log(found: Result<Option<String>, StoreError>, log_enabled: bool) -> Result<Option<String>> {
    match found {
        Err(_) if !log_enabled => Ok(None),
        Err(StoreError::Disk { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        found => found.map_err(|error| failed(&error)),
    }
}

fn failed(error: &StoreError) -> CommandError {
    CommandError::failed(error.to_string())
}

/// Derives an id from the host name. Several nodes of one machine differ in their ports.
fn from_host(host: &str, peer_port: u16) -> String {
    let suffix = if peer_port == PEER_PORT { String::new() } else { format!("-{}", discriminator(peer_port)) };
    let short = host.split('.').next().unwrap_or_default();
    let allowed = short.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' });
    let name: String = allowed.take(NodeId::MAX_BYTES - suffix.len()).collect();
    format!("{}{suffix}", if name.is_empty() { "node" } else { &name })
}

/// The port, or the process id if the system chooses the port.
fn discriminator(peer_port: u16) -> u32 {
    if peer_port == 0 { std::process::id() } else { peer_port.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_log_does_not_prevent_a_start_without_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings { data_dir: directory.path().to_owned(), id: "n1".into(), ..Settings::default() };
        std::fs::create_dir(directory.path().join(LOG_DIRECTORY)).unwrap();
        std::fs::write(directory.path().join(LOG_DIRECTORY).join("identity"), "not one").unwrap();
        let error = of(&settings).unwrap_err();
        assert!(error.message.contains("identity is damaged"), "{error}");
        settings.log.enabled = false;
        assert_eq!(of(&settings), Ok("n1".to_owned()));

        let rejected = |kind: io::ErrorKind| {
            Err(StoreError::Disk { action: "read", path: directory.path().to_owned(), source: kind.into() })
        };
        assert_eq!(ignore_unusable_log(rejected(io::ErrorKind::PermissionDenied), true), Ok(None));
        assert!(ignore_unusable_log(rejected(io::ErrorKind::InvalidData), true).is_err());
    }

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
