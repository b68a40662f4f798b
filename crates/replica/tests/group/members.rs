//! Membership changes.

use crate::cluster::{Client, Disks, Host, agree, config, get, leader, together};
use convoke_log::command::Body;
use convoke_log::machine::Outcome;
use convoke_replica::{ChangeError, Edit, Role};
use convoke_testkit::{TEST_TIMEOUT, eventually};

async fn change(hosts: &[Host], edit: Edit) {
    let handle = hosts[leader(hosts).await].handle();
    let number = handle.change(&edit).await.unwrap();
    handle.settled(number, TEST_TIMEOUT).await.unwrap();
}

fn voters(host: &Host) -> Vec<String> {
    let group = host.handle().group();
    let mut voters: Vec<String> =
        group.replicas.iter().filter(|member| member.voter).map(|member| member.node.to_string()).collect();
    voters.sort();
    voters
}

async fn joining(disks: &Disks, node: &str, hosts: &[Host]) -> Host {
    let mut joining = config(disks, node);
    joining.join = vec![hosts[0].config.address.clone()];
    Host::start(joining).await
}

#[tokio::test(flavor = "multi_thread")]
async fn from_one_to_three_and_back() {
    let disks = Disks::new();
    let mut hosts = vec![Host::start(config(&disks, "a")).await];
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
    for node in ["b", "c"] {
        let host = joining(&disks, node, &hosts).await;
        let address = host.config.address.as_str().into();
        change(&hosts, Edit::Add { node: node.into(), address }).await;
        assert_eq!(host.handle().status().replica.map(|id| id.0), Some(if node == "b" { 2 } else { 3 }));
        hosts.push(host);
        agree(&hosts).await;
        change(&hosts, Edit::Promote { node: node.into() }).await;
        client.put(&hosts, "k", node).await;
    }
    assert_eq!(voters(&hosts[0]), ["a", "b", "c"]);
    let handle = hosts[leader(&hosts).await].handle();
    let again = handle.change(&Edit::Add { node: "b".into(), address: "x:1".into() }).await;
    assert_eq!(again, Err(ChangeError::IsReplica("b".into())));
    let unknown = handle.change(&Edit::Remove { node: "z".into() }).await;
    assert_eq!(unknown, Err(ChangeError::NoReplica("z".into())));
    for node in ["c", "b"] {
        change(&hosts, Edit::Remove { node: node.into() }).await;
        client.put(&hosts, "k", "less").await;
        let place = hosts.iter().position(|host| host.node() == node).unwrap();
        hosts.remove(place).stop().await;
    }
    assert_eq!(voters(&hosts[0]), ["a"]);
    let last = hosts[0].handle().change(&Edit::Remove { node: "a".into() }).await;
    assert_eq!(last, Err(ChangeError::LastVoter("a".into())));
    assert_eq!(get(&hosts, "k").await.as_deref(), Some("less"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_is_replaced_and_its_id_is_never_reused() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
    let dead = (leader(&hosts).await + 1) % 3;
    let dead = hosts.remove(dead);
    let (node, highest) = (dead.node().to_owned(), 3);
    dead.stop().await;
    let new = joining(&disks, "d", &hosts).await;
    let address = new.config.address.as_str().into();
    change(&hosts, Edit::Replace { old: node.as_str().into(), node: "d".into(), address }).await;
    assert_eq!(new.handle().status().replica.map(|id| id.0), Some(highest + 1));
    hosts.push(new);
    client.put(&hosts, "k", "2").await;
    agree(&hosts).await;
    assert!(!voters(&hosts[0]).contains(&node) && voters(&hosts[0]).contains(&"d".to_owned()));
    // With the new replica a majority survives the loss of another one.
    let leads = leader(&hosts).await;
    hosts.remove(leads).stop().await;
    client.put(&hosts, "k", "3").await;
    assert_eq!(get(&hosts, "k").await.as_deref(), Some("3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_is_transferred() {
    let disks = Disks::new();
    let hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
    let leads = leader(&hosts).await;
    let next = (leads + 1) % 3;
    let node = hosts[next].node().to_owned();
    agree(&hosts).await;
    hosts[leads].handle().transfer(&node).await.unwrap();
    eventually("the other one leads", async || hosts[next].handle().status().role == Role::Leader).await;
    client.put(&hosts, "k", "2").await;
    let handle = hosts[leader(&hosts).await].handle();
    assert_eq!(handle.transfer("z").await, Err(ChangeError::NoReplica("z".into())));
}

/// The transfer names a configuration that is no longer current.
#[tokio::test(flavor = "multi_thread")]
async fn leadership_is_not_transferred_if_the_group_has_changed() {
    let disks = Disks::new();
    let hosts = together(&disks, &["a", "b", "c"]).await;
    let leads = leader(&hosts).await;
    let (next, other) = (hosts[(leads + 1) % 3].node().to_owned(), hosts[(leads + 2) % 3].node().to_owned());
    let handle = hosts[leads].handle();
    let seen = handle.status().configuration;
    change(&hosts, Edit::Demote { node: other.as_str().into() }).await;
    assert_eq!(handle.transfer_from(&next, Some(seen)).await, Err(ChangeError::Replaced));
    assert_eq!(handle.status().role, Role::Leader);
    let present = handle.status().configuration;
    eventually("leadership is transferred", async || {
        let _ = handle.transfer_from(&next, Some(present)).await;
        hosts[(leads + 1) % 3].handle().status().role == Role::Leader
    })
    .await;
}

/// A removed replica gets no message and cannot return with its old log.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_replica_reports_it_and_is_not_added_again_with_its_old_log() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
    let removed = hosts.remove((leader(&hosts).await + 1) % 3);
    let (node, address) = (removed.node().to_owned(), removed.config.address.as_str().into());
    change(&hosts, Edit::Remove { node: node.as_str().into() }).await;
    let report = |removed: &Host| {
        let status = removed.handle().status();
        (status.role, status.group.on(&node).is_none(), status.available)
    };
    eventually("it reports its removal and the remaining group", async || {
        report(&removed) == (Role::Removed, true, true)
    })
    .await;
    let handle = hosts[leader(&hosts).await].handle();
    let add = Edit::Add { node: node.as_str().into(), address };
    let recorded = handle.status().configuration;
    let rejected = handle.change(&add).await.unwrap_err();
    assert_eq!(rejected, ChangeError::HoldsReplica { node: node.as_str().into(), of: "this" });
    assert_eq!(handle.status().configuration, recorded, "nothing was recorded");
    let place = Edit::Add { node: "z".into(), address: removed.config.address.as_str().into() };
    assert!(matches!(handle.change(&place).await, Err(ChangeError::OtherNode { .. })));

    // After a restart it detects the removal again.
    let removed = Host::start(removed.stop().await).await;
    eventually("it reports its removal again", async || report(&removed) == (Role::Removed, true, true)).await;
    let mut empty = removed.stop().await;
    std::fs::remove_dir_all(disks.of(&node)).unwrap();
    empty.join = vec![hosts[0].config.address.clone()];
    let back = Host::start(empty).await;
    change(&hosts, add).await;
    eventually("it is a learner", async || back.handle().status().role == Role::Learner).await;
}

/// A node that was down during its removal gets no message either.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_removed_while_it_was_down_detects_it() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let away = hosts.remove((leader(&hosts).await + 1) % 3);
    let node = away.node().to_owned();
    let away = away.stop().await;
    change(&hosts, Edit::Remove { node: node.as_str().into() }).await;
    let back = Host::start(away).await;
    eventually("it reports its removal", async || back.handle().status().role == Role::Removed).await;
    assert!(back.handle().group().on(&node).is_none());
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_change_reports_its_obstacle() {
    let disks = Disks::new();
    let hosts = [Host::start(config(&disks, "a")).await];
    let handle = hosts[leader(&hosts).await].handle();
    let absent = config(&disks, "b");
    let number = handle.change(&Edit::Add { node: "b".into(), address: absent.address.as_str().into() }).await.unwrap();
    eventually("the leader reports the reason", async || {
        let status = handle.status();
        !status.settled && status.obstacle.is_some_and(|why| why.contains(&absent.address))
    })
    .await;
    let mut present = absent.clone();
    present.join = vec![hosts[0].config.address.clone()];
    let _present = Host::start(present).await;
    handle.settled(number, TEST_TIMEOUT).await.unwrap();
    assert_eq!((handle.obstacle(), handle.status().obstacle), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_removed_steps_down() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
    let leads = leader(&hosts).await;
    let removed = hosts.remove(leads);
    let number = removed.handle().change(&Edit::Remove { node: removed.node().into() }).await.unwrap();
    eventually("the others have reached the configuration", async || {
        hosts.iter().any(|host| host.handle().status().configuration >= number && voters(host).len() == 2)
    })
    .await;
    client.put(&hosts, "k", "2").await;
    assert!(!voters(&hosts[0]).contains(&removed.node().to_owned()));
    eventually("the removed replica does not lead", async || removed.handle().status().role == Role::Removed).await;
}

/// The last step may be committed without it. Several rounds, because this depends on timing.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_leaves_a_group_of_two_detects_its_removal() {
    let rounds = (0..8).map(async |_| {
        let disks = Disks::new();
        let first = Host::start(config(&disks, "a")).await;
        let hosts = [first];
        leader(&hosts).await;
        let mut second = config(&disks, "b");
        second.join = vec![hosts[0].config.address.clone()];
        let address = second.address.as_str().into();
        let _second = Host::start(second).await;
        change(&hosts, Edit::Add { node: "b".into(), address }).await;
        change(&hosts, Edit::Promote { node: "b".into() }).await;
        let leaving = hosts[0].handle();
        let number = leaving.change(&Edit::Remove { node: "a".into() }).await.unwrap();
        leaving.settled(number, TEST_TIMEOUT).await.unwrap();
        eventually("it is removed", async || leaving.status().role == Role::Removed).await;
    });
    futures_util::future::join_all(rounds).await;
}

/// LH4: limits are state. A node's configured limits apply only to a log that it creates.
#[tokio::test(flavor = "multi_thread")]
async fn a_joining_node_uses_the_limits_of_the_log() {
    let disks = Disks::new();
    let mut founder = config(&disks, "a");
    founder.state.value_bytes = 4;
    let hosts = [Host::start(founder).await];
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1234").await;
    let mut other = config(&disks, "b");
    other.state.value_bytes = 5;
    other.join = vec![hosts[0].config.address.clone()];
    let other = Host::start(other).await;
    let address = other.config.address.as_str().into();
    change(&hosts, Edit::Add { node: "b".into(), address }).await;
    let limit = |host: &Host| host.handle().local().map(|machine| machine.limits().value_bytes);
    eventually("it has caught up", async || other.handle().status().keys == 1).await;
    assert_eq!(limit(&other), Ok(4));
    let mut again = other.stop().await;
    again.state.value_bytes = 6;
    let other = Host::start(again).await;
    assert_eq!(limit(&other), Ok(4), "and after a restart");
    let answer = client.submit(&hosts, Body::put("k", "12345")).await;
    assert!(matches!(answer.verdict.as_deref(), Ok(Outcome::NotApplied { .. })), "{answer:?}");
}

/// M2: a restarted founder asks no one a second time. A founder that lost its disk would agree and vote without the
/// entries it acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn a_founder_that_lost_its_disk_does_not_return_under_its_id() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
    agree(&hosts).await;
    let lost = hosts.pop().unwrap().stop().await;
    std::fs::remove_dir_all(disks.of("c")).unwrap();
    let lost = Host::start(lost).await;
    // The creating node restarts.
    let founder = hosts.remove(0).stop().await;
    hosts.insert(0, Host::start(founder).await);
    client.put(&hosts, "k", "2").await;
    // Longer than an adoption takes.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(lost.handle().status().role, Role::Outside);
    let address = lost.config.address.as_str().into();
    change(&hosts, Edit::Replace { old: "c".into(), node: "c".into(), address }).await;
    assert_eq!(lost.handle().status().replica.map(|id| id.0), Some(4));
    hosts.push(lost);
    client.put(&hosts, "k", "3").await;
    agree(&hosts).await;
}
