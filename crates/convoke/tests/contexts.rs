//! Contexts, and decisions about tokens without a node, as an operator uses them.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{TestNode, free_address, until};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use support::convoke;

/// A directory with the file of contexts and the keys of a cluster.
struct Operator(tempfile::TempDir);

impl Operator {
    fn new() -> Operator {
        let operator = Operator(tempfile::tempdir().unwrap());
        operator.ok(&["init", &operator.text("security"), "--nodes", "n1"]);
        operator
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn contexts(&self) -> PathBuf {
        self.path("home/contexts.json")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = convoke(arguments);
        command.env("CONVOKE_CONTEXTS", self.contexts()).current_dir(self.0.path()).stdin(Stdio::null());
        command.output().unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that fails with this code, and returns its message.
    fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        message
    }

    fn issue(&self, subject: &str, grants: &[&str]) {
        let (key, out) = (self.text("security/signing.key"), format!("{subject}.token"));
        let mut arguments = vec!["token", "issue", "--key", &key, "--subject", subject, "--out", &out];
        arguments.extend(grants.iter().flat_map(|grant| ["--grant", grant]));
        self.ok(&arguments);
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_context_reaches_its_cluster_and_its_token_goes_nowhere_else() {
    let operator = Operator::new();
    let (client, peer) = (free_address(), free_address());
    let port = |address: &str| address.rsplit_once(':').unwrap().1.to_owned();
    let (config, data) = (operator.text("security/nodes/n1/convoke.toml"), operator.text("data"));
    let ports = ["--client-port", &port(&client), "--peer-port", &port(&peer), "--data-dir", &data];
    let mut start = convoke(&["start", "--config", &config]);
    let _node = TestNode::spawn(start.args(ports));
    let (address, ca) = (format!("https://{client}"), operator.text("security/ca.pem"));
    // Relative paths are those of the directory in which the command ran.
    operator.ok(&["context", "add", "none", "--addr", &free_address()]);
    let token_file = ["--token-file", "security/operator.token"];
    operator
        .ok(&[&["context", "add", "prod", "--addr", &address, "--ca", "security/ca.pem"][..], &token_file].concat());
    assert_eq!(mode(&operator.contexts()), 0o600);
    assert_eq!(mode(operator.contexts().parent().unwrap()), 0o700);
    let stored = std::fs::read_to_string(operator.contexts()).unwrap();
    let token = std::fs::read_to_string(operator.path("security/operator.token")).unwrap();
    assert!(!stored.contains(token.trim()), "the file names the token and does not contain it");

    // The first context is the current one until another is chosen.
    let current = |name: &str| {
        let listed = operator.ok(&["context", "list"]);
        listed.lines().any(|line| line.split_whitespace().take(2).eq(["*", name]))
    };
    assert!(current("none"));
    let message = operator.fails(4, &["context", "use", "other"]);
    assert!(message.contains("no context \"other\"; contexts: none, prod"), "{message}");
    operator.ok(&["context", "use", "prod"]);
    assert!(current("prod") && !current("none"));
    until("the node answers", || operator.run(&["status"]).status.success());

    // The same node, but an address that was given by hand.
    let by_hand = ["nodes", "--addr", &address, "--ca", &ca];
    let message = operator.fails(5, &by_hand);
    assert!(message.contains("needs a token"), "{message}");
    operator.ok(&[&by_hand[..], &token_file].concat());

    // A client of the SDK that is denied ends at once, with the denial and not with a missing node.
    operator.issue("orders", &["put key:orders/"]);
    let denied = ["--timeout", "60s", "--token-file", "orders.token"];
    let register = ["register", "--id", "a", "--service", "web"];
    operator.ok(&[&["context", "use", "none"][..]].concat());
    let at = ["--addr", &address, "--ca", &ca];
    for (code, command, command_after, grant) in [
        (5, &register[..], &[][..], "register service:*"),
        (5, &["watch"], &[], "register service:*"),
        (125, &["lock", "L", "--member", "a"], &["--", "true"], "register service:*"),
    ] {
        let message = operator.fails(code, &[command, &at, &denied, command_after].concat());
        assert!(message.contains(&format!("the grant `{grant}` would allow it")), "{message}");
        assert!(!message.contains("cannot reach"), "{message}");
    }
    std::fs::write(operator.path("junk"), "junk\n").unwrap();
    let with_file = |file| {
        operator.fails(if file == "junk" { 5 } else { 2 }, &[&register[..], &at, &["--token-file", file]].concat())
    };
    let message = with_file("security/signing.pub");
    assert!(message.contains("signing.pub contains no token: it must have one line"), "{message}");
    let message = with_file("junk");
    assert!(message.contains("not a JSON Web Token"), "{message}");
}

#[test]
fn a_token_is_asked_without_a_node() {
    let operator = Operator::new();
    operator.issue("orders", &["put key:orders/", "read service:*"]);
    let token = ["--token-file", "orders.token"];
    let yes = operator.ok(&[&["token", "can", "put", "key:orders/limit"][..], &token].concat());
    assert_eq!(yes, "yes: token/orders may put key:orders/limit\n");
    let denied = "principal token/orders may not put key:other; the grant `put key:other` would allow it";
    let asked = ["token", "can", "put", "key:other"];
    assert_eq!(operator.fails(5, &[&asked[..], &token].concat()), format!("convoke: {denied}\n"));
    let json = operator.run(&[&asked[..], &["--json"], &token].concat());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["allowed"], &json["principal"]), (&false.into(), &"token/orders".into()));
    for wrong in [["write", "key:a"], ["put", "service:a"], ["put", "key"]] {
        operator.fails(2, &[&["token", "can"][..], &wrong, &token].concat());
    }
    // Without a file, the token of the context counts, as for other commands.
    assert!(operator.fails(2, &asked).contains("no token"));
    operator.ok(&[&["context", "add", "prod", "--addr", "127.0.0.1:1"][..], &token].concat());
    assert!(operator.fails(5, &asked).contains("token/orders"));

    let explained = operator.ok(&["explain", "--grant", "put key:other"]);
    let expected = "token/orders may not put key:other\n\n  - `put key:orders/` does not cover key:other.\n  \
                    - `read service:*` is for another verb.\n  - The grant `put key:other` would allow it.\n";
    assert!(explained.starts_with(expected), "{explained}");
    let json = operator.ok(&["explain", "--grant", "put key:orders/1", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["allowed"], &json["resource"]), (&true.into(), &"key:orders/1".into()));
}
