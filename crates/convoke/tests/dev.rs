//! `convoke dev`.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{NodeProcess, Process, free_address, until};
use support::{ask, convoke, output};

#[test]
fn it_prints_where_to_look_and_is_there() {
    let mut node =
        NodeProcess::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();
    let status = ask(&node, &["status"]);
    assert_eq!((status["id"].as_str(), status["ready"].as_bool()), (Some("dev"), Some(true)));
    let port = |address: &str| address.rsplit(':').next().unwrap().parse::<u64>().unwrap();
    assert_eq!(status["ports"]["client"].as_u64(), Some(port(&node.clients)));
    assert_eq!(status["ports"]["peer"].as_u64(), Some(port(&node.peers)));
    let said = node.process.stdout();
    assert!(said.contains(&format!("http://{}/api/v1/status", node.clients)), "{said}");
    assert!(said.contains(&format!("convoke watch --addr {}", node.clients)), "{said}");
    node.process.interrupt();
    assert_eq!(node.process.wait().code(), Some(0));
}

#[test]
fn taken_ports_are_replaced_unless_they_were_asked_for() {
    let first = NodeProcess::spawn(&mut convoke(&["dev"])).ready();
    let second = NodeProcess::spawn(&mut convoke(&["dev"])).ready();
    assert_ne!(first.clients, second.clients);
    assert!(second.process.stdout().contains("is taken"), "{}", second.process.stdout());
    let port = first.clients.rsplit(':').next().unwrap();
    let error = support::fails(&["dev", "--client-port", port, "--log", "off"], 1);
    assert!(error.starts_with(&format!("cannot listen for clients on 127.0.0.1:{port}")), "{error}");
}

#[test]
fn what_is_in_it_is_shown() {
    let node =
        NodeProcess::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();
    let _web = support::registered(&node.clients, "web-1");
    let services = output(&["services", "--addr", &node.clients]);
    assert_eq!(services, "SERVICE  UP  DOWN  DRAINED\nconvoke  1   0     0\nweb      1   0     0\n");
    let members = output(&["members", "service == \"web\"", "--addr", &node.clients]);
    let table = "ID     SERVICE  STATUS  ADDRESS  LOCALITY  REVISION  OWNER\nweb-1  web      up      -        -         -         dev\n";
    assert_eq!(members, table);
    assert_eq!(output(&["drain", "web-1", "--addr", &node.clients]), "", "people are told of failures only");
    assert_eq!(ask(&node, &["member", "web-1"])["drained"], true);
    output(&["undrain", "web-1", "--addr", &node.clients]);
    assert_eq!(ask(&node, &["member", "web-1"])["drained"], false);
    let story = output(&["explain", "web-1", "--addr", &node.clients]);
    assert!(story.starts_with("web-1 is up\n\n  - Its owner, node dev, reports it up.\n"), "{story}");
    // Nodes that do not answer are passed over.
    let addresses = format!("127.0.0.1:1,{}", node.clients);
    assert!(output(&["status", "--addr", &addresses]).contains("dev, run 1"));
}

/// Whoever started it may have gone, or looked at the first lines only.
#[test]
fn a_node_goes_on_when_nobody_reads_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let clients = free_address();
    let port = clients.rsplit_once(':').unwrap().1;
    let mut node = Process::spawn_unread(&mut support::start_at(dir.path(), port, &["--id", "n1"]));
    until("it is ready", || node.stderr().contains("ready: clients"));
    assert!(support::lab::answers(&clients), "{}", node.stderr());
    assert!(node.stderr().contains("listening: clients"), "where it listens is in the log: {}", node.stderr());
    node.terminate();
    assert_eq!(node.wait().code(), Some(0));
}

/// What systemd does for `Type=notify`.
#[test]
fn a_service_manager_is_told_when_it_is_ready_and_when_it_stops() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let mut command = convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"]);
    let mut node = NodeProcess::spawn(command.env("NOTIFY_SOCKET", &path)).ready();
    let heard = || {
        let mut message = [0; 256];
        let length = socket.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).trim().to_owned()
    };
    assert_eq!(heard(), "READY=1");
    node.process.terminate();
    assert_eq!(heard(), "STOPPING=1");
    assert!(node.process.wait().success());
}

#[test]
fn there_is_a_manual() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man1");
    support::output(&["man", pages.to_str().unwrap()]);
    let main = std::fs::read_to_string(pages.join("convoke.1")).unwrap();
    assert!(main.contains(".TH") && main.contains("convoke\\-register"), "{main}");
    assert!(pages.join("convoke-register.1").exists());
}

/// Every command that talks to a node takes `--json`.
#[test]
fn scripts_are_told_in_json() {
    let node =
        NodeProcess::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();
    let web = support::register(&node.clients, "web-1", &["--json"]);
    let line = web.line("registered", |line| line.starts_with('{'));
    let said: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&said["registered"], &said["node"]), (&"web-1".into(), &"dev".into()));
    assert_eq!(said["version"], ask(&node, &["member", "web-1"])["version"]);
    assert_eq!(ask(&node, &["drain", "web-1"]), serde_json::json!({ "member": "web-1", "drained": true }));
    assert_eq!(ask(&node, &["undrain", "web-1"]), serde_json::json!({ "member": "web-1", "drained": false }));
    assert_eq!(ask(&node, &["drain", "--node"]), serde_json::json!({ "node": null, "drained": true }));
    assert_eq!(ask(&node, &["nodes"])["nodes"][0]["drained"], true);
    assert_eq!(ask(&node, &["undrain", "--node", "dev"]), serde_json::json!({ "node": "dev", "drained": false }));
}
