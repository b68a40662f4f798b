//! Clients in another language, with the proto files and over HTTP: tests/python.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{Process, skip};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::patient_plan;
use support::seen::Seen;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/python")
}

/// Directory that `tests/python/prepare` creates.
fn prepared() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("python")
}

#[test]
fn over_grpc() {
    let python = prepared().join("bin/python");
    if !prepared().join("generated/convoke").exists() {
        return skip("python over_grpc", "run tests/python/prepare first; it needs python3 with venv and pip");
    }
    exercise(Command::new(python).env("PYTHONPATH", prepared().join("generated")), "grpc");
}

#[test]
fn over_http() {
    if Command::new("python3").arg("--version").output().is_err() {
        return skip("python over_http", "needs python3");
    }
    exercise(&mut Command::new("python3"), "http");
}

/// The client registers, moves to the other node when its own is killed, resumes its watch and unregisters.
fn exercise(python: &mut Command, surface: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = patient_plan(dir.path()).start(2).unwrap();
    let seen = Seen::at(&cluster, 1, "service == \"python\"");
    python
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(sources().join("exercise.py"))
        .args([surface, &cluster.all_clients()]);
    let mut client = Process::spawn(python);
    client.line("registered", |line| line.contains("\"state\": \"registered\""));
    cluster.kill(0);
    let status = client.wait();
    assert!(status.success(), "{}\n{}", client.stdout(), client.stderr());

    // Events of its own member, across the interruption: each once, in order, without a reset.
    let printed: Vec<Value> = client.stdout().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said_of =
        |key: &str| printed.iter().filter_map(|line| line[key].as_str().map(str::to_owned)).collect::<Vec<_>>();
    assert_eq!(said_of("attached"), ["n1", "n2"], "{printed:?}");
    let watched = said_of("watch");
    assert_eq!(watched.first().map(String::as_str), Some("caught_up"), "{watched:?}");
    assert_eq!(watched.last().map(String::as_str), Some("unregistered"), "{watched:?}");
    assert!(!watched.contains(&"reset".to_owned()), "{watched:?}");
    assert!(!printed.iter().any(|line| line["member"]["status"] == "STATUS_DOWN"), "{printed:?}");

    // The events that another watcher received.
    seen.event("unregister", "python-1");
    let kinds: Vec<_> = seen.events().iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["caught-up", "register", "owner", "update", "unregister"]);
    assert!(!seen.events().iter().any(|event| event["member"]["status"] == "down"));
}
