//! The OpenAPI description and the served routes are the same.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use support::Served;

/// Every operation of the description, as (method, path).
fn described(document: &Value) -> BTreeSet<(String, String)> {
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, operations)| {
        operations.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone()))
    });
    operations.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_is_described_and_every_description_served() {
    let served = Served::alone().await;
    let document = served.get("/api/v1/openapi.json").await.ok();
    assert_eq!(document["openapi"], "3.1.0");
    let routes: BTreeSet<_> =
        convoke_server::routes().into_iter().map(|(method, path)| (method, path.replace("{*", "{"))).collect();
    assert_eq!(described(&document), routes);
    for (method, path) in routes {
        let path = path
            .replace("{id}", "nobody")
            .replace("{session}", "nobody")
            .replace("{key}", "a/b")
            .replace("{name}", "l")
            .replace("{number}", "1");
        let path = path.replace("{resource}", "status").replace("{file}", "app.js");
        if path == "/api/v1/watch" || path == "/api/v1/events" {
            // These streams do not end.
            support::http::Sse::open_at(&served, &path, "").await;
            continue;
        }
        let answer = served.send(&method, &path, &[("accept", "text/html")], "").await;
        let message = answer.body_text();
        assert!(!message.contains("no resource at") && answer.status != 405, "{method} {path}: {answer:?}");
    }
}

/// Every described parameter is known to its route.
#[tokio::test(flavor = "multi_thread")]
async fn described_parameters_are_known() {
    let served = Served::alone().await;
    let document = served.get("/api/v1/openapi.json").await.ok();
    let session = served.session("").await;
    let secret = session.rsplit('/').next().unwrap();
    let mut checked = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        let concrete_path = path.replace("/sessions/{session}", &format!("/sessions/{secret}"));
        let concrete_path =
            concrete_path.replace("{session}", "1").replace("{number}", "1").replace("{key}", "k").replace("{id}", "a");
        for (method, operation) in operations.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            for name in parameters.filter(|parameter| parameter["in"] == "query").map(|parameter| &parameter["name"]) {
                checked += 1;
                // A second, unknown parameter prevents endless streams from starting.
                let answer = served
                    .send(
                        &method.to_uppercase(),
                        &format!("{concrete_path}?{}=&pretty", name.as_str().unwrap()),
                        &[],
                        "",
                    )
                    .await;
                let field = answer.rejected(400, "INVALID_ARGUMENT");
                let known = field.as_deref() == Some("pretty") || !answer.body_text().contains("unknown parameter");
                assert!(known, "{method} {path} {name}: {answer:?}");
            }
        }
    }
    assert!(checked > 20, "{checked}");
}

/// Responses have the fields that the description requires, and no others.
#[tokio::test(flavor = "multi_thread")]
async fn answers_have_the_described_shape() {
    let served = Served::alone().await;
    let document = served.get("/api/v1/openapi.json").await.ok();
    let session = served.post("/api/v1/sessions", "").await.ok();
    check(&document, "SessionResponse", &session);
    let session = format!("/api/v1/sessions/{}", session["session"].as_str().unwrap());
    let body = json!({"service": "s", "endpoints": {"x": "h:1"}, "metadata": {"k": "v"}}).to_string();
    check(&document, "MemberWritten", &served.put(&format!("{session}/members/a"), &body).await.ok());
    check(&document, "Heartbeat", &served.put(&format!("{session}/heartbeat"), "").await.ok());
    check(&document, "Member", &served.get("/api/v1/members/a").await.ok());
    check(&document, "MemberList", &served.get("/api/v1/members").await.ok());
    check(&document, "Status", &served.get("/api/v1/status").await.ok());
    check(&document, "Nodes", &served.get("/api/v1/nodes").await.ok());
    check(&document, "Nodes", &served.get("/api/v1/nodes/n0/nodes").await.ok());
    let _watch = support::http::Sse::open(&served, "", "").await;
    check(&document, "Watchers", &served.get("/api/v1/watchers").await.ok());
    check(&document, "Services", &served.get("/api/v1/services").await.ok());
    check(&document, "Explanation", &served.get("/api/v1/members/a/explain").await.ok());
    check(&document, "Error", &served.get("/nowhere").await.json());
}

fn check(document: &Value, name: &str, value: &Value) {
    conforms(document, &json!({"$ref": format!("#/components/schemas/{name}")}), value, name);
}

/// The subset of JSON Schema that the description uses.
fn conforms(document: &Value, schema: &Value, value: &Value, position: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#')).unwrap_or_else(|| panic!("{reference}"));
        return conforms(document, target, value, position);
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let allowed = match &schema["type"] {
        Value::Array(kinds) => kinds.clone(),
        kind => vec![kind.clone()],
    };
    assert!(allowed.contains(&json!(kind)), "{position}: {value} is not {allowed:?}");
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(value), "{position}: {value}");
    }
    for item in value.as_array().into_iter().flatten() {
        conforms(document, &schema["items"], item, position);
    }
    let (Some(fields), Some(known)) = (value.as_object(), schema["properties"].as_object()) else { return };
    for required in schema["required"].as_array().into_iter().flatten() {
        assert!(fields.contains_key(required.as_str().unwrap()), "{position}: no {required}");
    }
    for (field, value) in fields {
        let schema = known.get(field).unwrap_or_else(|| panic!("{position}: {field} is not described"));
        conforms(document, schema, value, &format!("{position}.{field}"));
    }
}
