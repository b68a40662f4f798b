//! Keys, sessions, transactions and events of Consul's HTTP API: the same requests as to a real Consul, whose answers are recorded
//! in `consul/kv-1.8.7.json` by `consul/record_kv.py`.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{TEST_TIMEOUT, eventually};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use support::http::Answer;
use support::log::LogCluster;

#[derive(Debug, Deserialize)]
struct Step {
    method: String,
    path: String,
    body: Option<String>,
    save: Option<String>,
    /// Why the answer of Convoke is another one. Its status is compared nevertheless.
    differs: Option<String>,
    #[serde(default)]
    wait_ms: u64,
    status: u16,
    headers: BTreeMap<String, String>,
    answer: String,
}

fn recorded() -> Vec<Step> {
    serde_json::from_str(include_str!("consul/kv-1.8.7.json")).unwrap()
}

/// Replaces indexes by their rank among all that were seen, so that numbers of different logs can be compared.
fn ranked(answers: &[String]) -> Vec<String> {
    let fields = ["\"CreateIndex\":", "\"ModifyIndex\":"];
    let split = |text: &str| -> Vec<(String, Option<u64>)> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some(at) = fields.iter().filter_map(|field| Some(rest.find(field)? + field.len())).min() {
            let digits = rest[at..].find(|c: char| !c.is_ascii_digit()).unwrap();
            parts.push((rest[..at].to_owned(), Some(rest[at..at + digits].parse().unwrap())));
            rest = &rest[at + digits..];
        }
        parts.push((rest.to_owned(), None));
        parts
    };
    let parts: Vec<Vec<(String, Option<u64>)>> = answers.iter().map(|text| split(text)).collect();
    let mut seen: Vec<u64> = parts.iter().flatten().filter_map(|(_, index)| *index).collect();
    seen.sort_unstable();
    seen.dedup();
    let rank = |index: &u64| format!("#{}", seen.binary_search(index).unwrap());
    let shown = |(text, index): &(String, Option<u64>)| text.clone() + &index.as_ref().map(rank).unwrap_or_default();
    parts.iter().map(|parts| parts.iter().map(shown).collect()).collect()
}

async fn send(cluster: &LogCluster, index: usize, method: &str, path: &str, body: &str) -> Answer {
    cluster.served(index).send(method, path, &[], body.to_owned()).await
}

/// Sends the recorded requests to the nodes in turn and returns the answers with names of sessions in place of their ids.
async fn replayed(cluster: &LogCluster, nodes: &[usize], steps: &[Step]) -> Vec<String> {
    let mut saved: BTreeMap<String, String> = BTreeMap::new();
    let mut answers = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let filled = |text: &str| {
            saved.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
        };
        tokio::time::sleep(Duration::from_millis(step.wait_ms)).await;
        let (path, body) = (filled(&step.path), filled(step.body.as_deref().unwrap_or_default()));
        let answer = send(cluster, nodes[at % nodes.len()], &step.method, &path, &body).await;
        let mut text = answer.body_text();
        let about = format!("step {at}: {} {path} {body}: {text}", step.method);
        assert_eq!(u16::from(answer.status), step.status, "{about}");
        if step.differs.is_none() {
            for name in ["content-type", "x-consul-knownleader", "x-consul-lastcontact", "allow"] {
                let found = answer.headers.get(name).map(|value| value.to_str().unwrap());
                // Consul writes `text/plain` in two ways. An empty answer without a type has none here either.
                let wanted = step.headers.get(name).map(String::as_str);
                assert_eq!(found, wanted, "{name}: {about}");
            }
            // A transaction has an index here as well.
            if step.headers.contains_key("x-consul-index") {
                let index: u64 = answer.headers["x-consul-index"].to_str().unwrap().parse().unwrap();
                assert!(index > 0, "{about}");
            }
        }
        if let Some(name) = &step.save {
            let parsed: Value = serde_json::from_str(&text).unwrap();
            let value = match parsed["ID"].as_str() {
                Some(id) => id.to_owned(),
                None => parsed[0]["ModifyIndex"].to_string(),
            };
            saved.insert(name.clone(), value);
        }
        for (name, value) in saved.iter().filter(|(_, value)| value.len() == 36) {
            text = text.replace(value.as_str(), &format!("{{{name}}}"));
        }
        text = without_event_numbers(&text);
        // The sessions of a request belong to the node that served it.
        answers.push(text.replace(r#""Node":"n1""#, r#""Node":"n0""#));
    }
    answers
}

/// Numbers of events are those of the log. Their order is that of the list.
fn without_event_numbers(text: &str) -> String {
    const NUMBER: &str = "\"LTime\":";
    let mut parts = text.split(NUMBER);
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        let shown = if part.starts_with('0') { "0" } else { "1" };
        format!("{text}{NUMBER}{shown}{rest}")
    })
}

