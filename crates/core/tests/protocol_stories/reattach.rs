//! Clients without state of their own (C8).

use crate::cluster::{Cluster, attach};
use convoke_core::ErrorCode;
use convoke_core::member::Status;
use convoke_core::node::{AttachMember, Attached, ConnId, Notice, PeerState, Reattach, RegistryEvent, SessionId};
use std::time::Duration;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

fn request(raise: u64) -> Reattach {
    Reattach { client: "http".into(), nonce: 7, raise, ..Reattach::default() }
}

fn reattach(cluster: &mut Cluster, at: usize, conn: u64, request: &Reattach) -> Result<Attached, ErrorCode> {
    let result = cluster.call(at, |node, now, out| node.reattach(now, ConnId(conn), request, out));
    result.map_err(|rejection| rejection.code)
}

fn ids(attached: &Attached) -> Vec<&str> {
    let mut ids: Vec<&str> = attached.versions.iter().map(|(id, _)| id.as_str()).collect();
    ids.sort_unstable();
    ids
}

fn heartbeat(cluster: &mut Cluster, at: usize, session: SessionId) -> Result<(), ErrorCode> {
    cluster.call(at, |node, now, out| node.heartbeat(now, session, out)).map_err(|rejection| rejection.code)
}

fn unregister(cluster: &mut Cluster, at: usize, session: SessionId, seq: u64, id: &str) {
    cluster.call(at, |node, now, out| node.unregister(now, session, seq, id, out)).unwrap();
}

/// Three nodes and a client with `a` and `b` at the first, on connection 1.
fn attached() -> (Cluster, SessionId) {
    let mut cluster = Cluster::settled(&["a", "b", "c"]);
    let fresh = Reattach { fresh: true, ..request(1) };
    let session = reattach(&mut cluster, A, 1, &fresh).unwrap().session;
    for (seq, id) in ["a", "b"].iter().enumerate() {
        let mut member = AttachMember::default();
        member.spec.id = (*id).into();
        member.spec.service = "s".into();
        let seq = seq as u64 + 1;
        cluster.call(A, |node, now, out| node.register(now, session, seq, &member, out)).unwrap();
    }
    cluster.run(Duration::from_millis(10));
    (cluster, session)
}

#[test]
fn the_registry_restores_the_clients_members() {
    let (mut cluster, _) = attached();
    let owner = cluster.node(B).owner_of_session("http", 7, None).unwrap();
    assert_eq!((owner.node.as_str(), owner.client_address.as_str()), ("a", "a:7001"));
    assert_eq!(cluster.node(A).owner_of_session("http", 7, None), None, "this node itself");
    assert_eq!(cluster.node(B).owner_of_session("http", 8, None), None, "another process");
    let before = cluster.member(B, "a");
    cluster.crash(A);
    cluster.run(Duration::from_secs(10));
    assert_eq!(cluster.node(B).owner_of_session("http", 7, None).unwrap().state, PeerState::Failed);
    let again = reattach(&mut cluster, B, 1, &request(3)).unwrap();
    assert_eq!((ids(&again), again.rejected.len()), (vec!["a", "b"], 0));
    cluster.run(Duration::from_millis(10));
    let after = cluster.member(C, "a");
    assert_eq!((after.status(), after.owner().node), (Status::Up, "b"));
    assert_eq!((after.created(), after.service(), after.client()), (before.created(), "s", "http"));
    // Heartbeats keep it up long after its first node would have expired it.
    for _ in 0..30 {
        cluster.run(Duration::from_secs(5));
        heartbeat(&mut cluster, B, again.session).unwrap();
        assert_eq!(cluster.member(C, "b").status(), Status::Up);
    }
}

#[test]
fn unregistered_members_are_not_restored() {
    let (mut cluster, session) = attached();
    unregister(&mut cluster, A, session, 3, "a");
    cluster.run(Duration::from_millis(10));
    cluster.crash(A);
    let again = reattach(&mut cluster, B, 1, &request(1)).unwrap();
    assert_eq!(ids(&again), ["b"]);
    unregister(&mut cluster, B, again.session, 1, "b");
    // The session itself still exists, then it does not exist anywhere.
    assert!(ids(&reattach(&mut cluster, B, 1, &request(1)).unwrap()).is_empty());
    cluster.run(Duration::from_millis(10));
    assert_eq!(reattach(&mut cluster, C, 1, &request(1)).unwrap_err(), ErrorCode::SessionGone);
}

#[test]
fn a_client_that_left_is_notified_and_one_that_only_expired_returns() {
    let (mut cluster, _) = attached();
    // Its node states it.
    cluster.run(Duration::from_secs(330));
    assert_eq!(reattach(&mut cluster, A, 1, &request(1)).unwrap_err(), ErrorCode::SessionGone);
    assert_eq!(reattach(&mut cluster, B, 1, &request(1)).unwrap_err(), ErrorCode::SessionGone);

    let (mut cluster, _) = attached();
    cluster.crash(A);
    cluster.run(Duration::from_secs(330));
    assert!(cluster.node(B).member("a").is_none(), "expired");
    assert_eq!(ids(&reattach(&mut cluster, B, 1, &request(1)).unwrap()), ["a", "b"]);
    cluster.run(Duration::from_millis(10));
    assert_eq!(cluster.member(C, "a").status(), Status::Up);
}

