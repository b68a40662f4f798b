//! Every class of error has its exit code and one sentence on stderr.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{TestNode, free_address, until};
use support::{convoke, fails, failure, output, start};

#[test]
fn invalid_usage_is_exit_code_2() {
    for arguments in [
        ["members", "--no-such-flag"].as_slice(),
        &["nonsense"],
        &["drain"],
        &["drain", "a", "--node", "b"],
        &["register", "--service", "web"],
        &["register", "--id", "a", "--service", "web", "--meta", "novalue"],
        &["register", "--id", "a", "--service", "web", "--weight", "0"],
        &["start", "--client-port", "77000"],
        &["status", "--timeout", "soon"],
        &["kv", "put", "k", "--nosuch=5"],
        &["kv", "put", "k", "--nosuch"],
        &["kv", "put", "k", "v", "-x"],
        &["log", "add", "n4", "--wait", "10000000000000000000"],
    ] {
        let output = convoke(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{output:?}");
    }
    for flag in ["--nosuch", "--nosuch=5", "-x"] {
        let output = convoke(&["kv", "put", "k", flag]).output().unwrap();
        let (printed, name) = (String::from_utf8(output.stderr).unwrap(), flag.split('=').next().unwrap());
        assert!(printed.contains(&format!("to pass '{name}' as a value, use '-- {name}'")), "{printed}");
    }
    let unreachable_address = convoke_testkit::free_address();
    for (command, addresses) in
        [("status", "two words".to_owned()), ("top", format!("{unreachable_address},two words"))]
    {
        let error = fails(&[command, "--json", "--addr", &addresses], 2);
        assert!(error.contains("use HOST:PORT"), "{error}");
    }
}

#[test]
fn invalid_configuration_is_exit_code_2_with_its_origin() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("convoke.toml");
    let path = file.to_str().unwrap();
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        fails(&["config", "check", path], 2)
    };
    let error = check("[timers]\nheartbeat_intervall = \"5s\"\n");
    assert_eq!(
        error,
        format!("{path} line 2: unknown key timers.heartbeat_intervall; did you mean timers.heartbeat_interval?")
    );
    let error = check("[timers]\nheartbeat_timeout = \"10s\"\n");
    assert_eq!(
        error,
        format!(
            "timers.heartbeat_timeout is 10s, which is too short: set it above 15s (3 × heartbeat_interval) \
             (timers.heartbeat_timeout from {path} line 2)"
        )
    );
    for (text, words) in [
        ("bind = \"0.0.0.0\"\n", format!("insecure_public (--insecure-public) (bind from {path} line 1)")),
        (
            "bind = \"0.0.0.0\"\ninsecure_public = true\n",
            format!("set advertise to an address of this machine that peers can reach (bind from {path} line 1)"),
        ),
        (
            "client_port = 8000\npeer_port = 8000\n",
            format!("(client_port from {path} line 1, peer_port from {path} line 2)"),
        ),
        ("peer_port = 8000\ndns_port = 8000\n", format!("(peer_port from {path} line 1, dns_port from {path} line 2)")),
        ("[dns]\nttl = \"500ms\"\n", format!("(dns.ttl from {path} line 2)")),
    ] {
        let error = check(text);
        assert!(error.ends_with(&words), "{error}");
        assert_eq!(fails(&["start", "--config", path], 2), error, "start reports the same error");
    }
    check("[timers]\nheartbeat_timeout = \"10s\"\n");
    // The node reports the same when it starts, whatever the origin of the value is.
    let error = failure(&convoke(&["start", "--config", path]).output().unwrap(), 2);
    assert!(error.contains(&format!("from {path} line 2")), "{error}");
    let error = failure(&convoke(&["start"]).env("CONVOKE_TIMERS_HEARTBEAT_TIMEOUT", "10s").output().unwrap(), 2);
    assert!(error.ends_with("(timers.heartbeat_timeout from CONVOKE_TIMERS_HEARTBEAT_TIMEOUT)"), "{error}");
    let error = fails(&["start", "--bind", "0.0.0.0", "--client-port", "0"], 2);
    assert!(error.contains("--insecure-public"), "{error}");
    fails(&["start", "--config", "/nonexistent.toml"], 2);
    fails(&["start", "--log-level", "a=b=c"], 2);
    std::fs::write(&file, output(&["config", "print", "--defaults"])).unwrap();
    assert_eq!(output(&["config", "check", path]), format!("{path} is valid\n"));
    let checked: serde_json::Value = serde_json::from_str(&output(&["config", "check", path, "--json"])).unwrap();
    assert_eq!(checked, serde_json::json!({ "file": path, "valid": true }));
}

