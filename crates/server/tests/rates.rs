//! Rate limits over HTTP and gRPC (AU20).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_proto::ErrorCode;
use convoke_proto::v1::submit_response::Message;
use convoke_server::{RateLimits, Rates};
use convoke_testkit::eventually;
use support::Served;
use support::access::Keys;
use support::log_link::Link;

/// The lowest rate. The tests send more requests than a busy machine earns while it sends them.
fn one_per_second() -> Rates {
    Rates { requests: 1, ..Rates::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_above_its_rate_is_refused_and_others_are_not() {
    let keys = Keys::new();
    let config = keys.config(&[]);
    let rates = RateLimits { principal: one_per_second(), ..RateLimits::default() };
    let served = Served::start("n0", &[], |_| {}, |server| (server.auth, server.rates) = (Some(config), rates)).await;
    let (alice, bob) = (keys.token("alice", &["read service:*"]), keys.token("bob", &["read service:*"]));
    let mut refused = None;
    for _ in 0..1_000 {
        let answer = keys.send(&served, &alice, "GET", "/api/v1/members", "").await;
        if answer.status.as_u16() == 429 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("the burst ends");
    assert_eq!(refused.rejected(429, "RESOURCE_EXHAUSTED").as_deref(), Some("requests"));
    let error = refused.json::<serde_json::Value>()["error"].clone();
    assert!(error["retry_after_ms"].as_u64().unwrap() <= 1_001, "{error}");
    assert_eq!(refused.headers["retry-after"], error["retry_after_ms"].as_u64().unwrap().div_ceil(1_000).to_string());
    assert!(error["message"].as_str().unwrap().contains("principal token/alice"), "{error}");
    // Neither other principals nor probes are concerned, and nodes and operators are not limited.
    keys.send(&served, &bob, "GET", "/api/v1/members", "").await.ok();
    served.get("/readyz").await.ok();
    let operator = keys.token("operator", &["* *"]);
    let metrics = keys.send(&served, &operator, "GET", "/metrics", "").await;
    assert!(metrics.body_text().contains("convoke_client_rate_limited_total"), "{}", metrics.body_text());
    assert!(!metrics.body_text().contains("convoke_client_rate_limited_total 0"));
    // The rate comes back.
    eventually("the principal is served again", async || {
        keys.send(&served, &alice, "GET", "/api/v1/members", "").await.status.as_u16() == 200
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_above_its_rate_is_refused_before_authentication() {
    let rates = RateLimits { address: one_per_second(), ..RateLimits::default() };
    let served = Served::start("n0", &[], |_| {}, |server| server.rates = rates).await;
    let mut codes = Vec::new();
    for _ in 0..1_000 {
        codes.push(served.get("/api/v1/members").await.status.as_u16());
        if codes.last() == Some(&429) {
            break;
        }
    }
    assert_eq!(codes.last(), Some(&429));
    assert!(codes.len() > 10, "a burst of ten is allowed: {codes:?}");
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", served.address())).unwrap();
    let mut admin = convoke_proto::v1::admin_client::AdminClient::new(endpoint.connect().await.unwrap());
    let mut refused = None;
    for _ in 0..1_000 {
        if let Err(status) = admin.services(convoke_proto::v1::ServicesRequest::default()).await {
            refused = Some(status);
            break;
        }
    }
    let refused = refused.expect("gRPC is limited as well");
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    let error = convoke_proto::Error::from(&refused);
    assert!(error.retry_after_ms.is_some(), "{error:?}");
    served.get("/healthz").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_log_links_count_and_keep_alives_do_not() {
    let keys = Keys::new();
    let rates =
        RateLimits { principal: Rates { requests: 2, sessions: 1, ..Rates::default() }, ..RateLimits::default() };
    let cluster = keys.log_cluster_with(1, convoke_server::Config { rates, ..Default::default() }).await;
    let token = keys.token("alice", &["put key:*"]);
    let mut link = Link::with_token(&cluster.served(0).address().to_string(), &token).await;
    let session = link.open().await;
    let mut number = 0;
    let error = loop {
        number += 1;
        assert!(number < 10_000, "the burst ends");
        link.put(session, number, "x");
        if let Message::Rejected(error) = link.receive().await {
            break convoke_proto::Error::from(error);
        }
    };
    assert_eq!(error.code, ErrorCode::ResourceExhausted, "{error}");
    assert!(error.retry_after_ms.is_some() && number > 10, "{error} {number}");
    for _ in 0..100 {
        link.keep_alive(session);
        let kept = link.receive().await;
        assert!(matches!(kept, Message::KeptAlive(_)), "{kept:?}");
    }
}
