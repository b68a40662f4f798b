//! Consul's HTTP API under `/v1`.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::eventually;
use support::Served;
use support::access::Keys;
use support::http::{concrete, open, request};

async fn status(served: &Served, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let answer = served.send(method, path, headers, "").await;
    (answer.status.into(), answer.body_text())
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_and_methods_without_a_route_are_answered_as_consul_does() {
    let served = Served::alone().await;
    assert_eq!(status(&served, "GET", "/v1/invented", &[]).await, (404, String::new()));
    let (code, text) = status(&served, "GET", "/v1/connect/ca/roots", &[]).await;
    assert_eq!(code, 404);
    assert_eq!(text, "Convoke does not offer service mesh (Connect); see docs/consul.md");
    let answer = served.send("POST", "/v1/status/leader", &[], "").await;
    assert_eq!((u16::from(answer.status), answer.body_text().as_str()), (405, "method POST not allowed"));
    assert_eq!(answer.headers["allow"], "OPTIONS,GET");
    assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    let answer = served.send("OPTIONS", "/v1/status/leader", &[], "").await;
    assert_eq!((u16::from(answer.status), &answer.headers["allow"]), (200, &"OPTIONS,GET".parse().unwrap()));
}

/// Enumerates the table of routes, so that no route can be forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn every_route_needs_its_permission_and_accepts_the_token_in_three_places() {
    let keys = Keys::new();
    let auth = keys.config(&[]);
    let served = Served::start("n0", &[], |_| {}, |server| server.auth = Some(auth)).await;
    let nothing = keys.token("nobody", &[]);
    for (method, path, needed) in convoke_server::consul_route_permissions() {
        assert!(!needed.is_empty(), "{method} {path}: no route is public");
        let path = concrete(path);
        let denied = (403, "Permission denied".to_owned());
        assert_eq!(status(&served, &method, &path, &[]).await, denied, "{method} {path}");
        let (verb, kind) = needed[0];
        let grant = if kind.is_named() { format!("{verb} {kind}:*") } else { format!("{verb} {kind}") };
        let token = keys.token("alice", &[&grant]);
        let bearer = |token: &str| format!("Bearer {token}");
        for (token, opens) in [(&nothing, false), (&token, true)] {
            for headers in [("x-consul-token", token.clone()), ("authorization", bearer(token))] {
                let mut sender = open(served.address()).await;
                let sent = request(&method, &path, &[(headers.0, &headers.1)], "{}");
                let found = sender.send_request(sent).await.unwrap().status();
                assert_eq!(found != 403, opens, "{grant}: {method} {path}: {found}");
            }
            let mut sender = open(served.address()).await;
            let sent = request(&method, &format!("{path}?token={token}"), &[], "{}");
            let found = sender.send_request(sent).await.unwrap().status();
            assert_eq!(found != 403, opens, "{grant}: {method} {path}?token=: {found}");
        }
    }
}

const REGISTER: &str = "/v1/agent/service/register";

fn index(answer: &support::http::Answer) -> u64 {
    answer.headers["x-consul-index"].to_str().unwrap().parse().unwrap()
}

async fn register(served: &Served, body: &str) {
    let answer = served.put(REGISTER, body).await;
    assert_eq!(u16::from(answer.status), 200, "{answer:?}");
}

