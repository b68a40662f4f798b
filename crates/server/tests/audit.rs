//! The audit log (AU18, AU19): every change and every denial, and no secret.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::{Client, ErrorCode, MemberSpec, TokenSource};
use convoke_proto::v1;
use convoke_server::{AuditConfig, AuditTarget};
use convoke_testkit::eventually;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use support::Served;
use support::access::Keys;
use support::http::{concrete, open, request};
use tempfile::TempDir;

/// The file of an audit log.
struct Lines {
    directory: TempDir,
}

impl Lines {
    fn new() -> Lines {
        Lines { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("audit.log")
    }

    fn config(&self) -> AuditConfig {
        AuditConfig::new(AuditTarget::File(self.path()))
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap()
    }

    fn all(&self) -> Vec<Value> {
        let text = self.text();
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits for a line with these members.
    async fn with(&self, wanted: Value) -> Value {
        let fits = |line: &Value| wanted.as_object().unwrap().iter().all(|(name, value)| line[name] == *value);
        eventually(&format!("{wanted} in the audit log"), async || self.all().iter().any(fits)).await;
        self.all().into_iter().find(fits).unwrap()
    }
}

/// The tables generate the calls, so that a new route or method cannot be forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn the_denial_of_every_route_and_method_is_recorded() {
    let (keys, lines) = (Keys::new(), Lines::new());
    let (auth, audit) = (keys.config(&[]), lines.config());
    let served =
        Served::start("n0", &[], |_| {}, |server| (server.auth, server.audit) = (Some(auth), Some(audit))).await;
    let nothing = keys.token("nobody", &[]);
    let denied = async |action: String, via: &str| {
        let line = lines.with(serde_json::json!({ "action": action, "via": via })).await;
        assert_eq!(
            (&line["principal"], &line["result"]),
            (&"token/nobody".into(), &"PERMISSION_DENIED".into()),
            "{line}"
        );
        assert!(line["denied"].is_string() && line["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
    };
    let bearer = format!("Bearer {nothing}");
    let consul = convoke_server::consul_route_permissions();
    for (method, path, needed) in convoke_server::route_permissions().into_iter().chain(consul) {
        if !needed.is_empty() {
            let mut sender = open(served.address()).await;
            let headers = [("authorization", bearer.as_str())];
            sender.send_request(request(&method, &concrete(path), &headers, "{}")).await.unwrap();
            denied(format!("{method} {path}"), "http").await;
        }
    }
    let mut channel = support::grpc::channel(&served).await;
    for (path, _) in convoke_server::method_permissions() {
        let call = http::Request::post(format!("http://{}{path}", served.address()))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("authorization", &bearer)
            .body(tonic::body::Body::empty())
            .unwrap();
        tower::ServiceExt::ready(&mut channel).await.unwrap();
        tower::Service::call(&mut channel, call).await.unwrap();
        denied(path.to_owned(), "grpc").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_recorded_with_who_where_what_and_the_result() {
    let (keys, lines) = (Keys::new(), Lines::new());
    let audit = Some(lines.config());
    let cluster = keys.log_cluster_with(1, convoke_server::Config { audit, ..Default::default() }).await;
    let served = cluster.served(0);
    let grants = ["put key:config/", "register service:web", "read service:*", "lock lock:jobs", "read key:config/"];
    let token = keys.token("alice", &grants);
    let send = async |method: &str, path: &str, body: &str| keys.send(served, &token, method, path, body).await;
    // HTTP.
    send("PUT", "/api/v1/kv/config/a", "the value is a secret").await.ok();
    send("GET", "/api/v1/kv/config/a", "").await.ok();
    let put = lines.with(serde_json::json!({ "action": "PUT /api/v1/kv/{*key}", "result": "OK" })).await;
    assert_eq!(put["allowed"], serde_json::json!(["put key:config/a"]));
    assert_eq!((&put["principal"], &put["node"]), (&"token/alice".into(), &served.node.id().as_str().into()));
    assert!(put["token"].as_str().unwrap().starts_with("token/"), "the id of the token: {put}");
    send("PUT", "/api/v1/kv/other", "x").await.rejected(403, "PERMISSION_DENIED");
    lines.with(serde_json::json!({ "denied": "put key:other", "result": "PERMISSION_DENIED", "via": "http" })).await;
    send("PUT", "/api/v1/kv/config/a?if_revision=99", "x").await.rejected(412, "FAILED_PRECONDITION");
    lines.with(serde_json::json!({ "allowed": ["put key:config/a"], "result": "FAILED_PRECONDITION" })).await;
    let session = send("POST", "/api/v1/sessions", "{}").await.ok()["session"].as_str().unwrap().to_owned();
    send("PUT", &format!("/api/v1/sessions/{session}/members/w-1"), r#"{"service":"web"}"#).await.ok();
    send("PUT", &format!("/api/v1/sessions/{session}/heartbeat"), "{}").await.ok();
    let register = serde_json::json!({ "action": "PUT /api/v1/sessions/{session}/members/{id}" });
    let register = lines.with(register).await;
    assert_eq!(register["parameters"], serde_json::json!({ "id": "w-1" }));
    assert_eq!(register["allowed"], serde_json::json!(["register service:web"]));
    // gRPC: the SDK.
    let seeds = [served.address().to_string()];
    let timeout = Duration::from_secs(60);
    let source = TokenSource::fixed(token.clone());
    let client = Client::builder().seeds(seeds).token(source).operation_timeout(timeout).connect().await.unwrap();
    let registration = client.register(MemberSpec::new("w-2", "web")).await.unwrap();
    let line = lines.with(serde_json::json!({ "request": "register", "result": "OK" })).await;
    assert_eq!(line["parameters"], serde_json::json!({ "member": "w-2", "service": "web" }));
    let denied = client.register(MemberSpec::new("o-1", "orders")).await.unwrap_err();
    assert_eq!(denied.code, ErrorCode::PermissionDenied);
    lines.with(serde_json::json!({ "request": "register", "result": "PERMISSION_DENIED", "via": "grpc" })).await;
    client.kv().put("config/b", "another secret value").await.unwrap();
    lines.with(serde_json::json!({ "request": "put", "allowed": ["put key:config/b"], "result": "OK" })).await;
    client.kv().put("other", "x").await.unwrap_err();
    lines.with(serde_json::json!({ "request": "put", "denied": "put key:other", "via": "grpc" })).await;
    registration.unregister().await.unwrap();
    lines.with(serde_json::json!({ "request": "unregister", "result": "OK" })).await;
    // Administration.
    let operator = keys.token("operator", &["* *"]);
    let mut admin = support::grpc::admin(served).await;
    let mut revoke = tonic::Request::new(v1::RevokeRequest {
        what: Some(v1::revoke_request::What::Principal("mallory".to_owned())),
        issued_until: 0,
    });
    revoke.metadata_mut().insert("authorization", format!("Bearer {operator}").parse().unwrap());
    admin.revoke(revoke).await.unwrap();
    let line = lines.with(serde_json::json!({ "action": "/convoke.v1.Admin/Revoke" })).await;
    assert_eq!(line["parameters"], serde_json::json!({ "principal": "mallory" }));
    assert_eq!(line["allowed"], serde_json::json!(["revoke cluster"]));
    // Credentials that are not valid.
    let mut forged = token.clone();
    forged.replace_range(forged.len() - 4.., "AAAA");
    keys.send(served, &forged, "PUT", "/api/v1/kv/config/a", "x").await.rejected(401, "UNAUTHENTICATED");
    let line = lines.with(serde_json::json!({ "result": "UNAUTHENTICATED" })).await;
    assert!(line["principal"].is_null() && line["reason"].is_string(), "{line}");
    // Neither reads, nor heartbeats, nor secrets.
    let text = lines.text();
    assert!(!text.contains("heartbeat") && !text.contains("\"GET "), "{text}");
    for secret in [&token, &operator, &forged] {
        let signature = secret.rsplit_once('.').unwrap().1;
        assert!(!text.contains(signature) && !text.contains(secret.as_str()), "{text}");
    }
    assert!(!text.contains(&session) && !text.contains("secret") && !text.contains("Bearer"), "{text}");
    eventually("the counter", async || {
        let metrics = keys.send(served, &operator, "GET", "/metrics", "").await.body_text();
        metrics.contains(&format!("convoke_audit_records_written_total {}\n", lines.all().len()))
    })
    .await;
}

/// The token of Consul's clients may be a parameter. It is in no line, also if the request is denied or not valid.
#[tokio::test(flavor = "multi_thread")]
async fn changes_of_consuls_clients_are_recorded_without_their_tokens() {
    let (keys, lines) = (Keys::new(), Lines::new());
    let audit = Some(lines.config());
    let cluster = keys.log_cluster_with(1, convoke_server::Config { audit, ..Default::default() }).await;
    let served = cluster.served(0);
    let grants = ["put key:config/", "register service:web", "drain service:web", "lock lock:*"];
    let token = keys.token("alice", &[&grants[..], &["read key:config/", "read service:web"]].concat());
    let send = async |method: &str, path: &str, body: &str| {
        let joined = if path.contains('?') { '&' } else { '?' };
        let answer = served.send(method, &format!("{path}{joined}token={token}"), &[], body.to_owned()).await;
        (u16::from(answer.status), answer.body_text())
    };
    assert_eq!(send("PUT", "/v1/kv/config/a", "the value is a secret").await, (200, "true".to_owned()));
    let put = lines.with(serde_json::json!({ "action": "PUT /v1/kv/{*key}", "result": "OK" })).await;
    assert_eq!((&put["allowed"], &put["principal"]), (&serde_json::json!(["put key:config/a"]), &"token/alice".into()));
    assert_eq!(put["parameters"], serde_json::json!({ "key": "config/a" }));
    assert_eq!(send("PUT", "/v1/kv/other", "x").await.0, 403);
    lines.with(serde_json::json!({ "action": "PUT /v1/kv/{*key}", "denied": "put key:other" })).await;
    assert_eq!(send("PUT", "/v1/txn", r#"[{"KV":{"Verb":"set","Key":"b"}}]"#).await.0, 403);
    lines.with(serde_json::json!({ "action": "PUT /v1/txn", "denied": "put key:b" })).await;
    assert_eq!(send("PUT", "/v1/agent/service/register", r#"{"Name":"web"}"#).await.0, 200);
    let register = lines.with(serde_json::json!({ "action": "PUT /v1/agent/service/register", "result": "OK" })).await;
    assert_eq!(register["allowed"], serde_json::json!(["register service:web"]));
    assert_eq!(register["parameters"], serde_json::json!({ "member": "n0:web" }));
    assert_eq!(send("PUT", "/v1/agent/service/maintenance/web?enable=true", "").await.0, 200);
    lines.with(serde_json::json!({ "result": "OK", "allowed": ["drain service:web"] })).await;
    assert_eq!(send("PUT", "/v1/session/create", "{}").await.0, 200);
    lines.with(serde_json::json!({ "action": "PUT /v1/session/create", "result": "OK" })).await;
    assert_eq!(send("PUT", "/v1/agent/service/deregister/web", "").await.0, 200);
    let deregister = serde_json::json!({ "action": "PUT /v1/agent/service/deregister/{id}", "result": "OK" });
    assert_eq!(lines.with(deregister).await["parameters"]["id"], "web");
    // Reads are not recorded.
    send("GET", "/v1/catalog/services", "").await;
    send("GET", "/v1/kv/other", "").await;
    lines.with(serde_json::json!({ "denied": "read key:other" })).await;
    let text = lines.text();
    assert!(!text.contains(&token) && !text.contains("token=") && !text.contains("secret"), "{text}");
    assert!(!text.contains("/v1/catalog/services"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_access_control_records_changes_too() {
    let lines = Lines::new();
    let audit = lines.config();
    let served = Served::start("n0", &[], |_| {}, |server| server.audit = Some(audit)).await;
    let session = served.session("{}").await;
    served.put(&format!("{session}/members/w-1"), r#"{"service":"web"}"#).await.ok();
    let line = lines.with(serde_json::json!({ "action": "PUT /api/v1/sessions/{session}/members/{id}" })).await;
    assert_eq!((&line["principal"], &line["result"]), (&"anonymous".into(), &"OK".into()));
    assert!(!lines.text().contains(session.rsplit('/').next().unwrap()));
}

/// Both nodes write to one file, and name themselves.
#[tokio::test(flavor = "multi_thread")]
async fn forwarded_and_abandoned_calls_are_recorded() {
    let (keys, lines) = (Keys::new(), Lines::new());
    let audit = Some(lines.config());
    let cluster = keys.log_cluster_with(2, convoke_server::Config { audit, ..Default::default() }).await;
    let (first, second) = (cluster.served(0), cluster.served(1));
    let token = keys.token("alice", &["register service:web", "lock lock:jobs"]);
    // A session of one node, used at the other.
    let session = keys.send(first, &token, "POST", "/api/v1/sessions", "{}").await.ok();
    let path = format!("/api/v1/sessions/{}/members/w-1", session["session"].as_str().unwrap());
    eventually("the nodes know each other", async || {
        keys.send(second, &token, "PUT", &path, r#"{"service":"web"}"#).await.status == 200
    })
    .await;
    let register = serde_json::json!({
        "action": "PUT /api/v1/sessions/{session}/members/{id}", "forwarded": true, "result": "OK",
        "node": first.node.id().as_str(), "principal": "token/alice",
    });
    lines.with(register).await;
    // The second caller waits for the lock, and disconnects.
    let acquire = |wait: u64| format!(r#"{{"ttl_ms":600000,"wait_ms":{wait}}}"#);
    keys.send(first, &token, "POST", "/api/v1/locks/jobs", &acquire(0)).await.ok();
    let mut sender = open(first.address()).await;
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let waiting = sender.send_request(request("POST", "/api/v1/locks/jobs", &headers, acquire(600_000)));
    assert!(tokio::time::timeout(Duration::from_secs(1), waiting).await.is_err(), "the lock is held");
    drop(sender);
    lines.with(serde_json::json!({ "action": "POST /api/v1/locks/{name}", "result": "CANCELLED" })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_writes_everything() {
    let lines = Lines::new();
    let audit = lines.config();
    let served = Served::start("n0", &[], |_| {}, |server| server.audit = Some(audit)).await;
    for _ in 0..100 {
        served.session("{}").await;
    }
    served.server.stop().await;
    assert_eq!(lines.all().len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_does_not_start_without_a_usable_audit_log() {
    let directory = tempfile::tempdir().unwrap();
    let audit = Some(AuditConfig::new(AuditTarget::File(directory.path().to_owned())));
    let error = convoke_server::Server::bind(convoke_server::Config { audit, ..Default::default() }).await.unwrap_err();
    assert!(error.to_string().contains("audit.file"), "{error}");
}
