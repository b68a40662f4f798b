//! Feature levels: a group in which some nodes run an earlier version (V1 to V4).

use crate::cluster::{Client, Disks, Host, config, leader, together, together_with};
use convoke_log::Level;
use convoke_log::command::{Body, EndBehavior, GrantLease, LeaseTerm};
use convoke_replica::{ChangeError, Edit, LogRejection, Replica, StartError, SubmitError};
use convoke_testkit::eventually;
use std::time::Duration;

/// A request of level 2.
fn newer() -> Body {
    Body::Grant(GrantLease { term: LeaseTerm::Ttl(Duration::from_secs(10)), end: EndBehavior::Delete })
}

fn level(host: &Host) -> Level {
    host.handle().status().level
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_a_new_log_has_the_level_that_all_founders_support() {
    let disks = Disks::new();
    let alone = Host::start(config(&disks, "z")).await;
    eventually("a log alone has the highest level", async || level(&alone) == Level::SUPPORTED).await;
    let hosts = together(&disks, &["a", "b", "c"]).await;
    assert!(hosts.iter().all(|host| level(host) == Level::SUPPORTED));
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_a_rolling_upgrade_raises_the_level_when_the_last_replica_supports_it() {
    let disks = Disks::new();
    let mut hosts = together_with(&disks, &["a", "b", "c"], |config| config.supported = Level::FIRST).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
    for place in 0..3 {
        assert!(hosts.iter().all(|host| level(host) == Level::FIRST), "not before the last node is upgraded");
        let held = hosts[leader(&hosts).await].handle().upgrade().await;
        let Err(ChangeError::HeldBack { level: Level::COORDINATION, why }) = held else { panic!("{held:?}") };
        assert!(why.contains("supports level 1"), "the error names who holds the level back: {why}");
        let mut config = hosts.remove(place).stop().await;
        config.supported = Level::SUPPORTED;
        hosts.insert(place, Host::start(config).await);
        leader(&hosts).await;
        client.put(&hosts, "k", "2").await;
    }
    eventually("an upgraded leader raises the level at once when asked", async || {
        hosts[leader(&hosts).await].handle().upgrade().await == Ok(Level::SUPPORTED)
    })
    .await;
    eventually("all replicas have it", async || hosts.iter().all(|host| level(host) == Level::SUPPORTED)).await;
    client.put(&hosts, "k", "3").await;
}

/// It may start an earlier version next.
#[tokio::test(flavor = "multi_thread")]
async fn v3_a_replica_that_does_not_answer_now_holds_the_level_back() {
    let disks = Disks::new();
    let mut hosts = together_with(&disks, &["a", "b", "c"], |config| config.supported = Level::FIRST).await;
    for place in 0..3 {
        let mut config = hosts.remove(place).stop().await;
        config.supported = Level::SUPPORTED;
        hosts.insert(place, Host::start(config).await);
        leader(&hosts).await;
    }
    eventually("the leader has an answer of all replicas", async || {
        let obstacle = hosts[leader(&hosts).await].handle().status().level_obstacle;
        obstacle.is_some_and(|obstacle| obstacle.contains("all replicas support level 2"))
    })
    .await;
    let silent = (leader(&hosts).await + 1) % 3;
    let node = hosts[silent].node().to_owned();
    hosts.remove(silent).stop().await;
    let held = hosts[leader(&hosts).await].handle().upgrade().await;
    let Err(ChangeError::HeldBack { why, .. }) = held else { panic!("{held:?}") };
    assert!(why.contains(&format!("node {node} has not answered")), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn v1_a_request_of_a_higher_level_is_not_appended() {
    let disks = Disks::new();
    let hosts = together_with(&disks, &["a", "b", "c"], |config| config.supported = Level::FIRST).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
    let handle = hosts[leader(&hosts).await].handle();
    let request = client.next(handle.epoch().unwrap(), newer());
    let rejected = handle.submit(request).await.map(drop);
    assert!(matches!(rejected, Err(SubmitError::Rejected(LogRejection::Level(_)))), "{rejected:?}");
    client.put(&hosts, "k", "2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v2_a_node_of_an_earlier_version_is_neither_added_nor_started() {
    let disks = Disks::new();
    let hosts = vec![Host::start(config(&disks, "a")).await];
    leader(&hosts).await;
    let mut joining = config(&disks, "b");
    joining.join = vec![hosts[0].config.address.clone()];
    joining.supported = Level::FIRST;
    let old = Host::start(joining).await;
    let address = old.config.address.as_str().into();
    let added = hosts[0].handle().change(&Edit::Add { node: "b".into(), address }).await;
    let too_old = ChangeError::TooOld { node: "b".into(), supported: Level::FIRST, needed: Level::COORDINATION };
    assert_eq!(added, Err(too_old));
    let mut downgraded = hosts.into_iter().next().unwrap().stop().await;
    downgraded.supported = Level::FIRST;
    let started = Replica::start(downgraded).await.map(drop);
    let Err(StartError::TooOld { level: Level::COORDINATION, supported: Level::FIRST }) = started else {
        panic!("{started:?}");
    };
}