/// Waits until a node shows this number of instances.
async fn shows(served: &Served, service: &str, count: usize) {
    for _ in 0..600 {
        let rows = served.get(&format!("/v1/catalog/service/{service}")).await.ok();
        if rows.as_array().unwrap().len() == count {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{service} has not {count} instances");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_query_returns_with_the_change() {
    let served = std::sync::Arc::new(Served::alone().await);
    register(&served, r#"{"Name":"web","ID":"w1"}"#).await;
    let first = served.get("/v1/health/service/web").await;
    // Nothing changes: the same index after the wait. Changes of other services do not end it.
    let path = format!("/v1/health/service/web?index={}&wait=300ms", index(&first));
    let (same, ()) = tokio::join!(served.get(&path), register(&served, r#"{"Name":"other"}"#));
    assert_eq!((index(&same), &same.body), (index(&first), &first.body));
    let begun = std::time::Instant::now();
    let path = format!("/v1/health/service/web?index={}&wait=10m", index(&first));
    let asked = served.clone();
    let waiting = tokio::spawn(async move { asked.get(&path).await });
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    register(&served, r#"{"Name":"web","ID":"w2"}"#).await;
    let changed = waiting.await.unwrap();
    assert!(begun.elapsed() < std::time::Duration::from_secs(60));
    assert_ne!(index(&changed), index(&first));
    assert_eq!(changed.ok().as_array().unwrap().len(), 2);
}

/// A client behind a balancer asks another node each time. It neither spins nor misses a change.
#[tokio::test(flavor = "multi_thread")]
async fn indexes_are_equal_at_every_node() {
    let cluster = Served::cluster(2).await;
    let (mut last, mut queries, mut changes) = (0, 0, 0);
    for round in 0..4 {
        register(&cluster[round % 2], &format!(r#"{{"Name":"web","ID":"w{round}"}}"#)).await;
        changes += 1;
        for served in &cluster {
            shows(served, "web", round + 1).await;
        }
        // The client sees the change with its first query, and then waits at the other node.
        for served in cluster.iter().cycle().skip(round).take(2) {
            let answer = served.get(&format!("/v1/health/service/web?index={last}&wait=200ms")).await;
            queries += 1;
            last = index(&answer);
            assert_eq!(answer.ok().as_array().unwrap().len(), round + 1);
        }
    }
    assert_eq!(queries, 2 * changes, "one for the change and one for the wait");
    let (one, other) = (cluster[0].get("/v1/health/service/web").await, cluster[1].get("/v1/health/service/web").await);
    assert_eq!((index(&one), one.body), (index(&other), other.body));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_deregistered_at_any_node() {
    let cluster = Served::cluster(3).await;
    register(&cluster[0], r#"{"Name":"db"}"#).await;
    shows(&cluster[2], "db", 1).await;
    assert_eq!(cluster[2].put("/v1/agent/service/deregister/db", "").await.status, 200);
    shows(&cluster[0], "db", 0).await;
    // The same id at two nodes: the node itself knows which; another one does not guess.
    register(&cluster[0], r#"{"Name":"web"}"#).await;
    register(&cluster[1], r#"{"Name":"web"}"#).await;
    for served in &cluster {
        shows(served, "web", 2).await;
    }
    let refused = cluster[2].put("/v1/agent/service/deregister/web", "").await;
    assert_eq!(refused.status, 500);
    assert!(refused.body_text().contains("(n0, n1)"), "{refused:?}");
    assert_eq!(cluster[1].put("/v1/agent/service/deregister/web", "").await.status, 200);
    for served in &cluster {
        shows(served, "web", 1).await;
    }
    assert_eq!(cluster[2].get("/v1/catalog/service/web").await.ok()[0]["Node"], "n0");
    assert_eq!(cluster[2].put("/v1/catalog/deregister", r#"{"Node":"n0","ServiceID":"web"}"#).await.status, 200);
    shows(&cluster[0], "web", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn native_members_are_services_of_their_node() {
    let served = Served::alone().await;
    let session = served.session("").await;
    let member = r#"{"service":"orders","address":"10.0.0.1:80","metadata":{"zone":"a"}}"#;
    served.put(&format!("{session}/members/o1"), member).await.ok();
    served.put("/api/v1/services/orders/members/o2", r#"{"address":"10.0.0.2:80"}"#).await.ok();
    let rows = served.get("/v1/health/service/orders?passing").await.ok();
    let shown: Vec<_> =
        rows.as_array().unwrap().iter().map(|row| (&row["Node"]["Node"], &row["Service"]["ID"])).collect();
    assert_eq!(shown, [(&"agentless".into(), &"o2".into()), (&"n0".into(), &"o1".into())]);
    assert_eq!(rows[1]["Service"]["Meta"]["zone"], "a");
    assert_eq!((&rows[1]["Service"]["Address"], &rows[1]["Service"]["Port"]), (&"10.0.0.1".into(), &80.into()));
    assert_eq!(rows[1]["Checks"][1]["Name"], "Convoke session");
    // Its client is gone.
    served.delete(&format!("{session}/members/o1")).await.ok();
    shows(&served, "orders", 1).await;
    // A service of Consul is a member with metadata.
    register(&served, r#"{"Name":"web","Tags":["a"],"Address":"10.0.0.3","Port":81,"Meta":{"k":"v"}}"#).await;
    let member = served.get("/api/v1/members/n0:web").await.ok();
    assert_eq!((&member["service"], &member["address"]), (&"web".into(), &"10.0.0.3:81".into()));
    assert_eq!(member["metadata"]["consul.tags"], r#"["a"]"#);
    assert_eq!(member["metadata"]["k"], "v");
}

/// The reason of a maintenance mode is that of the drain, whichever interface set it, and at every node.
#[tokio::test(flavor = "multi_thread")]
async fn the_reason_of_a_maintenance_is_that_of_the_drain() {
    let cluster = Served::cluster(2).await;
    let notes = async |path: &str, id: &str| {
        let checks = cluster[1].get(path).await.ok();
        let check = checks.as_array().unwrap().iter().find(|check| check["CheckID"] == id).cloned();
        check.map(|check| check["Notes"].as_str().unwrap().to_owned())
    };
    let (path, id) = ("/v1/health/checks/web", "_service_maintenance:web");
    let shows = async |path: &str, id: &str, wanted: Option<&str>| {
        let what = format!("{id} has the notes {wanted:?}");
        eventually(&what, async || notes(path, id).await.as_deref() == wanted).await;
    };
    register(&cluster[0], r#"{"Name":"web"}"#).await;
    shows(path, id, None).await;
    let maintain = async |query: &str| {
        let answer = cluster[0].put(&format!("/v1/agent/service/maintenance/web?{query}"), "").await;
        (u16::from(answer.status), answer.body_text())
    };
    assert_eq!(maintain("enable=true&reason=new+disk").await, (200, String::new()));
    shows(path, id, Some("new disk")).await;
    let member = cluster[0].get("/api/v1/members/n0:web").await.ok();
    assert_eq!(member["maintenance"]["reason"], "new disk");
    assert_eq!(maintain("enable=false").await.0, 200);
    shows(path, id, None).await;
    // A drain with an end is replaced by one without.
    let drained = cluster[0].post("/api/v1/members/n0:web/drain", r#"{"reason":"native","for_ms":600000}"#).await;
    drained.ok();
    shows(path, id, Some("native")).await;
    assert_eq!(maintain("enable=true&reason=kernel").await.0, 200);
    shows(path, id, Some("kernel")).await;
    let member = cluster[0].get("/api/v1/members/n0:web").await.ok();
    assert!(member["maintenance"].get("until").is_none(), "{member}");
    let (status, text) = maintain(&format!("enable=false&reason={}", "x".repeat(257))).await;
    assert_eq!((status, text.as_str()), (200, ""), "the end of a maintenance has no reason");
    let (status, text) = maintain(&format!("enable=true&reason={}", "x".repeat(257))).await;
    assert!(status == 400 && text.contains("256 bytes"), "{status} {text}");
    let (path, id) = ("/v1/health/node/n0", "_node_maintenance");
    cluster[0].put("/v1/agent/maintenance?enable=true&reason=kernel", "").await;
    shows(path, id, Some("kernel")).await;
    assert_eq!(cluster[0].node.member("convoke.n0").unwrap().maintenance().unwrap().reason(), "kernel");
}

async fn checks(served: &Served, path: &str) -> Vec<(String, String, String)> {
    let found = served.get(path).await.ok();
    let text = |check: &serde_json::Value, name: &str| check[name].as_str().unwrap().to_owned();
    let shown = |check: &serde_json::Value| (text(check, "CheckID"), text(check, "Status"), text(check, "Output"));
    found.as_array().unwrap().iter().map(shown).collect()
}

/// A check of a node belongs to a member of its own, which any node may own. It counts for every instance at the node, at
/// every node, and for callers who may not read it.
#[tokio::test(flavor = "multi_thread")]
async fn checks_of_nodes_count_for_their_instances_everywhere() {
    let keys = Keys::new();
    let auth = keys.config(&["* *"]);
    let start = async |id: &str, join: &[&Served]| {
        Served::start(id, join, |_| {}, |server| server.auth = Some(auth.clone())).await
    };
    let first = start("n0", &[]).await;
    let second = start("n1", &[&first]).await;
    convoke_testkit::meshed([&first.node, &second.node].into_iter()).await;
    let nodes = [&first, &second];
    register(&first, r#"{"Name":"web"}"#).await;
    register(&second, r#"{"Name":"web"}"#).await;
    let disk = r#"{"Name":"disk","TTL":"10m","DeregisterCriticalServiceAfter":"1m"}"#;
    assert_eq!(first.put("/v1/agent/check/register", disk).await.status, 200);
    let reader = keys.token("reader", &["read service:web"]);
    let passing = async |wanted: &[&str]| {
        for served in nodes {
            eventually(&format!("{wanted:?} pass"), async || {
                let all = served.get("/v1/health/service/web?passing").await.ok();
                let some = keys.send(served, &reader, "GET", "/v1/health/service/web?passing", "").await.ok();
                let at = |rows: &serde_json::Value| -> Vec<String> {
                    rows.as_array()
                        .unwrap()
                        .iter()
                        .map(|row| row["Node"]["Node"].as_str().unwrap().to_owned())
                        .collect()
                };
                at(&all) == wanted && at(&some) == wanted
            })
            .await;
        }
    };
    passing(&["n1"]).await;
    let hidden = keys.send(&second, &reader, "GET", "/v1/health/node/n0", "").await;
    assert!(!hidden.body_text().contains("disk"), "{hidden:?}");
    let state = keys.send(&first, &reader, "GET", "/v1/agent/health/service/id/web?format=text", "").await;
    assert_eq!((u16::from(state.status), state.body_text().as_str()), (503, "critical"));
    // The report works at the other node, too.
    assert_eq!(second.put("/v1/agent/check/pass/disk?note=free", "").await.status, 200);
    passing(&["n0", "n1"]).await;
    for served in nodes {
        let wanted = ("disk".to_owned(), "passing".to_owned(), "free".to_owned());
        eventually("the output", async || checks(served, "/v1/health/node/n0").await.contains(&wanted)).await;
    }
    // Its member ends with its last check.
    assert!(first.node.member("n0:").is_some());
    assert_eq!(second.put("/v1/agent/check/deregister/disk", "").await.status, 200);
    for served in nodes {
        eventually("it is gone", async || served.node.member("n0:").is_none()).await;
    }
    // Results of a registrar that is no agent.
    let result = |status: &str, output: &str| {
        format!(
            r#"{{"Node":"n0","Check":{{"CheckID":"fan","Status":"{status}","Output":"{output}"}},"SkipNodeUpdate":true}}"#
        )
    };
    for (status, output) in [("critical", "stopped"), ("passing", ""), ("passing", "fast"), ("warning", "fast")] {
        assert_eq!(second.put("/v1/catalog/register", &result(status, output)).await.status, 200);
        passing(if status == "passing" { &["n0", "n1"] } else { &["n1"] }).await;
        let wanted = ("fan".to_owned(), status.to_owned(), output.to_owned());
        for served in nodes {
            eventually(&format!("{wanted:?}"), async || checks(served, "/v1/health/node/n0").await.contains(&wanted))
                .await;
        }
    }
    let deregister = r#"{"Node":"n0","CheckID":"fan"}"#;
    assert_eq!(first.put("/v1/catalog/deregister", deregister).await.status, 200);
    passing(&["n0", "n1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_of_nodes_need_the_grants_of_their_service() {
    let keys = Keys::new();
    let auth = keys.config(&[]);
    let served = Served::start("n0", &[], |_| {}, |server| server.auth = Some(auth)).await;
    let put = async |grants: &[&str], path: &str, body: &str| {
        let token = keys.token("alice", grants);
        u16::from(keys.send(&served, &token, "PUT", path, body).await.status)
    };
    let (path, body) = ("/v1/agent/check/register", r#"{"Name":"disk","TTL":"10m"}"#);
    assert_eq!(put(&["register service:web", "check service:web"], path, body).await, 403);
    assert_eq!(put(&["register service:consul.node"], path, body).await, 403, "checks need a verb of their own");
    let both = ["register service:consul.node", "check service:consul.node"];
    assert_eq!(put(&both, path, body).await, 200);
    assert_eq!(
        put(&["register service:web"], "/v1/agent/check/pass/disk", "").await,
        500,
        "it does not exist for others"
    );
    assert_eq!(put(&["register service:web", "read service:*"], "/v1/agent/check/pass/disk", "").await, 403);
    assert_eq!(put(&both, "/v1/agent/check/pass/disk", "").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_own_listener_serves_nothing_else() {
    let consul = |config: &mut convoke_server::Config| config.consul = Some("127.0.0.1:0".into());
    let served = Served::start("n0", &[], |_| {}, consul).await;
    let address = served.server.consul_address().unwrap();
    for (path, status) in [("/v1/catalog/nodes", 200), ("/api/v1/status", 404), ("/metrics", 404), ("/ui/", 404)] {
        let mut sender = open(address).await;
        let found = sender.send_request(request("GET", path, &[], "")).await.unwrap().status();
        assert_eq!(found, status, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_services_that_the_caller_may_not_read_are_left_out() {
    let keys = Keys::new();
    let auth = keys.config(&[]);
    let served = Served::start("n0", &[], |_| {}, |server| server.auth = Some(auth)).await;
    let all = keys.token("admin", &["register service:*", "read service:*", "check service:*"]);
    let some = keys.token("reader", &["read service:web"]);
    for name in ["web", "secret"] {
        keys.send(&served, &all, "PUT", REGISTER, &format!(r#"{{"Name":"{name}"}}"#)).await;
    }
    let shown = keys.send(&served, &some, "GET", "/v1/catalog/services", "").await.ok();
    assert_eq!(shown, serde_json::json!({"consul": [], "web": []}));
    for part in ["catalog/service", "health/service", "health/checks"] {
        let rows = keys.send(&served, &some, "GET", &format!("/v1/{part}/secret"), "").await.ok();
        assert_eq!(rows, serde_json::json!([]), "{part}");
    }
    // Whether it exists does not show either.
    for path in ["/v1/agent/service/", "/v1/agent/health/service/name/", "/v1/agent/health/service/id/"] {
        let hidden = keys.send(&served, &some, "GET", &format!("{path}secret"), "").await;
        let missing = keys.send(&served, &some, "GET", &format!("{path}nobody"), "").await;
        assert_eq!((hidden.status, missing.status), (missing.status, 404.try_into().unwrap()), "{path}");
        assert_eq!(hidden.body_text().replace("secret", "nobody"), missing.body_text(), "{path}");
    }
    // A change of a service that the caller may not read changes no answer and no index.
    let all_reads = async || {
        let mut answers = Vec::new();
        for (method, path, _) in convoke_server::consul_route_permissions() {
            if method == "GET" && ["agent", "catalog", "health"].contains(&path.split('/').nth(2).unwrap()) {
                let path = path.replace("{name}", "web").replace("{state}", "any").replace("{node}", "n0");
                let found = keys.send(&served, &some, "GET", &path.replace("{id}", "web"), "").await;
                let shown = found.headers.get("x-consul-index").cloned();
                answers.push((path, found.status, shown, found.body_text()));
            }
        }
        answers
    };
    let before = all_reads().await;
    assert!(before.len() > 20, "{}", before.len());
    for (path, .., text) in &before {
        assert!(!text.contains("secret"), "{path}: {text}");
    }
    let index = before.iter().find(|(path, ..)| path == "/v1/health/state/any").unwrap().2.clone().unwrap();
    let waiting = format!("/v1/health/state/any?wait=300ms&index={}", index.to_str().unwrap());
    let body = r#"{"Name":"secret","ID":"secret-2","Port":7,"Check":{"TTL":"10m"}}"#;
    let (waited, changed) =
        tokio::join!(keys.send(&served, &some, "GET", &waiting, ""), keys.send(&served, &all, "PUT", REGISTER, body));
    assert_eq!(u16::from(changed.status), 200, "{changed:?}");
    assert_eq!(waited.headers["x-consul-index"], index);
    assert_eq!(all_reads().await, before);
    let refused = keys.send(&served, &some, "PUT", "/v1/agent/service/deregister/web", "").await;
    assert_eq!((u16::from(refused.status), refused.body_text().as_str()), (403, "Permission denied"));
    // A registrar need not be a reader. Instances of others do not exist for it.
    let registrar = keys.token("registrar", &["register service:web"]);
    for (id, left) in [("secret", "secret"), ("web", "")] {
        let path = format!("/v1/agent/service/deregister/{id}");
        assert_eq!(keys.send(&served, &registrar, "PUT", &path, "").await.status, 200);
        let shown = keys.send(&served, &all, "GET", &format!("/v1/catalog/service/{id}"), "").await.body_text();
        assert_eq!(shown.contains(left), !left.is_empty() || shown == "[]", "{shown}");
    }
}

/// A node answers again with what it has written before; no change of a service or of its node may be missed by that.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_lookups_show_every_change() {
    let served = Served::alone().await;
    let put = async |path: &str, body: &str| {
        let answer = served.put(path, body).await;
        assert_eq!(u16::from(answer.status), 200, "{path}: {answer:?}");
    };
    let node = |rack: &str, port: u16| {
        format!(
            r#"{{"Node":"out","Address":"10.1.1.1","NodeMeta":{{"rack":"{rack}"}},"Service":{{"Service":"db","Port":{port}}}}}"#
        )
    };
    let only_node = r#"{"Node":"out","Address":"10.1.1.1","NodeMeta":{"rack":"r3"}}"#;
    let ttl = r#"{"Name":"web","ID":"w1","Check":{"TTL":"10m","Status":"passing"}}"#;
    let changes = [
        ("web", REGISTER, ttl.to_owned(), r#""Status":"passing""#),
        ("web", "/v1/agent/check/fail/service:w1?note=broken", String::new(), "broken"),
        ("web", "/v1/agent/check/pass/service:w1?note=fine", String::new(), "fine"),
        ("web", "/v1/agent/service/maintenance/w1?enable=true", String::new(), "_service_maintenance:w1"),
        ("web", REGISTER, r#"{"Name":"web","ID":"w2","Meta":{"version":"2"}}"#.to_owned(), r#""version":"2""#),
        ("db", "/v1/catalog/register", node("r1", 1), r#""rack":"r1""#),
        ("db", "/v1/catalog/register", node("r2", 1), r#""rack":"r2""#),
        ("db", "/v1/catalog/register", node("r2", 2), r#""Port":2"#),
        ("db", "/v1/catalog/register", only_node.to_owned(), r#""rack":"r3""#),
        ("db", "/v1/catalog/deregister", r#"{"Node":"out","ServiceID":"db"}"#.to_owned(), "[]"),
    ];
    for (service, path, body, shown) in changes {
        let lookup = format!("/v1/health/service/{service}");
        let before = served.get(&lookup).await;
        assert_eq!(served.get(&lookup).await.body, before.body);
        put(path, &body).await;
        let mut found = served.get(&lookup).await;
        // Results of checks are written a moment later.
        for _ in 0..600 {
            if found.body_text().contains(shown) || !path.contains("/check/") {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            found = served.get(&lookup).await;
        }
        assert!(found.body_text().contains(shown), "{path}: {}", found.body_text());
        assert_ne!(index(&found), index(&before), "{path}");
        // Other parameters are another answer.
        let other = served.get(&format!("{lookup}?node-meta=rack:none")).await;
        assert_eq!(other.body_text(), "[]", "{path}");
    }
}
