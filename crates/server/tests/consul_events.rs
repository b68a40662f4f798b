//! `/v1/event` and `/v1/snapshot`: user events and the state of the log for Consul's clients.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{eventually, skip};
use serde_json::{Value, json};
use std::process::{Child, Command};
use support::Served;
use support::access::Keys;
use support::http::Answer;
use support::log::LogCluster;

const LIST: &str = "/v1/event/list";

async fn fire(served: &Served, path: &str, payload: &str) -> Value {
    served.put(&format!("/v1/event/fire/{path}"), payload).await.ok()
}

fn index(answer: &Answer) -> u64 {
    answer.headers["x-consul-index"].to_str().unwrap().parse().unwrap()
}

fn names(list: &Answer) -> Vec<String> {
    let rows = list.json::<Value>();
    rows.as_array().unwrap().iter().map(|event| event["Name"].as_str().unwrap().to_owned()).collect()
}

/// The index as Consul's clients compute it from the id of the last event.
fn index_of_last(list: &Answer) -> u64 {
    let rows = list.json::<Value>();
    let digits = rows.as_array().unwrap().last().unwrap()["ID"].as_str().unwrap().replace('-', "");
    let half = |text: &str| u64::from_str_radix(text, 16).unwrap();
    half(&digits[..16]) ^ half(&digits[16..])
}

