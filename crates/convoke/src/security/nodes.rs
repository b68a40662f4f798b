//! The configurations that `convoke init` writes: pure text from names and addresses.

use convoke_cli::{CLIENT_PORT, CommandError, PEER_PORT, Result, host_port};
use convoke_core::version::NodeId;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

const DNS_PORT: u16 = 7753;
/// Distance of the ports of nodes on one host.
const PORT_STEP: u16 = 10;
/// Nodes of one cluster that can be written at once.
const NODES_MAX: usize = 256;

/// A node to be set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedNode {
    pub(super) id: String,
    /// The first is the one that others dial.
    pub(super) hosts: Vec<String>,
    /// Number of the node among those on the same host.
    place: u16,
}

impl PlannedNode {
    fn host(&self) -> &str {
        self.hosts.first().map_or("127.0.0.1", String::as_str)
    }

    fn port(&self, base: u16) -> u16 {
        base + PORT_STEP * self.place
    }

    pub(super) fn client_address(&self) -> String {
        host_port(self.host(), self.port(CLIENT_PORT))
    }

    fn peer_address(&self) -> String {
        host_port(self.host(), self.port(PEER_PORT))
    }

    fn is_local(&self) -> bool {
        self.host().parse::<IpAddr>().map_or(self.host() == "localhost", |address| address.is_loopback())
    }

    /// Names in the certificate. The loopback names let an operator on the machine use the node.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names = self.hosts.clone();
        for local in ["localhost", "127.0.0.1", "::1"] {
            if !names.iter().any(|name| name == local) {
                names.push(local.to_owned());
            }
        }
        names
    }
}

/// Checks ids and hosts. Nodes without a host are on this machine.
pub(super) fn plan(ids: &[String], hosts: &[(String, String)]) -> Result<Vec<PlannedNode>> {
    if ids.len() > NODES_MAX {
        return Err(CommandError::usage(format!("--nodes has {} ids, and {NODES_MAX} is the limit", ids.len())));
    }
    if let Some((id, _)) = hosts.iter().find(|(id, _)| !ids.contains(id)) {
        return Err(CommandError::usage(format!("--host names node {id}, which is not in --nodes")));
    }
    let mut places: BTreeMap<String, u16> = BTreeMap::new();
    let mut planned: Vec<PlannedNode> = Vec::new();
    for id in ids {
        NodeId::new(id).map_err(|error| CommandError::usage(error.to_string()))?;
        if planned.iter().any(|other| other.id == *id) {
            return Err(CommandError::usage(format!("--nodes has {id} twice")));
        }
        let own = hosts.iter().filter(|(of, _)| of == id).map(|(_, host)| host.clone());
        let mut node = PlannedNode { id: id.clone(), hosts: own.collect(), place: 0 };
        let next = places.entry(node.host().to_owned()).or_default();
        node.place = *next;
        *next += 1;
        planned.push(node);
    }
    Ok(planned)
}

/// The configuration file of a node.
pub(super) fn configuration(cluster: &str, node: &PlannedNode, all: &[PlannedNode]) -> String {
    // A string of JSON is one of TOML.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut text = format!(
        "# Node {} of cluster {cluster}, written by `convoke init`.\n# Copy this directory to the node, and start it with\n\
         #   convoke start --config convoke.toml\n\n",
        node.id
    );
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "{key} = {value}");
    };
    line("id", quoted(&node.id));
    line("cluster", quoted(cluster));
    line("data_dir", quoted(&format!("convoke-data-{}", node.id)));
    line("bind", quoted(if node.is_local() { "127.0.0.1" } else { "0.0.0.0" }));
    if !node.is_local() {
        line("advertise", quoted(node.host()));
    }
    for (key, base) in [("client_port", CLIENT_PORT), ("peer_port", PEER_PORT), ("dns_port", DNS_PORT)] {
        line(key, node.port(base).to_string());
    }
    if all.len() > 1 {
        let join: Vec<String> = all.iter().map(|other| quoted(&other.peer_address())).collect();
        line("join", format!("[{}]", join.join(", ")));
    } else {
        line("bootstrap", "1".to_owned());
    }
    text + "\n[tls]\nca = \"ca.pem\"\ncert = \"cert.pem\"\nkey = \"key.pem\"\nclient = \"required\"\npeer = \"required\"\n\
            \n[auth]\nenabled = true\nkeys = \"keys\"\n\n[audit]\nfile = \"audit.log\"\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_tls::Mode;

    fn ids(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn nodes_on_one_host_get_different_ports() {
        let nodes = plan(&ids(&["n1", "n2", "n3"]), &[("n3".to_owned(), "n3.example".to_owned())]).unwrap();
        let addresses: Vec<_> = nodes.iter().map(PlannedNode::client_address).collect();
        assert_eq!(addresses, ["127.0.0.1:7700", "127.0.0.1:7710", "n3.example:7700"]);
        assert_eq!(nodes[2].names(), ["n3.example", "localhost", "127.0.0.1", "::1"]);
    }

    #[test]
    fn wrong_ids_and_hosts_are_named() {
        let host = [("n2".to_owned(), "a".to_owned())];
        assert!(plan(&ids(&["n1"]), &host).unwrap_err().message.contains("node n2, which is not in --nodes"));
        assert!(plan(&ids(&["n1", "n1"]), &[]).unwrap_err().message.contains("twice"));
        assert!(plan(&ids(&["a b"]), &[]).is_err());
    }

    #[test]
    fn configurations_are_valid_and_require_tls_and_tokens() {
        let hosts = [("n1".to_owned(), "10.0.0.1".to_owned())];
        let nodes = plan(&ids(&["n1", "n2"]), &hosts).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("convoke.toml");
        std::fs::write(&path, configuration("a \"b\"", &nodes[0], &nodes)).unwrap();
        let mut loaded = crate::config::Loaded::default();
        loaded.file(&path).unwrap();
        let settings = &loaded.settings;
        assert_eq!((settings.cluster.as_str(), settings.advertise.as_str()), ("a \"b\"", "10.0.0.1"));
        assert_eq!((settings.tls.client, settings.tls.peer), (Mode::Required, Mode::Required));
        assert_eq!(settings.join, ["10.0.0.1:7701", "127.0.0.1:7701"]);
        let tls = loaded.resolve("tls.cert", &settings.tls.cert);
        assert_eq!(tls, directory.path().join("cert.pem"), "paths are relative to the file");
        assert!(settings.auth.enabled, "callers need tokens");
        assert_eq!(loaded.resolve("auth.keys", &settings.auth.keys), directory.path().join("keys"));
        crate::config::build(&loaded, "n1").expect("a public address needs no further flag");
        let alone = plan(&ids(&["n1"]), &[]).unwrap();
        assert!(configuration("c", &alone[0], &alone).contains("bootstrap = 1"));
    }
}
