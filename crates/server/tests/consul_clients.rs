//! The `consul` program, unmodified, against a node. Other clients run in crates/convoke/tests/consul_clients.rs.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{consul_program, skip};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use support::Served;

/// Runs the program and returns what it prints.
async fn run(program: &Path, served: &Served, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).env("CONSUL_HTTP_ADDR", served.address().to_string());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {stdout}{stderr}");
    stdout.into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_consul_program_works() {
    let Some(consul) = consul_program() else {
        return skip("the_consul_program_works", "needs the program consul in PATH or CONVOKE_CONSUL");
    };
    let served = Served::start("alpha", &[], |config| config.cluster = "dc1".into(), |_| {}).await;
    let run = async |arguments: &[&str]| run(&consul, &served, arguments).await;
    let members = run(&["members"]).await;
    assert!(members.contains("alpha") && members.contains("alive") && members.contains("dc1"), "{members}");
    run(&["info"]).await;
    assert_eq!(run(&["catalog", "datacenters"]).await, "dc1\n");
    assert!(run(&["catalog", "nodes"]).await.contains("alpha"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("web.json");
    std::fs::write(
        &file,
        r#"{"Service":{"Name":"web","ID":"w1","Port":80,"Tags":["v1"],"Check":{"TTL":"10m","Status":"passing"}}}"#,
    )
    .unwrap();
    let registered = run(&["services", "register", file.to_str().unwrap()]).await;
    assert!(registered.contains("Registered service: web"), "{registered}");
    assert_eq!(run(&["catalog", "services"]).await, "consul\nweb\n");
    assert!(run(&["catalog", "services", "-tags"]).await.contains("v1"));
    assert!(run(&["catalog", "nodes", "-service=web", "-detailed"]).await.contains("alpha"));
    // A watch prints the first answer, and then each change.
    let mut watch = Command::new(&consul);
    watch.args(["watch", "-type=service", "-service=web", "-passingonly=true", "cat"]);
    watch.env("CONSUL_HTTP_ADDR", served.address().to_string()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut watching = watch.spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let next = async |mut lines: std::io::Lines<BufReader<std::process::ChildStdout>>| {
        tokio::task::spawn_blocking(move || {
            let line = lines.next().unwrap().unwrap();
            (line, lines)
        })
        .await
        .unwrap()
    };
    let (line, rest) = next(lines).await;
    lines = rest;
    assert!(line.contains("\"w1\""), "{line}");
    run(&["maint", "-enable", "-service=w1", "-reason=test"]).await;
    let (line, rest) = next(lines).await;
    assert_eq!(line, "[]", "a service in maintenance does not pass");
    assert!(run(&["maint"]).await.contains("w1"));
    run(&["maint", "-disable", "-service=w1"]).await;
    let (line, _rest) = next(rest).await;
    assert!(line.contains("\"w1\""), "{line}");
    watching.kill().unwrap();
    watching.wait().unwrap();
    let deregistered = run(&["services", "deregister", "-id=w1"]).await;
    assert!(deregistered.contains("Deregistered service: w1"), "{deregistered}");
    assert_eq!(run(&["catalog", "services"]).await, "consul\n");
}
