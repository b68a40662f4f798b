//! What a node is called if nobody says.

use crate::config::{LOG_DIRECTORY, Settings};
use convoke_cli::{CommandError, PEER_PORT, Result};
use convoke_node::core::version::NodeId;
use convoke_replica::StoreError;
use std::io;
use std::path::Path;

/// The configured id, else the one the data directory belongs to, else one made from the host name: the same after every
/// start on the same machine with the same port. Refuses to be anybody else than the log in the data directory is of, before anything
/// is written: a log that was restored or recovered there is a replica under that id and no other.
pub(crate) fn of(settings: &Settings) -> Result<String> {
    let data_dir = &settings.data_dir;
    let recorded = convoke_node::id_of_data_dir(data_dir);
    let of_log = if_it_matters(read(data_dir), settings.log.enabled)?;
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
        Some(found) if found != id => Err(CommandError::usage(format!(
            "{} holds the log of node {found}, not of {id}: start it with --id {found}, or use another data directory",
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

/// A log that is not used may be as damaged as it likes. One that must not be read here belongs to somebody else, for whom a
/// configuration is only checked; a node itself is refused when it opens it.
fn if_it_matters(found: Result<Option<String>, StoreError>, log_enabled: bool) -> Result<Option<String>> {
    match found {
        Err(_) if !log_enabled => Ok(None),
        Err(StoreError::Disk { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        found => found.map_err(|error| failed(&error)),
    }
}

fn failed(error: &StoreError) -> CommandError {
    CommandError::failed(error.to_string())
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
    fn a_log_that_cannot_be_read_keeps_nobody_from_starting_without_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings { data_dir: directory.path().to_owned(), id: "n1".into(), ..Settings::default() };
        std::fs::create_dir(directory.path().join(LOG_DIRECTORY)).unwrap();
        std::fs::write(directory.path().join(LOG_DIRECTORY).join("identity"), "not one").unwrap();
        let error = of(&settings).unwrap_err();
        assert!(error.message.contains("identity is damaged"), "{error}");
        settings.log.enabled = false;
        assert_eq!(of(&settings), Ok("n1".to_owned()));

        let refused = |kind: io::ErrorKind| {
            Err(StoreError::Disk { action: "read", path: directory.path().to_owned(), source: kind.into() })
        };
        assert_eq!(if_it_matters(refused(io::ErrorKind::PermissionDenied), true), Ok(None));
        assert!(if_it_matters(refused(io::ErrorKind::InvalidData), true).is_err());
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
