//! The metrics reference, generated from the metrics of a node. `UPDATE_GOLDEN=1 cargo test -p convoke --test metrics`
//! writes it.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{TestNode, golden};
use std::collections::BTreeSet;
use std::fmt::Write;
use support::http::{request, series};
use support::{convoke, output};

const HEAD: &str = "# Metrics

*Generated from the output of a node (`crates/server/src/metrics`).*

`GET /metrics` on the client port returns the metrics of that node in the OpenMetrics text format.
Counters start at 0 when the process starts.
Routes and outcomes of requests appear when they are first used.
All label values are fixed, so clients cannot create new series.
";

/// Prefix of the names, title, and advice.
const SECTIONS: &[(&str, &str, &str)] = &[
    ("convoke_", "Node", "Alert on `convoke_ready == 0` and on `convoke_degraded > 0`."),
    (
        "convoke_registry_",
        "Registry",
        "If `sessions_down` rises on several nodes at once, the network is the likely cause, not the clients.
If `requests_rejected` or `watcher_resets` rises steadily, a limit is too low or watchers read too slowly.
`conflicts` rises when the sides of a network partition reconnect.",
    ),
    (
        "convoke_network_",
        "Peer connections and event loop",
        "A rising `inbox_full` means that the node is overloaded; `client_requests_waiting` shows it before.
A rising `connections_malformed` means that something other than a peer connects to the peer port.
A rising `links_overflowed` means that a peer reads too slowly.",
    ),
    (
        "convoke_client_",
        "Client connections",
        "A rising `connections_rejected` means that the limit `clients.connections` is reached.",
    ),
    (
        "convoke_audit_",
        "Audit log",
        "All values are 0 without an [audit log](access-control.md#audit-log).
A rising `records_lost` means that the disk is too slow or full.",
    ),
    (
        "convoke_tls_",
        "TLS",
        "All values are 0 without TLS.
Alert when `convoke_tls_certificate_not_after_seconds - time()` is below a week.
A rising `client_plain_accepted` or `dials_plain` shows connections that are not encrypted yet.",
    ),
    (
        "convoke_log_",
        "Log",
        "These metrics exist only on nodes with the log enabled.
If `available` is 0 on all nodes, the log has no leader.
If `lag_entries` stays high, a replica is down or too slow.
If `sync_duration_seconds` rises, a disk is slow.",
    ),
    (
        "convoke_checks_",
        "Health checks",
        "If `runs_denied` rises, checks name addresses that `checks.allow` does not list.",
    ),
    ("convoke_dns_", "DNS", "These metrics exist only on nodes with DNS enabled."),
    (
        "convoke_trace_",
        "Traces",
        "If `spans_dropped` rises with `reason=\"queue\"`, lower `tracing.sample_ratio`.
If it rises with `reason=\"collector\"`, the collector is unreachable or rejects spans.",
    ),
    ("convoke_http_", "HTTP requests", ""),
    ("convoke_grpc_", "gRPC calls", ""),
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
    let node = TestNode::spawn(&mut convoke(&[["dev"].as_slice(), &ports].concat())).ready();
    // Metrics with labels appear after the first use: over HTTP and over gRPC.
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
            let metric = metrics.last_mut().unwrap();
            metric.name = series(&metric.name, kind);
            metric.kind = kind.to_owned();
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

/// Returns the unit, which is part of the name by convention.
fn unit(name: &str) -> &'static str {
    let name = name.trim_end_matches("_total");
    match () {
        () if name.ends_with("_seconds") => "seconds",
        () if name.ends_with("_bytes") => "bytes",
        () => "-",
    }
}