#[test]
fn an_unreachable_node_is_exit_code_3() {
    let unreachable_address = free_address();
    let error = fails(&["status", "--addr", &unreachable_address], 3);
    assert_eq!(
        error,
        format!(
            "cannot reach a node at {unreachable_address} (connection refused): start one with `convoke dev`, or use another address with --addr"
        )
    );
    fails(&["watch", "--addr", &unreachable_address, "--timeout", "300ms"], 3);
    fails(&["register", "--id", "a", "--service", "web", "--addr", &unreachable_address, "--timeout", "300ms"], 3);
    // A listener that never answers.
    let silent_listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent_listener.local_addr().unwrap().to_string();
    let error = fails(&["status", "--addr", &address, "--timeout", "300ms"], 3);
    assert!(error.contains("no answer within 0.3 s"), "{error}");
    let error = fails(&["status", "--addr", "localhost:99999"], 2);
    assert_eq!(error, "\"localhost:99999\" is not a node address: use HOST:PORT");
}

#[test]
fn the_error_names_the_peer_port_and_the_client_port() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::spawn(&mut start(dir.path(), &["--id", "n1"])).ready();
    let peers = node.peers.as_str();
    let expected = format!(
        "cannot reach a node at {peers} (this is the peer port of a Convoke node; use its client port, {})",
        node.clients
    );
    // A command that attaches waits for the whole time. Asking the port who it is takes a while on a busy machine.
    for command in [&["status"][..], &["members"], &["kv", "get", "a"], &["log", "status"], &["watch"]] {
        let error = fails(&[command, &["--addr", peers, "--timeout", "5s"]].concat(), 3);
        assert!(error.starts_with(&expected), "{command:?}: {error}");
    }
    // Another node that is to join the client port.
    let other = TestNode::spawn(&mut start(&dir.path().join("other"), &["--id", "n2", "--join", &node.clients]));
    until("the log names the client port", || {
        let log = other.process.stderr();
        assert!(!log.contains("a frame has"), "{log}");
        log.contains("speaks HTTP: this is a client port; use the peer port")
    });
}

#[test]
fn not_found_is_exit_code_4_and_invalid_input_is_2() {
    let node =
        TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();
    let at = ["--addr", &node.clients];
    assert_eq!(fails(&[["member", "nobody"], at].concat(), 4), "no member \"nobody\"");
    fails(&[["explain", "nobody"], at].concat(), 4);
    fails(&[["drain", "nobody"], at].concat(), 4);
    fails(&[["nodes", "forget"].as_slice(), &["nobody"], &at].concat(), 4);
    let error = fails(&[["nodes", "forget"].as_slice(), &["dev"], &at].concat(), 5);
    assert!(error.contains("cannot forget itself"), "{error}");
    let error = fails(&[["drain", "--node"].as_slice(), &["nope"], &at].concat(), 4);
    assert!(error.starts_with("no node \"nope\" is up"), "{error}");
    let error = fails(&[["members", "servise == \"web\""], at].concat(), 2);
    assert!(error.contains("did you mean `service`?"), "{error}");
    let error = fails(&[["watch", "servise == \"web\""], at].concat(), 2);
    assert!(error.contains("did you mean `service`?"), "{error}");
}

#[test]
fn a_data_directory_is_used_by_one_node_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::spawn(&mut start(dir.path(), &["--id", "n1"])).ready();
    let error = failure(&start(dir.path(), &["--log-level", "off"]).output().unwrap(), 1);
    assert!(error.contains("is in use by another process"), "{error}");
    drop(node);
    let error = failure(&start(dir.path(), &["--id", "n2", "--log-level", "off"]).output().unwrap(), 2);
    assert!(error.contains("belongs to node n1"), "{error}");
}

#[test]
fn commands_that_need_no_node_work_without_one() {
    assert_eq!(output(&["version"]), format!("convoke {}\n", env!("CARGO_PKG_VERSION")));
    assert!(output(&["version", "--json"]).starts_with("{\"version\":"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(output(&["completions", shell]).contains("convoke"));
    }
    assert!(output(&["config", "print"]).contains("client_port = 7700\n"));
    let warned = convoke(&["config", "print"]).env("CONVOKE_NOSUCH", "1").output().unwrap();
    let printed = String::from_utf8(warned.stderr).unwrap();
    assert!(
        warned.status.success() && printed.starts_with("convoke: ignored unknown variable CONVOKE_NOSUCH"),
        "{printed}"
    );
    for arguments in [["config", "print", "--json"].as_slice(), &["config", "print", "--defaults", "--json"]] {
        let shown: serde_json::Value = serde_json::from_str(&output(arguments)).unwrap();
        assert!(shown["keys"].as_array().unwrap().iter().any(|key| key["key"] == "client_port"), "{shown}");
    }
}
