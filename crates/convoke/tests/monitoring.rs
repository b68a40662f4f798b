//! The files for Prometheus and Grafana use only metrics that exist.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{TestNode, skip};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::http::{request, series};
use support::{convoke, output};

fn packaged(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path)
}

/// Returns the names of all metrics of a node.
fn served() -> BTreeSet<String> {
    let node =
        TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();
    // Request metrics appear after the first request over HTTP and over gRPC.
    assert_eq!(request(&node.clients, "GET", "/healthz", "").0, 200);
    output(&["members", "--addr", &node.clients]);
    let (_, answer) = request(&node.clients, "GET", "/metrics", "");
    let types = answer.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.map(|(family, kind)| series(family, kind)).collect()
}

/// Returns the metric names in a query.
fn named(query: &str) -> impl Iterator<Item = String> {
    let words = query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("convoke_")).map(|word| word.trim_end_matches("_bucket").to_owned())
}

fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| queries(value, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(query) if name == "expr" || name == "query" => found.push(query.clone()),
                    value => queries(value, found),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn the_dashboard_and_the_alerts_use_existing_metrics() {
    let served = served();
    let dashboard = std::fs::read_to_string(packaged("grafana/convoke.json")).unwrap();
    let mut expressions = Vec::new();
    queries(&serde_json::from_str(&dashboard).unwrap(), &mut expressions);
    assert!(expressions.len() > 20, "{expressions:?}");
    let alerts = std::fs::read_to_string(packaged("prometheus/alerts.yml")).unwrap();
    let rules = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).map(str::to_owned);
    expressions.extend(rules);
    for query in expressions {
        for name in named(&query) {
            assert!(served.contains(&name), "{name} in {query} is not served");
        }
    }
}

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    let promtool =
        |arguments: &[&str]| Command::new("promtool").args(arguments).current_dir(packaged("prometheus")).output();
    let Ok(tested) = promtool(&["test", "rules", "alerts_test.yml"]) else {
        return skip(
            "promtool_accepts_the_rules_and_their_tests",
            "needs promtool (.ci/run installs it with Prometheus)",
        );
    };
    assert!(
        tested.status.success(),
        "{}",
        String::from_utf8_lossy(&tested.stderr) + String::from_utf8_lossy(&tested.stdout)
    );
    let checked = promtool(&["check", "config", "prometheus.yml"]).unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
