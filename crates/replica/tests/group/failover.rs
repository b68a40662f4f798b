//! Leader changes.

use crate::cluster::{Client, Disks, Host, agree, get, leader, together};
use convoke_log::command::{Body, Open, Request};
use convoke_log::machine::Outcome;
use convoke_replica::{LogRejection, SubmitError};
use convoke_testkit::eventually;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn others_reject_with_the_leader_first() {
    let disks = Disks::new();
    let hosts = together(&disks, &["a", "b", "c"]).await;
    let leads = leader(&hosts).await;
    let node = hosts[leads].node().to_owned();
    let epoch = hosts[leads].handle().epoch().unwrap();
    let client = Client::open(&hosts).await;
    for (place, host) in hosts.iter().enumerate().filter(|(place, _)| *place != leads) {
        eventually("a follower knows its leader", async || host.handle().group().leader().is_some()).await;
        let request = Request::new(client.session(), 1, epoch, Body::put("a", "1"));
        let rejected = host.handle().submit(request).await.unwrap_err();
        let SubmitError::Rejected(LogRejection::NotLeader(group)) = rejected else { panic!("{place}: {rejected}") };
        assert_eq!((group.members.len(), group.members[0].node.as_str()), (3, node.as_str()));
        assert_eq!(group.epoch, Some(epoch));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_leader_changes_and_a_full_restart() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    let mut written = 0;
    for round in 0..3 {
        for _ in 0..10 {
            written += 1;
            assert_eq!(client.put(&hosts, &format!("k{written}"), "v").await, written);
        }
        let leads = leader(&hosts).await;
        let before = hosts[leads].handle().epoch().unwrap();
        let gone = hosts.remove(leads).stop().await;
        written += 1;
        assert_eq!(client.put(&hosts, &format!("k{written}"), "v").await, written, "round {round}");
        let after = hosts[leader(&hosts).await].handle().epoch().unwrap();
        assert!(after.term > before.term);
        hosts.push(Host::start(gone).await);
    }
    agree(&hosts).await;
    let mut configs = Vec::new();
    for host in hosts {
        configs.push(host.stop().await);
    }
    let mut hosts = Vec::new();
    for config in configs {
        hosts.push(Host::start(config).await);
    }
    for number in 1..=written {
        assert_eq!(get(&hosts, &format!("k{number}")).await.as_deref(), Some("v"));
    }
    agree(&hosts).await;
}

/// A replica that would lose an election does not start one, so an isolated follower keeps its last leader.
#[tokio::test(flavor = "multi_thread")]
async fn an_isolated_follower_reports_the_log_as_unavailable() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let follower = (leader(&hosts).await + 1) % 3;
    let survivor = hosts.swap_remove(follower);
    eventually("it has contact to the leader", async || survivor.handle().is_available()).await;
    for host in hosts {
        host.stop().await;
    }
    eventually("it has no quorum", async || !survivor.handle().is_available()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_requests_are_rejected() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    client.put(&hosts, "k", "1").await;
    let leads = leader(&hosts).await;
    let survivor = hosts.swap_remove(leads);
    let mut gone = Vec::new();
    for host in hosts {
        gone.push(host.stop().await);
    }
    eventually("the survivor has no quorum", async || !survivor.handle().is_available()).await;
    let read = survivor.handle().read(convoke_replica::Consistency::Linearizable).await;
    assert!(matches!(read, Err(LogRejection::NoQuorum(_) | LogRejection::NotLeader(_))), "{read:?}");
    if let Ok(epoch) = survivor.handle().epoch() {
        let request = client.next(epoch, Body::put("k", "never"));
        let rejected = survivor.handle().submit(request).await;
        assert!(matches!(rejected, Err(SubmitError::Rejected(LogRejection::NoQuorum(_)))), "{rejected:?}");
    }
    assert!(survivor.handle().local().unwrap().keys().get(b"k").is_some(), "local reads still work");
    let mut hosts = vec![survivor];
    for config in gone {
        hosts.push(Host::start(config).await);
    }
    client.put(&hosts, "k", "2").await;
    assert_eq!(get(&hosts, "k").await.as_deref(), Some("2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_crosses_a_leader_change_is_executed_once() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    let answer = client.submit(&hosts, Body::compare_and_set("a", "1", 0)).await;
    let id = answer.id;
    let leads = leader(&hosts).await;
    let gone = hosts.remove(leads).stop().await;
    let handle = hosts[leader(&hosts).await].handle();
    let epoch = handle.epoch().unwrap();
    let copy = Request::new(id.session, id.number, epoch, Body::compare_and_set("a", "1", 0));
    let again = handle.submit(copy).await.unwrap().answer;
    assert_eq!(again.verdict, answer.verdict, "the stored outcome, not a second execution");
    assert!(matches!(again.verdict.as_deref(), Ok(Outcome::Applied { revision: 1, .. })));
    hosts.push(Host::start(gone).await);
    agree(&hosts).await;
}

/// The expiry was due while nothing could be proposed. The same leader proposes it again afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_silent_during_quorum_loss_expires_afterwards() {
    const TTL: Duration = Duration::from_secs(2);
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let leads = hosts.remove(leader(&hosts).await);
    let handle = leads.handle();
    let epoch = handle.epoch().unwrap();
    let open = Open::new(epoch, TTL, 1);
    handle.open(open).await.unwrap().opened.unwrap();
    let mut away = Vec::new();
    for host in hosts {
        away.push(host.stop().await);
    }
    eventually("it has no quorum", async || !handle.status().available).await;
    tokio::time::sleep(TTL + Duration::from_secs(1)).await;
    let mut back = Vec::new();
    for config in away {
        back.push(Host::start(config).await);
    }
    eventually("the session has expired", async || handle.status().sessions == 0).await;
}