fn compare(steps: &[Step], answers: &[String]) {
    let wanted: Vec<String> = steps.iter().map(|step| step.answer.clone()).collect();
    for ((step, found), wanted) in steps.iter().zip(ranked(answers)).zip(ranked(&wanted)) {
        if step.differs.is_none() {
            assert_eq!(found, wanted, "{} {} {:?}", step.method, step.path, step.body);
        }
    }
}

/// Also at a node that has no replica of the log: each request goes to the other node.
#[tokio::test(flavor = "multi_thread")]
async fn ck1_answers_are_those_of_a_real_consul() {
    let mut cluster = LogCluster::start(1).await;
    let steps = recorded();
    compare(&steps, &replayed(&cluster, &[0], &steps).await);
    let outside = cluster.outsider().await;
    send(&cluster, 0, "DELETE", "/v1/kv/?recurse", "").await;
    compare(&steps, &replayed(&cluster, &[outside, 0], &steps).await);
}

/// A change of a key that the caller may not read does not end its query.
#[tokio::test(flavor = "multi_thread")]
async fn ck3_hidden_changes_end_no_query() {
    let keys = support::access::Keys::new();
    let cluster = keys.log_cluster(1).await;
    let served = cluster.served(0);
    let (writer, reader) = (keys.token("writer", &["put key:*"]), keys.token("reader", &["read key:w/open/"]));
    let put = async |key: &str, value: &str| {
        let written = keys.send(served, &writer, "PUT", &format!("/v1/kv/{key}"), value).await;
        assert_eq!(written.body_text(), "true");
    };
    put("w/open/a", "1").await;
    put("w/hidden", "1").await;
    let first = keys.send(served, &reader, "GET", "/v1/kv/w/?keys", "").await;
    assert_eq!(first.body_text(), r#"["w/open/a"]"#);
    let index = index_of(&first).await;
    let waiting = |wait: &str| format!("/v1/kv/w/?keys&wait={wait}&index={index}");
    let (short, long) = (waiting("1s"), waiting("600s"));
    let (waited, ()) =
        tokio::join!(keys.send(served, &reader, "GET", &short, ""), async { put("w/hidden", "2").await });
    assert_eq!((index_of(&waited).await, waited.body_text()), (index, first.body_text()));
    let (changed, ()) =
        tokio::join!(keys.send(served, &reader, "GET", &long, ""), async { put("w/open/b", "2").await });
    assert_eq!(changed.body_text(), r#"["w/open/a","w/open/b"]"#);
}

async fn index_of(answer: &Answer) -> u64 {
    answer.headers["x-consul-index"].to_str().unwrap().parse().unwrap()
}

/// A blocking query returns after the first change below its prefix, and not because of other keys.
#[tokio::test(flavor = "multi_thread")]
async fn ck3_a_blocking_query_waits_for_the_first_change() {
    let mut cluster = LogCluster::start(1).await;
    let outside = cluster.outsider().await;
    for node in [0, outside] {
        for (path, change) in [("w/?recurse", "w/a"), ("w/?keys", "w/b"), ("w/missing", "w/missing")] {
            send(&cluster, node, "PUT", "/v1/kv/w/first", "0").await;
            send(&cluster, node, "DELETE", &format!("/v1/kv/{change}"), "").await;
            let first = send(&cluster, node, "GET", &format!("/v1/kv/{path}"), "").await;
            let separator = if path.contains('?') { '&' } else { '?' };
            let index = index_of(&first).await;
            let at = |index: u64, wait: &str| format!("/v1/kv/{path}{separator}index={index}&wait={wait}");
            // Nothing changes: the same index after the wait.
            send(&cluster, node, "PUT", "/v1/kv/x/other", "1").await;
            let begun = std::time::Instant::now();
            let same = send(&cluster, node, "GET", &at(index, "300ms"), "").await;
            assert!(begun.elapsed() >= Duration::from_millis(300), "{path}");
            assert_eq!((index_of(&same).await, same.body_text()), (index, first.body_text()), "{path}");
            let waiting = at(index, "600s");
            let (changed, ()) = tokio::join!(send(&cluster, node, "GET", &waiting, ""), async {
                send(&cluster, node, "PUT", "/v1/kv/x/other", "2").await;
                tokio::time::sleep(Duration::from_millis(100)).await;
                send(&cluster, 0, "PUT", &format!("/v1/kv/{change}"), "new").await;
            });
            assert!(changed.body_text().contains(change), "{path}: {}", changed.body_text());
            let later = index_of(&changed).await;
            assert!(later > index, "{path}");
            // A deletion is a change.
            let waiting = at(later, "600s");
            let (gone, ()) = tokio::join!(send(&cluster, node, "GET", &waiting, ""), async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                send(&cluster, 0, "DELETE", &format!("/v1/kv/{change}"), "").await;
            });
            assert!(!gone.body_text().contains(change), "{path}: {}", gone.body_text());
            assert!(index_of(&gone).await > later, "{path}");
        }
    }
}

/// The first revision is 1, and no query waits with the index 0, so a log without a revision has an index of its own.
#[tokio::test(flavor = "multi_thread")]
async fn ck3_the_first_change_of_a_log_wakes_a_waiting_query() {
    for path in ["w?recurse&", "w?"] {
        let cluster = LogCluster::start(1).await;
        let first = index_of(&send(&cluster, 0, "GET", &format!("/v1/kv/{path}"), "").await).await;
        let at = |index: u64, wait: &str| format!("/v1/kv/{path}index={index}&wait={wait}");
        let same = send(&cluster, 0, "GET", &at(first, "10ms"), "").await;
        assert_eq!((index_of(&same).await, same.status.as_u16()), (first, 404), "{path}");
        send(&cluster, 0, "PUT", "/v1/kv/w", "1").await;
        let waiting = at(first, "600s");
        let changed = tokio::time::timeout(TEST_TIMEOUT, send(&cluster, 0, "GET", &waiting, "")).await;
        let changed = changed.unwrap_or_else(|_| panic!("{path}: the first change was missed"));
        assert_eq!(changed.status, 200, "{path}: {}", changed.body_text());
        // Clients compare indexes: an equal one would be no change to them.
        assert_ne!(index_of(&changed).await, first, "{path}");
    }
}

async fn session(cluster: &LogCluster, body: Value) -> String {
    let created = send(cluster, 0, "PUT", "/v1/session/create", &body.to_string()).await;
    created.ok()["ID"].as_str().unwrap().to_owned()
}

async fn put(cluster: &LogCluster, path: &str) -> bool {
    send(cluster, 0, "PUT", path, "v").await.ok().as_bool().unwrap()
}

/// A session without a ttl is bound to the registration of its node. Renewing it changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn ck5_a_session_is_a_lease_of_twice_its_ttl_or_of_its_node() {
    let cluster = LogCluster::start(1).await;
    let timed = session(&cluster, json!({"TTL": "20s", "Name": "timed"})).await;
    let bound = session(&cluster, json!({"Behavior": "delete"})).await;
    let leases = send(&cluster, 0, "GET", "/api/v1/leases", "").await.ok();
    let leases = leases["leases"].as_array().unwrap();
    assert_eq!((&leases[0]["ttl_ms"], &leases[0]["end"]), (&json!(40_000), &json!("release")));
    assert_eq!((&leases[1]["member"], &leases[1]["end"]), (&json!("convoke.n0"), &json!("delete")));
    let renewed = send(&cluster, 0, "PUT", &format!("/v1/session/renew/{bound}"), "").await.ok();
    assert_eq!((&renewed[0]["ID"], &renewed[0]["TTL"]), (&json!(bound), &json!("")));
    let listed = send(&cluster, 0, "GET", "/v1/session/list", "").await;
    let index = index_of(&listed).await;
    let mut wanted = vec![timed.clone(), bound.clone()];
    wanted.sort();
    let listed: Vec<Value> = listed.ok().as_array().unwrap().iter().map(|session| session["ID"].clone()).collect();
    assert_eq!(listed, wanted);
    let path = format!("/v1/session/list?index={index}&wait=600s");
    let (changed, ()) = tokio::join!(send(&cluster, 0, "GET", &path, ""), async {
        send(&cluster, 0, "PUT", &format!("/v1/session/destroy/{bound}"), "").await.ok();
    });
    assert_eq!(changed.ok()[0]["ID"], timed.as_str());
    // A session of another log has the same lease and another random part.
    let foreign = format!("{}{}", if timed.starts_with('0') { '1' } else { '0' }, &timed[1..]);
    assert_eq!(send(&cluster, 0, "PUT", &format!("/v1/session/renew/{foreign}"), "").await.status, 404);
    assert_eq!(send(&cluster, 0, "PUT", &format!("/v1/kv/k?acquire={foreign}"), "").await.status, 500);
}

