//! `convoke register` and `convoke watch`.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{NodeProcess, Process, until};
use support::{cluster, convoke, failure, member_status, register, registered, watch};

fn dev() -> NodeProcess {
    NodeProcess::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready()
}

#[test]
fn it_lasts_as_long_as_the_command_and_passes_its_status_on() {
    let node = dev();
    let seen = watch(&node.clients, "service == \"web\"");
    let attributes = ["--address", "127.0.0.1:80", "--meta", "version=v1", "--meta", "a=b=c", "--weight", "3"];
    let command = ["--", "sh", "-c", "read _; exit 7"];
    let mut web = register(&node.clients, "web-1", &[attributes.as_slice(), &command].concat());
    // Nothing to read: the command ends by itself.
    assert_eq!(web.wait().code(), Some(7));
    let line = seen.line("register", |line| line.contains("\"register\""));
    for part in [r#""address":"127.0.0.1:80""#, r#""metadata":{"a":"b=c","version":"v1"}"#, r#""weight":3"#] {
        assert!(line.contains(part), "{line}");
    }
    seen.line("unregister", |line| line.contains("\"unregister\""));
    assert_eq!(member_status(&node, "web-1"), None);
}

#[test]
fn signals_are_passed_on() {
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
fn who_cannot_say_that_it_is_registered_unregisters() {
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
fn whoever_comes_second_must_ask_for_a_takeover() {
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
fn own_failures_around_a_command_are_125() {
    let node = dev();
    let around = |addr: &str, id: &str, command: &str| {
        // Nobody will answer there; here somebody will, however busy the machine is.
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
    until("the watch goes on", || seen.stderr().contains("connected to n2"));
    let _other = registered(&nodes[1].clients, "web-2");
    seen.line("web-2", |line| line.contains("web-2"));
    seen.line("web-1 at n2", |line| line.contains("web-1") && line.contains("\"node\":\"n2\""));
    assert!(!seen.stdout().contains("\"status\":\"down\""), "{}", seen.stdout());
}

#[test]
fn a_watch_ends_when_it_is_told_to() {
    let node = dev();
    let mut seen: Process = watch(&node.clients, "");
    seen.interrupt();
    assert_eq!(seen.wait().code(), Some(0));
}
