//! M: the same promise covers changes of the replica group.

use crate::script::{Script, applied};
use convoke_log::command::{Body, GroupChange, ReplicaLocation};
use convoke_log::machine::{ApplyRejection, Field, Outcome, Reason};
use convoke_log::{LogLimits, LogSessionId, ReplicaId};
use std::collections::BTreeMap;

fn replicas(ids: &[u64]) -> BTreeMap<ReplicaId, ReplicaLocation> {
    ids.iter()
        .map(|id| (ReplicaId(*id), ReplicaLocation { node: format!("n{id}").into(), address: "h:1".into() }))
        .collect()
}

fn change(replaces: u64, voters: &[u64]) -> Body {
    Body::Membership(GroupChange { replaces, voters: replicas(voters), learners: BTreeMap::new() })
}

fn voters(log: &Script) -> Vec<u64> {
    log.machine.configuration().voters.keys().map(|id| id.0).collect()
}

/// A script with three recorded replicas, and the number of that configuration.
fn group() -> (Script, LogSessionId, u64) {
    let mut log = Script::new();
    let client = log.open();
    applied(&log.submit(client, 1, change(0, &[1, 2, 3])));
    let number = log.machine.configuration().number;
    assert_eq!(number, log.machine.applied().index);
    (log, client, number)
}

/// The motivating example with replicas: remove one, abandon, retry, add one; then the first copy arrives.
#[test]
fn the_first_copy_of_a_removal_arrives_after_another_replica_was_added() {
    let (mut log, client, number) = group();
    let first_attempt = log.request(client, 2, change(number, &[1, 2]));
    applied(&log.submit(client, 3, change(number, &[1, 2])));
    let shrunk = log.machine.configuration().number;
    applied(&log.submit(client, 4, change(shrunk, &[1, 2, 4])));
    assert_eq!(log.deliver(&first_attempt).verdict, Err(ApplyRejection::Superseded));
    assert_eq!(voters(&log), [1, 2, 4]);
}

#[test]
fn m1_a_delayed_change_of_another_session_fails_its_compare() {
    let (mut log, client, number) = group();
    let other = log.open();
    let delayed = log.request(other, 1, change(number, &[1]));
    applied(&log.submit(client, 2, change(number, &[1, 2])));
    let current = log.machine.configuration().number;
    let outcome = log.deliver(&delayed).verdict.unwrap();
    assert!(
        matches!(*outcome, Outcome::NotApplied { reason: Reason::Replaced { current: found }, .. } if found == current)
    );
    assert_eq!(voters(&log), [1, 2]);
}

#[test]
fn m2_replica_ids_are_never_used_twice() {
    let (mut log, client, number) = group();
    applied(&log.submit(client, 2, change(number, &[1, 2])));
    log.restart();
    let number = log.machine.configuration().number;
    let back = log.submit(client, 3, change(number, &[1, 2, 3])).verdict.unwrap();
    assert!(matches!(*back, Outcome::NotApplied { reason: Reason::ReplicaIdUsed(ReplicaId(3)), .. }));
    applied(&log.submit(client, 4, change(number, &[1, 2, 4])));
}

#[test]
fn m3_an_invalid_configuration_is_rejected() {
    let (mut log, client, number) = group();
    let mut next = 1;
    let mut rejected = |log: &mut Script, voters: &[u64], learners: &[u64]| {
        next += 1;
        let body =
            Body::Membership(GroupChange { replaces: number, voters: replicas(voters), learners: replicas(learners) });
        match *log.submit(client, next, body).verdict.unwrap() {
            Outcome::NotApplied { reason, .. } => reason,
            ref other => panic!("{other:?}"),
        }
    };
    assert_eq!(rejected(&mut log, &[], &[1]), Reason::Invalid { field: Field::Voters });
    assert_eq!(rejected(&mut log, &[1, 2], &[2]), Reason::Invalid { field: Field::Learners });
    let many: Vec<u64> = (1..=LogLimits::default().replicas + 1).collect();
    assert_eq!(rejected(&mut log, &many, &[]), Reason::TooMany { field: Field::Replicas, limit: 64 });
    assert_eq!(voters(&log), [1, 2, 3]);
    // A learner becomes a voter under its id.
    let learner = GroupChange { replaces: number, voters: replicas(&[1, 2, 3]), learners: replicas(&[4]) };
    applied(&log.submit(client, 10, Body::Membership(learner)));
    let number = log.machine.configuration().number;
    applied(&log.submit(client, 11, change(number, &[1, 2, 3, 4])));
    assert_eq!(log.machine.configuration().replicas().count(), 4);
}

#[test]
fn m3_addresses_are_bounded() {
    let (mut log, client, number) = group();
    let mut voters = replicas(&[1]);
    voters.get_mut(&ReplicaId(1)).unwrap().address = "x".repeat(257).into();
    let body = Body::Membership(GroupChange { replaces: number, voters, learners: BTreeMap::new() });
    let outcome = log.submit(client, 2, body).verdict.unwrap();
    let reason = Reason::TooLarge { field: Field::Address, found: 257, limit: 256 };
    assert!(matches!(*outcome, Outcome::NotApplied { reason: found, .. } if found == reason));
}