/// Many clients acquire one key at once: one gets it. The lock of the log is left behind when another client deletes the key
/// natively, and does not block it.
#[tokio::test(flavor = "multi_thread")]
async fn ck4_one_session_holds_a_key_and_a_lock_left_behind_is_freed() {
    let cluster = LogCluster::start(1).await;
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(session(&cluster, json!({"TTL": "600s", "LockDelay": "1s"})).await);
    }
    for round in 1..=3_u64 {
        let paths: Vec<String> = sessions.iter().map(|id| format!("/v1/kv/one?acquire={id}")).collect();
        let held = futures_util::future::join_all(paths.iter().map(|path| put(&cluster, path))).await;
        assert_eq!(held.iter().filter(|held| **held).count(), 1, "{held:?}");
        let holder = &sessions[held.iter().position(|held| *held).unwrap()];
        let shown = send(&cluster, 0, "GET", "/v1/kv/one", "").await.ok();
        assert_eq!((&shown[0]["Session"], &shown[0]["LockIndex"]), (&json!(holder), &json!(round)));
        let locks = send(&cluster, 0, "GET", "/api/v1/locks", "").await.ok();
        assert!(locks["locks"].as_array().unwrap().iter().any(|lock| lock["lock"] == "consul/key/one"), "{locks}");
        assert!(put(&cluster, &format!("/v1/kv/one?release={holder}")).await);
    }
    assert!(put(&cluster, &format!("/v1/kv/one?acquire={}", sessions[0])).await);
    send(&cluster, 0, "DELETE", "/api/v1/kv/one", "").await.ok();
    eventually("another session acquires the key", async || {
        put(&cluster, &format!("/v1/kv/one?acquire={}", sessions[1])).await
    })
    .await;
}

