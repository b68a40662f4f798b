//! The dashboard's files: their headers and caching.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use std::collections::BTreeSet;
use support::Served;
use support::http::Answer;

fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers.get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_is_redirected_to_the_dashboard() {
    let served = Served::alone().await;
    let accept = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    let answer = served.send("GET", "/", &[accept], "").await;
    assert_eq!((answer.status.as_u16(), header(&answer, "location")), (307, "/ui/"));
    assert_eq!(header(&answer, "vary"), "accept");
    assert!(served.get("/").await.body_text().contains("/api/v1/openapi.json"));
    served.get("/").await.rejected(404, "NOT_FOUND");
    let answer = served.get("/ui").await;
    assert_eq!((answer.status.as_u16(), header(&answer, "location")), (308, "/ui/"));
    served.get("/ui/nothing.js").await.rejected(404, "NOT_FOUND");
    served.get("/ui/..%2fCargo.toml").await.rejected(404, "NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_referenced_file_is_served_with_a_strict_policy() {
    let served = Served::alone().await;
    let mut waiting = vec![String::new()];
    let mut seen = BTreeSet::new();
    while let Some(name) = waiting.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let answer = served.get(&format!("/ui/{name}")).await;
        assert_eq!(answer.status, 200, "{name}");
        let policy = header(&answer, "content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"));
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
        assert_eq!(header(&answer, "x-content-type-options"), "nosniff");
        let kind = match name.rsplit('.').next().unwrap() {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            _ => "text/html; charset=utf-8",
        };
        assert_eq!(header(&answer, "content-type"), kind, "{name}");
        let text = answer.body_text();
        // Nothing from other origins, and nothing that turns data into markup.
        for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "https://"] {
            assert!(!text.contains(forbidden), "{name} has {forbidden}");
        }
        for quoted in text.split('"').map(|word| word.trim_start_matches("./")) {
            if quoted.ends_with(".js") || quoted.ends_with(".css") || quoted.ends_with(".svg") {
                waiting.push(quoted.to_owned());
            }
        }
    }
    assert!(seen.len() > 20, "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_files_are_not_sent_again() {
    let served = Served::alone().await;
    let first = served.get("/ui/app.js").await;
    assert_eq!(header(&first, "cache-control"), "no-cache");
    let tag = header(&first, "etag");
    for known in [tag.to_owned(), format!("\"other\", W/{tag}"), "*".to_owned()] {
        let again = served.send("GET", "/ui/app.js", &[("if-none-match", &known)], "").await;
        assert_eq!((again.status.as_u16(), again.body.len(), header(&again, "etag")), (304, 0, tag), "{known}");
    }
    let other = served.send("GET", "/ui/style.css", &[("if-none-match", tag)], "").await;
    assert_eq!(other.status, 200);
    let head = served.send("HEAD", "/ui/app.js", &[], "").await;
    assert_eq!((head.status.as_u16(), head.body.len(), header(&head, "etag")), (200, 0, tag));
}
