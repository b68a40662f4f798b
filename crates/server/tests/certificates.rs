//! Client certificates as principals, over TLS (AU6, AU12, AU15).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

#[allow(dead_code, reason = "shared with the tests of convoke-tls")]
#[path = "../../tls/tests/connections/cluster.rs"]
mod certificates;

use certificates::{CLUSTER, TestCa, call};
use convoke_server::AuthConfig;
use convoke_tls::{Identity, Issued, Mode};
use hyper_util::rt::TokioIo;
use support::Served;
use support::access::Keys;
use support::http::{Answer, answer, request};

const POLICY: &str = r#"
[[certificate]]
name = "agent-*"
grants = ["register service:web", "read service:web"]
"#;

struct Secured {
    ca: TestCa,
    served: Served,
    keys: Keys,
}

impl Secured {
    /// Starts a node that requires TLS on its client port and asks for certificates.
    async fn start() -> Secured {
        let (ca, keys) = (TestCa::new(), Keys::new());
        let policy = keys.path().join("policy.toml");
        std::fs::write(&policy, POLICY).unwrap();
        let auth = AuthConfig { cluster: CLUSTER.to_owned(), policy: Some(policy), ..keys.config(&[]) };
        let tls = ca.node("n0", Mode::Required);
        let named = |config: &mut convoke_node::Config| config.cluster = CLUSTER.to_owned();
        let secured = |server: &mut convoke_server::Config| (server.auth, server.tls) = (Some(auth), Some(tls));
        Secured { ca, served: Served::start("n0", &[], named, secured).await, keys }
    }

    /// Opens a watch of all members.
    async fn stream(&self, own: &Issued) -> hyper::Response<hyper::body::Incoming> {
        let stream = call(self.served.address(), Some(own)).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let response = sender.send_request(request("GET", "/api/v1/watch", &[], String::new())).await.unwrap();
        assert_eq!(response.status(), 200);
        response
    }

    async fn send(&self, own: Option<&Issued>, shown: &[(&str, &str)], call_of: (&str, &str), body: &str) -> Answer {
        let stream = call(self.served.address(), own).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let call = request(call_of.0, call_of.1, shown, body.to_owned());
        answer(sender.send_request(call).await.unwrap()).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_have_the_grants_of_the_policy() {
    let secured = Secured::start().await;
    let client = |name: &str| secured.ca.issue(Identity::client(CLUSTER, name));
    let (agent, stranger) = (client("agent-1"), client("stranger"));
    let members = ("GET", "/api/v1/members");
    secured.send(Some(&agent), &[], members, "").await.ok();
    let denied = secured.send(Some(&agent), &[], ("GET", "/api/v1/status"), "").await;
    denied.rejected(403, "PERMISSION_DENIED");
    assert!(denied.body_text().contains("certificate/agent-1"), "{denied:?}");
    // A certificate without a rule, and none at all.
    let unknown = secured.send(Some(&stranger), &[], members, "").await;
    assert!([401, 403].contains(&unknown.status.as_u16()), "{unknown:?}");
    secured.send(None, &[], members, "").await.rejected(401, "UNAUTHENTICATED");
    // The client id and the session belong to the certificate.
    let created = secured.send(Some(&agent), &[], ("POST", "/api/v1/sessions"), r#"{"client":"c"}"#).await.ok();
    let session = format!("/api/v1/sessions/{}", created["session"].as_str().unwrap());
    let register = format!("{session}/members/w-1");
    secured.send(Some(&agent), &[], ("PUT", &register), r#"{"service":"web"}"#).await.ok();
    let heartbeat = format!("{session}/heartbeat");
    let other = client("agent-2");
    secured.send(Some(&other), &[], ("PUT", &heartbeat), "{}").await.rejected(404, "SESSION_GONE");
    secured.send(Some(&agent), &[], ("PUT", &heartbeat), "{}").await.ok();
}

/// Streams of a certificate whose grants change end, and others go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_policy_ends_the_streams_of_certificates() {
    let secured = Secured::start().await;
    let policy = secured.keys.path().join("policy.toml");
    let write = |text: &str| {
        let aside = secured.keys.path().join("aside.toml");
        std::fs::write(&aside, text).unwrap();
        std::fs::rename(aside, &policy).unwrap();
    };
    let other = "[[certificate]]\nname = \"other\"\ngrants = [\"read service:*\"]\n";
    write(&format!("{POLICY}{other}"));
    let certificates = ["agent-1", "other"].map(|name| secured.ca.issue(Identity::client(CLUSTER, name)));
    let [agent, other_certificate] = &certificates;
    convoke_testkit::eventually("the rule is read", async || {
        secured.send(Some(other_certificate), &[], ("GET", "/api/v1/members"), "").await.status == 200
    })
    .await;
    let ending = secured.stream(agent).await;
    let continuing = tokio::spawn(answer(secured.stream(other_certificate).await));
    let less = POLICY.replace(", \"read service:web\"", "");
    assert_ne!(less, POLICY);
    write(&format!("{less}{other}"));
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), answer(ending)).await.unwrap();
    assert!(ended.body_text().contains("caught-up"), "{ended:?}");
    secured.send(Some(other_certificate), &[], ("GET", "/api/v1/members"), "").await.ok();
    assert!(!continuing.is_finished(), "the grants of the other certificate are the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_node_certificate_acts_for_others() {
    let secured = Secured::start().await;
    let agent = secured.ca.issue(Identity::client(CLUSTER, "agent-1"));
    let node = secured.ca.issue(Identity::node(CLUSTER, "n1"));
    let behalf = [("convoke-forwarded", "n1"), ("convoke-on-behalf", "agent-7")];
    let (members, status) = (("GET", "/api/v1/members"), ("GET", "/api/v1/status"));
    secured.send(Some(&node), &[], status, "").await.ok();
    // The node has the rights of the agent then, and no others.
    secured.send(Some(&node), &behalf, members, "").await.ok();
    let denied = secured.send(Some(&node), &behalf, status, "").await;
    denied.rejected(403, "PERMISSION_DENIED");
    assert!(denied.body_text().contains("certificate/agent-7"), "{denied:?}");
    for shown in [&behalf[..], &behalf[1..]] {
        let refused = secured.send(Some(&agent), shown, members, "").await;
        refused.rejected(403, "PERMISSION_DENIED");
        assert!(refused.body_text().contains("forward cluster"), "{refused:?}");
        secured.send(None, shown, members, "").await.rejected(401, "UNAUTHENTICATED");
    }
}