/// Each of many concurrent writers sees the effects of the others: plain writes all succeed, one of equal comparisons does,
/// and every transaction adds to what the one before it left.
#[tokio::test(flavor = "multi_thread")]
async fn ck2_concurrent_writes_are_decided_one_after_another() {
    let mut cluster = LogCluster::start(1).await;
    let outside = cluster.outsider().await;
    let nodes = [0, outside];
    let holder = session(&cluster, json!({"TTL": "600s"})).await;
    assert!(put(&cluster, &format!("/v1/kv/hot?acquire={holder}")).await);
    let all = (0..24).map(|at| format!("/v1/kv/hot?flags={at}")).collect::<Vec<_>>();
    let writing = all.iter().enumerate().map(|(at, path)| send(&cluster, nodes[at % 2], "PUT", path, "x"));
    for answer in futures_util::future::join_all(writing).await {
        assert_eq!(answer.ok(), true);
    }
    let shown = send(&cluster, 0, "GET", "/v1/kv/hot", "").await.ok();
    assert_eq!(shown[0]["Session"], holder.as_str(), "a plain write keeps the holder");
    let path = format!("/v1/kv/hot?cas={}", shown[0]["ModifyIndex"]);
    let bodies: Vec<String> = (0..12).map(|at| format!("cas{at}")).collect();
    let comparing = bodies.iter().enumerate().map(|(at, body)| send(&cluster, nodes[at % 2], "PUT", &path, body));
    let compared = futures_util::future::join_all(comparing).await;
    assert_eq!(compared.into_iter().filter(|answer| answer.body_text() == "true").count(), 1);
    // Increments: read, then a transaction that compares and moves another key with it.
    let incrementing = nodes.iter().cycle().take(6).map(|node| async {
        loop {
            let found = send(&cluster, *node, "GET", "/v1/kv/count", "").await;
            let (index, flags) = match u16::from(found.status) {
                404 => (0, 0),
                _ => {
                    let pair = found.ok()[0].clone();
                    (pair["ModifyIndex"].as_u64().unwrap(), pair["Flags"].as_u64().unwrap())
                }
            };
            let next = flags + 1;
            let txn = json!([
                {"KV": {"Verb": "cas", "Key": "count", "Index": index, "Flags": next}},
                {"KV": {"Verb": "set", "Key": format!("counted/{next}"), "Value": "MQ=="}},
                {"KV": {"Verb": "get-tree", "Key": "counted/"}},
            ]);
            let answer = send(&cluster, *node, "PUT", "/v1/txn", &txn.to_string()).await;
            if answer.status == 200 {
                let results = answer.ok()["Results"].as_array().unwrap().len() as u64;
                assert_eq!(results, 2 + next, "the tree contains every earlier write and the own one");
                break;
            }
            assert_eq!(answer.status, 409, "{}", answer.body_text());
        }
    });
    futures_util::future::join_all(incrementing).await;
    let count = send(&cluster, 0, "GET", "/v1/kv/count", "").await.ok();
    assert_eq!(count[0]["Flags"], 6);
}
