//! The SDK is built without the core: applications do not carry a registry around.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use std::process::Command;

#[test]
fn the_sdk_does_not_depend_on_the_core() {
    let found = tree("convoke-client");
    assert!(found.iter().any(|name| name == "convoke-proto"), "{found:?}");
    assert!(!found.iter().any(|name| name == "convoke-core"), "{found:?}");
}

#[test]
fn a_dependency_on_the_core_would_be_noticed() {
    assert!(tree("convoke-sim").iter().any(|name| name == "convoke-core"));
}

fn tree(package: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs, as it did to build this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}
