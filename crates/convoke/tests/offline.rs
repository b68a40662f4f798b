//! A watcher that is paused (SIGSTOP) while its node dies and members change.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::{Client, MemberSpec, Update};
use convoke_testkit::{ProcessCluster, until};
use serde_json::Value;
use std::collections::BTreeMap;
use support::patient_plan;
use support::seen::Seen;

const FILTER: &str = "service == \"web\"";

/// the view is exact, changes are reported once, and no remaining member ever vanishes, at another
/// node and at a new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_watcher_receives_exactly_the_changes_it_missed() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = patient_plan(dir.path()).start(1).unwrap();
    let (second, third) = (cluster.reserve(), cluster.reserve());
    cluster.add_join(third, second);
    // The watcher is paused before it can learn the other nodes. It connects to the only one that runs.
    let seen = Seen::with_seeds(&cluster, 0, FILTER, &cluster.all_clients());
    cluster.restart(second).unwrap();
    cluster.wait_meshed();
    let client = Client::builder().seeds([cluster.clients(second), cluster.clients(third)]).build().unwrap();
    let spec = |id: &str| MemberSpec::new(id, "web");
    let stays = client.register(spec("stays")).await.unwrap();
    let changes = client.register(spec("changes")).await.unwrap();
    let goes = client.register(spec("goes")).await.unwrap();
    let returns = client.register(spec("returns").metadata("life", "first")).await.unwrap();
    seen.all_up(4);
    let before = seen.events().len();

    seen.process.pause();
    cluster.kill(0);
    changes.update(Update::merge().set("k", "1")).await.unwrap();
    changes.update(Update::merge().set("k", "2")).await.unwrap();
    goes.unregister().await.unwrap();
    returns.unregister().await.unwrap();
    let _returns = client.register(spec("returns").metadata("life", "second")).await.unwrap();
    let brief = client.register(spec("brief")).await.unwrap();
    brief.unregister().await.unwrap();
    let comes = client.register(spec("comes")).await.unwrap();
    seen.process.resume();
    until("the watcher holds what is there", || same(&seen, &cluster, second));
    let missed = &seen.events()[before..];
    assert!(
        !missed.iter().any(|event| ["reset", "snapshot"].contains(&event["event"].as_str().unwrap())),
        "{missed:?}"
    );
    assert!(about(missed, "stays").is_empty() && about(missed, "brief").is_empty(), "{missed:?}");
    assert_eq!(about(missed, "goes"), ["unregister"]);
    assert_eq!(about(missed, "comes"), ["register"]);
    assert_eq!(about(missed, "changes"), ["update"], "several changes of one member may come as one");

    // A new node that knows the watcher's past only from its peer. The watcher gets the changes from nowhere else.
    let before = seen.events().len();
    seen.process.pause();
    cluster.restart(third).unwrap();
    cluster.wait_meshed();
    until("the new node has all members", || view_at(&cluster, third) == view_at(&cluster, second));
    cluster.kill(second);
    comes.unregister().await.unwrap();
    stays.update(Update::merge().set("k", "3")).await.unwrap();
    seen.process.resume();
    until("the watcher holds what is there", || same(&seen, &cluster, third));
    let missed = &seen.events()[before..];
    assert!(
        !missed.iter().any(|event| ["reset", "snapshot"].contains(&event["event"].as_str().unwrap())),
        "{missed:?}"
    );
    assert_eq!(about(missed, "comes"), ["unregister"]);
    assert!(!missed.iter().any(|event| event["member"]["status"] == "down"), "{missed:?}");
}

fn about<'a>(events: &'a [Value], id: &str) -> Vec<&'a str> {
    let of = |event: &&Value| event["id"] == id || event["member"]["id"] == id;
    events.iter().filter(of).map(|event| event["event"].as_str().unwrap()).collect()
}

fn view_at(cluster: &ProcessCluster, index: usize) -> BTreeMap<String, Value> {
    let members = cluster.ask(index, &["members", FILTER]).unwrap();
    let members = members["members"].as_array().unwrap().iter();
    members.map(|member| (member["id"].as_str().unwrap().to_owned(), member.clone())).collect()
}

fn same(seen: &Seen, cluster: &ProcessCluster, index: usize) -> bool {
    seen.view() == view_at(cluster, index)
}
