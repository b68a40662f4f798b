//! Closed pipes, SIGHUP and variables of other programs: habits of shells and supervisors that must not stop anything.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{Process, TestNode, until};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use support::{convoke, member_status, start};

fn dev() -> TestNode {
    let dev = convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"]);
    TestNode::spawn(&mut with_default_sighup(&dev)).ready()
}

/// `convoke completions zsh | head`
#[test]
fn completions_end_quietly_when_their_reader_has_enough() {
    for shell in ["bash", "zsh"] {
        let mut completions = Process::spawn_unread(&mut convoke(&["completions", shell]));
        assert_eq!(completions.wait().code(), Some(0), "{}", completions.stderr());
        assert_eq!(completions.stderr(), "");
    }
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = convoke(&["completions", "bash"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(support::failure(&output, 1), "cannot write to stdout: No space left on device (os error 28)");
}

/// `convoke watch | head -2` on a quiet cluster: no further event shows that the pipe is closed.
#[test]
fn a_watch_ends_when_its_reader_has_enough() {
    let node = dev();
    for json in [&["--json"][..], &[]] {
        let arguments = [&["watch", "--addr", &node.clients], json].concat();
        let mut watch = convoke(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
        while !lines.next().unwrap().unwrap().contains("caught-up") {}
        drop(lines);
        let mut status = None;
        until("the watch ends", || {
            status = watch.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success());
    }
}

/// The same command with the default action of SIGHUP, which a test run under `nohup` would pass on as ignored.
fn with_default_sighup(command: &Command) -> Command {
    let mut env = Command::new("env");
    env.arg("--default-signal=HUP").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => env.env(name, value),
            None => env.env_remove(name),
        };
    }
    env
}

fn hang_up(process: &Process) {
    assert!(Command::new("kill").args(["-HUP", &process.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_node_survives_sighup_and_dev_ends_with_its_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = TestNode::spawn(&mut with_default_sighup(&start(dir.path(), &["--id", "n1"]))).ready();
    for times in 1..=2 {
        hang_up(&node.process);
        until("the signal is logged", || node.process.stderr().matches("SIGHUP ignored").count() == times);
    }
    assert_eq!(support::query(&node, &["status"])["ready"], true);
    node.process.terminate();
    assert_eq!(node.process.wait().code(), Some(0));

    let mut dev = dev();
    hang_up(&dev.process);
    assert_eq!(dev.process.wait().code(), Some(0), "a graceful stop: {}", dev.process.stderr());
}

/// A closed terminal unregisters, as Ctrl-C does. `nohup` keeps the registration.
#[test]
fn a_registration_ends_with_its_terminal_unless_told_otherwise() {
    let node = dev();
    let register = ["register", "--addr", &node.clients, "--id", "web-1", "--service", "web"];
    let mut web = Process::spawn(&mut with_default_sighup(&convoke(&register)));
    web.line("is registered", |line| line.contains("is registered"));
    hang_up(&web);
    assert_eq!(web.wait().code(), Some(0));
    assert_eq!(member_status(&node, "web-1"), None);

    let mut nohup = Command::new("nohup");
    nohup.arg(support::binary()).args(["register", "--addr", &node.clients, "--id", "web-2", "--service", "web"]);
    let mut web = Process::spawn(&mut nohup);
    web.line("is registered", |line| line.contains("is registered"));
    let status = std::fs::read_to_string(format!("/proc/{}/status", web.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    assert_eq!(u64::from_str_radix(caught.trim(), 16).unwrap() & 1, 0, "SIGHUP stays ignored: {status}");
    web.terminate();
    assert_eq!(web.wait().code(), Some(0));
}

/// Kubernetes sets this variable in every pod beside a service `convoke-peer`.
#[test]
fn a_service_variable_of_kubernetes_does_not_stop_a_node() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = start(dir.path(), &["--id", "n1"]);
    command.env("CONVOKE_PEER_PORT", "tcp://10.0.0.1:7701").env("CONVOKE_CLIENT_PORT", "tcp://10.0.0.1:7700");
    let node = TestNode::spawn(&mut command).ready();
    until("the warning is logged", || node.process.stderr().contains("ignored CONVOKE_PEER_PORT"));
}