/// Also at a node without a replica.
#[tokio::test(flavor = "multi_thread")]
async fn ck6_events_are_shown_at_every_node() {
    let mut cluster = LogCluster::start(2).await;
    let outside = cluster.outsider().await;
    let nodes = [0, 1, outside];
    for node in nodes {
        let empty = cluster.served(node).get(LIST).await;
        assert_eq!((index(&empty), empty.body_text().as_str()), (1, "[]"));
    }
    let fired = fire(cluster.served(outside), "deploy", "hello").await;
    assert_eq!((&fired["Payload"], &fired["LTime"], &fired["Version"]), (&json!("aGVsbG8="), &json!(0), &json!(1)));
    for node in nodes {
        let list = cluster.served(node).get(LIST).await;
        assert_eq!((index(&list), names(&list)), (index_of_last(&list), vec!["deploy".to_owned()]), "{node}");
        assert_eq!(list.json::<Value>()[0]["ID"], fired["ID"]);
        // A query waits for the next event, at every node, and is not ended by other keys.
        let waiting = format!("{LIST}?wait=600s&name=next&index=1");
        let path = format!("next?node=n{node}");
        let (changed, _) = tokio::join!(cluster.served(node).get(&waiting), async {
            cluster.served(0).put("/v1/kv/other", "x").await.ok();
            fire(cluster.served(1), "unrelated?node=none", "").await;
            fire(cluster.served(1), &path, "").await
        });
        assert_eq!((names(&changed), index(&changed)), (vec!["next".to_owned()], index_of_last(&changed)));
        assert!(index(&changed) > index(&list), "indexes rise");
        let same = cluster.served(node).get(&format!("{LIST}?wait=200ms&name=next&index={}", index(&changed))).await;
        assert_eq!((index(&same), names(&same).len()), (index(&changed), 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ck6_filters_select_nodes_and_services() {
    let cluster = LogCluster::start(1).await;
    let served = cluster.served(0);
    served.put("/v1/agent/service/register", r#"{"Name":"web","ID":"web-1","Tags":["v1"]}"#).await;
    for (query, is_shown) in [
        ("node=^n0$", true),
        ("node=other", false),
        ("service=web", true),
        ("service=web&tag=v1", true),
        ("service=web&tag=v2", false),
        ("service=db", false),
    ] {
        let fired = fire(served, &format!("e?{query}"), "").await;
        let shown = served.get(LIST).await.body_text().contains(fired["ID"].as_str().unwrap());
        assert_eq!(shown, is_shown, "{query}");
    }
    for (path, status, text) in [
        ("/v1/event/fire/", 400, "Missing name"),
        ("/v1/event/fire/e?tag=x", 500, "Cannot provide tag filter without service filter"),
        ("/v1/event/fire/e?node=(", 500, "Invalid node filter: error parsing regexp: "),
        ("/v1/event/fire/e?dc=other", 500, "No path to datacenter"),
    ] {
        let refused = served.put(path, "").await;
        assert_eq!(u16::from(refused.status), status, "{path}");
        assert!(refused.body_text().starts_with(text), "{path}: {refused:?}");
    }
    let refused = served.put("/v1/event/fire/e", &"x".repeat(512)).await;
    assert!(refused.status == 500 && refused.body_text().contains("limit of 512 bytes"), "{refused:?}");
    let alone = Served::alone().await;
    for answer in [alone.put("/v1/event/fire/e", "").await, alone.get(LIST).await] {
        assert!(answer.body_text().contains("log"), "a node without a log says so: {answer:?}");
    }
}

/// Many at the same time get different numbers, and the oldest are deleted.
#[tokio::test(flavor = "multi_thread")]
async fn ck6_the_last_256_events_are_kept() {
    let cluster = LogCluster::start(1).await;
    let served = cluster.served(0);
    let mut ids = Vec::new();
    for round in 0..33 {
        let paths: Vec<String> = (0..8).map(|number| format!("e{number}")).collect();
        let firing = paths.iter().map(|path| fire(served, path, "payload"));
        for fired in futures_util::future::join_all(firing).await {
            ids.push((round, fired["ID"].as_str().unwrap().to_owned()));
        }
    }
    let list = served.get(LIST).await;
    let rows = list.json::<Value>();
    let numbers: Vec<u64> = rows.as_array().unwrap().iter().map(|event| event["LTime"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (10..266).collect::<Vec<_>>());
    let text = list.body_text();
    assert!(ids.iter().all(|(round, id)| text.contains(id) || *round < 2), "the oldest are gone");
    let keys = served.get("/v1/kv/consul/event/?keys").await.ok();
    assert_eq!(keys.as_array().unwrap().len(), 256);
    // What other clients write there is not shown.
    served.put("/v1/kv/consul/event/x/00000000000000009999", "not an event").await.ok();
    assert_eq!(served.get(LIST).await.json::<Value>().as_array().unwrap().len(), 256);
}

#[tokio::test(flavor = "multi_thread")]
async fn ck6_grants_name_the_keys_of_events() {
    let keys = Keys::new();
    let cluster = keys.log_cluster(1).await;
    let served = cluster.served(0);
    let grants = ["put key:consul/event/deploy/", "read key:consul/event/deploy/"];
    let (some, all) = (keys.token("some", &grants), keys.token("all", &["put key:*", "read key:*"]));
    let fire = async |token: &str, name: &str| {
        let path = format!("/v1/event/fire/{name}");
        u16::from(keys.send(served, token, "PUT", &path, "").await.status)
    };
    assert_eq!((fire(&some, "deploy").await, fire(&some, "other").await, fire(&all, "other").await), (200, 403, 200));
    assert_eq!(fire(&some, "deploy/x/../../other").await, 200, "below the prefix of its name");
    let list = async |token: &str| names(&keys.send(served, token, "GET", LIST, "").await);
    assert_eq!(list(&some).await, ["deploy", "deploy/x/../../other"]);
    assert_eq!(list(&all).await, ["deploy", "other", "deploy/x/../../other"]);
    // A waiting query does not show that there are others.
    let index = index(&keys.send(served, &some, "GET", LIST, "").await);
    let waiting = format!("{LIST}?wait=500ms&index={index}");
    let (waited, fired) = tokio::join!(keys.send(served, &some, "GET", &waiting, ""), fire(&all, "other"));
    assert_eq!((fired, names(&waited).len()), (200, 2));
    assert_eq!(waited.headers["x-consul-index"], index.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn ck7_a_snapshot_needs_its_grant_and_is_recorded() {
    let keys = Keys::new();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.log");
    let audit = Some(convoke_server::AuditConfig::new(convoke_server::AuditTarget::File(file.clone())));
    let cluster = keys.log_cluster_with(1, convoke_server::Config { audit, ..Default::default() }).await;
    let served = cluster.served(0);
    let (reader, saver) = (keys.token("reader", &["read key:*"]), keys.token("saver", &["backup log"]));
    assert_eq!(keys.send(served, &reader, "GET", "/v1/snapshot", "").await.status, 403);
    let saved = keys.send(served, &saver, "GET", "/v1/snapshot", "").await;
    assert_eq!((saved.status, &saved.body[..2]), (200.try_into().unwrap(), &[0x1f, 0x8b][..]));
    assert_eq!(saved.headers["content-type"], "application/x-gzip");
    assert!(index(&saved) > 0);
    let refused = keys.send(served, &saver, "PUT", "/v1/snapshot", "x").await;
    assert!(refused.status == 400 && refused.body_text().contains("convoke log restore"), "{refused:?}");
    eventually("the snapshot is in the audit log", async || {
        let text = std::fs::read_to_string(&file).unwrap();
        text.lines().any(|line| line.contains("GET /v1/snapshot") && line.contains(r#""allowed":["backup log"]"#))
    })
    .await;
}

/// A process that ends with the value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn consul() -> Option<String> {
    let program = std::env::var("CONVOKE_CONSUL").unwrap_or("consul".to_owned());
    Command::new(&program).arg("version").output().is_ok().then_some(program)
}

/// Runs the program and returns whether it succeeded, and what it prints.
async fn run(program: &str, served: &Served, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(program);
    command.args(arguments).env("CONSUL_HTTP_ADDR", served.address().to_string());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

/// At the replica, and at a node that gets the state from it.
#[tokio::test(flavor = "multi_thread")]
async fn ck7_the_consul_program_verifies_snapshots() {
    let Some(consul) = consul() else {
        return skip("ck7_the_consul_program_verifies_snapshots", "needs the program consul in PATH or CONVOKE_CONSUL");
    };
    let mut cluster = LogCluster::start(1).await;
    let outside = cluster.outsider().await;
    for number in 0..64 {
        let value = number.to_string().repeat(10_000);
        cluster.served(0).put(&format!("/v1/kv/snap/{number}"), &value).await.ok();
    }
    let dir = tempfile::tempdir().unwrap();
    for node in [0, outside] {
        let file = dir.path().join(format!("{node}.tgz"));
        let file = file.to_str().unwrap();
        let (saved, text) = run(&consul, cluster.served(node), &["snapshot", "save", file]).await;
        assert!(saved && text.contains("Saved and verified snapshot to index"), "{text}");
        let (inspected, text) = run(&consul, cluster.served(node), &["snapshot", "inspect", file]).await;
        assert!(inspected && text.contains("Version") && text.contains("Term"), "{text}");
        let (restored, text) = run(&consul, cluster.served(node), &["snapshot", "restore", file]).await;
        assert!(!restored && text.contains("convoke log restore"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_consul_program_shows_the_replicas() {
    let Some(consul) = consul() else {
        return skip("the_consul_program_shows_the_replicas", "needs the program consul in PATH or CONVOKE_CONSUL");
    };
    let cluster = LogCluster::start(1).await;
    let (listed, text) = run(&consul, cluster.served(0), &["operator", "raft", "list-peers"]).await;
    assert!(listed && text.contains("n0") && text.contains("leader"), "{text}");
    let (shown, text) = run(&consul, cluster.served(0), &["operator", "autopilot", "get-config"]).await;
    assert!(shown && text.contains("CleanupDeadServers = false"), "{text}");
    let health = cluster.served(0).get("/v1/operator/autopilot/health").await.ok();
    assert_eq!((&health["Healthy"], &health["FailureTolerance"]), (&json!(true), &json!(0)), "{health}");
    assert_eq!((&health["Servers"][0]["Name"], &health["Servers"][0]["Leader"]), (&json!("n0"), &json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn ck6_the_consul_program_fires_and_watches_events() {
    let Some(consul) = consul() else {
        let needs = "needs the program consul in PATH or CONVOKE_CONSUL";
        return skip("ck6_the_consul_program_fires_and_watches_events", needs);
    };
    let cluster = LogCluster::start(1).await;
    let served = cluster.served(0);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("events");
    fire(served, "deploy", "before").await;
    let mut watch = Command::new(&consul);
    watch.args(["watch", "-type=event", "-name=deploy", &format!("cat >> {}", file.display())]);
    let _watching = Running(watch.env("CONSUL_HTTP_ADDR", served.address().to_string()).spawn().unwrap());
    let lines =
        || std::fs::read_to_string(&file).unwrap_or_default().lines().map(ToOwned::to_owned).collect::<Vec<_>>();
    // The first answer of a watch is what there is. Then each run gets the new events only.
    eventually("the watch has begun", async || lines().len() == 1).await;
    for number in 1..=3 {
        let (fired, text) = run(&consul, served, &["event", "-name=deploy", &format!("payload {number}")]).await;
        assert!(fired && text.contains("Event ID: "), "{text}");
        eventually("the watch prints the event", async || lines().len() == number + 1).await;
        let last: Value = serde_json::from_str(&lines()[number]).unwrap();
        assert_eq!((last.as_array().unwrap().len(), &last[0]["Name"]), (1, &json!("deploy")), "{last}");
    }
}
