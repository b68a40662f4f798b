//! JSON types of the API of the cluster manager (docs/demo-and-clusters.md).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Identifies the manager among other services on its port.
pub(crate) const SERVICE: &str = "convoke-cluster-manager";
pub(crate) const CLUSTERS_MAX: usize = 16;
/// Largest number of clients of one cluster.
pub(crate) const CLIENTS_MAX: usize = 1_000;
const NAME_MAX: usize = 32;

/// `GET /healthz`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Manager {
    pub(crate) service: String,
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) clusters: usize,
    /// Number of clusters that are being created.
    pub(crate) creating: usize,
}

/// `POST /clusters`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateRequest {
    pub(crate) name: String,
    #[serde(default = "three")]
    pub(crate) nodes: usize,
    /// Regions, assigned to the nodes in turn.
    #[serde(default)]
    pub(crate) regions: Vec<String>,
    /// Configuration keys for all nodes.
    #[serde(default)]
    pub(crate) settings: BTreeMap<String, String>,
}

fn three() -> usize {
    3
}

/// `POST /clusters/{name}/nodes`
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AddRequest {
    pub(crate) region: String,
}

/// `PUT /clusters/{name}/clients`: sets the number of clients of a service.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientsRequest {
    pub(crate) count: usize,
    #[serde(default = "web")]
    pub(crate) service: String,
    /// Stop surplus clients without unregistering.
    #[serde(default)]
    pub(crate) crash: bool,
}

fn web() -> String {
    "web".to_owned()
}

/// Lines of the answer to a request that takes a while. The last one is `Done` or `Failed`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Progress {
    /// The name is reserved; `id` distinguishes this cluster from others of that name.
    Begun {
        id: u64,
    },
    Ready {
        node: String,
        of: usize,
        number: usize,
    },
    Done(ClusterInfo),
    Failed(convoke_proto::Error),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterInfo {
    pub(crate) name: String,
    pub(crate) nodes: Vec<NodeInfo>,
    /// Number of clients that the manager runs, by service.
    pub(crate) clients: BTreeMap<String, usize>,
    pub(crate) faults: Vec<DirectionFault>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeInfo {
    pub(crate) id: String,
    /// `running`, `paused` or `dead`.
    pub(crate) state: String,
    pub(crate) region: String,
    /// Client address.
    pub(crate) address: String,
    /// Address that other nodes dial: the relay in front of the node.
    pub(crate) peer_address: String,
    pub(crate) pid: Option<u32>,
    /// File with the stderr output of the node.
    pub(crate) log: String,
}

/// A fault of the traffic from one node to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DirectionFault {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) cut: bool,
    pub(crate) delay_ms: u64,
}

/// `GET /clusters`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Clusters {
    pub(crate) clusters: Vec<ClusterInfo>,
}

/// `POST /clusters/{name}/faults`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "fault")]
pub(crate) enum Fault {
    Drop {
        #[serde(default)]
        nodes: Vec<String>,
    },
    Blackhole {
        nodes: Vec<String>,
    },
    Partition {
        groups: Vec<Vec<String>>,
    },
    OneWay {
        from: String,
        to: String,
    },
    Delay {
        ms: u64,
        #[serde(default)]
        nodes: Vec<String>,
    },
    Pause {
        node: String,
    },
    Resume {
        node: String,
    },
    Kill {
        node: String,
    },
    Restart {
        node: String,
    },
    Heal {
        #[serde(default)]
        nodes: Vec<String>,
    },
}

/// `GET /clusters/{name}/health`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Health {
    /// All nodes run, answer, are connected and agree on the members.
    pub(crate) healthy: bool,
    /// All nodes that answer have the same members in the same versions.
    pub(crate) equal: bool,
    /// Number of members.
    pub(crate) members: usize,
    /// One sentence per problem.
    pub(crate) problems: Vec<String>,
    /// The first members that differ, by node: version and status, or `null` if the member is missing.
    pub(crate) differences: BTreeMap<String, BTreeMap<String, Option<String>>>,
}

/// `GET /clusters/{name}/sd/prometheus`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TargetGroup {
    pub(crate) targets: Vec<String>,
    pub(crate) labels: BTreeMap<String, String>,
}

/// Checks that a name is safe in paths.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let fits = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '-';
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(fits) || name.starts_with('-') {
        return Err(format!(
            "{name:?} is not a valid cluster name: use up to {NAME_MAX} lower-case letters, digits and dashes"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_in_paths() {
        for good in ["local", "a", "eu-2"] {
            check_name(good).unwrap();
        }
        for bad in ["", "../x", "A", "a/b", "-a", &"x".repeat(33)] {
            check_name(bad).unwrap_err();
        }
    }

    #[test]
    fn faults_are_written_as_documented() {
        let read = |text: &str| serde_json::from_str::<Fault>(text);
        let partition = Fault::Partition { groups: vec![vec!["n1".into()], vec!["n2".into(), "n3".into()]] };
        assert_eq!(read(r#"{"fault":"partition","groups":[["n1"],["n2","n3"]]}"#).unwrap(), partition);
        assert_eq!(
            read(r#"{"fault":"one-way","from":"n1","to":"n2"}"#).unwrap(),
            Fault::OneWay { from: "n1".into(), to: "n2".into() }
        );
        assert_eq!(read(r#"{"fault":"heal"}"#).unwrap(), Fault::Heal { nodes: Vec::new() });
        assert!(read(r#"{"fault":"pause"}"#).unwrap_err().to_string().contains("node"));
        assert!(read(r#"{"fault":"flood"}"#).unwrap_err().to_string().contains("flood"));
    }
}
