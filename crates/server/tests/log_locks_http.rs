//! Leases, locks and elections over HTTP, at a replica and at a node without one.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::eventually;
use serde_json::{Value, json};
use support::http::{Sse, open, request};
use support::log::LogCluster;

async fn grant(cluster: &LogCluster, index: usize, body: Value) -> String {
    let granted = cluster.http(index, "POST", "/api/v1/leases", &body.to_string()).await.ok();
    granted["lease"].as_str().unwrap().to_owned()
}

async fn acquire(cluster: &LogCluster, index: usize, name: &str, body: Value) -> u64 {
    let path = format!("/api/v1/locks/{name}");
    let granted = cluster.http(index, "POST", &path, &body.to_string()).await.ok();
    assert_eq!(granted["lock"], name.replace("%2F", "/"));
    granted["fence"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_granted_kept_alive_and_revoked_at_every_node() {
    let mut cluster = LogCluster::start(1).await;
    let outside = cluster.outsider().await;
    for index in [0, outside] {
        let granted = cluster.http(index, "POST", "/api/v1/leases", r#"{"ttl_ms":600000}"#).await.ok();
        assert_eq!(granted["ttl_ms"], 600_000);
        let lease = granted["lease"].as_str().unwrap();
        let path = format!("/api/v1/leases/{lease}");
        let kept = cluster.http(index, "PUT", &format!("{path}/keep-alive"), "").await.ok();
        assert_eq!(kept["lease"], lease);
        assert!(kept["left_ms"].as_u64().is_some_and(|left| left > 0 && left <= 600_000), "{kept}");
        cluster.http(index, "PUT", &format!("/api/v1/kv/k{index}?lease={lease}"), "v").await.ok();
        let shown = cluster.http(index, "GET", &path, "").await.ok();
        assert_eq!((&shown["keys"], &shown["attached"]), (&json!(1), &json!([format!("k{index}")])));
        assert_eq!((&shown["end"], &shown["ttl_ms"]), (&json!("delete"), &json!(600_000)));
        let other = grant(&cluster, index, json!({"ttl_ms": 600_000, "end": "release"})).await;
        let page = cluster.http(index, "GET", "/api/v1/leases?limit=1", "").await.ok();
        assert_eq!(page["leases"][0]["lease"], lease);
        let rest = format!("/api/v1/leases?cursor={}", page["next_cursor"].as_str().unwrap());
        let rest = cluster.http(index, "GET", &rest, "").await.ok();
        assert_eq!((&rest["leases"][0]["lease"], &rest["next_cursor"]), (&json!(other), &Value::Null));
        let revoked = cluster.http(index, "DELETE", &path, "").await.ok();
        assert_eq!(revoked, json!({"lease": lease, "keys": 1}));
        cluster.http(index, "GET", &format!("/api/v1/kv/k{index}"), "").await.rejected(404, "NOT_FOUND");
        for (method, path) in [("GET", path.clone()), ("DELETE", path.clone()), ("PUT", format!("{path}/keep-alive"))] {
            let gone = cluster.http(index, method, &path, "").await;
            assert_eq!(gone.rejected(404, "NOT_FOUND").as_deref(), Some("lease"), "{method} {path}");
        }
        cluster.http(index, "DELETE", &format!("/api/v1/leases/{other}"), "").await.ok();
    }
}

/// One holder at a time, in the order of the queue, and the fence decides about writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_handed_over_and_guards_writes() {
    let mut cluster = LogCluster::start(1).await;
    let outside = cluster.outsider().await;
    let first = grant(&cluster, 0, json!({"ttl_ms": 600_000})).await;
    let fence = acquire(&cluster, 0, "jobs%2Fa", json!({"lease": first, "value": "me"})).await;
    // Asking again at another node gives the same fence.
    assert_eq!(acquire(&cluster, outside, "jobs%2Fa", json!({"lease": first})).await, fence);
    let held = cluster.http(outside, "POST", "/api/v1/locks/jobs%2Fa", r#"{"ttl_ms":600000}"#).await;
    held.rejected(409, "LOCK_HELD");
    let shown = cluster.http(outside, "GET", "/api/v1/locks/jobs%2Fa", "").await.ok();
    let holder = &shown["holders"][0];
    assert_eq!((&shown["lock"], &shown["waiting"], &shown["permits"]), (&json!("jobs/a"), &json!(0), &json!(1)));
    assert_eq!((&holder["fence"], &holder["lease"], &holder["value"]), (&json!(fence), &json!(first), &json!("me")));
    let guarded = |fence: u64| format!("/api/v1/kv/k?lock=jobs%2Fa&fence={fence}");
    cluster.http(outside, "PUT", &guarded(fence), "1").await.ok();
    let next = {
        let cluster = &cluster;
        let waiting = acquire(cluster, outside, "jobs%2Fa", json!({"ttl_ms": 600_000, "wait_ms": 600_000}));
        let releasing = async {
            eventually("a waiter", async || {
                cluster.http(0, "GET", "/api/v1/locks/jobs%2Fa", "").await.ok()["waiting"] == 1
            })
            .await;
            let path = format!("/api/v1/locks/jobs%2Fa?fence={fence}");
            assert_eq!(cluster.http(0, "DELETE", &path, "").await.ok()["fence"], fence);
        };
        tokio::join!(waiting, releasing).0
    };
    assert!(next > fence, "{next} {fence}");
    // The first holder has lost the lock, and the second one has not.
    cluster.http(0, "PUT", &guarded(fence), "2").await.rejected(412, "FAILED_PRECONDITION");
    cluster.http(0, "DELETE", &guarded(fence), "").await.rejected(412, "FAILED_PRECONDITION");
    assert_eq!(cluster.http(0, "GET", "/api/v1/kv/k?raw", "").await.body_text(), "1");
    assert_eq!(cluster.http(outside, "DELETE", &guarded(next), "").await.ok()["deleted"], 1);
    let gone = cluster.http(0, "DELETE", &format!("/api/v1/locks/jobs%2Fa?fence={fence}"), "").await;
    gone.rejected(404, "NOT_FOUND");
    let list = cluster.http(outside, "GET", "/api/v1/locks", "").await.ok();
    assert_eq!((&list["locks"][0]["lock"], &list["next_cursor"]), (&json!("jobs/a"), &Value::Null));
    let free = cluster.http(outside, "GET", "/api/v1/locks/free", "").await.ok();
    assert_eq!((&free["holders"], &free["waiting"]), (&json!([]), &json!(0)));
}

/// A client that closes its connection gives its place up, and its lease with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_connection_gives_the_place_up() {
    let mut cluster = LogCluster::start(1).await;
    let outside = cluster.outsider().await;
    let lease = grant(&cluster, 0, json!({"ttl_ms": 600_000})).await;
    acquire(&cluster, 0, "l", json!({"lease": lease})).await;
    let other = grant(&cluster, 0, json!({"ttl_ms": 600_000})).await;
    for (index, lease) in [(0, None), (outside, None), (0, Some(&other)), (outside, Some(&other))] {
        let mut connection = open(cluster.served(index).address()).await;
        let body = match lease {
            None => json!({"ttl_ms": 600_000, "wait_ms": 600_000}).to_string(),
            Some(lease) => json!({"lease": lease, "wait_ms": 600_000}).to_string(),
        };
        let headers = [("content-type", "application/json")];
        let waiting = connection.send_request(request("POST", "/api/v1/locks/l", &headers, body));
        let waiting = tokio::spawn(waiting);
        let waiters = async || cluster.http(0, "GET", "/api/v1/locks/l", "").await.ok()["waiting"].as_u64().unwrap();
        eventually("the client waits", async || waiters().await == 1).await;
        waiting.abort();
        drop(connection);
        eventually("the place is given up", async || waiters().await == 0).await;
        eventually("its lease is revoked", async || {
            cluster.http(0, "GET", "/api/v1/leases", "").await.ok()["leases"].as_array().unwrap().len() == 2
        })
        .await;
    }
}

/// The node that serves a waiter is cut off from the log. The place ends, although the lease of the client lives.
#[tokio::test(flavor = "multi_thread")]
async fn lo10_a_place_of_a_request_ends_with_its_node() {
    let mut cluster = LogCluster::start_behind_proxies(1, convoke_server::Config::default()).await;
    let outside = cluster.outsider().await;
    let holder = grant(&cluster, 0, json!({"ttl_ms": 600_000})).await;
    let waiter = grant(&cluster, 0, json!({"ttl_ms": 600_000})).await;
    let fence = acquire(&cluster, 0, "l", json!({"lease": holder})).await;
    let mut connection = open(cluster.served(outside).address()).await;
    let body = json!({"lease": waiter, "wait_ms": 600_000}).to_string();
    let headers = [("content-type", "application/json")];
    let waiting = tokio::spawn(connection.send_request(request("POST", "/api/v1/locks/l", &headers, body)));
    let waiters = async || cluster.http(0, "GET", "/api/v1/locks/l", "").await.ok()["waiting"].as_u64().unwrap();
    eventually("the client waits", async || waiters().await == 1).await;
    cluster.proxies.as_ref().unwrap()[0].close();
    eventually("the place has ended", async || waiters().await == 0).await;
    cluster.http(0, "GET", &format!("/api/v1/leases/{waiter}"), "").await.ok();
    cluster.http(0, "DELETE", &format!("/api/v1/locks/l?fence={fence}"), "").await.ok();
    assert_eq!(cluster.http(0, "GET", "/api/v1/locks/l", "").await.ok()["holders"], json!([]), "nobody gets the lock");
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_election_has_one_leader_and_observers_see_every_change() {
    let mut cluster = LogCluster::start(1).await;
    let outside = cluster.outsider().await;
    let empty = cluster.http(outside, "GET", "/api/v1/elections/e", "").await.ok();
    assert_eq!(empty, json!({"election": "e", "leader": null, "candidates": 0}));
    let mut watches = Vec::new();
    for index in [0, outside] {
        let mut watch = Sse::open_at(cluster.served(index), "/api/v1/elections/e/watch", "").await;
        let first = watch.next().await.unwrap();
        assert_eq!((first.event.as_str(), &first.data["leader"]), ("leader", &Value::Null));
        watches.push(watch);
    }
    let lease = grant(&cluster, 0, json!({"ttl_ms": 600_000})).await;
    let body = json!({"lease": lease, "value": "n0:80"}).to_string();
    let won = cluster.http(outside, "POST", "/api/v1/elections/e", &body).await.ok();
    let fence = won["fence"].as_u64().unwrap();
    assert_eq!((&won["election"], &won["lease"]), (&json!("e"), &json!(lease)));
    let proclaim = json!({"fence": fence, "value": "n0:81"}).to_string();
    cluster.http(outside, "PUT", "/api/v1/elections/e", &proclaim).await.ok();
    let shown = cluster.http(0, "GET", "/api/v1/elections/e", "").await.ok();
    assert_eq!((&shown["leader"]["value"], &shown["leader"]["fence"]), (&json!("n0:81"), &json!(fence)));
    let list = cluster.http(0, "GET", "/api/v1/elections", "").await.ok();
    assert_eq!(list["elections"][0]["election"], "e");
    let resign = format!("/api/v1/elections/e?fence={fence}");
    cluster.http(outside, "DELETE", &resign, "").await.ok();
    cluster.http(outside, "DELETE", &resign, "").await.rejected(404, "NOT_FOUND");
    for mut watch in watches {
        let mut seen = Vec::new();
        for _ in 0..3 {
            let change = watch.next().await.unwrap();
            assert_eq!(change.event, "leader");
            assert_eq!(change.id.split('-').nth(1), Some(&*change.data["revision"].to_string()), "{}", change.id);
            seen.push(change.data["leader"]["value"].as_str().map(str::to_owned));
        }
        assert_eq!(seen, [Some("n0:80".to_owned()), Some("n0:81".to_owned()), None]);
    }
}

/// A stream of an election is resumed after every event, each time at the other node: every change of the leader and of
/// its value arrives once.
#[tokio::test(flavor = "multi_thread")]
async fn el1_an_observer_resumes_exactly_at_every_node() {
    let mut cluster = LogCluster::start(1).await;
    let outside = cluster.outsider().await;
    let path = "/api/v1/elections/e/watch";
    let mut watch = Sse::open_at(cluster.served(0), path, "").await;
    let first = watch.next().await.unwrap();
    assert_eq!((&first.data["leader"], &first.data["reset"]), (&Value::Null, &json!(true)));
    let one = grant(&cluster, 0, json!({"ttl_ms": 600_000})).await;
    let two = grant(&cluster, 0, json!({"ttl_ms": 600_000})).await;
    let campaign = async |lease: &str, wait_ms: u64| {
        let body = json!({"lease": lease, "value": format!("of {lease}"), "wait_ms": wait_ms}).to_string();
        cluster.http(0, "POST", "/api/v1/elections/e", &body).await.ok()["fence"].as_u64().unwrap()
    };
    let fence = campaign(&one, 0).await;
    for value in ["", "b"] {
        let proclaim = json!({"fence": fence, "value": value}).to_string();
        cluster.http(0, "PUT", "/api/v1/elections/e", &proclaim).await.ok();
        // The same value again is no change.
        cluster.http(0, "PUT", "/api/v1/elections/e", &proclaim).await.ok();
    }
    let handing_over = async {
        eventually("a candidate waits", async || {
            cluster.http(0, "GET", "/api/v1/elections/e", "").await.ok()["candidates"] == 1
        })
        .await;
        cluster.http(0, "DELETE", &format!("/api/v1/elections/e?fence={fence}"), "").await.ok();
    };
    let (next, ()) = tokio::join!(campaign(&two, 600_000), handing_over);
    cluster.http(0, "DELETE", &format!("/api/v1/elections/e?fence={next}"), "").await.ok();
    let expected = [
        json!({"fence": fence, "lease": one, "value": format!("of {one}")}),
        json!({"fence": fence, "lease": one, "value": ""}),
        json!({"fence": fence, "lease": one, "value": "b"}),
        json!({"fence": next, "lease": two, "value": format!("of {two}")}),
        Value::Null,
    ];
    for (number, expected) in expected.into_iter().enumerate() {
        let node = if number % 2 == 0 { outside } else { 0 };
        let last_id = watch.last_id.clone();
        watch = Sse::open_at(cluster.served(node), path, &last_id).await;
        let change = watch.next().await.unwrap();
        assert_eq!((&change.data["leader"], &change.data["reset"]), (&expected, &Value::Null), "event {number}");
    }
    // A position of another log begins with the current leader.
    let foreign = format!("{:032x}-3-0-0", 10);
    let mut reset = Sse::open_at(cluster.served(outside), path, &foreign).await;
    assert_eq!(reset.next().await.unwrap().data["reset"], true);
    let broken = cluster.served(0).send("GET", path, &[("Last-Event-ID", "12")], String::new()).await;
    assert_eq!(broken.rejected(400, "INVALID_ARGUMENT").as_deref(), Some("Last-Event-ID"));
}

/// A lease of a member ends with its registration, and a lock with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_a_member_ends_with_its_registration() {
    let cluster = LogCluster::start_quick(2).await;
    let leader = cluster.leader().await;
    let other = 1 - leader;
    let unknown = cluster.http(other, "POST", "/api/v1/leases", r#"{"member":"m"}"#).await;
    assert_eq!(unknown.rejected(404, "NOT_FOUND").as_deref(), Some("member"));
    // The other node registers the member, and the leader may receive it after the grant.
    let session = cluster.served(other).session(r#"{"timeout_ms":60000}"#).await;
    let member = format!("{session}/members/m");
    cluster.served(other).put(&member, r#"{"service":"s"}"#).await.ok();
    let lease = grant(&cluster, other, json!({"member": "m"})).await;
    let path = format!("/api/v1/leases/{lease}");
    let shown = cluster.http(leader, "GET", &path, "").await.ok();
    assert_eq!((&shown["member"], &shown["ttl_ms"], &shown["left_ms"]), (&json!("m"), &Value::Null, &Value::Null));
    assert_eq!(cluster.http(other, "PUT", &format!("{path}/keep-alive"), "").await.ok()["left_ms"], 0);
    acquire(&cluster, leader, "l", json!({"lease": lease})).await;
    let locks = cluster.http(other, "GET", "/api/v1/locks/l", "").await.ok();
    assert_eq!(locks["holders"][0]["member"], "m");
    cluster.served(other).delete(&member).await.ok();
    eventually("the lease has ended", async || cluster.http(other, "GET", &path, "").await.status == 404).await;
    assert_eq!(cluster.http(other, "GET", "/api/v1/locks/l", "").await.ok()["holders"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_rejected_with_its_field() {
    let cluster = LogCluster::start(1).await;
    let lease = grant(&cluster, 0, json!({"ttl_ms": 600_000})).await;
    let fence = acquire(&cluster, 0, "l", json!({"lease": lease})).await;
    let before = cluster.http(0, "GET", "/api/v1/log/status", "").await.ok();
    let both = json!({"ttl_ms": 1_000, "member": "m"}).to_string();
    let two = json!({"ttl_ms": 1_000, "lease": lease}).to_string();
    let long = json!({"lease": lease, "wait_ms": 3_600_001}).to_string();
    let values = json!({"lease": lease, "value": "a", "value_base64": "YQ=="}).to_string();
    let broken = json!({"lease": lease, "value_base64": "?"}).to_string();
    let none = json!({"lease": lease, "permits": 0}).to_string();
    for (method, path, body, field) in [
        ("POST", "/api/v1/leases", "{}", "ttl_ms"),
        ("POST", "/api/v1/leases", &both, "member"),
        ("POST", "/api/v1/leases", r#"{"ttl_ms":0}"#, "ttl_ms"),
        ("POST", "/api/v1/leases", r#"{"ttl_ms":-1}"#, "ttl_ms"),
        ("POST", "/api/v1/leases", r#"{"ttl_ms":5000,"end":"stop"}"#, "end"),
        ("POST", "/api/v1/leases", r#"{"ttl":5000}"#, "ttl"),
        ("GET", "/api/v1/leases/x", "", "lease"),
        ("GET", "/api/v1/leases/0", "", "lease"),
        ("PUT", "/api/v1/leases/+1/keep-alive", "", "lease"),
        ("GET", "/api/v1/leases?limit=0", "", "limit"),
        ("GET", "/api/v1/leases?cursor=x", "", "cursor"),
        ("GET", "/api/v1/leases?consistency=x", "", "consistency"),
        ("GET", "/api/v1/locks?cursor=!", "", "cursor"),
        ("POST", "/api/v1/locks/l", "{}", "lease"),
        ("POST", "/api/v1/locks/l", &two, "lease"),
        ("POST", "/api/v1/locks/l", r#"{"lease":"a"}"#, "lease"),
        ("POST", "/api/v1/locks/l", &long, "wait_ms"),
        ("POST", "/api/v1/locks/l", &values, "value_base64"),
        ("POST", "/api/v1/locks/l", &broken, "value_base64"),
        ("POST", "/api/v1/locks/l", &none, "permits"),
        ("POST", "/api/v1/elections/e", &none, "permits"),
        ("DELETE", "/api/v1/locks/l", "", "fence"),
        ("DELETE", "/api/v1/elections/e", "", "fence"),
        ("PUT", "/api/v1/elections/e", "{}", "fence"),
        ("PUT", "/api/v1/kv/k?lock=l", "1", "fence"),
        ("PUT", "/api/v1/kv/k?fence=1", "1", "lock"),
        ("PUT", "/api/v1/kv/k?lease=x", "1", "lease"),
        ("DELETE", "/api/v1/kv/k?lock=l", "", "fence"),
    ] {
        let answer = cluster.http(0, method, path, body).await;
        let found = answer.rejected(400, "INVALID_ARGUMENT");
        assert_eq!(found.as_deref(), Some(field), "{method} {path} {body}: {}", answer.body_text());
    }
    let unknown = json!({"lease": "999999999"}).to_string();
    for (method, path, body, status, code) in [
        ("POST", "/api/v1/locks/m", unknown.as_str(), 404, "NOT_FOUND"),
        ("PUT", "/api/v1/kv/k?lease=999999999", "1", 404, "NOT_FOUND"),
        ("PUT", &format!("/api/v1/kv/k?lock=l&fence={}", fence + 1), "1", 412, "FAILED_PRECONDITION"),
        ("DELETE", "/api/v1/locks/l?fence=999999999", "", 404, "NOT_FOUND"),
    ] {
        cluster.http(0, method, path, body).await.rejected(status, code);
    }
    let after = cluster.http(0, "GET", "/api/v1/log/status", "").await.ok();
    assert_eq!((&before["revision"], &before["leases"], &before["locks"]), (&after["revision"], &json!(1), &json!(1)));
}
