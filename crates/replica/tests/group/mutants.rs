//! Deliberate bugs of a replica. Each test shows that what the tests of a rule look at changes without the rule.

use crate::cluster::{Client, Disks, Host, agree, config, leader, together_with};
use crate::failover::cut_from_leader;
use crate::rollback::rolled_back;
use convoke_replica::{Config, LogRejection, Mutant, Mutation, Role};
use convoke_testkit::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn m6_without_the_rule_a_disk_that_went_back_takes_part() {
    let disks = Disks::new();
    let hosts = rolled_back(&disks, Mutation::of(Mutant::EvidenceIgnored)).await;
    // The engine of the leader accepts what the follower has lost, or notices it in builds with debug assertions.
    eventually("the leader and the follower have met", async || {
        let (leader, follower) = (hosts[0].handle().status(), hosts[2].handle().status());
        leader.role == Role::Failed || leader.fault.is_some() || follower.applied >= leader.applied
    })
    .await;
    assert!(hosts.iter().all(|host| !host.handle().status().excluded));
}

#[tokio::test(flavor = "multi_thread")]
async fn m7_without_the_rule_a_cut_link_replaces_a_leader_with_a_majority() {
    let disks = Disks::new();
    let (hosts, follower, _, epoch, _) = cut_from_leader(&disks, Mutation::of(Mutant::LossUnconfirmed)).await;
    eventually("another leader is elected", async || {
        let early = hosts[follower].handle().counters().elections_early;
        early > 0 && hosts.iter().any(|host| host.handle().group().epoch > Some(epoch))
    })
    .await;
}

/// Returns whether a replica accepts the secret of another client, and a request of another log.
async fn accepts_foreign(mutation: Mutation) -> (bool, bool) {
    let disks = Disks::new();
    let hosts = [Host::start(Config { mutation, ..config(&disks, "a") }).await];
    leader(&hosts).await;
    let handle = hosts[0].handle();
    // Its secret is 1.
    let session = Client::open(&hosts).await.session();
    assert_eq!(handle.check_owner(session, 1), Ok(()));
    assert_eq!(handle.check_log(handle.log().unwrap()), Ok(()));
    let (owner, log) = (handle.check_owner(session, 8), handle.check_log(1));
    assert!(matches!(owner, Ok(()) | Err(LogRejection::NotOwner)));
    assert!(matches!(log, Ok(()) | Err(LogRejection::OtherLog { .. })));
    (owner.is_ok(), log.is_ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn ls9_ls10_without_the_rules_foreign_requests_are_accepted() {
    assert_eq!(accepts_foreign(Mutation::none()).await, (false, false));
    assert_eq!(accepts_foreign(Mutation::of(Mutant::OwnerUnchecked)).await, (true, false));
    assert_eq!(accepts_foreign(Mutation::of(Mutant::LogUnchecked)).await, (false, true));
}

/// Writes until the replicas have compared their states at least once. Returns whether one of them differs.
async fn differs(mutation: Mutation) -> bool {
    let disks = Disks::new();
    let hosts = together_with(&disks, &["a", "b", "c"], |config| {
        if config.node == "b" {
            config.mutation = mutation;
        }
    })
    .await;
    let mut client = Client::open(&hosts).await;
    for number in 0..50 {
        client.put(&hosts, &format!("k{number}"), "x").await;
    }
    agree(&hosts).await;
    let compared = || hosts.iter().filter(|host| host.handle().compared_states().is_some()).count();
    eventually("followers have compared their states", async || {
        client.put(&hosts, "more", "x").await;
        compared() >= 2
    })
    .await;
    let differing: Vec<_> = hosts.iter().filter_map(|host| host.handle().status().divergence).collect();
    assert!(differing.iter().all(|what| what.contains("has hash")), "{differing:?}");
    !differing.is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn lh6_a_replica_with_another_state_is_found() {
    assert!(!differs(Mutation::none()).await);
    assert!(differs(Mutation::of(Mutant::StateDiffers)).await);
}
