//! Restarts of a cluster: node by node under load, and all at once.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::{Registration, Update};
use convoke_testkit::{ProcessCluster, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::fleet::Fleet;
use support::patient_plan;
use support::seen::Seen;

const CLIENTS: usize = 60;

/// no member is down, no registration is lost, and every acknowledged write is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_under_load_is_invisible() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = patient_plan(dir.path()).start(3).unwrap();
    let mut fleet = Fleet { clients: Vec::new() };
    for index in 0..3 {
        let name = format!("web{index}");
        fleet.clients.extend(Fleet::start(&name, CLIENTS / 3, cluster.clients(index)).await.clients);
    }
    let watchers = [0, 1, 2].map(|index| Seen::at(&cluster, index, "service == \"web\""));
    watchers.iter().for_each(|seen| seen.all_up(CLIENTS));
    let stop = Arc::new(AtomicBool::new(false));
    let (clients, registrations): (Vec<_>, Vec<_>) = fleet.clients.into_iter().unzip();
    let writers: Vec<_> =
        registrations.into_iter().map(|registration| tokio::spawn(write(registration, stop.clone()))).collect();
    let restarting = tokio::task::spawn_blocking(move || {
        for index in 0..3 {
            let (status, stderr) = cluster.stop(index);
            assert_eq!(status.code(), Some(0), "{stderr}");
            cluster.restart(index).unwrap();
            cluster.wait_meshed();
        }
        cluster
    });
    let cluster = restarting.await.unwrap();
    stop.store(true, Ordering::Relaxed);
    let mut written = Vec::new();
    for writer in writers {
        written.push(writer.await.unwrap());
    }
    let writes: u64 = written.iter().map(|(_, count)| count).sum();
    println!("{writes} updates were acknowledged during a rolling restart of three nodes");
    assert!(written.iter().all(|(_, count)| *count > 0), "every client wrote");
    for index in 0..3 {
        for (id, count) in &written {
            until("the last acknowledged write is everywhere", || {
                written_last(&cluster, index, id) == count.to_string()
            });
        }
    }
    watchers.iter().for_each(|seen| seen.all_up(CLIENTS));
    watchers.iter().for_each(Seen::assert_undisturbed);
    drop(clients);
}

/// Updates a member until it is stopped and returns the number of acknowledged updates.
async fn write(registration: Registration, stop: Arc<AtomicBool>) -> (String, u64) {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        count += 1;
        registration.update(Update::merge().set("count", count.to_string())).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    (registration.id().to_owned(), count)
}

fn written_last(cluster: &ProcessCluster, index: usize, id: &str) -> String {
    let path = format!("/api/v1/members/{id}");
    let member = support::http::json(cluster.clients(index), "GET", &path, "");
    member["metadata"]["count"].as_str().unwrap_or_default().to_owned()
}

/// All nodes die at once and start again: clients register everything again without an operator.
#[tokio::test(flavor = "multi_thread")]
async fn members_are_restored_after_a_total_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = patient_plan(dir.path()).start_at_once(3).unwrap();
    let fleet = Fleet::start("web", CLIENTS, cluster.clients(1)).await;
    for (number, (_, registration)) in fleet.clients.iter().enumerate() {
        registration.update(Update::merge().set("number", number.to_string())).await.unwrap();
    }
    let seen = Seen::at(&cluster, 0, "service == \"web\"");
    seen.all_up(CLIENTS);
    (0..3).for_each(|index| cluster.kill(index));
    cluster.start_all().unwrap();
    cluster.wait_meshed();
    for index in 0..3 {
        until("everything is back", || {
            let members = cluster.ask(index, &["members", "service == \"web\" and status == \"up\""]).unwrap();
            let members = members["members"].as_array().unwrap();
            members.len() == CLIENTS && members.iter().all(|member| member["metadata"]["number"].is_string())
        });
    }
    fleet.assert_none_lost();
    // A watcher that ran all the time has the same members in the end.
    seen.all_up(CLIENTS);
    let down = |event: &serde_json::Value| event["member"]["status"] == "down";
    assert!(!seen.events().iter().any(down));
}
