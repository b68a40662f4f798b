//! Clients of Consul, unmodified, against processes: the scripts in tests/consul. They assert; the tests start what they need.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{TestNode, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{binary, convoke, founders};

/// The status of a script that lacks a tool.
const SKIPPED: i32 = 77;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/consul")
}

/// A program that `tests/consul/prepare` fetches. Without it, the test reports that and does nothing.
fn prepared(test: &str, client: &str, program: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("consul").join(program);
    if path.exists() {
        return Some(path);
    }
    skip(test, format!("needs the client {client}; run tests/consul/prepare {client}"));
    None
}

fn node() -> TestNode {
    TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready()
}

/// A command that runs a script. The scripts write nothing beside themselves.
fn script(interpreter: &Path, script: &str) -> Command {
    let mut command = Command::new(interpreter);
    command.arg(sources().join(script)).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Runs a client to its end. It prints `complete`, or what it lacks.
#[track_caller]
fn completes(test: &str, command: &mut Command) {
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(SKIPPED) {
        return skip(test, stdout.trim());
    }
    assert!(output.status.success() && stdout.ends_with("complete\n"), "{}: {stdout}\n{stderr}", output.status);
}

#[test]
fn the_consul_program_locks_at_three_nodes() {
    let test = "the_consul_program_locks_at_three_nodes";
    let Some(consul) = prepared(test, "consul", "consul/usr/bin/consul") else { return };
    let dir = tempfile::tempdir().unwrap();
    let nodes = founders(dir.path(), &[("n1", "r1"), ("n2", "r1"), ("n3", "r1")]);
    let addresses: Vec<&str> = nodes.iter().map(|node| node.clients.as_str()).collect();
    completes(test, script(Path::new("python3"), "program.py").arg(addresses.join(",")).arg(consul));
}

#[test]
fn py_consul() {
    let Some(python) = prepared("py_consul", "python", "python/bin/python") else { return };
    let node = node();
    completes("py_consul", script(&python, "module.py").arg(&node.clients));
}

#[test]
fn python_consul2() {
    let Some(python) = prepared("python_consul2", "python-consul2", "python-consul2/bin/python") else { return };
    let node = node();
    completes("python_consul2", script(&python, "module.py").arg(&node.clients));
}

#[test]
fn ansible() {
    let Some(playbook) = prepared("ansible", "ansible", "python-consul2/bin/ansible-playbook") else { return };
    let Some(collections) = prepared("ansible", "ansible", "collections") else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = node();
    let (host, port) = node.clients.rsplit_once(':').unwrap();
    let mut command = Command::new(&playbook);
    command
        .args(["--inventory", "localhost,", "--extra-vars"])
        .arg(format!("consul_host={host} consul_port={port}"))
        .arg(sources().join("playbook.yml"))
        .env("ANSIBLE_COLLECTIONS_PATH", collections)
        .env("ANSIBLE_PYTHON_INTERPRETER", playbook.with_file_name("python"))
        .env("ANSIBLE_HOME", dir.path())
        .env("ANSIBLE_LOCAL_TEMP", dir.path())
        .env("ANSIBLE_REMOTE_TEMP", dir.path());
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
}

#[test]
fn npm_package() {
    let Some(modules) = prepared("npm_package", "npm", "npm/node_modules") else { return };
    if Command::new("node").arg("--version").output().is_err() {
        return skip("npm_package", "needs the program node in PATH");
    }
    let node = node();
    completes("npm_package", script(Path::new("node"), "client.js").arg(&node.clients).env("NODE_PATH", modules));
}

#[test]
fn rs_consul() {
    let Some(program) = prepared("rs_consul", "rust", "rust/debug/consul-client") else { return };
    let node = node();
    completes("rs_consul", Command::new(program).arg(format!("http://{}", node.clients)));
}

#[test]
fn prometheus_discovers_targets() {
    let test = "prometheus_discovers_targets";
    let Some(prometheus) = prepared(test, "prometheus", "prometheus/usr/bin/prometheus") else { return };
    let node = node();
    completes(test, script(Path::new("python3"), "discovery.py").arg(&node.clients).arg("prometheus").arg(prometheus));
}

#[test]
fn vmagent_discovers_targets() {
    let test = "vmagent_discovers_targets";
    let Some(vmagent) = prepared(test, "vmagent", "vmagent/usr/bin/vmagent") else { return };
    let node = node();
    completes(test, script(Path::new("python3"), "discovery.py").arg(&node.clients).arg("vmagent").arg(vmagent));
}

/// Most of its time, about 50 s, is the ttl of the session of the killed primary, and it costs little CPU time.
#[test]
fn patroni_fails_over() {
    let Some(python) = prepared("patroni_fails_over", "python", "python/bin/python") else { return };
    completes("patroni_fails_over", script(&python, "failover.py").arg(binary()));
}
