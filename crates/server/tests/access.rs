//! Access control of every route and method (docs/access-control.md). The tables of the server generate the requests, so a
//! new route is tested without a change here.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use bytes::Bytes;
use convoke_access::Verb;
use convoke_proto::v1;
use convoke_proto::v1::watch_event::Event;
use convoke_testkit::eventually;
use http_body_util::{BodyExt, Full};
use support::Served;
use support::access::{Keys, restricted};
use support::http::{Sse, answer, concrete, open, request};

/// Sends a request and returns the status. The body of a stream is not read.
async fn status(served: &Served, method: &str, path: &str, token: Option<&str>) -> u16 {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
    let mut sender = open(served.address()).await;
    sender.send_request(request(method, path, &headers, "{}")).await.unwrap().status().as_u16()
}

/// Calls a gRPC method with an empty message and returns the status code.
async fn code(served: &Served, path: &str, token: Option<&str>) -> i32 {
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let stream = tokio::net::TcpStream::connect(served.address()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let uri = format!("http://{}{path}", served.address());
    let mut call = http::Request::post(uri).header("content-type", "application/grpc").header("te", "trailers");
    if let Some(token) = token {
        call = call.header("authorization", format!("Bearer {token}"));
    }
    let call = call.body(Full::new(Bytes::from_static(&[0; 5]))).unwrap();
    let response = sender.send_request(call).await.unwrap();
    if let Some(code) = response.headers().get("grpc-status") {
        return code.to_str().unwrap().parse().unwrap();
    }
    // A stream that has begun was not denied by the table; its end may carry another code.
    let mut body = response.into_body();
    loop {
        let next = tokio::time::timeout(std::time::Duration::from_secs(2), body.frame()).await;
        match next {
            Ok(Some(Ok(frame))) => {
                if let Some(code) = frame.trailers_ref().and_then(|trailers| trailers.get("grpc-status")) {
                    return code.to_str().unwrap().parse().unwrap();
                }
            }
            // Open, or ended without a status.
            _ => return 0,
        }
    }
}

const UNAUTHENTICATED: i32 = 16;
const PERMISSION_DENIED: i32 = 7;

#[tokio::test(flavor = "multi_thread")]
async fn without_grants_only_public_routes_answer() {
    let keys = Keys::new();
    let served = restricted(&keys, &[]).await;
    let nothing = keys.token("nobody", &[]);
    let mut public = Vec::new();
    for (method, path, needed) in convoke_server::route_permissions() {
        let path = concrete(path);
        let (anonymous, denied) =
            (status(&served, &method, &path, None).await, status(&served, &method, &path, Some(&nothing)).await);
        if needed.is_empty() {
            public.push(path.clone());
            assert!(
                ![401, 403].contains(&anonymous) && ![401, 403].contains(&denied),
                "{method} {path}: {anonymous} {denied}"
            );
        } else {
            assert_eq!((anonymous, denied), (401, 403), "{method} {path}");
        }
    }
    assert_eq!(public, ["/", "/ui", "/ui/", "/ui/app.js", "/healthz", "/readyz"]);
    for (method, path, needed) in convoke_server::consul_route_permissions() {
        assert!(!needed.is_empty(), "{method} {path}");
        let path = concrete(path);
        for headers in [vec![], vec![("x-consul-token", nothing.as_str())]] {
            let denied = served.send(&method, &path, &headers, "{}").await;
            assert_eq!(
                (u16::from(denied.status), &denied.body[..]),
                (403, &b"Permission denied"[..]),
                "{method} {path}"
            );
            assert_eq!(denied.headers["content-type"], "text/plain; charset=utf-8", "{method} {path}");
        }
    }
    // Paths and methods without a route are denied in the same words.
    for (method, path) in [("GET", "/v1/invented"), ("POST", "/v1/status/leader"), ("PUT", "/v1/acl/bootstrap")] {
        let denied = served.send(method, path, &[("x-consul-token", &nothing)], "").await;
        assert_eq!((u16::from(denied.status), &denied.body[..]), (403, &b"Permission denied"[..]), "{method} {path}");
    }
    for (path, needed) in convoke_server::method_permissions() {
        assert!(!needed.is_empty(), "{path}");
        assert_eq!(code(&served, path, None).await, UNAUTHENTICATED, "{path}");
        assert_eq!(code(&served, path, Some(&nothing)).await, PERMISSION_DENIED, "{path}");
    }
    for path in ["/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/convoke.v1.Log/Invented", "/x.y/Z"] {
        assert_eq!(code(&served, path, Some(&nothing)).await, PERMISSION_DENIED, "{path}");
    }
    assert_eq!(code(&served, "/grpc.health.v1.Health/Check", None).await, 0);
    // A path that does not exist and one that is denied look the same.
    assert_eq!(status(&served, "GET", "/api/v1/invented", Some(&nothing)).await, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_methods_is_complete() {
    use prost::Message;
    let set = prost_types::FileDescriptorSet::decode(convoke_proto::FILE_DESCRIPTOR_SET).unwrap();
    let mut schema = Vec::new();
    for file in set.file.iter().filter(|file| file.package() == "convoke.v1") {
        for service in &file.service {
            schema.extend(
                service.method.iter().map(|method| format!("/convoke.v1.{}/{}", service.name(), method.name())),
            );
        }
    }
    let mut listed: Vec<_> =
        convoke_server::method_permissions().into_iter().map(|(path, _)| path.to_owned()).collect();
    schema.sort();
    listed.sort();
    assert_eq!(listed, schema);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_grant_opens_exactly_its_routes() {
    let keys = Keys::new();
    let served = restricted(&keys, &[]).await;
    for (verb, kind) in Verb::ALL.iter().flat_map(|verb| verb.kinds().iter().map(move |kind| (*verb, *kind))) {
        let grant = if kind.is_named() { format!("{verb} {kind}:*") } else { format!("{verb} {kind}") };
        let token = keys.token("alice", &[&grant]);
        let consul = convoke_server::consul_route_permissions();
        for (method, path, needed) in convoke_server::route_permissions().into_iter().chain(consul) {
            let opens = needed.is_empty() || needed.contains(&(verb, kind));
            let found = status(&served, &method, &concrete(path), Some(&token)).await;
            assert_eq!(found != 403, opens, "{grant}: {method} {path}: {found}");
            assert_ne!(found, 401, "{grant}: {method} {path}");
        }
        for (path, needed) in convoke_server::method_permissions() {
            let opens = needed.contains(&(verb, kind));
            let found = code(&served, path, Some(&token)).await;
            assert_eq!(found != PERMISSION_DENIED, opens, "{grant}: {path}: {found}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn denials_name_the_principal_and_the_grant() {
    let keys = Keys::new();
    let cluster = keys.log_cluster(1).await;
    let served = cluster.served(0);
    let token = keys.token("alice", &["put key:config/"]);
    let denied = keys.send(served, &token, "PUT", "/api/v1/kv/other/a", "x").await;
    denied.rejected(403, "PERMISSION_DENIED");
    let message = denied.json::<serde_json::Value>()["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(message, "principal token/alice may not put key:other/a; the grant `put key:other/a` would allow it");
    // A compare shows something of the value, and so does the previous value.
    for query in ["if_revision=3", "previous"] {
        let denied = keys.send(served, &token, "PUT", &format!("/api/v1/kv/config/a?{query}"), "x").await;
        assert!(denied.body_text().contains("the grant `read key:config/a`"), "{denied:?}");
    }
    keys.send(served, &token, "PUT", "/api/v1/kv/config/a", "x").await.ok();
    let anonymous = served.get("/api/v1/members").await;
    anonymous.rejected(401, "UNAUTHENTICATED");
    assert_eq!(anonymous.headers["www-authenticate"], "Bearer");
    let wrong = keys.send(served, "x.y.z", "GET", "/api/v1/members", "").await;
    wrong.rejected(401, "UNAUTHENTICATED");
    assert!(!wrong.body_text().contains("x.y.z"), "an answer repeats no token");
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_are_authorised_in_every_part() {
    let keys = Keys::new();
    let cluster = keys.log_cluster(1).await;
    let served = cluster.served(0);
    let token = keys.token("alice", &["put key:a/", "read key:a/"]);
    let put = |key: &str| format!(r#"{{"put":{{"key":"{key}","value":"1"}}}}"#);
    let compare = |key: &str| format!(r#"{{"key":"{key}","target":"value","op":"<","value":"m"}}"#);
    for (body, allowed) in [
        (format!(r#"{{"compare":[{}],"then":[{}],"else":[{}]}}"#, compare("a/1"), put("a/2"), put("a/3")), true),
        (format!(r#"{{"compare":[{}],"then":[{}],"else":[{}]}}"#, compare("b/1"), put("a/2"), put("a/3")), false),
        (format!(r#"{{"compare":[{}],"then":[{}],"else":[{}]}}"#, compare("a/1"), put("b/2"), put("a/3")), false),
        (format!(r#"{{"compare":[{}],"then":[{}],"else":[{}]}}"#, compare("a/1"), put("a/2"), put("b/3")), false),
        (r#"{"then":[{"delete":{"key":"a/1"}}]}"#.to_owned(), false),
        (r#"{"then":[{"get":{"key":"a/","prefix":true}}]}"#.to_owned(), true),
        (r#"{"then":[{"get":{"key":"a","prefix":true}}]}"#.to_owned(), false),
    ] {
        let answer = keys.send(served, &token, "POST", "/api/v1/txn", &body).await;
        if allowed {
            answer.ok();
        } else {
            answer.rejected(403, "PERMISSION_DENIED");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_unreadable_services_do_not_exist() {
    let keys = Keys::new();
    let served = restricted(&keys, &[]).await;
    let operator = keys.token("operator", &["* *"]);
    let session = keys.send(&served, &operator, "POST", "/api/v1/sessions", "{}").await.ok();
    let session = format!("/api/v1/sessions/{}", session["session"].as_str().unwrap());
    for (id, service) in [("o-1", "orders"), ("w-1", "web")] {
        let body = format!(r#"{{"service":"{service}"}}"#);
        keys.send(&served, &operator, "PUT", &format!("{session}/members/{id}"), &body).await.ok();
    }
    let token = keys.token("alice", &["read service:orders*", "observe service:orders"]);
    let list = keys.send(&served, &token, "GET", "/api/v1/members?filter=service%20!=%20%22convoke%22", "").await.ok();
    let shown: Vec<_> =
        list["members"].as_array().unwrap().iter().map(|member| member["id"].as_str().unwrap()).collect();
    assert_eq!(shown, ["o-1"]);
    keys.send(&served, &token, "GET", "/api/v1/members/o-1", "").await.ok();
    let hidden = keys.send(&served, &token, "GET", "/api/v1/members/w-1", "").await;
    let missing = keys.send(&served, &token, "GET", "/api/v1/members/w-0", "").await;
    assert_eq!(hidden.body_text().replace("w-1", "w-0"), missing.body_text());
    keys.send(&served, &token, "GET", "/api/v1/members/w-1/explain", "").await.rejected(404, "NOT_FOUND");
    keys.send(&served, &token, "GET", "/api/v1/members/o-1/explain", "").await.ok();
    // Members that have left are explained to those who might have read them.
    keys.send(&served, &operator, "PUT", &format!("{session}/members/w-2"), r#"{"service":"web"}"#).await.ok();
    keys.send(&served, &operator, "DELETE", &format!("{session}/members/w-2"), "").await.ok();
    keys.send(&served, &operator, "GET", "/api/v1/members/w-2/explain", "").await.ok();
    let left = keys.send(&served, &token, "GET", "/api/v1/members/w-2/explain", "").await;
    left.rejected(404, "NOT_FOUND");
    assert_eq!(left.body_text().replace("w-2", "w-0"), missing.body_text());
    let services = keys.send(&served, &token, "GET", "/api/v1/services", "").await.ok().to_string();
    assert!(services.contains("orders") && !services.contains("web"), "{services}");
    // The session's secret alone does not allow a change of a member (AU17).
    let other = keys.token("bob", &["register service:orders"]);
    keys.send(&served, &other, "PUT", &format!("{session}/heartbeat"), "{}").await.rejected(404, "SESSION_GONE");
    let session = keys.send(&served, &other, "POST", "/api/v1/sessions", "{}").await.ok();
    let session = format!("/api/v1/sessions/{}", session["session"].as_str().unwrap());
    keys.send(&served, &other, "PATCH", &format!("{session}/members/w-1"), "{}").await.rejected(404, "NOT_FOUND");
    let body = r#"{"service":"web"}"#;
    keys.send(&served, &other, "PUT", &format!("{session}/members/x"), body).await.rejected(403, "PERMISSION_DENIED");
    let body = r#"{"service":"orders"}"#;
    let takeover = keys.send(&served, &other, "PUT", &format!("{session}/members/o-1?takeover"), body).await;
    assert!(takeover.body_text().contains("takeover service:orders"), "{takeover:?}");
}

/// Everybody may register the id of a member that is down, but nobody may take it away from a service of others.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_down_stays_in_its_service() {
    let keys = Keys::new();
    let served = restricted(&keys, &[]).await;
    let session = async |token: &str, body: &str| {
        let created = keys.send(&served, token, "POST", "/api/v1/sessions", body).await.ok();
        format!("/api/v1/sessions/{}", created["session"].as_str().unwrap())
    };
    let put = async |token: &str, session: &str, id: &str, service: &str| {
        let body = format!(r#"{{"service":"{service}"}}"#);
        keys.send(&served, token, "PUT", &format!("{session}/members/{id}"), &body).await
    };
    let web = keys.token("web", &["register service:web", "register service:new-web", "read service:*"]);
    let short = session(&web, r#"{"timeout_ms":1000}"#).await;
    for id in ["w-1", "w-2", "w-3"] {
        put(&web, &short, id, "web").await.ok();
    }
    eventually("the members are down", async || {
        keys.send(&served, &web, "GET", "/api/v1/members/w-3", "").await.ok()["status"] == "down"
    })
    .await;
    let orders = keys.token("orders", &["register service:orders"]);
    let other = session(&orders, "{}").await;
    put(&orders, &other, "w-1", "orders").await.rejected(409, "ALREADY_REGISTERED");
    let both = keys.token("both", &["register service:web", "register service:orders"]);
    let third = session(&both, "{}").await;
    put(&both, &third, "w-1", "orders").await.ok();
    // Its own principal may move it, and others of the same service may replace it.
    let renamed = keys.token("web", &["register service:new-web"]);
    let fourth = session(&renamed, "{}").await;
    put(&renamed, &fourth, "w-2", "new-web").await.ok();
    put(&both, &third, "w-3", "web").await.ok();
}

/// The position of a list names the member at which the next page begins.
#[tokio::test(flavor = "multi_thread")]
async fn positions_of_lists_name_no_unreadable_members() {
    let keys = Keys::new();
    let served = restricted(&keys, &["read service:orders"]).await;
    let operator = keys.token("operator", &["* *"]);
    let session = keys.send(&served, &operator, "POST", "/api/v1/sessions", "{}").await.ok();
    let session = format!("/api/v1/sessions/{}", session["session"].as_str().unwrap());
    for (id, service) in [("a-1", "accounts"), ("o-1", "orders"), ("w-1", "web")] {
        let body = format!(r#"{{"service":"{service}"}}"#);
        keys.send(&served, &operator, "PUT", &format!("{session}/members/{id}"), &body).await.ok();
    }
    let mut path = "/api/v1/members?limit=1".to_owned();
    let mut shown = Vec::new();
    loop {
        let page = served.get(&path).await.ok();
        shown.extend(page["members"].as_array().unwrap().iter().map(|member| member["service"].to_string()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        assert!(!next.contains("accounts") && !next.contains("web"), "{next}");
        path = format!("/api/v1/members?limit=1&cursor={}", next.replace(":", "%3A"));
    }
    assert_eq!(shown, ["\"convoke\"", "\"orders\""]);
}

/// A resumed watch also sends members that do not match its filter, because they may have matched before. It must not send
/// those that the caller may not read, whatever position and versions the caller shows.
#[tokio::test(flavor = "multi_thread")]
async fn resumed_watches_name_no_unreadable_members() {
    let keys = Keys::new();
    // A node that started alone reports no absence for a heartbeat timeout (N3), so the timeout is short here.
    let brief = |config: &mut convoke_node::Config| {
        config.timers.heartbeat_interval = std::time::Duration::from_millis(500);
        config.timers.heartbeat_timeout = std::time::Duration::from_secs(3);
    };
    let auth = keys.config(&["read service:orders"]);
    let served = Served::start("n0", &[], brief, |server| server.auth = Some(auth)).await;
    let operator = keys.token("operator", &["* *"]);
    let session = keys.send(&served, &operator, "POST", "/api/v1/sessions", "{}").await.ok();
    let session = format!("/api/v1/sessions/{}", session["session"].as_str().unwrap());
    let write = async |method: &str, id: &str, body: &str| {
        keys.send(&served, &operator, method, &format!("{session}/members/{id}"), body).await.ok();
    };
    for (id, service) in [("o-1", "orders"), ("o-2", "orders"), ("w-1", "web"), ("w-2", "web")] {
        write("PUT", id, &format!(r#"{{"service":"{service}"}}"#)).await;
    }
    let mut sse = Sse::open(&served, "", "").await;
    sse.until("caught-up").await;
    let position = sse.last_id.clone();
    let (_, token) = watched(&served, v1::Resume::default()).await;
    write("PATCH", "w-1", r#"{"k":"v"}"#).await;
    write("DELETE", "w-2", "").await;
    write("DELETE", "o-2", "").await;

    let by_token = v1::Resume { token: token.clone(), ..v1::Resume::default() };
    let (events, _) = watched(&served, by_token).await;
    assert!(events[0].contains("Reset") && !events.concat().contains("\"w-"), "{events:?}");
    let mut sse = Sse::open(&served, "", &position).await;
    let events = sse.until("caught-up").await;
    assert_eq!(events.first().map(String::as_str), Some("reset"), "{events:?}");
    assert!(events.contains(&"snapshot o-1".to_owned()) && !events.join(" ").contains(" w-"), "{events:?}");
    // Ids that the caller guesses: those that exist look like others.
    let guessed = ["o-2", "w-1", "w-2", "nobody"].map(|id| (id.to_owned(), "0.1.00000001".to_owned()));
    let known = v1::resume::Known { versions: guessed.into() };
    let by_versions = v1::Resume { known: Some(known), ..v1::Resume::default() };
    let (events, _) = watched(&served, by_versions).await;
    let gone = |id: &str| events.iter().find(|event| event.contains(&format!("\"{id}\""))).cloned().unwrap();
    assert_ne!(gone("o-2").replace("o-2", "nobody"), gone("nobody"), "the version of the tombstone");
    for id in ["w-1", "w-2"] {
        assert_eq!(gone(id).replace(id, "nobody"), gone("nobody"));
    }
}

/// Returns the events of a gRPC watch of a caller without credentials, up to caught-up, and the token of the next mark.
async fn watched(served: &Served, resume: v1::Resume) -> (Vec<String>, Vec<u8>) {
    let request = v1::WatchRequest { filter: String::new(), resume: Some(resume) };
    let mut watch = support::grpc::registry(served).await.watch(request).await.unwrap().into_inner();
    let mut events = Vec::new();
    loop {
        match support::grpc::next(&mut watch).await {
            Event::CaughtUp(_) => break,
            event => events.push(format!("{event:?}")),
        }
    }
    loop {
        if let Some(Event::Mark(mark)) = watch.message().await.unwrap().unwrap().event {
            return (events, mark.token);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_has_only_what_is_configured() {
    let keys = Keys::new();
    let served = restricted(&keys, &["read service:public*"]).await;
    served.get("/api/v1/members").await.ok();
    served.get("/api/v1/status").await.rejected(401, "UNAUTHENTICATED");
    let status = keys.send(&served, &keys.token("o", &["* *"]), "GET", "/api/v1/status", "").await.ok();
    assert_eq!(status["access"], "enforced");
    let open = Served::alone().await;
    assert_eq!(open.get("/api/v1/status").await.ok()["access"], "open");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_ends_its_streams() {
    let keys = Keys::new();
    let served = restricted(&keys, &[]).await;
    // Expires in three seconds: the leeway of a minute is nearly used up.
    let token = keys.expiring("alice", &["read service:*"], 3);
    let mut sender = open(served.address()).await;
    let bearer = format!("Bearer {token}");
    let streaming = request("GET", "/api/v1/watch", &[("authorization", bearer.as_str())], "");
    let response = sender.send_request(streaming).await.unwrap();
    assert_eq!(response.status(), 200);
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), answer(response)).await;
    assert!(ended.unwrap().body_text().contains("caught-up"));
    keys.send(&served, &token, "GET", "/api/v1/members", "").await.rejected(401, "UNAUTHENTICATED");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_rotate_while_the_node_runs() {
    let mut keys = Keys::new();
    let served = restricted(&keys, &[]).await;
    let old = keys.token("alice", &["read service:*"]);
    let mut sender = open(served.address()).await;
    let bearer = format!("Bearer {old}");
    let streaming = request("GET", "/api/v1/watch", &[("authorization", bearer.as_str())], "");
    let stream = sender.send_request(streaming).await.unwrap();
    keys.add_key([9; 32], "next.pub");
    let new = keys.token("alice", &["read service:*"]);
    eventually("the new key", async || status(&served, "GET", "/api/v1/members", Some(&new)).await == 200).await;
    assert_eq!(status(&served, "GET", "/api/v1/members", Some(&old)).await, 200, "keys overlap");
    // A damaged file changes nothing, and the status says so.
    std::fs::write(keys.path().join("broken.pub"), "x").unwrap();
    let operator = keys.token("operator", &["* *"]);
    eventually("the degraded state", async || {
        let status = keys.send(&served, &operator, "GET", "/api/v1/status", "").await.ok();
        status["degraded"].to_string().contains("auth-files")
    })
    .await;
    std::fs::remove_file(keys.path().join("broken.pub")).unwrap();
    keys.remove("signing.pub");
    eventually("the old key is gone", async || status(&served, "GET", "/api/v1/members", Some(&old)).await == 401)
        .await;
    // Streams of tokens of the removed key end.
    tokio::time::timeout(std::time::Duration::from_secs(60), answer(stream)).await.unwrap();
    assert_eq!(status(&served, "GET", "/api/v1/members", Some(&new)).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_does_not_start_without_usable_keys() {
    let keys = Keys::new();
    for (change, words) in [("empty", "contains no public key"), ("private", "remove the private key")] {
        let mut config = convoke_server::Config { auth: Some(keys.config(&[])), ..convoke_server::Config::default() };
        let directory = tempfile::tempdir().unwrap();
        if change == "private" {
            std::fs::write(directory.path().join("a.pub"), keys.private()).unwrap();
        }
        config.auth.as_mut().unwrap().keys = directory.path().to_owned();
        let error = convoke_server::Server::bind(config).await.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

/// A follower forwards a write to the leader with its own token. The caller was authorised at the follower.
#[tokio::test(flavor = "multi_thread")]
async fn followers_forward_to_the_leader_as_nodes() {
    let keys = Keys::new();
    let cluster = keys.log_cluster(3).await;
    let follower = cluster.follower().await;
    let token = keys.token("alice", &["put key:config/", "read key:config/"]);
    let path = "/api/v1/kv/config/a";
    keys.send(cluster.served(follower), &token, "PUT", path, "x").await.ok();
    keys.send(cluster.served(follower), &token, "GET", path, "").await.ok();
    keys.send(cluster.served(follower), &token, "PUT", "/api/v1/kv/b", "x").await.rejected(403, "PERMISSION_DENIED");
}

/// The SDK shows its token; requests of its log session are authorised one by one.
#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_registers_and_writes_with_a_token() {
    use convoke_client::{Client, ErrorCode, MemberSpec, TokenSource};
    let keys = Keys::new();
    let cluster = keys.log_cluster(1).await;
    let connect = async |token: String| {
        let seeds = [cluster.served(0).address().to_string()];
        let timeout = std::time::Duration::from_secs(60);
        Client::builder().seeds(seeds).token(TokenSource::fixed(token)).operation_timeout(timeout).connect().await
    };
    let token = keys.token("alice", &["register service:orders", "put key:orders/", "read key:orders/"]);
    let client = connect(token).await.unwrap();
    client.register(MemberSpec::new("o-1", "orders")).await.unwrap();
    let denied = client.register(MemberSpec::new("w-1", "web")).await.unwrap_err();
    assert_eq!(denied.code, ErrorCode::PermissionDenied, "{denied}");
    let kv = client.kv();
    kv.put("orders/a", "1").await.unwrap();
    let denied = kv.put("web/a", "1").await.unwrap_err();
    assert_eq!(denied.code, ErrorCode::PermissionDenied, "{denied}");
    assert!(kv.get("orders/a").await.unwrap().is_some());
    assert_eq!(kv.get("web/a").await.unwrap_err().code, ErrorCode::PermissionDenied);
    // The log session belongs to the principal.
    let operator = keys.token("operator", &["* *"]);
    let sessions = keys.send(cluster.served(0), &operator, "GET", "/api/v1/log/sessions", "").await.ok();
    assert!(sessions.to_string().contains("\"token/alice\""), "{sessions}");
}

/// A revocation at one node ends the streams of the token at another one, survives a restart, and leaves other tokens alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_loses_its_rights_at_every_node() {
    use convoke_proto::v1::admin_client::AdminClient;
    use convoke_proto::v1::{RevokeRequest, revoke_request::What};
    let keys = Keys::new();
    let mut config = keys.config(&[]);
    let first = Served::start("n0", &[], |_| {}, |server| server.auth = Some(config.clone())).await;
    config.revocations = Some(keys.path().join("revocations"));
    let second = Served::start("n1", &[&first], |_| {}, |server| server.auth = Some(config.clone())).await;
    convoke_testkit::meshed([&first.node, &second.node].into_iter()).await;
    let (lost, kept) = (keys.token("alice", &["read service:*"]), keys.token("alice", &["read service:*"]));
    let mut sender = open(second.address()).await;
    let bearer = format!("Bearer {lost}");
    let streaming = request("GET", "/api/v1/watch", &[("authorization", bearer.as_str())], "");
    let stream = sender.send_request(streaming).await.unwrap();
    assert_eq!(stream.status(), 200);
    let (_, claims) = convoke_access::inspect(&convoke_access::TokenText::new(&lost)).unwrap();
    let revoke = async |what: What, token: &str| {
        let mut call = tonic::Request::new(RevokeRequest { what: Some(what), issued_until: 0 });
        call.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", first.address())).unwrap();
        AdminClient::new(endpoint.connect().await.unwrap()).revoke(call).await.map(|answer| answer.into_inner().added)
    };
    let revoker = keys.token("security", &["revoke cluster"]);
    assert_eq!(revoke(What::Token(claims.jti.clone()), &kept).await.unwrap_err().code(), tonic::Code::PermissionDenied);
    assert!(revoke(What::Token(claims.jti.clone()), &revoker).await.unwrap());
    assert!(!revoke(What::Token(claims.jti), &revoker).await.unwrap(), "it is known");
    tokio::time::timeout(std::time::Duration::from_secs(60), answer(stream)).await.unwrap();
    for served in [&first, &second] {
        eventually("the token is revoked", async || status(served, "GET", "/api/v1/members", Some(&lost)).await == 401)
            .await;
        assert_eq!(status(served, "GET", "/api/v1/members", Some(&kept)).await, 200);
    }
    // All tokens of the principal that exist now.
    assert!(revoke(What::Principal("alice".to_owned()), &revoker).await.unwrap());
    eventually("the principal is revoked", async || {
        status(&second, "GET", "/api/v1/members", Some(&kept)).await == 401
    })
    .await;
    eventually("the file has both", async || {
        std::fs::read_to_string(keys.path().join("revocations")).is_ok_and(|text| text.lines().count() == 2)
    })
    .await;
    first.kill().await;
    second.kill().await;
    let restarted = Served::start("n1", &[], |_| {}, |server| server.auth = Some(config)).await;
    eventually("the file was read", async || status(&restarted, "GET", "/api/v1/members", Some(&lost)).await == 401)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_revoked_over_http() {
    let keys = Keys::new();
    let served = restricted(&keys, &[]).await;
    let (lost, kept) = (keys.token("alice", &["read service:*"]), keys.token("bob", &["read service:*"]));
    let revoker = keys.token("security", &["revoke cluster"]);
    let revoke = async |body: &str, token: &str| keys.send(&served, token, "POST", "/api/v1/revocations", body).await;
    for body in ["{}", r#"{"token":"a","principal":"b"}"#, r#"{"token":"a","issued_until":3}"#] {
        revoke(body, &revoker).await.rejected(400, "INVALID_ARGUMENT");
    }
    let alice = r#"{"principal":"alice"}"#;
    revoke(alice, &kept).await.rejected(403, "PERMISSION_DENIED");
    assert_eq!(revoke(alice, &revoker).await.ok()["added"], true);
    eventually("the token is revoked", async || status(&served, "GET", "/api/v1/members", Some(&lost)).await == 401)
        .await;
    assert_eq!(status(&served, "GET", "/api/v1/members", Some(&kept)).await, 200);
    let open = Served::alone().await;
    open.post("/api/v1/revocations", alice).await.rejected(412, "FAILED_PRECONDITION");
}

/// Grants for one lock are enough for the SDK to use it, and for no other lock.
#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_locks_with_grants_for_one_lock() {
    use convoke_client::log::{Acquire, LeaseTerms};
    use convoke_client::{Client, ErrorCode, TokenSource};
    let keys = Keys::new();
    let cluster = keys.log_cluster(1).await;
    let token = keys.token("alice", &["lock lock:jobs/*", "read lock:jobs/*", "read service:convoke"]);
    let timeout = std::time::Duration::from_secs(60);
    let seeds = [cluster.served(0).address().to_string()];
    let builder = Client::builder().seeds(seeds).token(TokenSource::fixed(token)).operation_timeout(timeout);
    let kv = builder.build().unwrap().kv();
    let lease = kv.leases().grant(LeaseTerms::ttl(timeout)).await.unwrap();
    let held = kv.locks().acquire(Acquire::new("jobs/1").lease(&lease)).await.unwrap();
    let denied = kv.locks().acquire(Acquire::new("other").lease(&lease)).await.unwrap_err();
    assert_eq!(denied.code, ErrorCode::PermissionDenied, "{denied}");
    let denied = kv.put("jobs/1", "x").await.unwrap_err();
    assert_eq!(denied.code, ErrorCode::PermissionDenied, "{denied}");
    drop(held);
}

/// Each grant of the log is enough for the SDK to do what it allows, and a denial is reported as one.
#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_needs_one_grant_for_each_read() {
    use convoke_client::log::Consistency::Linearizable;
    use convoke_client::log::{Ambassador, connector};
    use convoke_client::{Client, ErrorCode, Event, TokenSource};
    let keys = Keys::new();
    let cluster = keys.log_cluster(1).await;
    let timeout = std::time::Duration::from_secs(10);
    let (seeds, token) =
        ([cluster.served(0).address().to_string()], |grant| TokenSource::fixed(keys.token("a", &[grant])));
    let client =
        |grant| Client::builder().seeds(seeds.clone()).token(token(grant)).operation_timeout(timeout).build().unwrap();
    let kv = |grant| client(grant).kv();
    let ambassador = |grant| Ambassador::start_with(seeds.clone(), connector(None, Some(token(grant)))).unwrap();
    let reader = client("read service:web");
    let mut watch = reader.watch("").unwrap();
    while watch.next().await.expect("the watch goes on") != Event::CaughtUp {}
    kv("read lock:L").locks().show("L", Linearizable).await.unwrap();
    kv("read election:E").elections().leader("E").await.unwrap();
    kv("read election:E").elections().observe("E").next().await.unwrap().unwrap();
    kv("observe log").locks().list("", 10, Linearizable).await.unwrap();
    kv("observe log").leases().list(0, 10, Linearizable).await.unwrap();
    ambassador("backup log").backup(Some(timeout)).await.unwrap();
    ambassador("reconfigure log").upgrade(Some(timeout)).await.unwrap();
    let denied = kv("read lock:L").locks().show("M", Linearizable).await.unwrap_err();
    assert_eq!(denied.code, ErrorCode::PermissionDenied, "{denied}");
    // Without any grant of the log, no node lets the client in.
    let denied = kv("observe cluster").get("a").await.unwrap_err();
    assert_eq!(denied.code, ErrorCode::PermissionDenied, "{denied}");
}
