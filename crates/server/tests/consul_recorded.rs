//! Convoke answers as the real Consul does: the same sequence of requests to both. The answers of Consul 1.8.7 are recorded,
//! so that they are compared on machines without it as well. What differs is listed with the reason in `differences.json`; an
//! entry that is not needed fails.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{ConsulAgent, golden, skip};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use support::Served;
use support::http::{answer, open, request};

const SEQUENCE: &str = include_str!("consul_answers/sequence.txt");
/// Headers that are compared. Of an index only the presence is.
const HEADERS: [&str; 8] = [
    "allow",
    "content-type",
    "x-consul-index",
    "x-consul-knownleader",
    "x-consul-lastcontact",
    "x-consul-effective-consistency",
    "x-consul-reason",
    "x-consul-contenthash",
];

fn data(file: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/consul_answers/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn requests() -> Vec<(&'static str, &'static str, &'static str)> {
    let lines = SEQUENCE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parts = lines.map(|line| {
        let mut parts = line.splitn(3, ' ');
        (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap_or_default())
    });
    parts.collect()
}

/// Sends the sequence, and returns the answers in a form that can be compared.
async fn ask(address: SocketAddr, pause: Duration) -> Vec<Value> {
    let mut answers = Vec::new();
    for (method, path, body) in requests() {
        let mut sender = open(address).await;
        let found = answer(sender.send_request(request(method, path, &[], body)).await.unwrap()).await;
        if method == "PUT" {
            // A real agent tells its server about a change a moment later. Convoke writes results of the checks of a member at
            // most once a second.
            let reports = path.starts_with("/v1/agent/check/") || body.contains("\"Check");
            let written = if reports { Duration::from_millis(1_500) } else { pause };
            tokio::time::sleep(written).await;
        }
        let headers = HEADERS.into_iter().filter_map(|name| {
            let value = found.headers.get(name)?.to_str().unwrap();
            // An empty body has no type.
            let shown = !(name == "content-type" && found.body.is_empty());
            let value = if matches!(name, "x-consul-index" | "x-consul-contenthash") { "…" } else { value };
            shown.then(|| (name.to_owned(), json!(value)))
        });
        let headers: serde_json::Map<_, _> = headers.collect();
        let body = match serde_json::from_slice::<Value>(&found.body) {
            Ok(mut body) => {
                normalise(&mut body, path);
                body
            }
            Err(_) => json!(found.body_text()),
        };
        answers.push(json!({
            "request": format!("{method} {path}"),
            "status": found.status.as_u16(),
            "headers": headers,
            "body": body,
        }));
    }
    answers
}

/// Replaces what is different each time: indexes, hashes and generated ids. The order of tags in
/// `catalog/services` and of instances at an agent is random.
fn normalise(value: &mut Value, path: &str) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                let generated = value.as_str().is_some_and(|text| text.len() == 36 && text.matches('-').count() == 4);
                // Before the agent has told its server, the index is 0.
                let index = matches!(key.as_str(), "CreateIndex" | "ModifyIndex") && *value != json!(0);
                if index || key == "ContentHash" || (key == "ID" && generated) {
                    *value = json!("…");
                }
                normalise(value, path);
            }
        }
        Value::Array(list) => {
            list.iter_mut().for_each(|value| normalise(value, path));
            if path.starts_with("/v1/catalog/services") {
                list.sort_by_key(ToString::to_string);
            }
            if path.starts_with("/v1/agent/health/service/name/") {
                list.sort_by_key(|row| row["Service"]["ID"].to_string());
            }
        }
        _ => {}
    }
}

/// Returns the places at which two values differ, as JSON pointers.
fn differing(consul: &Value, convoke: &Value, at: &str, found: &mut Vec<String>) {
    match (consul, convoke) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                let (left, right) = (left.get(key), right.get(key));
                match (left, right) {
                    (Some(left), Some(right)) => differing(left, right, &format!("{at}/{key}"), found),
                    _ => found.push(format!("{at}/{key}")),
                }
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                differing(left, right, &format!("{at}/{index}"), found);
            }
        }
        _ if consul != convoke => found.push(at.to_owned()),
        _ => {}
    }
}

/// A star stands for any text.
fn like(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        if part.is_empty() {
            last = Some(part);
            continue;
        }
        let Some(position) = rest.rfind(part) else { return false };
        rest = &rest[position + part.len()..];
        last = Some(part);
    }
    rest.is_empty() || last == Some("")
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_answers_of_consul_are_given() {
    let served = Served::start("alpha", &[], |config| config.cluster = "dc1".into(), |_| {}).await;
    let recorded: Vec<Value> = serde_json::from_str(&data("recorded.json")).unwrap();
    let known: Vec<Value> = serde_json::from_str(&data("differences.json")).unwrap();
    let answers = ask(served.address(), Duration::ZERO).await;
    assert_eq!(recorded.len(), answers.len(), "the recording is of another sequence: UPDATE_GOLDEN=1 with consul");
    assert!(answers.len() > 100, "{}", answers.len());
    let mut used = BTreeSet::new();
    let mut unknown = Vec::new();
    for (consul, convoke) in recorded.iter().zip(&answers) {
        let mut found = Vec::new();
        differing(consul, convoke, "", &mut found);
        for at in found {
            let text = |value: &Value, name: &str| value[name].as_str().unwrap().to_owned();
            let matching = known.iter().position(|known| {
                assert!(!text(known, "why").is_empty());
                like(convoke["request"].as_str().unwrap(), &text(known, "request")) && like(&at, &text(known, "at"))
            });
            match matching {
                Some(index) => drop(used.insert(index)),
                None => unknown.push(format!(
                    "{} {at}\n  consul:  {}\n  convoke: {}",
                    convoke["request"],
                    consul.pointer(&at).unwrap_or(&Value::Null),
                    convoke.pointer(&at).unwrap_or(&Value::Null)
                )),
            }
        }
    }
    assert!(unknown.is_empty(), "{} differences are not listed:\n{}", unknown.len(), unknown.join("\n"));
    let unused: Vec<_> = known.iter().enumerate().filter(|(index, _)| !used.contains(index)).collect();
    assert!(unused.is_empty(), "these differences do not exist any more: {unused:?}");
}

#[test]
fn patterns_have_stars() {
    assert!(like("GET /v1/kv/a", "GET /v1/*"));
    assert!(like("/body/0/Node/Meta", "/body/*/Meta"));
    assert!(like("/headers", "/headers"));
    assert!(!like("/headers/x", "/headers"));
    assert!(!like("/body/0/Node", "/body/*/Meta"));
}

/// The recording is of the real program.
#[tokio::test(flavor = "multi_thread")]
async fn recorded_answers_are_those_of_consul() {
    let Some(consul) = ConsulAgent::start() else {
        return skip("recorded_answers_are_those_of_consul", "needs the program consul 1.8 in PATH or CONVOKE_CONSUL");
    };
    let answers = ask(consul.address.parse().unwrap(), Duration::from_millis(400)).await;
    let text = serde_json::to_string_pretty(&answers).unwrap() + "\n";
    golden!("consul_answers/recorded.json", &text);
}
