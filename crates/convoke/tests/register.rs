//! `convoke register` and `convoke watch`.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{Process, TestNode, until};
use support::{cluster, convoke, failure, member_status, register, registered, watch};

fn dev() -> TestNode {
    TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready()
}

#[test]
fn the_registration_lasts_as_long_as_the_command_and_returns_its_status() {
    let node = dev();
    let seen = watch(&node.clients, "service == \"web\"");
    let attributes = ["--address", "127.0.0.1:80", "--meta", "version=v1", "--meta", "a=b=c", "--weight", "3"];
    let command = ["--", "sh", "-c", "read _; exit 7"];
    let mut web = register(&node.clients, "web-1", &[attributes.as_slice(), &command].concat());
    // stdin is empty, so the command ends by itself.
    assert_eq!(web.wait().code(), Some(7));
    let line = seen.line("register", |line| line.contains("\"register\""));
    for part in [r#""address":"127.0.0.1:80""#, r#""metadata":{"a":"b=c","version":"v1"}"#, r#""weight":3"#] {
        assert!(line.contains(part), "{line}");
    }
    seen.line("unregister", |line| line.contains("\"unregister\""));
    assert_eq!(member_status(&node, "web-1"), None);
}

#[test]
fn signals_are_forwarded_to_the_command() {
    let node = dev();
    let script = "trap 'exit 9' TERM; trap 'exit 8' INT; echo running; while :; do sleep 0.05; done";
    let run = |id: &str| {
        let process = register(&node.clients, id, &["--", "sh", "-c", script]);
        process.line("running", |line| line == "running");
        assert_eq!(member_status(&node, id).as_deref(), Some("up"));
        process
    };
    let mut terminated = run("web-1");
    terminated.terminate();
    assert_eq!(terminated.wait().code(), Some(9));
    let mut interrupted = run("web-2");
    interrupted.interrupt();
    assert_eq!(interrupted.wait().code(), Some(8));
    let mut killed = register(&node.clients, "web-3", &["--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.wait().code(), Some(128 + 9));
    for id in ["web-1", "web-2", "web-3"] {
        assert_eq!(member_status(&node, id), None);
    }
}

#[test]
fn without_a_command_a_signal_unregisters() {
    let node = dev();
    let mut web = registered(&node.clients, "web-1");
    web.terminate();
    assert_eq!(web.wait().code(), Some(0));
    assert_eq!(member_status(&node, "web-1"), None);
}

#[test]
fn a_registration_that_cannot_be_announced_is_undone() {
    let node = dev();
    let mut web = Process::spawn_unread(&mut convoke(&[
        "register",
        "--timeout",
        "30s",
        "--addr",
        &node.clients,
        "--id",
        "web-1",
        "--service",
        "web",
    ]));
    assert_eq!(web.wait().code(), Some(0), "{}", web.stderr());
    assert_eq!(member_status(&node, "web-1"), None);
}

#[test]
fn a_second_client_needs_the_takeover_flag() {
    let node = dev();
    let mut first = registered(&node.clients, "web-1");
    let again = ["register", "--addr", &node.clients, "--id", "web-1", "--service", "web"];
    let error = failure(&convoke(&again).output().unwrap(), 5);
    assert!(error.ends_with("use another --id, or take the member over with --takeover"), "{error}");
    failure(&convoke(&[again.as_slice(), &["--", "true"]].concat()).output().unwrap(), 125);
    let mut second = register(&node.clients, "web-1", &["--takeover", "--", "true"]);
    assert_eq!(second.wait().code(), Some(0));
    assert_eq!(first.wait().code(), Some(5), "{}", first.stderr());
}

#[test]
fn errors_of_the_wrapper_are_exit_code_125() {
    let node = dev();
    let around = |addr: &str, id: &str, command: &str| {
        // Nothing answers at that address; this node answers, however busy the machine is.
        let timeout = if addr == node.clients { "30s" } else { "1s" };
        let arguments =
            ["register", "--addr", addr, "--timeout", timeout, "--id", id, "--service", "web", "--", command];
        failure(&convoke(&arguments).output().unwrap(), 125)
    };
    assert!(around("127.0.0.1:1", "web-1", "true").starts_with("cannot reach a node at 127.0.0.1:1"));
    assert!(around(&node.clients, "", "true").contains("id"));
    assert!(around(&node.clients, "web-1", "/nonexistent").starts_with("cannot run /nonexistent"));
    assert_eq!(member_status(&node, "web-1"), None);
}

#[test]
fn watches_and_registrations_outlive_their_node() {
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = cluster(dir.path(), 2);
    let seen = watch(&nodes[0].clients, "service == \"web\"");
    let _web = registered(&nodes[0].clients, "web-1");
    seen.line("web-1", |line| line.contains("web-1"));
    nodes[0].process.kill();
    until("the watch continues", || seen.stderr().contains("connected to n2"));
    let _other = registered(&nodes[1].clients, "web-2");
    seen.line("web-2", |line| line.contains("web-2"));
    seen.line("web-1 at n2", |line| line.contains("web-1") && line.contains("\"node\":\"n2\""));
    assert!(!seen.stdout().contains("\"status\":\"down\""), "{}", seen.stdout());
}

#[test]
fn a_watch_ends_on_a_signal() {
    let node = dev();
    let mut seen: Process = watch(&node.clients, "");
    seen.interrupt();
    assert_eq!(seen.wait().code(), Some(0));
}
