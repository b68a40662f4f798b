//! Requests of web pages of other sites: none is executed, on any route, and no answer is taken for a script.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use support::Served;
use support::http::{Answer, answer, concrete, open};

async fn send(served: &Served, method: &str, path: &str, host: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = http::Request::builder().method(method).uri(path).header("host", host);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = http_body_util::Full::new(bytes::Bytes::from_static(b"{}"));
    let response = open(served.address()).await.send_request(request.body(body).unwrap()).await.unwrap();
    if response.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream") {
        // It does not end.
        let (parts, _) = response.into_parts();
        return Answer { status: parts.status, headers: parts.headers, body: bytes::Bytes::new() };
    }
    answer(response).await
}

const FOREIGN: &[(&str, &[(&str, &str)])] = &[
    ("localhost", &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]),
    ("localhost", &[("sec-fetch-site", "same-site")]),
    ("localhost:7700", &[("origin", "http://localhost:3000")]),
    ("localhost", &[("origin", "https://evil.example")]),
    ("localhost", &[("origin", "null")]),
    // DNS rebinding: the page is of the same site.
    ("evil.example:7700", &[("origin", "http://evil.example:7700"), ("sec-fetch-site", "same-origin")]),
    ("evil.example", &[]),
];

/// Enumerates the table of routes, so that no route can be forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn no_route_serves_pages_of_other_sites() {
    let served = Served::alone().await;
    let mut checked = 0;
    for (method, path) in convoke_server::routes() {
        let path = concrete(path);
        for (host, headers) in FOREIGN {
            let found = send(&served, &method, &path, host, headers).await;
            let probe = matches!(path.as_str(), "/healthz" | "/readyz") && host.starts_with("evil");
            if probe {
                assert_eq!(found.status, 200, "load balancers use any name: {path}");
            } else {
                assert_eq!(found.rejected(403, "PERMISSION_DENIED"), None, "{method} {path} {host} {headers:?}");
            }
            checked += 1;
        }
    }
    assert!(checked > 200, "{checked}");
    for (method, path, _) in convoke_server::consul_route_permissions() {
        for (host, headers) in FOREIGN {
            let found = send(&served, &method, &concrete(path), host, headers).await;
            assert_eq!(found.status, 403, "{method} {path} {host} {headers:?}");
            // The text names the setting that allows a host.
            let names = found.body_text().contains("allowed_hosts");
            assert_eq!(names, host.starts_with("evil"), "{found:?}");
        }
    }
    for path in ["/nowhere", "/convoke.v1.Admin/Drain"] {
        send(&served, "POST", path, "evil.example", &[]).await.rejected(403, "PERMISSION_DENIED");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_forbids_to_guess_its_type_and_to_run_it() {
    let served = Served::alone().await;
    let consul = convoke_server::consul_route_permissions().into_iter().map(|(method, path, _)| (method, path));
    let paths = convoke_server::routes().into_iter().chain(consul).map(|(method, path)| (method, concrete(path)));
    for (method, path) in paths.chain([("GET".into(), "/nowhere".into()), ("POST".into(), "/healthz".into())]) {
        for host in ["localhost", "evil.example"] {
            let found = send(&served, &method, &path, host, &[]).await;
            assert_eq!(found.headers["x-content-type-options"], "nosniff", "{method} {path} {found:?}");
            let policy = found.headers["content-security-policy"].to_str().unwrap();
            assert!(policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        }
    }
}

/// A form can send JSON as text/plain, and old browsers name no origin.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_forms_are_not_executed() {
    let served = Served::alone().await;
    for (method, path) in convoke_server::routes().into_iter().filter(|(method, _)| method != "GET") {
        for kind in ["text/plain", "text/plain;charset=UTF-8", "multipart/form-data; boundary=x", "text/html", ""] {
            let found = send(&served, &method, &concrete(path), "localhost", &[("content-type", kind)]).await;
            if method == "DELETE" || path.starts_with("/api/v1/kv/") {
                // No form and no page can send these methods without asking first; no answer allows it.
                assert_ne!(found.status, 415, "{method} {path}");
            } else {
                let (status, code, field) = found.rejection();
                assert_eq!((status, code.as_str()), (415, "INVALID_ARGUMENT"), "{method} {path} {kind}");
                assert_eq!(field.as_deref(), Some("content-type"));
            }
        }
    }
    // Consul's clients send no content type. No form and no page can send these methods either.
    for (method, path, _) in convoke_server::consul_route_permissions() {
        assert!(["GET", "PUT", "DELETE"].contains(&method.as_str()), "{method} {path}");
    }
    let preflight = send(&served, "OPTIONS", "/api/v1/sessions", "localhost", &[]).await;
    assert_eq!(preflight.status, 405);
    assert!(!preflight.headers.contains_key("access-control-allow-origin"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_and_other_clients_are_served() {
    let names = |config: &mut convoke_server::Config| config.allowed_hosts = vec!["registry.example.com".into()];
    let served = Served::start("n0", &[], |_| {}, names).await;
    let here = served.address().to_string();
    for (host, headers) in [
        // The dashboard: opened by hand, by a link, and its own requests.
        (here.as_str(), &[("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")][..]),
        (&here, &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]),
        (&here, &[("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors")]),
        // A proxy with a configured name, which changes the host.
        (&here, &[("origin", "https://registry.example.com")]),
        ("registry.example.com", &[]),
        ("n1", &[]),
        ("convoke.default.svc.cluster.local:7700", &[]),
    ] {
        let found = send(&served, "GET", "/api/v1/members", host, headers).await;
        assert_eq!(found.status, 200, "{host} {headers:?} {found:?}");
    }
    for (host, headers) in [
        (here.as_str(), &[("origin", format!("http://{here}"))][..]),
        (&here, &[("content-type", "application/json; charset=utf-8".into())]),
        // `curl -d`
        (&here, &[("content-type", "application/x-www-form-urlencoded".into())]),
        (&here, &[]),
    ] {
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let found = send(&served, "POST", "/api/v1/sessions", host, &headers).await;
        assert_eq!(found.status, 200, "{host} {headers:?} {found:?}");
    }
    // A link may open a page, but not change anything.
    let post = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
    send(&served, "POST", "/api/v1/sessions", &here, &post).await.rejected(403, "PERMISSION_DENIED");
}

/// gRPC clients use any name; browsers have no HTTP/2 without TLS.
#[tokio::test(flavor = "multi_thread")]
async fn grpc_is_served_under_any_name_but_not_to_pages() {
    let served = Served::alone().await;
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", served.address())).unwrap();
    let channel = endpoint.origin("http://registry.example.com".parse().unwrap()).connect().await.unwrap();
    let mut registry = convoke_proto::v1::registry_client::RegistryClient::new(channel);
    registry.list(convoke_proto::v1::ListRequest::default()).await.unwrap();
    let mut request = tonic::Request::new(convoke_proto::v1::ListRequest::default());
    request.metadata_mut().insert("origin", "https://evil.example".parse().unwrap());
    assert_eq!(registry.list(request).await.unwrap_err().code(), tonic::Code::PermissionDenied);
    let grpc = [("content-type", "application/grpc")];
    let found = send(&served, "POST", "/convoke.v1.Admin/Status", "evil.example", &grpc).await;
    assert_eq!(found.headers["grpc-status"], "7", "{found:?}");
}
