//! `convoke top` in a pseudo-terminal: two sizes with a resize between them, keys, and the restored terminal.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{Terminal, TestNode, until};
use rustix::process::{Pid, Signal, kill_process};

fn top(node: &TestNode, columns: u16, rows: u16) -> Terminal {
    Terminal::run(&mut support::convoke(&["top", "--interval", "200ms", "--addr", &node.clients]), columns, rows)
}

#[test]
fn top_shows_the_cluster_at_two_sizes_and_restores_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::spawn(&mut support::start(dir.path(), &["--id", "n1"])).ready();
    let mut top = top(&node, 80, 24);
    top.shows("n1 ready");
    top.shows("services");
    top.shows("per second: writes");
    top.shows("log: leader n1");
    assert!(top.in_alternate_screen() && !top.is_cooked());

    let member = support::register(&node.clients, "web-1", &[]);
    top.shows("register");
    top.shows("web-1");
    // The panels are stacked now and side by side after the resize.
    let beside = |text: &str| text.lines().any(|line| line.contains("nodes (") && line.contains("changes ("));
    assert!(!beside(&top.text()));
    top.resize(140, 40);
    until("the wide layout", || beside(&top.text()));
    top.shows("web-1");
    top.resize(30, 5);
    top.shows("too small");
    top.resize(80, 24);
    top.shows("web-1");
    drop(member);

    top.press("\t\x1b[Bp");
    top.shows("p resume");
    top.press("q");
    assert!(top.ended().success());
    until("the terminal is restored", || top.is_cooked() && !top.in_alternate_screen());
}

#[test]
fn top_reports_a_lost_node_and_ctrl_c_quits() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = TestNode::spawn(&mut support::start(dir.path(), &["--id", "n1"])).ready();
    let mut top = top(&node, 100, 30);
    top.shows("n1 ready");
    node.process.kill();
    top.shows("no answer");
    top.press("\x03");
    assert!(top.ended().success());
    until("the terminal is restored", || top.is_cooked() && !top.in_alternate_screen());
}

#[test]
fn a_signal_restores_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::spawn(&mut support::start(dir.path(), &["--id", "n1"])).ready();
    let mut top = top(&node, 100, 30);
    top.shows("n1 ready");
    kill_process(Pid::from_raw(top.child.id().try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
    assert!(top.ended().success());
    until("the terminal is restored", || top.is_cooked() && !top.in_alternate_screen());
}

/// For scripts: no terminal, one snapshot.
#[test]
fn one_snapshot_is_printed_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::spawn(&mut support::start(dir.path(), &["--id", "n1"])).ready();
    let _web = support::registered(&node.clients, "web-1");
    until("there is a log", || support::query(&node, &["log", "status"])["leader"] == "n1");
    let unreachable_address = convoke_testkit::free_address();
    let both = format!("{unreachable_address},{}", node.clients);
    let printed = support::output(&["top", "--json", "--interval", "200ms", "--timeout", "30s", "--addr", &both]);
    let look: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&look["address"], &look["status"]["id"]), (&node.clients.as_str().into(), &"n1".into()), "{look}");
    assert_eq!((&look["nodes"][0]["state"], &look["log"]["leader"]), (&"up".into(), &"n1".into()), "{look}");
    assert_eq!((&look["services"][1]["service"], &look["services"][1]["up"]), (&"web".into(), &1.into()), "{look}");
    assert!(look["per_second"]["bytes_out"].is_f64(), "{look}");
    let error = support::fails(&["top", "--json", "--addr", &unreachable_address], 3);
    assert!(error.starts_with(&format!("no node answers ({unreachable_address}: ")), "{error}");
}

#[test]
fn top_needs_a_terminal() {
    let output = support::convoke(&["top"]).stdin(std::process::Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("top needs a terminal"));
}
