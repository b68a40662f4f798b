//! `convoke dev`.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{Process, TestNode, free_address, until};
use support::{convoke, output, query};

#[test]
fn dev_prints_its_addresses_and_serves_them() {
    let mut node =
        TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();
    let status = query(&node, &["status"]);
    assert_eq!((status["id"].as_str(), status["ready"].as_bool()), (Some("dev"), Some(true)));
    let port = |address: &str| address.rsplit(':').next().unwrap().parse::<u64>().unwrap();
    assert_eq!(status["ports"]["client"].as_u64(), Some(port(&node.clients)));
    assert_eq!(status["ports"]["peer"].as_u64(), Some(port(&node.peers)));
    let printed = node.process.stdout();
    assert!(printed.contains(&format!("http://{}/api/v1/status", node.clients)), "{printed}");
    assert!(printed.contains(&format!("convoke watch --addr {}", node.clients)), "{printed}");
    node.process.interrupt();
    assert_eq!(node.process.wait().code(), Some(0));
}

#[test]
fn ports_in_use_are_replaced_unless_configured() {
    let first = TestNode::spawn(&mut convoke(&["dev"])).ready();
    let second = TestNode::spawn(&mut convoke(&["dev"])).ready();
    assert_ne!(first.clients, second.clients);
    assert!(second.process.stdout().contains("is in use"), "{}", second.process.stdout());
    let port = first.clients.rsplit(':').next().unwrap();
    let error = support::fails(&["dev", "--client-port", port, "--log-level", "off"], 1);
    assert!(error.starts_with(&format!("cannot listen for clients on 127.0.0.1:{port}")), "{error}");
}

#[test]
fn services_members_and_drains_are_shown() {
    let node =
        TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();
    let _web = support::registered(&node.clients, "web-1");
    let services = output(&["services", "--addr", &node.clients]);
    assert_eq!(
        services,
        "SERVICE  UP  DOWN  DRAINED  CRITICAL\nconvoke  1   0     0        0\nweb      1   0     0        0\n"
    );
    let members = output(&["members", "service == \"web\"", "--addr", &node.clients]);
    let table = "ID     SERVICE  STATUS  ADDRESS  LOCALITY  REVISION  OWNER\nweb-1  web      up      -        -         -         dev\n";
    assert_eq!(members, table);
    assert_eq!(output(&["drain", "web-1", "--addr", &node.clients]), "", "success prints nothing");
    assert_eq!(query(&node, &["member", "web-1"])["drained"], true);
    output(&["undrain", "web-1", "--addr", &node.clients]);
    assert_eq!(query(&node, &["member", "web-1"])["drained"], false);
    let explanation = output(&["explain", "web-1", "--addr", &node.clients]);
    assert!(explanation.starts_with("web-1 is up\n\n  - Its owner, node dev, reports it up.\n"), "{explanation}");
    // Addresses that do not answer are skipped.
    let addresses = format!("127.0.0.1:1,{}", node.clients);
    assert!(output(&["status", "--addr", &addresses]).contains("dev, incarnation 1"));
}

/// The process that started the node may have ended, or closed the pipe after the first lines.
#[test]
fn a_node_keeps_running_when_its_stdout_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let clients = free_address();
    let port = clients.rsplit_once(':').unwrap().1;
    let mut node = Process::spawn_unread(&mut support::start_at(dir.path(), port, &["--id", "n1"]));
    until("it is ready", || node.stderr().contains("ready: clients"));
    assert!(support::lab::answers(&clients), "{}", node.stderr());
    assert!(node.stderr().contains("listening: clients"), "the addresses are logged: {}", node.stderr());
    node.terminate();
    assert_eq!(node.wait().code(), Some(0));
}

/// The notification protocol of systemd for `Type=notify`.
#[test]
fn the_service_manager_is_notified_of_ready_and_stopping() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let mut command = convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"]);
    let mut node = TestNode::spawn(command.env("NOTIFY_SOCKET", &path)).ready();
    let received = || {
        let mut message = [0; 256];
        let length = socket.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).trim().to_owned()
    };
    assert_eq!(received(), "READY=1");
    node.process.terminate();
    assert_eq!(received(), "STOPPING=1");
    assert!(node.process.wait().success());
}

#[test]
fn manual_pages_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man1");
    support::output(&["man", pages.to_str().unwrap()]);
    let main = std::fs::read_to_string(pages.join("convoke.1")).unwrap();
    assert!(main.contains(".TH") && main.contains("convoke\\-register"), "{main}");
    assert!(pages.join("convoke-register.1").exists());
}

/// Every client command takes `--json`.
#[test]
fn every_client_command_prints_json() {
    let node =
        TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();
    let web = support::register(&node.clients, "web-1", &["--json"]);
    let line = web.line("registered", |line| line.starts_with('{'));
    let printed: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&printed["registered"], &printed["node"]), (&"web-1".into(), &"dev".into()));
    assert_eq!(printed["version"], query(&node, &["member", "web-1"])["version"]);
    assert_eq!(query(&node, &["drain", "web-1"]), serde_json::json!({ "member": "web-1", "drained": true }));
    assert_eq!(query(&node, &["undrain", "web-1"]), serde_json::json!({ "member": "web-1", "drained": false }));
    assert_eq!(query(&node, &["drain", "--node"]), serde_json::json!({ "node": null, "drained": true }));
    assert_eq!(query(&node, &["nodes"])["nodes"][0]["drained"], true);
    assert_eq!(query(&node, &["undrain", "--node", "dev"]), serde_json::json!({ "node": "dev", "drained": false }));
}
