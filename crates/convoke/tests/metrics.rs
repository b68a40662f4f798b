//! The reference of the metrics, from what a node really says. `UPDATE_GOLDEN=1 cargo test -p convoke --test metrics` writes it.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{NodeProcess, golden};
use std::collections::BTreeSet;
use std::fmt::Write;
use support::http::request;
use support::{convoke, output};

const HEAD: &str = "# Metrics\n\n\
    *Generated from what a node says (`crates/server/src/metrics`).*\n\n\
    `GET /metrics` on the client port, in the text format of Prometheus. Everything is about the one node that is asked. Counters start at 0 \
    with the process; routes and outcomes appear when they were first used. Label values are fixed: nobody can add more by asking for them.\n";

/// Prefix of the names, title, and what to look at.
const SECTIONS: &[(&str, &str, &str)] = &[
    ("convoke_", "The node", "Alert on `convoke_ready == 0` and on `convoke_degraded > 0`."),
    (
        "convoke_registry_",
        "The registry",
        "`sessions_down` that rises on several nodes at once means trouble in the network, not of clients. `requests_refused` and \
         `subscriber_resets` that rise steadily mean a limit that is too low, or readers that are too slow. `conflicts` rises when the sides of a split meet again.",
    ),
    (
        "convoke_network_",
        "Links to other nodes, and the owner task",
        "`inbox_full` means that the node is overloaded; `garbage_refused` that something else speaks to the peer port; `links_overflowed` that a peer is too \
         slow for what it is sent.",
    ),
    (
        "convoke_client_",
        "Connections of clients",
        "`connections_refused` means that the bound `clients.connections` is reached.",
    ),
    (
        "convoke_log_",
        "The log plane",
        "Only where it is on. `available == 0` at all nodes means that nothing can be decided; `lag_entries` that stays high that a replica is dead or too slow; a rising \
         `sync_duration` that a disk is the reason.",
    ),
    ("convoke_dns_", "DNS", "Only where DNS is on."),
    (
        "convoke_trace_",
        "Traces",
        "`dropped` that rises with `reason=\"queue\"` means more spans than can be exported: lower `tracing.sample_ratio`; with \
         `reason=\"collector\"` that the collector is not there or refuses them.",
    ),
    ("convoke_http_", "Requests over HTTP", ""),
    ("convoke_grpc_", "Calls over gRPC", ""),
];

struct Metric {
    name: String,
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

#[test]
fn the_reference_of_the_metrics_is_up_to_date() {
    let ports = ["--client-port", "0", "--peer-port", "0", "--dns-port", "0"];
    let node = NodeProcess::spawn(&mut convoke(&[["dev"].as_slice(), &ports].concat())).ready();
    // What has labels shows them once it was used: over HTTP, and over gRPC.
    assert_eq!(request(&node.clients, "GET", "/healthz", "").0, 200);
    output(&["members", "--addr", &node.clients]);
    let (_, text) = request(&node.clients, "GET", "/metrics", "");
    golden!("../../../docs/metrics.md", &document(&parse(&text)));
}

fn parse(text: &str) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            let (name, help) = (name.to_owned(), help.to_owned());
            metrics.push(Metric { name, kind: String::new(), help, labels: BTreeSet::new() });
        } else if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            metrics.last_mut().unwrap().kind = kind.to_owned();
        } else if let Some((_, labels)) = line.split_once('{') {
            let labels = labels.rsplit_once('}').unwrap().0;
            let names = labels.split("\",").map(|label| label.split_once('=').unwrap().0.to_owned());
            metrics.last_mut().unwrap().labels.extend(names);
        }
    }
    metrics
}

fn document(metrics: &[Metric]) -> String {
    let mut out = HEAD.to_owned();
    let section = |name: &str| {
        let matching = SECTIONS.iter().filter(|(prefix, ..)| name.starts_with(prefix));
        matching.max_by_key(|(prefix, ..)| prefix.len()).unwrap().0
    };
    for (prefix, title, advice) in SECTIONS {
        let _ = write!(out, "\n## {title}\n");
        if !advice.is_empty() {
            let _ = write!(out, "\n{advice}\n");
        }
        out.push_str("\n| Name | Type | Unit | Labels | Meaning |\n|---|---|---|---|---|\n");
        let mut any = false;
        for metric in metrics.iter().filter(|metric| section(&metric.name) == *prefix) {
            let Metric { name, kind, help, labels } = metric;
            assert!(!kind.is_empty() && !help.is_empty(), "{name}");
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = writeln!(out, "| `{name}` | {kind} | {} | {} | {help} |", unit(name), labels.join(", "));
            any = true;
        }
        assert!(any, "no metric of section {title}");
    }
    out
}

/// By convention the name says it.
fn unit(name: &str) -> &'static str {
    let name = name.trim_end_matches("_total");
    match () {
        () if name.ends_with("_seconds") => "seconds",
        () if name.ends_with("_bytes") => "bytes",
        () => "-",
    }
}
