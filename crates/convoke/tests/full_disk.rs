//! A log that cannot be written stops, loses no acknowledged write and leaves the registry alone (docs/log-replicas.md).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{TestNode, skip, until};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{binary, convoke, output, query, registered, start};

/// Largest file size of this node in blocks. Writes beyond it fail as on a full disk.
const BLOCKS: &str = "1024";

/// Runs a command with a limit of the file size. The signal at the limit is ignored, so that the write fails instead.
fn limited(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"trap "" XFSZ; ulimit -f "$0"; exec "$@""#, BLOCKS]).arg(binary()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// Writes until a write fails. Returns the number of acknowledged writes.
fn fill(address: &str) -> usize {
    let value = "v".repeat(64 * 1024);
    for number in 0.. {
        let key = format!("k/{number}");
        let put = convoke(&["kv", "put", &key, &value, "--addr", address, "--timeout", "10s"]).output().unwrap();
        if !put.status.success() {
            return number;
        }
        assert!(number < 1_000, "the disk does not become full");
    }
    unreachable!("the loop returns")
}

fn owner(node: &TestNode, id: &str) -> String {
    query(node, &["member", id])["owner"]["node"].as_str().unwrap_or_default().to_owned()
}

/// Waits until the log of a node has failed, and returns the reason.
fn log_fault(node: &TestNode) -> String {
    let mut fault = String::new();
    until("the log of the node has failed", || {
        let status = query(node, &["log", "status"]);
        fault = status["fault"].as_str().unwrap_or_default().to_owned();
        assert!(fault.is_empty() || status["available"] == false, "{status}");
        status["role"] == "failed" && !fault.is_empty()
    });
    fault
}

/// The registry of a node works: reads, writes and liveness.
fn check_registry(node: &TestNode, other: &TestNode, id: &str) {
    assert_eq!(owner(other, "web-1"), "n1", "its client stays");
    let _late = registered(&node.clients, id);
    until("a new member is seen elsewhere", || support::member_status(other, id).as_deref() == Some("up"));
}

/// A node writes until its disk is full. Its log stops, and its registry goes on. It also starts with a full disk. After a
/// restart with free space every acknowledged write is there.
fn scenario(dir: &Path, data: &Path, command: impl Fn(&[&str]) -> Command, error: &str, mend: impl FnOnce()) {
    let mut full = TestNode::spawn(&mut command(&["--id", "n1"])).ready();
    let other = TestNode::spawn(&mut start(&dir.join("n2"), &["--id", "n2", "--join", &full.peers])).ready();
    let mut web = registered(&full.clients, "web-1");
    until("the other node has the member", || support::member_status(&other, "web-1").as_deref() == Some("up"));

    let acknowledged = fill(&full.clients);
    assert!(acknowledged > 0);
    let fault = log_fault(&full);
    let file = data.join("log").join("0000000000000001.log");
    assert!(fault.contains(file.to_str().unwrap()) && fault.contains(error), "{fault}");
    check_registry(&full, &other, "late-1");
    let put = ["kv", "put", "more", "1", "--addr", &full.clients, "--timeout", "3s"];
    assert!(!convoke(&put).output().unwrap().status.success(), "no write is accepted");
    web.terminate();
    web.wait();
    full.process.terminate();
    assert_eq!(full.process.wait().code(), Some(0));
    let printed = full.process.stderr();
    assert!(printed.contains("ERROR") && printed.contains("the registry goes on"), "{printed}");

    // The same once more, from the start.
    let mut full = TestNode::spawn(&mut command(&["--id", "n1", "--join", &other.peers])).ready();
    let _web = registered(&full.clients, "web-1");
    until("the other node has the member", || owner(&other, "web-1") == "n1");
    check_registry(&full, &other, "late-2");
    full.process.terminate();
    full.process.wait();

    mend();
    let back = TestNode::spawn(&mut start(data, &["--id", "n1", "--join", &other.peers])).ready();
    let at = ["--addr", &back.clients, "--timeout", "60s"];
    let run = |arguments: &[&str]| output(&[arguments, &at].concat());
    for number in 0..acknowledged {
        assert_eq!(run(&["kv", "get", &format!("k/{number}"), "--raw"]).len(), 64 * 1024, "k/{number}");
    }
    run(&["kv", "put", "after", "1"]);
}

#[test]
fn a_limited_log_stops_without_the_registry_and_no_acknowledged_write_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("n1");
    scenario(dir.path(), &data, |arguments| limited(&start(&data, arguments)), "File too large", || {});
}

/// A separate file system that is soon full. It is unmounted on drop.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf) -> Option<Small> {
        std::fs::create_dir(&at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "convoke-test"]).arg(&at).output();
        mounted.is_ok_and(|mounted| mounted.status.success()).then_some(Small(at))
    }

    fn grow(&self) {
        let grown = Command::new("mount").args(["-o", "remount,size=64m"]).arg(&self.0).status();
        assert!(grown.unwrap().success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // A lazy unmount, because a node left by a failed test may still use it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_stops_the_log_but_not_the_registry_and_no_acknowledged_write_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("n1");
    let Some(disk) = Small::mount(data.clone()) else {
        let test = "a_full_disk_stops_the_log_but_not_the_registry_and_no_acknowledged_write_is_lost";
        return skip(test, "cannot mount a file system here");
    };
    scenario(dir.path(), &data, |arguments| start(&data, arguments), "No space left on device", || disk.grow());
}
