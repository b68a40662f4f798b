//! Health checks with real sockets (docs/protocol.md, HC).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_core::member::Health;
use convoke_testkit::eventually;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::SystemTime;
use support::access::{Keys, restricted};
use support::{Served, quick};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// An HTTP server that answers each request with one status, and counts the requests.
struct Target {
    address: SocketAddr,
    status: Arc<AtomicU16>,
    requests: Arc<AtomicUsize>,
    last: Arc<std::sync::Mutex<String>>,
}

impl Target {
    async fn start() -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target {
            address: listener.local_addr().unwrap(),
            status: Arc::new(AtomicU16::new(200)),
            requests: Arc::default(),
            last: Arc::default(),
        };
        let (status, requests, last) = (target.status.clone(), target.requests.clone(), target.last.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { break };
                    request.push(byte);
                }
                requests.fetch_add(1, Ordering::Relaxed);
                *last.lock().unwrap() = String::from_utf8_lossy(&request).into_owned();
                let status = status.load(Ordering::Relaxed);
                let answer = format!(
                    "HTTP/1.1 {status} X\r\nlocation: http://127.0.0.1:1/elsewhere\r\ncontent-length: 9\r\n\r\nall\twell\n"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        target
    }

    fn answer(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    fn check(&self) -> Value {
        json!({ "id": "web", "http": format!("http://{}/health?key=secret", self.address), "interval_ms": 100 })
    }
}

const PATH: &str = "/api/v1/services/web/members/w1";

async fn register(served: &Served, checks: Value) {
    served.put(PATH, &json!({ "address": "10.0.0.1:80", "checks": checks }).to_string()).await.ok();
}

async fn shows(served: &Served, health: Health) {
    eventually(&format!("the member is {health}"), async || {
        served.node.member("w1").is_some_and(|member| member.health() == health)
    })
    .await;
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_follows_a_server_that_fails_and_recovers() {
    let (served, target) = (Served::alone().await, Target::start().await);
    target.answer(503);
    let started = served.get("/api/v1/members").await.ok()["members"][0]["created"].as_u64().unwrap();
    eventually("a later date", async || unix_ms() > started).await;
    let registering = unix_ms();
    register(&served, json!([target.check()])).await;
    shows(&served, Health::Critical).await;
    eventually("the check ran", async || target.requests.load(Ordering::Relaxed) > 1).await;
    let discovered = async || served.get("/api/v1/sd/prometheus?service=web").await.ok();
    assert_eq!(discovered().await, json!([]));
    eventually("the output says why", async || {
        let member = served.get("/api/v1/members/w1").await.ok();
        member["checks"][0]["output"] == json!("HTTP 503 Service Unavailable: all\twell\n")
    })
    .await;
    for status in [200, 302, 429, 200] {
        target.answer(status);
        shows(
            &served,
            [(200, Health::Passing), (302, Health::Critical), (429, Health::Warning)]
                .iter()
                .find(|(s, _)| *s == status)
                .unwrap()
                .1,
        )
        .await;
    }
    let member = served.get("/api/v1/members/w1").await.ok();
    assert_eq!(member["health"], "passing");
    let explained = served.get("/api/v1/members/w1/explain").await.ok();
    assert!(explained["sentences"].to_string().contains("Its 1 checks pass."), "{explained}");
    let check = &member["checks"][0];
    let dates = [&member["created"], &member["owner"]["since"], &check["since"]].map(|date| date.as_u64().unwrap());
    assert!(dates.iter().all(|date| *date >= registering), "dated before {registering}: {dates:?}");
    assert_eq!(
        (&check["type"], &check["status"], &check["output"]),
        (&json!("http"), &json!("passing"), &json!("HTTP 200 OK"))
    );
    assert_eq!(check["target"], json!(format!("http://{}/health", target.address)), "without its query");
    let listed = served.get("/api/v1/members?filter=health%20==%20passing%20and%20routable").await.ok();
    assert_eq!(listed["members"].as_array().unwrap().iter().filter(|member| member["id"] == "w1").count(), 1);
    assert_eq!(discovered().await[0]["targets"], json!(["10.0.0.1:80"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_a_check_are_sent_and_never_shown() {
    let (served, target) = (Served::alone().await, Target::start().await);
    let http = json!({
        "url": format!("http://{}/", target.address),
        "headers": { "authorization": "Bearer hidden-value", "host": "shop.example" },
        "body_contains": "well",
    });
    register(&served, json!([{ "http": http, "interval_ms": 100 }])).await;
    shows(&served, Health::Passing).await;
    let request = target.last.lock().unwrap().clone();
    assert!(
        request.contains("authorization: Bearer hidden-value") && request.contains("host: shop.example"),
        "{request}"
    );
    for path in ["/api/v1/members/w1", "/api/v1/members", "/api/v1/members/w1/explain", "/metrics"] {
        let text = served.get(path).await.body_text().to_owned();
        assert!(!text.contains("hidden-value"), "{path}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_checked_too() {
    let served = Served::alone().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    register(&served, json!([{ "tcp": address.to_string(), "interval_ms": 100 }])).await;
    shows(&served, Health::Passing).await;
    drop(listener);
    shows(&served, Health::Critical).await;

    // The health service of a node of another cluster.
    let other = Served::alone().await;
    let address = other.address();
    register(&served, json!([{ "grpc": address.to_string(), "interval_ms": 100 }])).await;
    shows(&served, Health::Passing).await;
    assert_eq!(served.get("/api/v1/members/w1").await.ok()["checks"][0]["output"], "gRPC SERVING");
    register(&served, json!([{ "grpc": format!("{address}/unknown"), "interval_ms": 100, "initial": "passing" }]))
        .await;
    shows(&served, Health::Critical).await;
    assert_eq!(served.get("/api/v1/members/w1").await.ok()["checks"][0]["output"], "gRPC status code 5");
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_do_not_reach_what_only_a_node_reaches() {
    let served = Served::alone().await;
    let own = served.address();
    let peer = served.node.local_address();
    for (target, reason) in [
        (own.to_string(), "a port of"),
        (format!("localhost:{}", peer.port()), "a port of"),
        ("169.254.169.254:80".to_owned(), "link-local, metadata"),
        ("[::ffff:169.254.169.254]:80".to_owned(), "link-local, metadata"),
    ] {
        register(&served, json!([{ "tcp": target, "interval_ms": 100 }])).await;
        eventually(&format!("{target} is refused"), async || {
            let member = served.get("/api/v1/members/w1").await.ok();
            member["checks"][0]["output"].as_str().unwrap().contains(reason)
        })
        .await;
        assert_eq!(served.node.member("w1").unwrap().health(), Health::Critical);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_is_taken_at_any_node_and_counts_for_its_time() {
    let cluster = Served::cluster_with(3, quick).await;
    register(&cluster[0], json!([{ "id": "alive", "ttl_ms": 2_000 }, { "id": "seen", "ttl_ms": 600_000 }])).await;
    for served in &cluster {
        shows(served, Health::Critical).await;
    }
    let report = async |served: &Served, check: &str, body: Value| {
        served.put(&format!("{PATH}/checks/{check}"), &body.to_string()).await
    };
    let mut forwarded = 0;
    for served in &cluster {
        report(served, "seen", json!({ "status": "passing" })).await.ok();
        let answer = report(served, "alive", json!({ "status": "warning", "output": "slow" })).await.ok();
        forwarded += usize::from(answer["forwarded"] == true);
    }
    assert!(forwarded >= 2, "one node owns the member: {forwarded}");
    for served in &cluster {
        shows(served, Health::Warning).await;
    }
    // No report for two seconds.
    for served in &cluster {
        shows(served, Health::Critical).await;
    }
    let served = &cluster[1];
    assert_eq!(
        report(served, "other", json!({ "status": "passing" })).await.rejected(404, "NOT_FOUND").unwrap(),
        "check"
    );
    report(served, "alive", json!({ "status": "fine" })).await.rejected(400, "INVALID_ARGUMENT");
    report(served, "alive", json!({ "state": "passing" })).await.rejected(400, "INVALID_ARGUMENT");
    let missing = "/api/v1/services/web/members/nobody/checks/alive";
    served.put(missing, r#"{"status":"passing"}"#).await.rejected(404, "NOT_FOUND");
    served
        .put("/api/v1/services/other/members/w1/checks/alive", r#"{"status":"passing"}"#)
        .await
        .rejected(404, "NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_go_on_at_another_node_when_the_responsible_one_is_lost() {
    let (mut cluster, target) = (Served::cluster_with(3, quick).await, Target::start().await);
    register(&cluster[0], json!([target.check()])).await;
    for served in &cluster {
        shows(served, Health::Passing).await;
    }
    let owner = cluster[0].node.member("w1").unwrap().owner().node.to_owned();
    let position = cluster.iter().position(|served| served.node.id().as_str() == owner).unwrap();
    cluster.remove(position).kill().await;
    eventually("another node owns the member", async || {
        cluster.iter().all(|served| served.node.member("w1").is_some_and(|member| member.owner().node != owner))
    })
    .await;
    for served in &cluster {
        assert_eq!(served.node.member("w1").unwrap().health(), Health::Passing, "the result moved with the member");
    }
    target.answer(500);
    for served in &cluster {
        shows(served, Health::Critical).await;
    }
    target.answer(200);
    for served in &cluster {
        shows(served, Health::Passing).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_sessions_have_checks_too() {
    let (served, target) = (Served::alone().await, Target::start().await);
    let session = served.session("{}").await;
    let put = async |check: Value| {
        let body = json!({ "service": "web", "checks": [check] });
        served.put(&format!("{session}/members/w1"), &body.to_string()).await
    };
    put(target.check()).await.ok();
    shows(&served, Health::Passing).await;
    // Metadata changes and health changes do not disturb each other.
    served.patch(&format!("{session}/members/w1"), r#"{"k":"v"}"#).await.ok();
    target.answer(500);
    shows(&served, Health::Critical).await;
    let member = served.get("/api/v1/members/w1").await.ok();
    assert_eq!((&member["metadata"]["k"], &member["status"]), (&json!("v"), &json!("up")));
    let mut ending = target.check();
    ending["deregister_critical_after_ms"] = json!(1_000);
    let field = put(ending).await.rejected(400, "INVALID_MEMBER").unwrap();
    assert_eq!(field, "checks.deregister_critical_after_ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_critical_for_long_is_deregistered_but_not_in_a_mass_failure() {
    let (served, target) = (Served::alone().await, Target::start().await);
    target.answer(500);
    let mut check = target.check();
    check["deregister_critical_after_ms"] = json!(300);
    let put = async |id: &str, checks: Value| {
        let path = format!("/api/v1/services/web/members/{id}");
        served.put(&path, &json!({ "address": "10.0.0.1:80", "checks": checks }).to_string()).await.ok();
    };
    for id in ["w1", "w2", "w3"] {
        put(id, json!([check])).await;
    }
    eventually("all are critical", async || {
        ["w1", "w2", "w3"].iter().all(|id| served.node.member(id).is_some_and(|m| m.health() == Health::Critical))
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let services = served.get("/api/v1/services").await.ok();
    let web = services["services"].as_array().unwrap().iter().find(|service| service["service"] == "web").unwrap();
    assert_eq!((&web["up"], &web["critical"], &web["panic"]), (&json!(3), &json!(3), &json!(true)));
    let discovered = served.get("/api/v1/sd/prometheus?service=web").await.ok();
    assert_eq!(discovered.as_array().unwrap().len(), 3, "all of them are routable");
    // With four healthy ones, three that are critical are no mass failure.
    for id in ["w4", "w5", "w6", "w7"] {
        put(id, json!([])).await;
    }
    eventually("they are deregistered", async || ["w1", "w2", "w3"].iter().all(|id| served.node.member(id).is_none()))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registering_a_check_needs_its_own_verb() {
    let keys = Keys::new();
    let served = restricted(&keys, &[]).await;
    let body = |checks: Value| json!({ "address": "10.0.0.1:80", "checks": checks }).to_string();
    let send = async |grants: &[&str], body: String| {
        let bearer = format!("Bearer {}", keys.token("deployer", grants));
        served.send("PUT", PATH, &[("authorization", &bearer)], body).await
    };
    let check = json!([{ "tcp": "10.0.0.1:80" }]);
    send(&["register service:*"], body(json!([]))).await.ok();
    send(&["register service:*"], body(check.clone())).await.rejected(403, "PERMISSION_DENIED");
    send(&["register service:*", "check service:other"], body(check.clone())).await.rejected(403, "PERMISSION_DENIED");
    send(&["register service:*", "check service:web"], body(check)).await.ok();
}
