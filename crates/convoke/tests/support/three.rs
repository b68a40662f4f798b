//! Three nodes with one log, as processes.

use super::{convoke, start_on};
use convoke_testkit::{TestNode, free_address, until};
use serde_json::Value;
use std::path::Path;

/// Three nodes with one log.
#[derive(Debug)]
pub struct Three {
    pub nodes: Vec<Option<TestNode>>,
    pub peers: Vec<String>,
}

impl Three {
    /// Starts three nodes at once with the same list, so that they form one log.
    pub fn start(dir: &Path) -> Three {
        let peers: Vec<String> = (0..3).map(|_| free_address()).collect();
        let mut three = Three { nodes: vec![None, None, None], peers };
        for index in 0..3 {
            three.spawn(dir, index);
        }
        three
    }

    pub fn spawn(&mut self, dir: &Path, index: usize) {
        let port = self.peers[index].rsplit_once(':').unwrap().1;
        let id = format!("n{index}");
        let arguments = ["--id", &id, "--join", &self.peers.join(",")];
        self.nodes[index] = Some(TestNode::spawn(&mut start_on(&dir.join(&id), ["0", port], &arguments)));
    }

    pub fn kill(&mut self, index: usize) {
        self.nodes[index].take().unwrap().process.kill();
    }

    pub fn addresses(&self) -> String {
        let addresses: Vec<&str> = self.nodes.iter().flatten().map(|node| node.clients.as_str()).collect();
        addresses.join(",")
    }

    /// Waits until the log has three voters and a leader. Returns the index of the leader.
    pub fn leader(&self) -> usize {
        let addresses = self.addresses();
        let mut leader = String::new();
        until("the log has a leader", || {
            let output = convoke(&["log", "status", "--json", "--addr", &addresses]).output().unwrap();
            let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            leader = status["leader"].as_str().unwrap_or_default().to_owned();
            status["available"] == true && status["voters"].as_array().is_some_and(|voters| voters.len() == 3)
        });
        leader[1..].parse().unwrap()
    }
}
