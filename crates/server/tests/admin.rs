//! `convoke.v1.Admin`, health, reflection, metrics.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_proto::{Error, ErrorCode, v1};
use convoke_testkit::eventually;
use support::Served;
use support::grpc::{Attachment, admin, attach, channel, registry};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

fn drain_member(id: &str) -> v1::DrainRequest {
    v1::DrainRequest { target: Some(v1::drain_request::Target::Member(id.into())), ..Default::default() }
}

fn undrain_member(id: &str) -> v1::UndrainRequest {
    v1::UndrainRequest { target: Some(v1::undrain_request::Target::Member(id.into())) }
}

fn code(status: tonic::Status) -> ErrorCode {
    Error::from(status).code
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_and_http_show_the_same_nodes_and_services() {
    let cluster = Served::cluster(2).await;
    let (_session, _) = Attachment::attached(&cluster[0], attach("c", 1, &["a"])).await;
    let mut admin = admin(&cluster[0]).await;
    let served = &cluster[0];
    // The two calls happen at different times.
    let timeless = |mut nodes: v1::NodesResponse| {
        nodes.nodes.iter_mut().for_each(|node| node.evidence_age_ms = None);
        nodes
    };
    let nodes = admin.nodes(v1::NodesRequest {}).await.unwrap().into_inner();
    assert_eq!(timeless(nodes), timeless(served.get("/api/v1/nodes").await.json()));
    let services = admin.services(v1::ServicesRequest { partial: false }).await.unwrap().into_inner();
    assert_eq!(serde_json::to_value(&services).unwrap(), served.get("/api/v1/services").await.ok());
    let mut status = admin.status(v1::StatusRequest {}).await.unwrap().into_inner();
    let shown: v1::StatusResponse = served.get("/api/v1/status").await.json();
    assert!(shown.uptime_ms >= status.uptime_ms);
    status.uptime_ms = shown.uptime_ms;
    assert_eq!(status, shown);
    let explained = admin.explain(v1::ExplainRequest { id: "a".into() }).await.unwrap().into_inner();
    assert_eq!((explained.owner.as_str(), explained.status()), ("n0", v1::Status::Up));
    assert!(explained.session.unwrap().connected);
    let error = admin.explain(v1::ExplainRequest { id: "x".into() }).await.unwrap_err();
    assert_eq!(code(error), ErrorCode::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_and_nodes_are_drained_and_undrained_from_anywhere() {
    let cluster = Served::cluster(2).await;
    let (_session, _) = Attachment::attached(&cluster[0], attach("c", 1, &["a"])).await;
    eventually("both nodes have the member", async || cluster[1].node.member("a").is_some()).await;
    // The request goes to a node that is not the owner.
    let mut admin = admin(&cluster[1]).await;
    let drained = |id: &str, request: bool| {
        cluster.iter().all(|served| served.node.member(id).is_some_and(|member| member.drained() == request))
    };
    admin.drain(drain_member("a")).await.unwrap();
    eventually("it is drained everywhere", async || drained("a", true)).await;
    assert_eq!(cluster[0].node.member("a").unwrap().status().as_str(), "up");
    let explained = admin.explain(v1::ExplainRequest { id: "a".into() }).await.unwrap().into_inner();
    assert!(explained.drained);
    let since = explained.sentences.iter().any(|sentence| sentence.starts_with("It is drained since "));
    assert!(since, "{:?}", explained.sentences);
    admin.undrain(undrain_member("a")).await.unwrap();
    eventually("it is undrained everywhere", async || drained("a", false)).await;
    for (node, id) in [("", "convoke.n1"), ("n1", "convoke.n1"), ("n0", "convoke.n0")] {
        let target = Some(v1::drain_request::Target::Node(node.into()));
        admin.drain(v1::DrainRequest { target, ..Default::default() }).await.unwrap();
        eventually("the node is drained everywhere", async || drained(id, true)).await;
        let target = Some(v1::undrain_request::Target::Node(node.into()));
        admin.undrain(v1::UndrainRequest { target }).await.unwrap();
        eventually("the node is undrained everywhere", async || drained(id, false)).await;
    }
    assert_eq!(code(admin.drain(drain_member("x")).await.unwrap_err()), ErrorCode::NotFound);
    assert_eq!(code(admin.undrain(undrain_member("x")).await.unwrap_err()), ErrorCode::NotFound);
    let target = Some(v1::drain_request::Target::Node("nope".into()));
    let error = Error::from(&admin.drain(v1::DrainRequest { target, ..Default::default() }).await.unwrap_err());
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::NotFound, Some("node")));
    assert!(error.message.starts_with("no node \"nope\""), "{error}");
    assert_eq!(code(admin.drain(v1::DrainRequest::default()).await.unwrap_err()), ErrorCode::InvalidArgument);
    assert_eq!(code(admin.undrain(v1::UndrainRequest::default()).await.unwrap_err()), ErrorCode::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_nodes_can_be_forgotten() {
    let mut cluster = Served::cluster(2).await;
    let mut admin = admin(&cluster[0]).await;
    let forget = |id: &str| v1::ForgetNodeRequest { id: id.into() };
    assert_eq!(code(admin.forget_node(forget("n1")).await.unwrap_err()), ErrorCode::FailedPrecondition);
    let itself = Error::from(&admin.forget_node(forget("n0")).await.unwrap_err());
    assert_eq!(itself.code, ErrorCode::FailedPrecondition);
    assert!(itself.message.contains("cannot forget itself"), "{itself}");
    assert_eq!(code(admin.forget_node(forget("n9")).await.unwrap_err()), ErrorCode::NotFound);
    assert_eq!(code(admin.forget_node(forget("")).await.unwrap_err()), ErrorCode::InvalidArgument);
    cluster.remove(1).kill().await;
    let mut waiting = admin.clone();
    eventually("the node is lost and forgotten", async || waiting.forget_node(forget("n1")).await.is_ok()).await;
    let nodes = admin.nodes(v1::NodesRequest {}).await.unwrap().into_inner().nodes;
    assert_eq!(nodes.iter().map(|node| node.id.as_str()).collect::<Vec<_>>(), ["n0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_follows_the_node() {
    let served = Served::alone().await;
    let mut health = HealthClient::new(channel(&served).await);
    for service in ["", "convoke.v1.Registry", "convoke.v1.Admin"] {
        let request = HealthCheckRequest { service: service.into() };
        let status = health.check(request).await.unwrap().into_inner().status();
        assert_eq!(status, ServingStatus::Serving, "{service}");
    }
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    served.node.abort();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
}

/// A client that asks for health must not prefer a node that has reached none of its seeds (N7).
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_alone_is_not_serving() {
    let served = Served::without_seed().await;
    let mut health = HealthClient::new(channel(&served).await);
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    let mut next = async || watch.message().await.unwrap().unwrap().status();
    assert_eq!(next().await, ServingStatus::NotServing);
    for service in ["convoke.v1.Registry", "convoke.v1.Admin"] {
        let request = HealthCheckRequest { service: service.into() };
        let status = health.check(request).await.unwrap().into_inner().status();
        assert_eq!(status, ServingStatus::NotServing, "{service}");
    }
    served.node.declare_first().await.unwrap();
    // A status can be repeated while the node starts.
    let status = loop {
        let status = next().await;
        if status != ServingStatus::NotServing {
            break status;
        }
    };
    assert_eq!(status, ServingStatus::Serving);
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_lists_the_services() {
    let served = Served::alone().await;
    let mut reflection = ServerReflectionClient::new(channel(&served).await);
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = reflection.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
    let Some(ServerReflectionResponse { message_response: Some(MessageResponse::ListServicesResponse(list)), .. }) =
        answers.message().await.unwrap()
    else {
        panic!()
    };
    let names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    for name in ["convoke.v1.Registry", "convoke.v1.Admin", "grpc.health.v1.Health"] {
        assert!(names.contains(&name), "{names:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rejections_by_tonic_have_an_error_code() {
    let served = Served::alone().await;
    let mut client = registry(&served).await;
    let long = v1::ListRequest { filter: "x".repeat(5 * 1024 * 1024), ..v1::ListRequest::default() };
    let error = Error::from(client.list(long).await.unwrap_err());
    assert_eq!((error.code, error.limit), (ErrorCode::TooLarge, Some(4 * 1024 * 1024)));
    let wrong = v1::ListRequest { filter: "service =".into(), ..v1::ListRequest::default() };
    let error = Error::from(client.list(wrong).await.unwrap_err());
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::InvalidFilter, Some("filter")));
    let wrong = v1::ListRequest { cursor: "nonsense".into(), ..v1::ListRequest::default() };
    assert_eq!(Error::from(client.list(wrong).await.unwrap_err()).field.as_deref(), Some("cursor"));
    // Bytes that are not a message, and an unknown method.
    let garbage = b"\0\0\0\0\x03\xff\xff\xff".to_vec();
    for (path, status) in [("/convoke.v1.Registry/List", "3"), ("/convoke.v1.Registry/Nothing", "12"), ("/x/y", "12")] {
        let answer = served.send("POST", path, &[("content-type", "application/grpc")], garbage.clone()).await;
        assert_eq!(answer.headers["grpc-status"], status, "{path} {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_well_formed_and_count() {
    let served = Served::alone().await;
    served.get("/api/v1/members/x").await.rejected(404, "NOT_FOUND");
    served.get("/nowhere/at/all").await.rejected(404, "NOT_FOUND");
    let _ = registry(&served).await.get(v1::GetRequest { id: "x".into() }).await;
    let (_session, _) = Attachment::attached(&served, attach("c", 1, &["a"])).await;
    let answer = served.get("/metrics").await;
    assert_eq!(answer.headers["content-type"], "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let text = answer.body_text();
    for line in [
        "convoke_ready 1",
        "convoke_members{status=\"up\"} 2",
        "convoke_registry_sessions 1",
        "convoke_client_attaches 1",
        "convoke_http_requests_total{method=\"GET\",path=\"/api/v1/members/{id}\",code=\"NOT_FOUND\"} 1",
        "convoke_http_requests_total{method=\"other\",path=\"other\",code=\"NOT_FOUND\"} 1",
        "convoke_grpc_requests_total{method=\"/convoke.v1.Registry/Get\",code=\"NOT_FOUND\"} 1",
        "convoke_grpc_requests_total{method=\"/convoke.v1.Registry/Attach\",code=\"OK\"} 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    // Every sample belongs to a metric family that was declared before it.
    let mut introduced = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(!name.ends_with("_total"), "the suffix belongs to the samples of a {kind}: {line}");
            assert!(!introduced.contains(&name), "twice: {name}");
            introduced.push(name);
        } else if !line.starts_with('#') {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            value.parse::<f64>().unwrap();
            let name = sample.split('{').next().unwrap();
            assert!(name.starts_with("convoke_"));
            assert!(introduced.iter().any(|known| name.starts_with(known)), "{line}");
        }
    }
}
