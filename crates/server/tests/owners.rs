//! Log sessions, requests, leases and locks belong to principals (AU15, AU16).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_proto::ErrorCode;
use convoke_proto::v1::log_request::Body;
use convoke_proto::v1::{self, submit_request};
use convoke_testkit::eventually;
use support::Served;
use support::access::Keys;
use support::http::Answer;
use support::log::LogCluster;
use support::log_link::Link;

/// What a client of keys and locks needs.
const CLIENT: &[&str] = &["put key:*", "read key:*", "lock lock:*", "read lock:*", "lock election:*"];

async fn link(cluster: &LogCluster, token: &str) -> Link {
    let leader = cluster.leader().await;
    Link::with_token(&cluster.served(leader).address().to_string(), token).await
}

/// A principal that sends HTTP requests.
struct User<'a> {
    keys: &'a Keys,
    cluster: &'a LogCluster,
    token: String,
}

impl<'a> User<'a> {
    fn new(keys: &'a Keys, cluster: &'a LogCluster, name: &str, grants: &[&str]) -> User<'a> {
        User { keys, cluster, token: keys.token(name, grants) }
    }

    async fn send(&self, node: usize, method: &str, path: &str, body: &str) -> Answer {
        self.keys.send(self.cluster.served(node), &self.token, method, &format!("/api/v1/{path}"), body).await
    }

    async fn lease(&self, node: usize) -> String {
        let granted = self.send(node, "POST", "leases", r#"{"ttl_ms":60000}"#).await.ok();
        granted["lease"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_session_belongs_to_the_principal_that_opened_it() {
    let keys = Keys::new();
    let cluster = keys.log_cluster(1).await;
    let (alice, bob) = (keys.token("alice", CLIENT), keys.token("bob", CLIENT));
    let (mut own, mut foreign) = (link(&cluster, &alice).await, link(&cluster, &bob).await);
    let session = own.open().await;
    own.put(session, 1, "x");
    assert_eq!(own.fate().await.kind(), v1::fate::Kind::Applied);
    // Bob knows the secret of the session, which is not enough.
    foreign.put(session, 2, "y");
    assert_eq!(foreign.rejected().await.code, ErrorCode::SessionGone);
    foreign.keep_alive(session);
    assert_eq!(foreign.rejected().await.code, ErrorCode::SessionGone);
    own.put(session, 2, "z");
    assert_eq!(own.fate().await.kind(), v1::fate::Kind::Applied);
    // Another link of the same principal may continue the session.
    let mut again = link(&cluster, &keys.token("alice", CLIENT)).await;
    again.put(session, 3, "again");
    assert_eq!(again.fate().await.kind(), v1::fate::Kind::Applied);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_nodes_name_the_principal_of_a_session() {
    let keys = Keys::new();
    let cluster = keys.log_cluster(1).await;
    let mut client = link(&cluster, &keys.token("bob", CLIENT)).await;
    let claimed = v1::OpenSession { principal: "token/alice".to_owned(), node: "n0".to_owned(), ..client.opening() };
    client.send(submit_request::Message::Open(claimed.clone()));
    let denied = client.rejected().await;
    assert_eq!(denied.code, ErrorCode::PermissionDenied);
    assert!(denied.message.contains("forward cluster"), "{denied}");
    let mut node = link(&cluster, &keys.token("nodes", &["forward cluster", "put key:*"])).await;
    node.send(submit_request::Message::Open(claimed));
    let v1::submit_response::Message::Opened(opened) = node.receive().await else { panic!("a session is opened") };
    let operator = User::new(&keys, &cluster, "operator", &["* *"]);
    let sessions = operator.send(0, "GET", "log/sessions", "").await.ok();
    let listed = sessions["sessions"].as_array().unwrap();
    let found = listed.iter().find(|session| session["session"].to_string().contains(&opened.session.to_string()));
    assert_eq!(found.unwrap()["opened_by"], "token/alice", "{sessions}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_over_http_belong_to_their_principal() {
    let keys = Keys::new();
    let cluster = keys.log_cluster(3).await;
    let follower = cluster.follower().await;
    let alice = User::new(&keys, &cluster, "alice", CLIENT);
    let bob = User::new(&keys, &cluster, "bob", CLIENT);
    let operator = User::new(&keys, &cluster, "operator", &["observe log", "resolve log"]);
    let request = async |user: &User<'_>| {
        let written = user.send(follower, "PUT", "kv/a", "x").await.ok();
        format!("{}/{}", written["request"]["session"], written["request"]["number"])
    };
    let (of_alice, of_bob) = (request(&alice).await, request(&bob).await);
    let session = |request: &str| request.split('/').next().unwrap().to_owned();
    assert_ne!(session(&of_alice), session(&of_bob), "each principal has its own session");
    assert_eq!(session(&of_alice), session(&request(&alice).await), "and keeps it");
    for node in 0..3 {
        let path = format!("log/requests/{of_alice}");
        alice.send(node, "GET", &path, "").await.ok();
        operator.send(node, "GET", &path, "").await.ok();
        bob.send(node, "GET", &path, "").await.rejected(404, "NOT_FOUND");
        bob.send(node, "POST", &format!("{path}/resolve"), "{}").await.rejected(404, "NOT_FOUND");
        // A request that does not exist gives the same answer.
        bob.send(node, "GET", "log/requests/999999/1", "").await.rejected(404, "NOT_FOUND");
        alice.send(node, "POST", &format!("{path}/resolve"), "{}").await.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_and_locks_belong_to_the_principal_that_granted_them() {
    let keys = Keys::new();
    let cluster = keys.log_cluster(3).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let alice = User::new(&keys, &cluster, "alice", CLIENT);
    let bob = User::new(&keys, &cluster, "bob", CLIENT);
    for node in [leader, follower] {
        let lease = alice.lease(node).await;
        let shown = alice.send(node, "GET", &format!("leases/{lease}"), "").await.ok();
        assert_eq!(shown["owner"], "token/alice", "{shown}");
        let lock = format!("locks/jobs-{node}");
        let acquire = format!(r#"{{"lease":"{lease}"}}"#);
        let txn = format!(r#"{{"then":[{{"put":{{"key":"t","value":"1","lease":"{lease}"}}}}]}}"#);
        let otherwise = format!(r#"{{"else":[{{"put":{{"key":"t","value":"1","lease":"{lease}"}}}}]}}"#);
        let uses: [(&str, String, &str); 7] = [
            ("GET", format!("leases/{lease}"), ""),
            ("PUT", format!("leases/{lease}/keep-alive"), "{}"),
            ("PUT", format!("kv/a?lease={lease}"), "x"),
            ("POST", "txn".to_owned(), &txn),
            ("POST", "txn".to_owned(), &otherwise),
            ("POST", lock.clone(), &acquire),
            ("DELETE", format!("leases/{lease}"), ""),
        ];
        for (method, path, body) in &uses {
            bob.send(node, method, path, body).await.rejected(404, "NOT_FOUND");
        }
        for (method, path, body) in &uses[..6] {
            alice.send(node, method, path, body).await.ok();
        }
        // The fence is shown to everybody who may read the lock, and releasing it is a right of its own.
        let held = bob.send(node, "GET", &lock, "").await.ok();
        assert_eq!(held["holders"][0]["owner"], "token/alice", "{held}");
        let fence = held["holders"][0]["fence"].as_u64().unwrap();
        let denied = bob.send(node, "DELETE", &format!("{lock}?fence={fence}"), "").await;
        denied.rejected(403, "PERMISSION_DENIED");
        assert!(denied.body_text().contains(&format!("`release lock:jobs-{node}`")), "{denied:?}");
        let releasing = User::new(&keys, &cluster, "carol", &["release lock:jobs-*"]);
        releasing.send(node, "DELETE", &format!("{lock}?fence={fence}"), "").await.ok();
        let (method, path, body) = &uses[6];
        let operator = User::new(&keys, &cluster, "operator", &["resolve log"]);
        operator.send(node, method, path, body).await.ok();
        alice.send(node, "GET", &format!("leases/{lease}"), "").await.rejected(404, "NOT_FOUND");
    }
    // The leader of an election speaks for itself.
    let won = alice.send(follower, "POST", "elections/main", r#"{"ttl_ms":60000}"#).await.ok();
    let fence = won["fence"].as_u64().unwrap();
    let value = format!(r#"{{"fence":{fence},"value":"here"}}"#);
    bob.send(follower, "PUT", "elections/main", &value).await.rejected(404, "NOT_FOUND");
    alice.send(follower, "PUT", "elections/main", &value).await.ok();
    let resign = format!("elections/main?fence={fence}");
    bob.send(follower, "DELETE", &resign, "").await.rejected(403, "PERMISSION_DENIED");
    alice.send(follower, "DELETE", &resign, "").await.ok();
}

/// Over gRPC the leader decides itself.
#[tokio::test(flavor = "multi_thread")]
async fn the_leader_decides_about_leases_of_sdk_clients() {
    use convoke_client::log::{Acquire, Consistency, LeaseTerms};
    use convoke_client::{Client, TokenSource};
    let keys = Keys::new();
    let cluster = keys.log_cluster(1).await;
    let timeout = std::time::Duration::from_secs(60);
    let client = |name: &str| {
        let token = TokenSource::fixed(keys.token(name, CLIENT));
        let seeds = [cluster.served(0).address().to_string()];
        Client::builder().seeds(seeds).token(token).operation_timeout(timeout).build().unwrap().kv()
    };
    let (alice, bob) = (client("alice"), client("bob"));
    let lease = alice.leases().grant(LeaseTerms::ttl(timeout)).await.unwrap();
    let held = alice.locks().acquire(Acquire::new("jobs").lease(&lease)).await.unwrap();
    let shown = async |kv: &convoke_client::log::Kv| {
        kv.leases().get_at(lease.id(), Consistency::Linearizable).await.unwrap().0.map(|lease| lease.owner)
    };
    assert_eq!((shown(&alice).await, shown(&bob).await), (Some("token/alice".to_owned()), None));
    let missing = |result: Result<(), convoke_client::Error>| {
        assert_eq!(result.unwrap_err().code, ErrorCode::NotFound);
    };
    missing(bob.leases().keep_alive(lease.id()).await.map(drop));
    missing(bob.leases().revoke(lease.id()).await.map(drop));
    missing(bob.locks().acquire(Acquire::new("other").lease_id(lease.id())).await.map(drop));
    missing(bob.write(convoke_client::log::Write::put("a", "x").lease(lease.id())).await.map(drop));
    let denied = bob.locks().release("jobs", held.fence()).await.unwrap_err();
    assert_eq!(denied.code, ErrorCode::PermissionDenied, "{denied}");
    alice.leases().keep_alive(lease.id()).await.unwrap();
    alice.write(convoke_client::log::Write::put("a", "x").lease(lease.id())).await.unwrap();
}

/// Callers without credentials are a principal, too: what they create belongs to them, over HTTP and gRPC.
#[tokio::test(flavor = "multi_thread")]
async fn leases_and_sessions_of_anonymous_belong_to_anonymous() {
    let keys = Keys::new();
    let cluster = keys.log_cluster_open_to(CLIENT, 1, convoke_server::Config::default()).await;
    let served = cluster.served(0);
    let bob = User::new(&keys, &cluster, "bob", CLIENT);
    let anonymous = async |method: &str, path: &str, body: &str| {
        served.send(method, &format!("/api/v1/{path}"), &[], body.to_owned()).await
    };
    let granted = anonymous("POST", "leases", r#"{"ttl_ms":60000}"#).await.ok();
    let lease = granted["lease"].as_str().unwrap();
    let shown = anonymous("GET", &format!("leases/{lease}"), "").await.ok();
    assert_eq!(shown["owner"], "anonymous/http", "{shown}");
    let put = format!("kv/a?lease={lease}");
    for (method, path, body) in [
        ("GET", format!("leases/{lease}"), ""),
        ("PUT", format!("leases/{lease}/keep-alive"), "{}"),
        ("PUT", put.clone(), "x"),
        ("DELETE", format!("leases/{lease}"), ""),
    ] {
        bob.send(0, method, &path, body).await.rejected(404, "NOT_FOUND");
    }
    anonymous("PUT", &put, "x").await.ok();
    let of_bob = bob.lease(0).await;
    anonymous("PUT", &format!("kv/b?lease={of_bob}"), "x").await.rejected(404, "NOT_FOUND");

    let mut own = Link::to(&served.address().to_string()).await;
    let session = own.open().await;
    own.put(session, 1, "x");
    assert_eq!(own.fate().await.kind(), v1::fate::Kind::Applied);
    let mut foreign = link(&cluster, &bob.token).await;
    foreign.put(session, 2, "y");
    assert_eq!(foreign.rejected().await.code, ErrorCode::SessionGone);
}

/// A lease from before access control: its client keeps it alive, nobody uses it for anything else, and operators end it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_without_an_owner_belongs_to_nobody() {
    let keys = Keys::new();
    let cluster = keys.log_cluster(1).await;
    let mut node = link(&cluster, &keys.token("nodes", &["* *"])).await;
    node.send(submit_request::Message::Open(v1::OpenSession { node: "n0".to_owned(), ..node.opening() }));
    let v1::submit_response::Message::Opened(opened) = node.receive().await else { panic!("a session is opened") };
    let session = opened.session;
    let term = Some(v1::grant_lease::Term::TtlMs(60_000));
    node.submit(session, 1, Body::Grant(v1::GrantLease { term, ..Default::default() }));
    let lease = node.fate().await.lease;
    let operator = User::new(&keys, &cluster, "operator", &["* *"]);
    let shown = operator.send(0, "GET", &format!("leases/{lease}"), "").await.ok();
    assert!(shown["owner"].as_str().is_none_or(str::is_empty), "{shown}");
    let bob = User::new(&keys, &cluster, "bob", CLIENT);
    bob.send(0, "PUT", &format!("leases/{lease}/keep-alive"), "{}").await.ok();
    let txn = format!(r#"{{"then":[{{"put":{{"key":"t","value":"1","lease":"{lease}"}}}}]}}"#);
    for (method, path, body) in [
        ("GET", format!("leases/{lease}"), ""),
        ("PUT", format!("kv/a?lease={lease}"), "x"),
        ("POST", "txn".to_owned(), txn.as_str()),
        ("POST", "locks/l".to_owned(), &format!(r#"{{"lease":"{lease}"}}"#)),
        ("DELETE", format!("leases/{lease}"), ""),
    ] {
        bob.send(0, method, &path, body).await.rejected(404, "NOT_FOUND");
    }
    let resolving = User::new(&keys, &cluster, "carol", &["resolve log"]);
    resolving.send(0, "DELETE", &format!("leases/{lease}"), "").await.ok();
}

/// Whether a lease of another principal exists shows nowhere, also in a branch that would not be taken.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_lease_looks_like_one_that_does_not_exist() {
    let keys = Keys::new();
    let cluster = keys.log_cluster(1).await;
    let lease = User::new(&keys, &cluster, "alice", CLIENT).lease(0).await;
    let bob = User::new(&keys, &cluster, "bob", CLIENT);
    let missing = (lease.parse::<u64>().unwrap() + 1_000_000).to_string();
    for branch in ["then", "else"] {
        let answer = async |lease: &str| {
            let txn = format!(r#"{{"{branch}":[{{"put":{{"key":"t","value":"1","lease":"{lease}"}}}}]}}"#);
            let answer = bob.send(0, "POST", "txn", &txn).await;
            (answer.status, answer.body_text().replace(lease, "LEASE"))
        };
        assert_eq!(answer(&lease).await, answer(&missing).await, "{branch}");
    }
}

/// Ids of leases and fences can be guessed. A request that waits in the log for its victim is not proposed.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_uses_a_lease_before_it_exists() {
    let keys = Keys::new();
    let cluster = keys.log_cluster(1).await;
    let mut bob = link(&cluster, &keys.token("bob", CLIENT)).await;
    let session = bob.open().await;
    let future = session + 100;
    let put = v1::TxnPut { key: "a".into(), value: "x".into(), lease: future, ..Default::default() };
    let operation = v1::TxnOperation { operation: Some(v1::txn_operation::Operation::Put(put)) };
    let attach = Body::Txn(v1::Txn { then: vec![operation], ..Default::default() });
    let acquire = Body::Acquire(v1::AcquireLock { name: "l".into(), lease: future, wait: true, ..Default::default() });
    let place = Some(v1::release_lock::Place::Fence(future));
    let release = Body::Release(v1::ReleaseLock { name: "l".into(), place, election: false });
    let revoke = Body::Revoke(v1::RevokeLease { lease: future });
    let proclaim =
        Body::Proclaim(v1::Proclaim { name: "l".into(), election: true, fence: future, ..Default::default() });
    for body in [attach, acquire, release, revoke, proclaim] {
        bob.submit(session, 1, body);
        assert_eq!(bob.rejected().await.code, ErrorCode::NotFound);
    }
    // Nothing was proposed: number 1 is still free.
    bob.put(session, 1, "x");
    assert_eq!(bob.fate().await.kind(), v1::fate::Kind::Applied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_decided_request_returns_its_outcome() {
    let keys = Keys::new();
    let cluster = keys.log_cluster(1).await;
    let mut alice = link(&cluster, &keys.token("alice", CLIENT)).await;
    let session = alice.open().await;
    let term = Some(v1::grant_lease::Term::TtlMs(60_000));
    alice.submit(session, 1, Body::Grant(v1::GrantLease { term, ..Default::default() }));
    let lease = alice.fate().await.lease;
    assert!(lease > 0);
    let mut first = None;
    for _ in 0..3 {
        alice.submit(session, 2, Body::Revoke(v1::RevokeLease { lease }));
        let fate = alice.fate().await;
        assert_eq!(fate.kind(), v1::fate::Kind::Applied);
        assert_eq!(first.get_or_insert(fate.index), &fate.index);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_ids_and_http_sessions_belong_to_their_principal() {
    use convoke_client::{Client, MemberSpec, TokenSource};
    let keys = Keys::new();
    let config = keys.config(&[]);
    let first = Served::start("n0", &[], |_| {}, |server| server.auth = Some(config.clone())).await;
    let second = Served::start("n1", &[&first], |_| {}, |server| server.auth = Some(config.clone())).await;
    convoke_testkit::meshed([&first.node, &second.node].into_iter()).await;
    let (alice, bob) = (keys.token("alice", &["register service:web"]), keys.token("bob", &["register service:web"]));
    // The secret of a session is not enough, at any node.
    let created = keys.send(&first, &alice, "POST", "/api/v1/sessions", r#"{"client":"shop"}"#).await.ok();
    let session = format!("/api/v1/sessions/{}", created["session"].as_str().unwrap());
    keys.send(&first, &alice, "PUT", &format!("{session}/members/w-1"), r#"{"service":"web"}"#).await.ok();
    eventually("the other node shows the member", async || second.node.member("w-1").is_some()).await;
    for served in [&first, &second] {
        let heartbeat = format!("{session}/heartbeat");
        keys.send(served, &bob, "PUT", &heartbeat, "{}").await.rejected(404, "SESSION_GONE");
        keys.send(served, &bob, "DELETE", &session, "").await.rejected(404, "SESSION_GONE");
        keys.send(served, &alice, "PUT", &heartbeat, "{}").await.ok();
        // Nor is the client id.
        let create = keys.send(served, &bob, "POST", "/api/v1/sessions", r#"{"client":"shop"}"#).await;
        assert_eq!(create.rejected(403, "PERMISSION_DENIED").as_deref(), Some("client"));
        let builder = Client::builder().seeds([served.address().to_string()]).client_id("shop");
        let builder = builder.operation_timeout(std::time::Duration::from_secs(60));
        let client = builder.token(TokenSource::fixed(bob.clone())).build().unwrap();
        let denied = client.register(MemberSpec::new("w-1", "web")).await.unwrap_err();
        assert_eq!(denied.code, ErrorCode::PermissionDenied, "{denied}");
    }
    // The node of the session is lost: only its principal may take it to another node.
    first.kill().await;
    let heartbeat = format!("{session}/heartbeat");
    let stolen = keys.send(&second, &bob, "PUT", &heartbeat, "{}").await;
    // The code depends on what the node has noticed of the loss.
    assert!(stolen.status.is_client_error() || stolen.status.is_server_error(), "{stolen:?}");
    eventually("the session moves", async || {
        keys.send(&second, &alice, "PUT", &heartbeat, "{}").await.status.as_u16() == 200
    })
    .await;
}
