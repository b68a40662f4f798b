//! Scripts in the configuration of a node report to checks of members at any node (HC4).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_core::member::Health;
use convoke_server::ScriptCheck;
use convoke_testkit::eventually;
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use support::Served;

fn script(member: &str, file: &Path) -> ScriptCheck {
    let shell = format!("cat {0}; exit $(wc -l < {0})", file.display());
    ScriptCheck {
        member: member.to_owned(),
        check: "worker".to_owned(),
        command: ["sh", "-c", &shell].map(str::to_owned).into(),
        interval: Duration::from_secs(1),
        timeout: Duration::from_secs(60),
    }
}

async fn counter(served: &Served, name: &str) -> u64 {
    let text = served.get("/metrics").await.body_text();
    let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_else(|| panic!("no {name}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// A file with as many lines as the exit status of the script shall be.
fn write(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, file).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_a_script_reach_the_member_at_another_node() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("state");
    write(&file, "");
    let owner = Served::start("n0", &[], |_| {}, |_| {}).await;
    let scripts = vec![script("w1", &file), script("nobody", &file)];
    let runner = Served::start("n1", &[&owner], |_| {}, |config| config.checks.scripts = scripts).await;
    convoke_testkit::meshed([&owner.node, &runner.node].into_iter()).await;
    eventually("results that nobody takes are counted", async || {
        counter(&runner, "convoke_checks_scripts_unreported_total").await >= 2
    })
    .await;

    let session = owner.session("{}").await;
    let member =
        json!({ "service": "web", "address": "10.0.0.1:80", "checks": [{ "id": "worker", "ttl_ms": 600_000 }] });
    owner.put(&format!("{session}/members/w1"), &member.to_string()).await.ok();
    let health = |served: &Served| served.node.member("w1").map(|member| member.health());
    for (text, expected) in [
        ("", Health::Passing),
        ("slow\n", Health::Warning),
        ("broken\nvery\n", Health::Critical),
        ("", Health::Passing),
    ] {
        write(&file, text);
        eventually("the result is shown", async || health(&owner) == Some(expected)).await;
        let shown = async || {
            let member = owner.node.member("w1").unwrap();
            member.checks().unwrap().results()[0].output.clone()
        };
        let output = if text.is_empty() { "exit status: 0" } else { text.trim_end() };
        eventually("its output is shown", async || shown().await == output).await;
    }
    assert!(counter(&runner, "convoke_checks_scripts_good_total").await >= 3);
    assert!(counter(&runner, "convoke_checks_scripts_failed_total").await >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_are_validated_before_the_node_starts() {
    let config = convoke_server::Config {
        checks: convoke_server::CheckerConfig {
            scripts: vec![ScriptCheck { command: Vec::new(), ..script("w1", Path::new("x")) }],
            ..convoke_server::CheckerConfig::default()
        },
        ..convoke_server::Config::default()
    };
    let error = convoke_server::Server::bind(config).await.unwrap_err().to_string();
    assert!(error.contains("entry 1") && error.contains("command is empty: name a program"), "{error}");
}