#[test]
fn two_nodes_asked_at_once_agree_on_one() {
    let (mut cluster, _) = attached();
    cluster.crash(A);
    cluster.run(Duration::from_secs(1));
    let (lower, higher) = (request(2), request(9));
    let at_b = reattach(&mut cluster, B, 1, &higher).unwrap().session;
    let at_c = reattach(&mut cluster, C, 1, &lower).unwrap().session;
    cluster.run(Duration::from_secs(2));
    cluster.assert_agreed();
    for id in ["a", "b"] {
        assert_eq!((cluster.member(C, id).owner().node, cluster.member(C, id).status()), ("b", Status::Up));
    }
    assert!(matches!(cluster.notices(C, ConnId(1))[..], [Notice::Lost { .. }]));
    assert_eq!(heartbeat(&mut cluster, C, at_c), Err(ErrorCode::SessionGone));
    assert_eq!(heartbeat(&mut cluster, B, at_b), Ok(()));
    assert_eq!(cluster.node(C).owner_of_session("http", 7, None).unwrap().node.as_str(), "b");
}

/// The same step at both nodes: each member still has one owner, and the next request repairs the rest.
#[test]
fn equal_claims_are_repaired_by_the_next_request() {
    let (mut cluster, _) = attached();
    cluster.crash(A);
    cluster.run(Duration::from_secs(1));
    reattach(&mut cluster, B, 1, &request(1)).unwrap();
    reattach(&mut cluster, C, 1, &request(1)).unwrap();
    cluster.run(Duration::from_secs(2));
    cluster.assert_agreed();
    reattach(&mut cluster, B, 2, &request(1)).unwrap();
    cluster.run(Duration::from_secs(2));
    cluster.assert_agreed();
    for id in ["a", "b"] {
        assert_eq!((cluster.member(C, id).owner().node, cluster.member(C, id).status()), ("b", Status::Up));
    }
}

#[test]
fn a_node_that_returns_serves_the_session_again() {
    let (mut cluster, _) = attached();
    cluster.crash(A);
    cluster.run(Duration::from_secs(3));
    // It returns before another node was asked for the session.
    cluster.start(A);
    cluster.run(Duration::from_secs(3));
    assert_eq!(cluster.node(B).owner_of_session("http", 7, None).unwrap().state, PeerState::Up);
    let again = reattach(&mut cluster, A, 1, &request(1)).unwrap();
    assert_eq!(ids(&again), ["a", "b"]);
    for _ in 0..10 {
        cluster.run(Duration::from_secs(5));
        heartbeat(&mut cluster, A, again.session).unwrap();
    }
    assert_eq!(cluster.member(B, "a").status(), Status::Up);
}

#[test]
fn another_process_with_the_client_id_is_not_disturbed() {
    let (mut cluster, _) = attached();
    let other = Reattach { nonce: 8, fresh: true, ..request(1) };
    reattach(&mut cluster, B, 2, &other).unwrap();
    let known = cluster.node(B).slot("a").unwrap().claim;
    let mut taking = attach("http", known + 5, &["a", "b"]);
    taking.nonce = 8;
    cluster.attach(B, 2, &taking).unwrap();
    cluster.run(Duration::from_millis(10));
    for at in [A, B, C] {
        assert_eq!(reattach(&mut cluster, at, 1, &request(1)).unwrap_err(), ErrorCode::Superseded);
    }
    assert_eq!(cluster.member(C, "a").owner().node, "b");
}

#[test]
fn an_id_with_a_higher_claim_is_registered_with_one_above_it() {
    let (mut cluster, session) = attached();
    let other = cluster.attach(C, 3, &attach("other", 900, &["x"])).unwrap().session;
    unregister(&mut cluster, C, other, 1, "x");
    cluster.run(Duration::from_millis(10));
    let mut member = AttachMember::default();
    member.spec.id = "x".into();
    member.spec.service = "s".into();
    cluster.call(A, |node, now, out| node.register(now, session, 9, &member, out)).unwrap();
    assert!(cluster.node(A).slot("x").unwrap().claim > 900);
    cluster.run(Duration::from_millis(10));
    let again = reattach(&mut cluster, B, 1, &request(1)).unwrap();
    assert_eq!(ids(&again), ["a", "b", "x"]);
}

/// A limit of the rule: an unregistration that only the lost node had received is undone, and that is reported.
#[test]
fn an_unregistration_that_only_the_lost_node_had_is_undone_and_reported() {
    let (mut cluster, session) = attached();
    for other in [B, C] {
        cluster.cut(A, other);
    }
    unregister(&mut cluster, A, session, 3, "a");
    cluster.run(Duration::from_secs(10));
    let again = reattach(&mut cluster, B, 1, &request(1)).unwrap();
    assert_eq!(ids(&again), ["a", "b"], "the answer lists the client's members");
    cluster.heal();
    cluster.run(Duration::from_secs(30));
    cluster.assert_agreed();
    let conflict = |event: &RegistryEvent| matches!(event, RegistryEvent::Conflict { id, .. } if id == "a");
    assert!([A, B, C].iter().any(|at| cluster.events(*at).any(conflict)));
}
