//! `convoke import consul` from a real Consul: clients of Consul read the same catalog and the same keys on both sides.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{ConsulAgent, TestNode, skip, until};
use serde_json::{Value, json};
use support::http::unchunked;
use support::{convoke, output};

/// Fields that no import can keep, and the description of proxies, which is always the same.
const OWN: [&str; 6] = ["CreateIndex", "ModifyIndex", "LockIndex", "Datacenter", "ServiceConnect", "ServiceProxy"];

/// The JSON at a path of Convoke or Consul.
#[track_caller]
fn get(address: &str, path: &str) -> Value {
    let (status, answer) = unchunked(address, "GET", path, "");
    assert_eq!(status, 200, "{path}: {answer}");
    serde_json::from_str(&answer).unwrap()
}

#[track_caller]
fn put(consul: &ConsulAgent, path: &str, body: &str) -> String {
    let (status, answer) = unchunked(&consul.address, "PUT", path, body);
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

fn register(consul: &ConsulAgent, service: &Value) {
    put(consul, "/v1/agent/service/register", &service.to_string());
}

fn catalog(consul: &ConsulAgent, registration: &Value) {
    put(consul, "/v1/catalog/register", &registration.to_string());
}

/// Fills a Consul with everything that an import meets.
fn fill(consul: &ConsulAgent) {
    for (key, value) in [
        ("app/limit?flags=42", "10"),
        ("app/flags?flags=18446744073709551615", "x"),
        ("app/empty", ""),
        ("app/directory/", ""),
        ("app/deep/er/key", "two\nlines"),
        ("app/sp%20ace/%C3%BC%3F%23%25%2B", "name"),
    ] {
        put(consul, &format!("/v1/kv/{key}"), value);
    }
    put(consul, "/v1/kv/app/large", &"v".repeat(512 * 1024));
    let session: Value = serde_json::from_str(&put(consul, "/v1/session/create", r#"{"TTL":"1000s"}"#)).unwrap();
    put(consul, &format!("/v1/kv/app/held?acquire={}", session["ID"].as_str().unwrap()), "me");
    register(
        consul,
        &json!({
            "Name": "web", "ID": "web-1", "Address": "10.0.0.1", "Port": 80, "Tags": ["v1", "primary"],
            "Meta": {"version": "1.2"}, "Weights": {"Passing": 10, "Warning": 2},
            "Check": {"TTL": "10m", "Status": "passing"},
        }),
    );
    register(consul, &json!({ "Name": "web", "ID": "web-2", "Port": 81 }));
    register(consul, &json!({ "Name": "web", "ID": "web-3", "Port": 82, "Check": {"TTL": "10m", "Name": "alive"} }));
    register(consul, &json!({ "Name": "plain" }));
    register(consul, &json!({ "Name": "with space", "ID": "a b/c", "Port": 3 }));
    register(
        consul,
        &json!({
            "Name": "tagged", "Port": 1, "EnableTagOverride": true,
            "TaggedAddresses": {
                "lan": {"Address": "10.9.9.9", "Port": 5}, "wan": {"Address": "192.0.2.1", "Port": 6},
            },
        }),
    );
    register(
        consul,
        &json!({
            "Name": "web-proxy", "Kind": "connect-proxy", "Port": 20_000, "Proxy": {"DestinationServiceName": "web"},
        }),
    );
    catalog(
        consul,
        &json!({
            "Node": "outside-1", "Address": "10.1.1.1", "NodeMeta": {"rack": "r1"},
            "TaggedAddresses": {"lan": "10.1.1.1", "wan": "192.0.2.2"},
            "Service": {"Service": "db", "ID": "db-1", "Port": 5432, "Tags": ["primary"], "Meta": {"major": "15"}},
        }),
    );
    for (id, address) in [("db-1", ""), ("db-2", "db.example")] {
        let service = json!({"Service": "db", "ID": id, "Address": address, "Port": 5432});
        catalog(consul, &json!({"Node": "outside-2", "Address": "10.1.1.2", "Service": service}));
    }
    catalog(consul, &json!({"Node": "lonely", "Address": "10.1.1.3", "NodeMeta": {"rack": "r2"}}));
}

/// Removes what differs by nature: indexes, ids of nodes, and whether a map is empty or missing.
fn normal(value: Value) -> Value {
    match value {
        Value::Array(rows) => rows.into_iter().map(normal).collect(),
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(name, value)| {
                let is_empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                !OWN.contains(&name.as_str()) && !is_empty
            });
            Value::Object(kept.map(|(name, value)| (name, normal(value))).collect())
        }
        other => other,
    }
}

/// The rows at a path, in an order of their own.
fn rows(address: &str, path: &str, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let Value::Array(rows) = get(address, path) else { panic!("{path} has no rows") };
    let mut rows: Vec<Value> = rows.into_iter().filter(wanted).map(normal).collect();
    rows.sort_by_key(|row| format!("{} {}", row["Node"], row["ServiceID"]));
    rows
}

fn import(consul: &ConsulAgent, node: &TestNode, more: &[&str]) -> Value {
    let arguments =
        ["import", "consul", "--from", &consul.address, "--addr", &node.clients, "--timeout", "30s", "--json"];
    serde_json::from_str(&output(&[&arguments[..], more].concat())).unwrap()
}

#[test]
fn a_real_consul_is_imported() {
    let Some(consul) = ConsulAgent::start() else {
        return skip("a_real_consul_is_imported", "needs the program consul 1.8 in PATH or CONVOKE_CONSUL");
    };
    fill(&consul);
    let instances = |service: &str| get(&consul.address, &format!("/v1/catalog/service/{service}"));
    // The agent tells the catalog of its services a moment later.
    until("the catalog has all instances", || {
        ["web", "plain", "with%20space", "tagged", "web-proxy"]
            .iter()
            .zip([3, 1, 1, 1, 1])
            .all(|(service, count)| instances(service).as_array().unwrap().len() == count)
    });
    let node =
        TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();

    let dry = import(&consul, &node, &["--dry-run"]);
    let copied = import(&consul, &node, &[]);
    for (part, count) in [("keys", 7), ("nodes", 4), ("services", 8)] {
        assert_eq!((&dry[part]["copied"], &copied[part]["copied"]), (&count.into(), &count.into()), "{part}: {copied}");
        assert_eq!(copied[part]["conflicts"], json!([]), "{part}: {copied}");
    }
    let skipped = |part: &str| copied[part]["skipped"].as_array().unwrap().clone();
    assert_eq!(skipped("keys")[0]["name"], "app/held");
    let reasons: Vec<String> = skipped("services").iter().map(ToString::to_string).collect();
    assert!(
        reasons[0].contains("web-3") && reasons[0].contains("alive") && reasons[0].contains("critical"),
        "{reasons:?}"
    );
    assert!(reasons[1].contains("connect-proxy"), "{reasons:?}");
    assert_eq!((reasons.len(), skipped("keys").len(), skipped("nodes").len()), (2, 1, 0), "{copied}");

    // Both sides answer the same.
    let critical = |row: &Value| row["ServiceID"] != "web-3";
    for service in ["web", "plain", "with%20space", "tagged", "db"] {
        let path = format!("/v1/catalog/service/{service}");
        assert_eq!(rows(&node.clients, &path, |_| true), rows(&consul.address, &path, critical), "{service}");
    }
    let imported = |row: &Value| row["Node"] != "dev";
    assert_eq!(
        rows(&node.clients, "/v1/catalog/nodes", imported),
        rows(&consul.address, "/v1/catalog/nodes", |_| true),
        "nodes"
    );
    let unheld = |row: &Value| row["Key"] != "app/held";
    let keys = "/v1/kv/?recurse";
    assert_eq!(rows(&node.clients, keys, |_| true), rows(&consul.address, keys, unheld), "keys");

    // Again: nothing changes, and what passes now is copied.
    put(&consul, "/v1/agent/check/pass/service:web-3", "");
    until("the catalog knows that web-3 passes", || get(&consul.address, "/v1/health/state/critical") == json!([]));
    let again = import(&consul, &node, &[]);
    assert_eq!((&again["services"]["copied"], &again["services"]["unchanged"]), (&1.into(), &8.into()), "{again}");
    assert_eq!((&again["nodes"]["unchanged"], &again["keys"]["unchanged"]), (&4.into(), &7.into()), "{again}");
    // An instance that differs here is named and left alone.
    register(&consul, &json!({ "Name": "web", "ID": "web-2", "Port": 99 }));
    until("the catalog has the new port", || instances("web").to_string().contains(":99,"));
    let arguments = [
        "import",
        "consul",
        "--from",
        &consul.address,
        "--addr",
        &node.clients,
        "--timeout",
        "30s",
        "--only",
        "services",
    ];
    let conflict = convoke(&arguments).output().unwrap();
    assert_eq!(conflict.status.code(), Some(5));
    let stderr = String::from_utf8_lossy(&conflict.stderr).into_owned();
    assert!(stderr.contains("web-2 of web at alpha has other contents"), "{stderr}");
    assert_eq!(import(&consul, &node, &["--only", "services", "--overwrite"])["services"]["copied"], 1);
}
