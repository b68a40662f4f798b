//! A data directory belongs to one process, and start errors contain what to do.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_node::{Config, Node, StartError};
use convoke_testkit::{eventually, free_address};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const HOLD: &str = "CONVOKE_TEST_HOLD_DATA_DIR";

fn config(path: &Path) -> Config {
    let mut config = Config::new("a").unwrap();
    config.data_dir = Some(path.to_owned());
    config
}

/// Not a test: the second process of the test below.
#[tokio::test]
async fn hold_a_data_directory_for_another_test() {
    let Some(path) = std::env::var_os(HOLD) else { return };
    let node = Node::start(config(Path::new(&path))).await.unwrap();
    std::fs::write(Path::new(&path).join("held"), "").unwrap();
    node.stopped().await;
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn two_processes_cannot_share_a_data_directory() {
    let directory = tempfile::tempdir().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hold_a_data_directory_for_another_test"])
        .env(HOLD, directory.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let child = Killed(child);
    eventually("the other process holds it", async || directory.path().join("held").exists()).await;
    let error = Node::start(config(directory.path())).await.unwrap_err();
    assert!(matches!(error, StartError::DataDirInUse { .. }), "{error}");
    assert!(error.to_string().contains("in use by another process: stop it"), "{error}");
    drop(child);
    // kill -9 leaves the file but not the lock, and the incarnation was on disk before the node was reachable.
    let node = Node::start(config(directory.path())).await.unwrap();
    assert_eq!(node.status().await.unwrap().incarnation.number, 2);
}

#[tokio::test]
async fn start_errors_name_the_reason() {
    let address = free_address();
    let mut config = Config::new("a").unwrap();
    config.bind.clone_from(&address);
    let _node = Node::start(config.clone()).await.unwrap();
    let error = Node::start(config.clone()).await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot listen for peers on {address}")), "{error}");

    config.bind = "0.0.0.0:0".to_owned();
    let error = Node::start(config.clone()).await.unwrap_err();
    assert!(error.to_string().contains("set advertise"), "{error}");
    config.advertise = Some("localhost:0".to_owned());
    let node = Node::start(config.clone()).await.unwrap();
    assert_eq!(node.peer_address(), format!("localhost:{}", node.local_address().port()));

    config.timers.heartbeat_timeout = std::time::Duration::from_secs(1);
    let error = Node::start(config.clone()).await.unwrap_err();
    assert!(error.to_string().starts_with("heartbeat_timeout is 1s"), "{error}");

    let mut config = Config::new("a").unwrap();
    config.network.link_queue_bytes = 1024;
    let error = Node::start(config).await.unwrap_err();
    assert!(matches!(error, StartError::LinkQueue { .. }), "{error}");
}
