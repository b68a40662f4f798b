//! Log sessions through the client port: their limits, their owners, and the log that they belong to.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::log::{Consistency, EndSessions, FateKind, Options, ReplicaChange};
use convoke_log::LogLimits;
use convoke_proto::v1::log_client::LogClient;
use convoke_proto::v1::{self, submit_request};
use convoke_proto::{Error, ErrorCode};
use std::time::Duration;
use support::log::LogCluster;
use support::log_link::Link;

/// Generous: it only ends a test that would hang.
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(60));

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_opens_too_many_sessions_is_rejected_at_once_and_harms_nobody() {
    let state = LogLimits { sessions: 24, reserved_sessions: 12, sessions_per_client: 8, ..LogLimits::default() };
    let cluster = LogCluster::start_limited(3, convoke_server::Config::default(), state).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let ambassador = cluster.ambassador();
    let patient = || ambassador.kv_with(Options::default().timeout(Duration::from_secs(60)));
    let handles: Vec<_> = (0..8).map(|_| patient()).collect();
    for kv in &handles {
        kv.put("mine", "x").await.unwrap();
    }
    // The ninth is rejected at once, not after a timeout, and its next attempt may succeed.
    let ninth = patient();
    for _ in 0..2 {
        let error = ninth.put("mine", "y").await.unwrap_err();
        assert_eq!(
            (error.code, error.field.as_deref(), error.limit),
            (ErrorCode::ResourceExhausted, Some("sessions"), Some(8))
        );
    }
    // Reads, nodes, fences and membership changes go on.
    assert!(ninth.get_with("mine", Consistency::Linearizable).await.unwrap().is_some());
    for index in [leader, follower] {
        cluster.http(index, "PUT", "/api/v1/kv/over-http", "x").await.ok();
    }
    let request = handles[0].put("mine", "z").await.unwrap().request;
    assert_eq!(ambassador.resolve(request, TIMEOUT).await.unwrap().kind(), FateKind::Applied);
    let unsent = v1::RequestId { number: request.number + 5, ..request };
    assert_eq!(ambassador.resolve(unsent, TIMEOUT).await.unwrap().kind(), FateKind::Never);
    let demote = ReplicaChange::Demote(format!("n{follower}"));
    ambassador.change(&demote, Duration::from_secs(30), TIMEOUT).await.unwrap();

    // An operator sees who holds them, and ends some.
    let listed = ambassador.sessions(0, 0, TIMEOUT).await.unwrap();
    assert_eq!((listed.limit, listed.client_limit, listed.limit_per_client), (24, 12, 8));
    let of_client = listed.sessions.iter().filter(|session| session.opened_by == "127.0.0.1").count();
    assert_eq!(of_client, 8, "{listed:?}");
    let nodes: Vec<_> = listed.sessions.iter().filter(|session| session.reserved).collect();
    assert_eq!(nodes.len(), 2, "one for each node that served HTTP: {nodes:?}");
    let path = format!("/api/v1/log/sessions/{}", request.session);
    assert_eq!(cluster.http(follower, "DELETE", &path, "").await.ok()["ended"], 1);
    assert_eq!(cluster.http(follower, "DELETE", &path, "").await.status, 404);
    ninth.put("mine", "w").await.unwrap();
    assert_eq!(handles[0].put("mine", "v").await.unwrap_err().code, ErrorCode::SessionGone);
    let all = EndSessions::OpenedBy("127.0.0.1".to_owned());
    assert_eq!(ambassador.end_sessions(&all, TIMEOUT).await.unwrap(), 8);
    let left = cluster.http(leader, "GET", "/api/v1/log/sessions?limit=1", "").await.ok();
    assert_eq!((left["open"].as_u64(), left["more"].as_bool()), (Some(2), Some(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_belongs_to_the_client_that_opened_it() {
    let cluster = LogCluster::start(1).await;
    let address = cluster.served(0).address().to_string();
    let mut owner = Link::to(&address).await;
    let session = owner.open().await;
    owner.put(session, 1, "own");
    assert_eq!(owner.fate().await.kind(), FateKind::Applied);

    let mut stranger = Link::to(&address).await;
    stranger.secret = vec![8; 16];
    stranger.put(session, 1_000_000, "foreign");
    assert_eq!(stranger.rejected().await.code, ErrorCode::SessionGone);
    stranger.keep_alive(session);
    assert_eq!(stranger.rejected().await.code, ErrorCode::SessionGone);
    stranger.secret = Vec::new();
    stranger.put(session, 2, "without a secret");
    assert_eq!(stranger.rejected().await.field.as_deref(), Some("secret"));
    let barrier = v1::Barrier { session, epoch: owner.epoch, below: 1_000_000, log: owner.log, secret: vec![8; 16] };
    let read = v1::ReadRequest {
        consistency: v1::Consistency::Barrier.into(),
        barrier: Some(barrier),
        what: Some(v1::read_request::What::Key("a".into())),
        ..Default::default()
    };
    let mut client = LogClient::new(support::grpc::channel(cluster.served(0)).await);
    assert_eq!(Error::from(client.read(read).await.unwrap_err()).code, ErrorCode::SessionGone);

    // Nothing of it had an effect.
    owner.put(session, 2, "own again");
    assert_eq!(owner.fate().await.kind(), FateKind::Applied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_names_another_log_is_not_executed() {
    let cluster = LogCluster::start(1).await;
    let mut link = Link::to(&cluster.served(0).address().to_string()).await;
    let session = link.open().await;
    let log = link.log.unwrap();
    let other = v1::LogId { low: log.low ^ 1, ..log };
    link.log = Some(other);
    link.put(session, 1, "for another log");
    assert_eq!(link.rejected().await.code, ErrorCode::SessionGone);
    link.send(submit_request::Message::Open(link.opening()));
    assert_eq!(link.rejected().await.code, ErrorCode::SessionGone);
    link.keep_alive(session);
    assert_eq!(link.rejected().await.code, ErrorCode::SessionGone);
    link.log = None;
    link.put(session, 1, "for no log");
    assert_eq!(link.rejected().await.field.as_deref(), Some("log"));

    let ambassador = cluster.ambassador();
    let named = |log| v1::RequestId { session, number: 1, log };
    let error = ambassador.resolve(named(Some(other)), TIMEOUT).await.unwrap_err();
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::SessionGone, Some("log")));
    assert_eq!(ambassador.peek(named(Some(other)), TIMEOUT).await.unwrap_err().code, ErrorCode::SessionGone);
    let path = format!("/api/v1/log/requests/{session}/1?log={other}");
    assert_eq!(cluster.http(0, "GET", &path, "").await.status, 404);
    assert_eq!(ambassador.peek(named(Some(log)), TIMEOUT).await.unwrap().kind(), FateKind::Open);
    assert_eq!(ambassador.resolve(named(Some(log)), TIMEOUT).await.unwrap().kind(), FateKind::Never);
    assert_eq!(ambassador.kv().get("a").await.unwrap(), None);
    // The id that a client is told names the log.
    let written = ambassador.kv().put("b", "1").await.unwrap();
    assert_eq!(written.request.log, Some(log));
}
