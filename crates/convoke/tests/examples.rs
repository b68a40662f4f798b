//! The configurations in `examples/` start, and their nodes find each other.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{TestNode, until};
use std::path::{Path, PathBuf};
use support::{convoke, output, states};
use tempfile::TempDir;

fn files(cluster: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(cluster);
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Starts all configurations at once, unchanged except for the client, peer and DNS ports, which may be in use here.
fn start(cluster: &str) -> (TempDir, Vec<TestNode>) {
    let files = files(cluster);
    let dir = tempfile::tempdir().unwrap();
    let port = convoke_testkit::free_address().rsplit_once(':').unwrap().1.to_owned();
    let nodes: Vec<TestNode> = files
        .iter()
        .map(|file| {
            output(&["config", "check", file.to_str().unwrap()]);
            let text = std::fs::read_to_string(file).unwrap();
            let line = text.lines().find(|line| line.starts_with("join = ")).unwrap_or("join = []");
            let join: Vec<String> =
                line.split('"').filter(|part| part.starts_with("127.")).map(|host| format!("{host}:{port}")).collect();
            let mut command =
                convoke(&["start", "--client-port", "0", "--dns-port", "0", "--peer-port", &port, "--config"]);
            command.arg(file).env("CONVOKE_TIMERS_PING_INTERVAL", "100ms").current_dir(dir.path());
            if !join.is_empty() {
                command.args(["--join", &join.join(",")]);
            }
            TestNode::spawn(&mut command)
        })
        .collect();
    let nodes: Vec<TestNode> = nodes.into_iter().map(TestNode::ready).collect();
    for node in &nodes {
        // Only some nodes connect to other regions.
        until("every node is up or distant for every other", || {
            let states = states(node);
            states.len() == nodes.len() && states.iter().all(|(_, state)| state == "up" || state == "distant")
        });
    }
    (dir, nodes)
}

#[test]
fn one_node() {
    assert_eq!(start("one").1.len(), 1);
}

#[test]
fn three_nodes() {
    assert_eq!(start("three").1.len(), 3);
}

#[test]
fn two_regions() {
    let (_dir, nodes) = start("two-regions");
    assert_eq!(nodes.len(), 4);
    let regions = support::query(&nodes[0], &["nodes"]);
    let of = |id: &str| {
        let nodes = regions["nodes"].as_array().unwrap();
        nodes.iter().find(|node| node["id"] == id).unwrap()["region"].clone()
    };
    assert_eq!((of("eu-1"), of("us-2")), ("eu".into(), "us".into()));
}
