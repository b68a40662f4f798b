//! Wall clocks that are hours apart and step back change only what is displayed.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::{Client, MemberSpec, Update};
use convoke_testkit::{skip, until};
use std::path::Path;
use support::patient_plan;
use support::seen::Seen;

#[tokio::test(flavor = "multi_thread")]
async fn clocks_hours_apart_that_step_back_change_nothing() {
    let Some(library) = support::faketime() else {
        return skip("clocks_hours_apart_that_step_back_change_nothing", "needs libfaketime (package faketime)");
    };
    let dir = tempfile::tempdir().unwrap();
    let clock = |node: &str| dir.path().join(format!("{node}.clock"));
    let set = |node: &str, time: &str| std::fs::write(clock(node), time).unwrap();
    let offsets = [("n1", "+1h"), ("n2", "-1h"), ("n3", "+0")];
    offsets.iter().for_each(|(node, offset)| set(node, offset));
    let mut cluster = patient_plan(dir.path()).start(0).unwrap();
    for (node, _) in offsets {
        let index = cluster.reserve();
        for (name, value) in [
            ("LD_PRELOAD", library.as_path()),
            ("FAKETIME_TIMESTAMP_FILE", &clock(node)),
            ("FAKETIME_NO_CACHE", Path::new("1")),
            ("FAKETIME_DONT_FAKE_MONOTONIC", Path::new("1")),
        ] {
            cluster.set_environment(index, name, value);
        }
        cluster.restart(index).unwrap();
    }
    cluster.wait_meshed();
    let seen = Seen::at(&cluster, 2, "service == \"web\"");
    // Writes at the fast node, then later ones at the others: the last write counts, whatever the clocks show.
    let fast = Client::builder().seeds([cluster.clients(0)]).build().unwrap();
    let member = fast.register(MemberSpec::new("web-1", "web").metadata("written", "first")).await.unwrap();
    seen.all_up(1);
    set("n1", "-3h");
    member.update(Update::merge().set("written", "after the clock went back")).await.unwrap();
    let written = |index: usize| cluster.ask(index, &["member", "web-1"]).unwrap()["metadata"]["written"].clone();
    for index in 0..3 {
        until("the last write counts", || written(index) == "after the clock went back");
    }
    let slow = Client::builder().seeds([cluster.clients(1)]).build().unwrap();
    let taken = slow.take_over(MemberSpec::new("web-1", "web").metadata("written", "at the slow node")).await.unwrap();
    assert_eq!(member.lost().await.code, convoke_client::ErrorCode::TakenOver);
    set("n2", "-100d");
    taken.update(Update::merge().set("written", "a hundred days ago")).await.unwrap();
    for index in 0..3 {
        until("the last write counts", || written(index) == "a hundred days ago");
    }
    // The nodes report it, because tokens and certificates depend on the clocks.
    until("the node reports the difference of the clocks", || {
        cluster.ask(2, &["status"]).unwrap()["degraded"].to_string().contains("clocks:")
    });
    // Checks that the clocks are really wrong.
    let status = |index: usize| cluster.ask(index, &["member", "convoke.n1"]).unwrap()["created"].as_u64().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    assert!(u128::from(status(2)) > now + 3_000_000, "the clock of n1 is an hour ahead");
    taken.unregister().await.unwrap();
    seen.event("unregister", "web-1");
    for index in 0..3 {
        until("what was unregistered stays so", || cluster.ask(index, &["member", "web-1"]).is_err());
    }
    let down = |event: &serde_json::Value| event["member"]["status"] == "down";
    assert!(!seen.events().iter().any(down));
}
