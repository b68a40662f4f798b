//! The files that `convoke init` writes. The guide docs/guides/secure.md starts nodes with them.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use support::convoke;

fn run(arguments: &[&str]) -> Output {
    convoke(arguments).stdin(Stdio::null()).output().unwrap()
}

fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

#[test]
fn ts9_init_writes_ready_configurations_and_no_private_key_for_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let security = dir.path().join("security");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let shown = ok(&["init", &text(&security), "--nodes", "n1,n2", "--host", "n1=10.0.0.1", "--cluster", "shop"]);
    let relative: Vec<String> = files(&security)
        .iter()
        .map(|path| path.strip_prefix(&security).unwrap().to_str().unwrap().to_owned())
        .collect();
    let of_node = |id: &str| {
        ["ca.pem", "cert.pem", "convoke.toml", "key.pem", "keys/signing.pub"].map(|file| format!("nodes/{id}/{file}"))
    };
    let mut expected: Vec<String> =
        ["ca.key", "ca.pem", "operator.token", "signing.key", "signing.pub"].map(str::to_owned).to_vec();
    expected.extend(of_node("n1").into_iter().chain(of_node("n2")));
    expected.sort();
    assert_eq!(relative, expected);
    let read = |name: &str| std::fs::read_to_string(security.join(name)).unwrap();
    for name in ["ca.key", "signing.key", "operator.token", "nodes/n1/key.pem", "nodes/n1/convoke.toml"] {
        let mode = std::fs::metadata(security.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    // The secrets of the operator are in no file of a node, and not in the output.
    for name in ["ca.key", "signing.key", "operator.token"] {
        let secret = read(name).lines().find(|line| !line.starts_with("-----")).unwrap().to_owned();
        for path in files(&security.join("nodes")) {
            assert!(!std::fs::read_to_string(&path).unwrap().contains(&secret), "{name} in {}", path.display());
        }
        assert!(!shown.contains(&secret), "{shown}");
    }
    // Nodes accept the token of the operator, and their configurations are complete.
    let (token, keys) = (text(&security.join("operator.token")), text(&security.join("nodes/n1/keys")));
    ok(&["token", "verify", &token, "--keys", &keys, "--cluster", "shop"]);
    ok(&["token", "can", "backup", "log", "--token-file", &token]);
    for id in ["n1", "n2"] {
        ok(&["config", "check", &text(&security.join("nodes").join(id).join("convoke.toml"))]);
    }
    assert!(shown.contains(&format!("convoke start --config {}", text(&security.join("nodes/n1/convoke.toml")))));
    assert!(shown.contains(&format!("--addr https://10.0.0.1:7700 --ca {}", text(&security.join("ca.pem")))));
    // A further node gets the key as well.
    ok(&["tls", "issue", &text(&security), "--node", "n3"]);
    assert_eq!(read("nodes/n3/keys/signing.pub"), read("signing.pub"));
    // Nothing is replaced.
    let again = run(&["init", &text(&security), "--nodes", "n1"]);
    assert_eq!(again.status.code(), Some(5));
    let other = dir.path().join("other");
    ok(&["token", "keygen", &text(&other)]);
    let kept = std::fs::read(other.join("signing.key")).unwrap();
    let again = run(&["init", &text(&other), "--nodes", "n1"]);
    assert_eq!((again.status.code(), std::fs::read(other.join("signing.key")).unwrap()), (Some(5), kept));
    assert!(!other.join("ca.key").exists());
}

#[test]
fn init_prints_json() {
    let dir = tempfile::tempdir().unwrap();
    let security = dir.path().join("a b");
    let shown = ok(&["init", security.to_str().unwrap(), "--nodes", "n1", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["operator_token"]["file"], security.join("operator.token").to_str().unwrap());
    assert!(shown["operator_token"]["expires"].as_u64().unwrap() > 1_700_000_000, "{shown}");
    assert_eq!(shown["signing_key"], security.join("signing.key").to_str().unwrap());
    assert_eq!(shown["nodes"][0]["id"], "n1");
}
