//! Reads over HTTP: every route, every rejection, and the same results as over gRPC.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_node::{Config, Node};
use convoke_proto::json::{Member, MemberList};
use convoke_proto::v1;
use convoke_server::Server;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use support::Served;
use support::grpc::{Attachment, attach, registry, spec};

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_node_reports_that_it_is_ready() {
    let served = Served::alone().await;
    assert_eq!(served.get("/healthz").await.ok(), json!({"alive": true}));
    assert_eq!(served.get("/readyz").await.ok(), json!({"ready": true}));
    let log = served.get("/readyz?log").await;
    log.rejected(503, "NOT_READY");
    assert!(String::from_utf8_lossy(&log.body).contains("log plane"));
    assert_eq!(served.get("/readyz?log=false").await.ok(), json!({"ready": true}));
    served.get("/readyz?lug").await.rejected(400, "INVALID_ARGUMENT");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_starting_node_rejects_reads_of_the_registry() {
    let bound = Server::bind(convoke_server::Config::default()).await.unwrap();
    let mut config = Config::new("n0").unwrap();
    // Nothing listens there, so the node never becomes ready.
    config.join = vec![convoke_testkit::free_address()];
    config.timers.lone_start_wait = std::time::Duration::from_secs(3_600);
    let node = Node::start(config).await.unwrap();
    let server = bound.serve(node.handle(), None);
    let served = Served { node, server };
    assert_eq!(served.get("/healthz").await.ok(), json!({"alive": true}));
    for path in ["/readyz", "/api/v1/members", "/api/v1/members/a", "/api/v1/services", "/api/v1/members/a/explain"] {
        served.get(path).await.rejected(503, "NOT_READY");
    }
    served.get("/api/v1/watch").await.rejected(503, "NOT_READY");
    served.post("/api/v1/sessions", "{}").await.rejected(503, "NOT_READY");
    let status = registry(&served).await.get(v1::GetRequest { id: "a".into() }).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert_eq!(served.get("/api/v1/status").await.ok()["ready"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_nodes_and_services_are_shown() {
    let cluster = Served::cluster(2).await;
    let (_session, _) = Attachment::attached(&cluster[0], attach("c", 1, &["a", "b"])).await;
    let status = cluster[0].get("/api/v1/status").await.ok();
    assert_eq!((&status["id"], &status["ready"], &status["cluster"]), (&json!("n0"), &json!(true), &json!("convoke")));
    assert_eq!(status["ports"]["client"], cluster[0].address().port());
    assert_eq!(status["ports"]["peer"], cluster[0].node.local_address().port());
    assert_eq!((&status["counts"]["members"], &status["degraded"]), (&json!(4), &json!([])));
    let nodes = cluster[0].get("/api/v1/nodes").await.ok();
    let brief = |node: &Value| (node["id"].clone(), node["state"].clone(), node["self"].clone());
    let nodes = nodes["nodes"].as_array().unwrap();
    assert_eq!(brief(&nodes[0]), (json!("n0"), json!("up"), json!(true)));
    assert_eq!(brief(&nodes[1]), (json!("n1"), json!("up"), json!(false)));
    assert_eq!(nodes[1]["address"], cluster[1].address().to_string());
    let services = cluster[0].get("/api/v1/services").await.ok();
    let orders = json!({"service": "orders", "up": 2, "down": 0, "drained": 0, "critical": 0, "panic": false});
    assert_eq!(services["services"][1], orders);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_filtered_and_paged_alike_over_http_and_grpc() {
    let served = Served::alone().await;
    let ids: Vec<String> = (0..300).map(|i| format!("m{i:03}")).collect();
    let mut request = attach("c", 1, &ids.iter().map(String::as_str).collect::<Vec<_>>());
    for (index, register) in request.members.iter_mut().enumerate() {
        let member = register.member.as_mut().unwrap();
        member.service = ["orders", "billing"][index % 2].into();
        member.locality = ["eu.a", "us.b", "us.c"][index % 3].into();
        member.metadata.insert("n".into(), index.to_string());
    }
    let (_session, _) = Attachment::attached(&served, request).await;

    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page: MemberList = served.get(&format!("/api/v1/members?limit=70&cursor={cursor}")).await.json();
        assert!(page.members.len() <= 70);
        seen.extend(page.members);
        match page.next_cursor {
            Some(next) => cursor = percent(&next),
            None => break,
        }
    }
    assert_eq!(seen.len(), 301);
    assert_eq!(seen.iter().map(|member| &member.id).collect::<BTreeSet<_>>().len(), 301);

    let mut client = registry(&served).await;
    let listed =
        client.list(v1::ListRequest { limit: 1_000, ..v1::ListRequest::default() }).await.unwrap().into_inner();
    assert_eq!(listed.next_cursor, "");
    assert_eq!(listed.members.into_iter().map(Member::from).collect::<Vec<_>>(), seen);

    for (query, filter, count) in [
        ("service=orders", "service == \"orders\"", 150),
        ("service=ord*&locality=us.*", "service == \"orders\" and locality matches \"us.*\"", 100),
        ("status=down", "status == down", 0),
        ("service=orders&status=up", "service == \"orders\" and status == up", 150),
        ("filter=meta.n%20==%20%2217%22", "meta.n == \"17\"", 1),
    ] {
        let page: MemberList = served.get(&format!("/api/v1/members?{query}")).await.json();
        assert_eq!(page.members.len(), count, "{query}");
        let request = v1::ListRequest { filter: filter.into(), ..v1::ListRequest::default() };
        let listed = client.list(request).await.unwrap().into_inner().members;
        assert_eq!(listed.into_iter().map(Member::from).collect::<Vec<_>>(), page.members, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_bounded_in_bytes() {
    let served = Served::alone().await;
    let ids: Vec<String> = (0..300).map(|i| format!("m{i:03}")).collect();
    let mut request = attach("c", 1, &ids.iter().map(String::as_str).collect::<Vec<_>>());
    for register in &mut request.members {
        let metadata = &mut register.member.as_mut().unwrap().metadata;
        metadata.extend((0..4).map(|key| (key.to_string(), "x".repeat(3_000))));
    }
    let (_session, _) = Attachment::attached(&served, request).await;
    let answer = served.get("/api/v1/members?service=orders").await;
    let page: MemberList = answer.json();
    assert!(answer.body.len() < 3 * 1024 * 1024 && page.next_cursor.is_some(), "{}", answer.body.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_member_is_found_under_its_decoded_id() {
    let served = Served::alone().await;
    let odd = "a/b c?d=ü%41";
    let mut request = attach("c", 1, &[]);
    request.members.push(v1::Register { member: Some(v1::MemberSpec { id: odd.into(), ..spec("") }), takeover: false });
    let (_session, _) = Attachment::attached(&served, request).await;
    let member: Member = served.get(&format!("/api/v1/members/{}", percent(odd))).await.json();
    assert_eq!((member.id.as_str(), member.client.as_str(), member.owner.node.as_str()), (odd, "c", "n0"));
    let explained = served.get(&format!("/api/v1/members/{}/explain", percent(odd))).await.ok();
    assert_eq!((&explained["status"], &explained["owner"]), (&json!("up"), &json!("n0")));
    assert_eq!(explained["sentences"][0], "Its owner, node n0, reports it up.");
    served.get("/api/v1/members/nobody").await.rejected(404, "NOT_FOUND");
    served.get("/api/v1/members/nobody/explain").await.rejected(404, "NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_queries_are_rejected_with_the_parameter() {
    let served = Served::alone().await;
    for (path, code, field) in [
        ("/api/v1/members?filter=service%20=%20x", "INVALID_FILTER", "filter"),
        ("/api/v1/members?status=left", "INVALID_ARGUMENT", "status"),
        ("/api/v1/members?limit=0", "INVALID_ARGUMENT", "limit"),
        ("/api/v1/members?limit=x", "INVALID_ARGUMENT", "limit"),
        ("/api/v1/members?limit=-1", "INVALID_ARGUMENT", "limit"),
        ("/api/v1/members?limit=1&limit=2", "INVALID_ARGUMENT", "query"),
        ("/api/v1/watchers?limit=x", "INVALID_ARGUMENT", "limit"),
        ("/readyz?log=perhaps", "INVALID_ARGUMENT", "log"),
        ("/api/v1/members?cursor=nonsense", "INVALID_ARGUMENT", "cursor"),
        ("/api/v1/members?fliter=x", "INVALID_ARGUMENT", "fliter"),
        ("/api/v1/members?filter=%ff", "INVALID_FILTER", "filter"),
        ("/api/v1/members/%ff", "INVALID_ARGUMENT", "path"),
        ("/api/v1/watch?filter=service", "INVALID_FILTER", "filter"),
        ("/api/v1/watch?from=7", "INVALID_ARGUMENT", "from"),
    ] {
        assert_eq!(served.get(path).await.rejected(400, code).as_deref(), Some(field), "{path}");
    }
}

/// A misspelled parameter that is ignored would be a mistake that nobody notices.
#[tokio::test(flavor = "multi_thread")]
async fn every_route_rejects_parameters_it_does_not_know() {
    let served = Served::alone().await;
    let session = served.session("").await;
    let secret = session.rsplit('/').next().unwrap();
    let api = convoke_server::routes().into_iter().filter(|(_, path)| *path != "/" && !path.starts_with("/ui"));
    for (method, path) in api {
        let path = path.replace("{id}", "a").replace("{resource}", "status").replace("{*key}", "k");
        let path = path.replace("/sessions/{session}", &format!("/sessions/{secret}"));
        let path = path.replace("{session}", "1").replace("{number}", "1");
        let answer = served.send(&method, &format!("{path}?pretty=1"), &[], "").await;
        assert_eq!(answer.rejected(400, "INVALID_ARGUMENT").as_deref(), Some("pretty"), "{method} {path}: {answer:?}");
    }
    served.get("/ui/?pretty=1").await;
    assert_eq!(served.get("/ui/app.js?v=2").await.status, 200, "browsers add arbitrary parameters to pages");
}

/// The explanation is available as long as the tombstone is kept. Only an id that was never registered is not found.
#[tokio::test(flavor = "multi_thread")]
async fn members_that_left_are_explained() {
    let served = Served::alone().await;
    let session = served.session("").await;
    served.put(&format!("{session}/members/a"), r#"{"service":"s"}"#).await.ok();
    served.delete(&format!("{session}/members/a")).await.ok();
    served.get("/api/v1/members/a").await.rejected(404, "NOT_FOUND");
    let explained = served.get("/api/v1/members/a/explain").await.ok();
    assert_eq!((&explained["status"], &explained["stated"]), (&json!("left"), &json!("left")));
    assert_eq!(explained["departure"]["expired"], false);
    let told = explained["sentences"][0].as_str().unwrap();
    assert!(told.starts_with("Its client unregistered it ") && told.ends_with(" ago at node n0."), "{told}");
    assert!(explained["sentences"][1].as_str().unwrap().starts_with("This node shows it as left since "));
    let history: Vec<_> = explained["history"].as_array().unwrap().iter().map(|change| &change["change"]).collect();
    assert_eq!(history, ["unregister", "register"]);
    assert!(explained["history"][0]["at"].as_u64() > Some(1_700_000_000_000));
    served.get("/api/v1/members/b/explain").await.rejected(404, "NOT_FOUND");
}

/// Percent-encodes everything but letters and digits.
fn percent(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
