//! The log plane over HTTP, at the leader and at followers.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::eventually;
use serde_json::json;
use support::Served;
use support::log::LogCluster;

#[tokio::test(flavor = "multi_thread")]
async fn keys_work_at_every_node() {
    let cluster = LogCluster::start(3).await;
    let follower = cluster.follower().await;
    let written = cluster.http(follower, "PUT", "/api/v1/kv/config/limits%20of/web", "ten").await.ok();
    let revision = written["revision"].as_u64().unwrap();
    for index in 0..3 {
        let read = cluster.http(index, "GET", "/api/v1/kv/config/limits%20of/web", "").await.ok();
        let expected = json!({"key": "config/limits of/web", "value": "dGVu", "create_revision": revision,
            "mod_revision": revision, "version": 1});
        assert_eq!(read, expected, "n{index}");
        for consistency in ["linearizable", "barrier"] {
            let path = format!("/api/v1/kv/config/limits%20of/web?consistency={consistency}&raw");
            let raw = cluster.http(index, "GET", &path, "").await;
            assert_eq!(raw.body_text(), "ten");
            assert_eq!(raw.headers["convoke-mod-revision"], revision.to_string().as_str());
        }
    }
    let path = format!("/api/v1/kv/config/limits%20of/web?if_revision={}", revision + 1);
    let rejected = cluster.http(follower, "PUT", &path, "x").await;
    rejected.rejected(412, "FAILED_PRECONDITION");
    let error = &rejected.json::<serde_json::Value>()["error"];
    assert_eq!(error["known"], revision);
    assert!(error["request"]["session"].as_u64().is_some(), "{error}");
    let path = format!("/api/v1/kv/config/limits%20of/web?if_revision={revision}&previous");
    let written = cluster.http(follower, "PUT", &path, "eleven").await.ok();
    assert_eq!(written["previous"][0]["value"], "dGVu");

    let (session, number) = (&written["request"]["session"], &written["request"]["number"]);
    for index in 0..3 {
        let reported = cluster.http(index, "GET", &format!("/api/v1/log/requests/{session}/{number}"), "").await.ok();
        assert_eq!((&reported["fate"], &reported["revision"]), (&json!("applied"), &written["revision"]), "n{index}");
        let status = cluster.http(index, "GET", "/api/v1/log/status", "").await.ok();
        assert_eq!(status["voters"], json!(["n0", "n1", "n2"]));
        assert_eq!(status["leader"], format!("n{}", cluster.leader().await));
        let role = cluster.http(index, "GET", "/api/v1/status", "").await.ok()["log_role"].clone();
        assert_eq!(role, status["role"]);
        cluster.http(index, "GET", "/readyz?log", "").await.ok();
    }
    assert_eq!(cluster.http(follower, "DELETE", "/api/v1/kv/config/limits%20of/web", "").await.ok()["deleted"], 1);
    cluster.http(follower, "GET", "/api/v1/kv/config/limits%20of/web", "").await.rejected(404, "NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_paged() {
    let cluster = LogCluster::start(1).await;
    for number in 0..7 {
        cluster.http(0, "PUT", &format!("/api/v1/kv/list/{number}"), "v").await.ok();
    }
    cluster.http(0, "PUT", "/api/v1/kv/other", "v").await.ok();
    let (mut keys, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/api/v1/kv/list/?prefix&limit=3&cursor={cursor}");
        let page = cluster.http(0, "GET", &path, "").await.ok();
        keys.extend(page["keys"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(keys, ["list/0", "list/1", "list/2", "list/3", "list/4", "list/5", "list/6"]);
    let all = cluster.http(0, "GET", "/api/v1/kv?consistency=local", "").await.ok();
    assert_eq!(all["keys"].as_array().unwrap().len(), 8);
    assert_eq!(all["revision"], 8);
    for (path, count) in [("/?prefix", 8), ("/?prefix=", 8), ("/", 8), ("?prefix=list/", 7), ("?prefix=list/3", 1)] {
        let found = cluster.http(0, "GET", &format!("/api/v1/kv{path}"), "").await.ok();
        assert_eq!(found["keys"].as_array().unwrap().len(), count, "{path}");
    }
    assert_eq!(cluster.http(0, "GET", "/api/v1/kv/other?raw=true", "").await.body_text(), "v");
    assert_eq!(cluster.http(0, "GET", "/api/v1/kv/other?raw=false&prefix=false", "").await.ok()["key"], "other");
    assert_eq!(cluster.http(0, "GET", "/api/v1/kv/other?revision=8", "").await.ok()["mod_revision"], 8);
    cluster.http(0, "GET", "/api/v1/kv/other?revision=7", "").await.rejected(404, "NOT_FOUND");
    cluster.http(0, "GET", "/api/v1/kv/other?revision=9", "").await.rejected(400, "INVALID_ARGUMENT");
    assert_eq!(cluster.http(0, "DELETE", "/api/v1/kv/list/?prefix", "").await.ok()["deleted"], 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_input_is_rejected_with_the_field() {
    let cluster = LogCluster::start(1).await;
    for (method, path, body, status, field) in [
        ("GET", "/api/v1/kv/a?consistency=strong", "", 400, Some("consistency")),
        ("GET", "/api/v1/kv/a?nonsense=1", "", 400, Some("nonsense")),
        ("GET", "/api/v1/kv/a?raw=perhaps", "", 400, Some("raw")),
        ("GET", "/api/v1/kv/a?prefix=b", "", 400, Some("prefix")),
        ("DELETE", "/api/v1/kv/a?prefix=b", "", 400, Some("prefix")),
        ("GET", "/api/v1/kv/a?limit=3", "", 400, Some("limit")),
        ("GET", "/api/v1/kv/a?prefix&limit=0", "", 400, Some("limit")),
        ("GET", "/api/v1/kv/a?prefix&raw", "", 400, Some("raw")),
        ("GET", "/api/v1/kv/a?prefix&cursor=%21", "", 400, Some("cursor")),
        ("GET", "/api/v1/kv/a?revision=x", "", 400, Some("revision")),
        ("GET", "/api/v1/kv?limit=-1", "", 400, Some("limit")),
        ("PUT", "/api/v1/kv/a?if_revision=-1", "", 400, Some("if_revision")),
        ("PUT", "/api/v1/kv/a?lease=x", "", 400, Some("lease")),
        ("PUT", "/api/v1/kv/%FF", "x", 400, Some("path")),
        ("DELETE", "/api/v1/kv/a?prefix&if_revision=1", "", 400, Some("if_revision")),
        ("DELETE", "/api/v1/kv/a", r#"{"if_revision":7}"#, 400, Some("if_revision")),
        ("GET", "/api/v1/log/requests/x/1", "", 400, Some("path")),
        ("GET", "/api/v1/log/requests/1/1?consistency=barrier", "", 400, Some("consistency")),
        ("POST", "/api/v1/log/requests/1/-1/resolve", "", 400, Some("path")),
        ("POST", "/api/v1/log/requests/1/1/resolve", r#"{"final":true}"#, 400, Some("final")),
        ("POST", "/api/v1/log/requests/1/0/resolve", "", 400, Some("request")),
        ("GET", "/api/v1/log/requests/1/0", "", 400, Some("request")),
        ("PUT", "/api/v1/kv/a?if_revision=18446744073709551615", "x", 400, Some("if_revision")),
        ("DELETE", "/api/v1/kv/a?if_revision=18446744073709551615", "", 400, Some("if_revision")),
        ("POST", "/api/v1/log/members", "", 400, Some("body")),
        ("POST", "/api/v1/log/members", "[]", 400, Some("body")),
        ("POST", "/api/v1/log/members", r#"{"add":"n1","remove":"n2"}"#, 400, Some("body")),
        ("POST", "/api/v1/log/members", r#"{"ad":"n1"}"#, 400, None),
        ("POST", "/api/v1/log/members", r#"{"replace":"n1"}"#, 400, Some("with")),
        ("POST", "/api/v1/log/members", r#"{"promote":"n1","address":"a:1"}"#, 400, Some("address")),
    ] {
        let answer = cluster.http(0, method, path, body).await;
        let named = answer.rejected(status, "INVALID_ARGUMENT");
        if let Some(field) = field {
            assert_eq!(named.as_deref(), Some(field), "{method} {path}: {answer:?}");
        }
    }
    let large = "x".repeat(1024 * 1024 + 1);
    cluster.http(0, "PUT", "/api/v1/kv/a", &large).await.rejected(413, "TOO_LARGE");
    let long = format!("/api/v1/kv/{}", "k".repeat(2_000));
    cluster.http(0, "PUT", &long, "x").await.rejected(413, "TOO_LARGE");
    cluster.http(0, "POST", "/api/v1/log/members", r#"{"remove":"nobody"}"#).await.rejected(404, "NOT_FOUND");
    cluster.http(0, "POST", "/api/v1/log/members", r#"{"remove":"n0"}"#).await.rejected(412, "FAILED_PRECONDITION");
    cluster.http(0, "POST", "/api/v1/log/members", r#"{"add":"n7"}"#).await.rejected(404, "NOT_FOUND");
    assert_eq!(cluster.http(0, "GET", "/api/v1/log/requests/999999/1", "").await.ok()["fate"], "open");
    // F8: no node knows of such a session. It may still be opened, so no final fate can be given.
    cluster.http(0, "POST", "/api/v1/log/requests/999999/1/resolve", "").await.rejected(404, "NOT_FOUND");
    let resolved = cluster.http(0, "POST", "/api/v1/log/requests/1/1/resolve", "").await.ok();
    assert_eq!((&resolved["fate"], &resolved["final"]), (&json!("too_old"), &json!(true)));
    assert_eq!(cluster.http(0, "GET", "/api/v1/log/requests/1/1", "").await.ok()["fate"], "too_old");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_log_plane_every_route_reports_it() {
    let served = Served::alone().await;
    for (method, path, body) in [
        ("GET", "/readyz?log", ""),
        ("GET", "/api/v1/kv/a", ""),
        ("GET", "/api/v1/kv", ""),
        ("PUT", "/api/v1/kv/a", "x"),
        ("DELETE", "/api/v1/kv/a", ""),
        ("POST", "/api/v1/txn", r#"{"then":[{"get":{"key":"a"}}]}"#),
        ("GET", "/api/v1/log/status", ""),
        ("GET", "/api/v1/log/requests/1/1", ""),
        ("POST", "/api/v1/log/requests/1/1/resolve", ""),
        ("POST", "/api/v1/log/members", r#"{"add":"n1"}"#),
        ("POST", "/api/v1/log/upgrade", "{}"),
    ] {
        served.send(method, path, &[], body.to_owned()).await.rejected(503, "NOT_READY");
    }
    assert_eq!(served.get("/api/v1/status").await.ok()["log_role"], "none");
}

/// A node without a replica reports that and names replicas to read from: a local read does not need the leader.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_replica_names_replicas_for_local_reads() {
    let mut cluster = LogCluster::start(1).await;
    cluster.http(0, "PUT", "/api/v1/kv/a", "1").await.ok();
    let outside = cluster.outsider().await;
    convoke_testkit::eventually("it knows the replicas", async || {
        cluster.http(outside, "GET", "/api/v1/kv/a?consistency=local", "").await.body_text().contains("n0")
    })
    .await;
    for path in ["/api/v1/kv/a?consistency=local", "/api/v1/kv?consistency=local"] {
        let answer = cluster.http(outside, "GET", path, "").await;
        answer.rejected(503, "NOT_READY");
        let text = answer.body_text();
        assert!(text.contains("holds no replica of the log: read at n0"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minority_reads_locally_and_reports_that_the_log_is_not_ready() {
    let mut cluster = LogCluster::start(3).await;
    cluster.http(0, "PUT", "/api/v1/kv/a", "1").await.ok();
    convoke_testkit::eventually("all replicas have the key", async || {
        let mut have = 0;
        for index in 0..3 {
            have += usize::from(cluster.http(index, "GET", "/api/v1/kv/a?consistency=local", "").await.status == 200);
        }
        have == 3
    })
    .await;
    cluster.kill(1).await;
    cluster.kill(2).await;
    convoke_testkit::eventually("n0 has lost its leader", async || {
        cluster.http(0, "GET", "/readyz?log", "").await.status == 503
    })
    .await;
    cluster.http(0, "GET", "/readyz", "").await.ok();
    let read = cluster.http(0, "GET", "/api/v1/kv/a?consistency=local&raw", "").await;
    assert_eq!(read.body_text(), "1");
}

/// After a restart of all nodes, the log has a leader before the registries have found each other.
#[tokio::test(flavor = "multi_thread")]
async fn keys_work_at_every_node_before_the_registry_knows_the_leader() {
    let cluster = LogCluster::start_apart(3).await;
    let leader = cluster.leader().await;
    for index in 0..3 {
        let path = format!("/api/v1/kv/from-{index}");
        cluster.http(index, "PUT", &path, "x").await.ok();
        let status = cluster.http(index, "GET", "/api/v1/log/status", "").await.ok();
        let first = &status["replicas"][0];
        assert_eq!(first["address"], cluster.served(leader).address().to_string(), "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_voter_is_not_shown_as_a_plain_one() {
    let mut cluster = LogCluster::start(3).await;
    let (leader, dead) = (cluster.leader().await, cluster.follower().await);
    let other = 3 - leader - dead;
    let unreachable = async |cluster: &LogCluster, at: usize| {
        let status = cluster.http(at, "GET", "/api/v1/log/status", "").await.ok();
        let members = status["replicas"].as_array().unwrap().clone();
        let lost: Vec<_> = members.iter().filter(|member| member["unreachable"] == true).collect();
        let lost: Vec<String> = lost.iter().map(|member| member["node"].as_str().unwrap().to_owned()).collect();
        (lost, status["leader"].as_str().unwrap().to_owned(), status["available"].as_bool().unwrap())
    };
    assert_eq!(unreachable(&cluster, other).await.0, Vec::<String>::new());
    cluster.kill(dead).await;
    for at in [leader, other] {
        eventually("the dead voter is unreachable", async || unreachable(&cluster, at).await.0 == [format!("n{dead}")])
            .await;
    }
    // Without a majority nobody claims that the last leader still leads.
    cluster.kill(leader).await;
    eventually("there is no leader any more", async || {
        let (lost, shown, available) = unreachable(&cluster, other).await;
        lost.contains(&format!("n{leader}")) && shown.is_empty() && !available
    })
    .await;
}

/// R-72: a node outside the group must not claim that the log is available after all replicas are gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_replica_reports_whether_the_log_is_available() {
    let mut cluster = LogCluster::start(1).await;
    let outsider = cluster.outsider().await;
    let ready = async |cluster: &LogCluster| cluster.http(outsider, "GET", "/readyz?log", "").await.status;
    eventually("the outsider knows the log", async || ready(&cluster).await == 200).await;
    cluster.kill(0).await;
    eventually("the outsider reports that it is gone", async || ready(&cluster).await == 503).await;
}
