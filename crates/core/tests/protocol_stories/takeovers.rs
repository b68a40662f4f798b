//! Which client may hold a member, and which clients are notified (C1, C2, C4, C7, R-07, R-10).

use crate::cluster::{Cluster, attach};
use convoke_core::ErrorCode;
use convoke_core::member::{MemberSpec, MetadataUpdate, Status};
use convoke_core::node::{Attach, AttachMember, ConnId, Notice, SessionId};
use std::time::Duration;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn takeover(client: &str, claim: u64, id: &str) -> Attach {
    let mut request = attach(client, claim, &[id]);
    request.members[0].takeover = true;
    request
}

#[test]
fn a_claim_not_above_the_known_one_is_rejected_with_the_known_one() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    cluster.attach(A, 1, &attach("client", 7, &["orders-1"])).unwrap();
    cluster.run(secs(1));
    for at in [A, B] {
        for claim in [1, 7] {
            let rejection = cluster.attach(at, 2, &attach("client", claim, &["orders-1"])).unwrap_err();
            assert_eq!((rejection.code, rejection.known), (ErrorCode::StaleClaim, Some(7)), "claim {claim}");
        }
    }
    // Known for the client's session here, even if no member is named; unknown elsewhere.
    let rejection = cluster.attach(A, 2, &attach("client", 7, &[])).unwrap_err();
    assert_eq!(rejection.known, Some(7));
    cluster.attach(B, 2, &attach("client", 8, &["orders-1"])).unwrap();
    cluster.run(secs(1));
    assert_eq!(cluster.member(A, "orders-1").owner().node, "b");
}

#[test]
fn a_member_of_another_live_client_is_rejected_here_and_elsewhere() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    cluster.attach(A, 1, &attach("client", 1, &["orders-1"])).unwrap();
    cluster.run(secs(1));
    let before = cluster.node(A).slot("orders-1");
    for (at, claim) in [(A, 2), (B, 4)] {
        let attached = cluster.attach(at, 2, &attach("rival", claim, &["orders-1", "mine"])).unwrap();
        assert_eq!(attached.versions.len(), 1, "the rest of the session is accepted");
        let [(id, rejection)] = &attached.rejected[..] else { panic!("{attached:?}") };
        assert_eq!(
            (id.as_str(), rejection.code, rejection.field),
            ("orders-1", ErrorCode::AlreadyRegistered, Some("id"))
        );
        cluster.run(secs(1));
        assert_eq!(cluster.node(A).slot("orders-1"), before);
    }
    assert!(cluster.notices(A, ConnId(1)).is_empty());
    // Once it is down, any client may register it.
    cluster.run(secs(25));
    assert_eq!(cluster.member(B, "orders-1").status(), Status::Down);
    let attached = cluster.attach(B, 2, &attach("rival", 9, &["orders-1"])).unwrap();
    assert!(attached.rejected.is_empty());
}

#[test]
fn a_takeover_notifies_the_loser_and_leaves_its_other_members() {
    for winner_at in [A, B] {
        let mut cluster = Cluster::settled(&["a", "b"]);
        let loser = cluster.attach(A, 1, &attach("client", 1, &["orders-1", "orders-2"])).unwrap().session;
        cluster.run(secs(1));
        let attached = cluster.attach(winner_at, 2, &takeover("rival", 2, "orders-1")).unwrap();
        assert!(attached.rejected.is_empty());
        cluster.run(secs(1));
        let expected = [Notice::TakenOver { id: "orders-1".to_owned(), last: false }];
        assert_eq!(cluster.notices(A, ConnId(1)), expected, "at {winner_at}");
        for at in [A, B] {
            assert_eq!(cluster.member(at, "orders-1").client(), "rival");
            assert_eq!(cluster.member(at, "orders-2").client(), "client");
        }
        // Its session keeps the rest.
        let update = MetadataUpdate::set("k", "v");
        cluster.call(A, |node, now, out| node.update(now, loser, 1, "orders-2", &update, None, out)).unwrap();
        let rejection = cluster.call(A, |node, now, out| node.update(now, loser, 2, "orders-1", &update, None, out));
        assert_eq!(rejection.unwrap_err().code, ErrorCode::PermissionDenied);
        cluster.run(secs(30));
        assert_eq!(cluster.member(A, "orders-1").status(), Status::Down, "because its own client is silent");
    }
}

/// C receives nothing until A is lost and has been silent for long; then it meets B, which has A's records. Meanwhile
/// the client of this session is connected to C.
fn lose_a_and_heal(cluster: &mut Cluster, session: SessionId) {
    cluster.run(secs(1));
    cluster.crash(A);
    for _ in 0..12 {
        cluster.run(secs(5));
        cluster.call(C, |node, now, out| node.heartbeat(now, session, out)).unwrap();
    }
    cluster.heal();
    cluster.run(secs(10));
}

#[test]
fn a_silent_owners_record_takes_nothing_from_a_connected_client() {
    let mut cluster = Cluster::settled(&["a", "b", "c"]);
    cluster.cut(A, C);
    cluster.cut(B, C);
    cluster.attach(A, 1, &attach("client", 7, &["orders-1"])).unwrap();
    let session = cluster.attach(C, 2, &attach("newcomer", 1, &["orders-1"])).unwrap().session;
    lose_a_and_heal(&mut cluster, session);
    assert_eq!(cluster.notices(C, ConnId(2)), []);
    for at in [B, C] {
        let member = cluster.member(at, "orders-1");
        assert_eq!((member.client(), member.status()), ("newcomer", Status::Up), "at {at}");
        assert_eq!(cluster.node(at).slot("orders-1").unwrap().claim, 8, "above the silent owner's claim");
    }
}

/// A takeover of this registration applies, even if the new owner is silent.
#[test]
fn a_takeover_stands_when_its_node_falls_silent() {
    let mut cluster = Cluster::settled(&["a", "b", "c"]);
    let session = cluster.attach(C, 2, &attach("client", 1, &["orders-1"])).unwrap().session;
    cluster.run(secs(1));
    cluster.cut(A, C);
    cluster.cut(B, C);
    let rival = cluster.attach(A, 1, &takeover("rival", 2, "orders-1")).unwrap().session;
    // Later updates by the new owner do not matter either.
    let update = MetadataUpdate::set("k", "v");
    cluster.call(A, |node, now, out| node.update(now, rival, 1, "orders-1", &update, None, out)).unwrap();
    cluster.attach(A, 1, &attach("rival", 3, &["orders-1"])).unwrap();
    lose_a_and_heal(&mut cluster, session);
    assert_eq!(cluster.notices(C, ConnId(2)), [Notice::TakenOver { id: "orders-1".to_owned(), last: true }]);
    for at in [B, C] {
        let member = cluster.member(at, "orders-1");
        assert_eq!((member.client(), member.status()), ("rival", Status::Down), "at {at}");
    }
}

/// A takeover of an earlier registration takes nothing from the one that came after it at the same node.
#[test]
fn a_takeover_of_an_earlier_registration_leaves_the_next_one_alone() {
    let mut cluster = Cluster::settled(&["a", "b", "c"]);
    // The new client's session is older than the takeover.
    let newcomer = cluster.attach(C, 3, &attach("newcomer", 5, &[])).unwrap().session;
    let first = cluster.attach(C, 2, &attach("client", 1, &["orders-1"])).unwrap().session;
    cluster.run(secs(1));
    cluster.cut(A, C);
    cluster.cut(B, C);
    cluster.attach(A, 1, &takeover("rival", 9, "orders-1")).unwrap();
    cluster.call(C, |node, now, out| node.unregister(now, first, 1, "orders-1", out)).unwrap();
    let member = AttachMember { spec: MemberSpec::new("orders-1", "orders"), takeover: false };
    cluster.call(C, |node, now, out| node.register(now, newcomer, 1, &member, out)).unwrap();
    lose_a_and_heal(&mut cluster, newcomer);
    assert_eq!(cluster.notices(C, ConnId(3)), []);
    for at in [B, C] {
        let member = cluster.member(at, "orders-1");
        assert_eq!((member.client(), member.status()), ("newcomer", Status::Up), "at {at}");
    }
}

/// Two processes with one client id: the newer one wins once; the older one is notified and does not compete.
#[test]
fn a_second_process_with_the_same_client_id_supersedes_the_first() {
    for second_at in [A, B] {
        let mut cluster = Cluster::settled(&["a", "b"]);
        let first = cluster.attach(A, 1, &attach("client", 1, &["orders-1"])).unwrap().session;
        cluster.run(secs(1));
        let second = Attach { nonce: 2, ..attach("client", 2, &["orders-1"]) };
        cluster.attach(second_at, 2, &second).unwrap();
        cluster.run(secs(1));
        assert_eq!(cluster.notices(A, ConnId(1)), [Notice::Superseded { known: 2 }], "at {second_at}");
        let gone = cluster.call(A, |node, now, out| node.heartbeat(now, first, out)).unwrap_err();
        assert_eq!(gone.code, ErrorCode::SessionGone);
        // The first process tries to return: it sends 1 as its own last claim.
        for at in [A, B] {
            let back = Attach { previous_claim: 1, ..attach("client", 3, &["orders-1"]) };
            let rejection = cluster.attach(at, 1, &back).unwrap_err();
            assert_eq!((rejection.code, rejection.field), (ErrorCode::Superseded, Some("client")), "at {at}");
        }
        // A third process, newly started, has no claim and takes over.
        let third = Attach { nonce: 3, ..attach("client", 3, &["orders-1"]) };
        cluster.attach(A, 3, &third).unwrap();
    }
}

/// The same process attaches elsewhere: its old session is lost, which is no conflict.
#[test]
fn a_process_that_attaches_elsewhere_loses_its_old_session_and_keeps_its_members() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    let old = cluster.attach(A, 1, &attach("client", 1, &["orders-1", "orders-2"])).unwrap().session;
    cluster.run(secs(1));
    let again = Attach { previous_claim: 1, ..attach("client", 2, &["orders-1"]) };
    cluster.attach(B, 2, &again).unwrap();
    cluster.run(secs(1));
    assert_eq!(cluster.notices(A, ConnId(1)), [Notice::Lost { known: 2 }]);
    let gone = cluster.call(A, |node, now, out| node.heartbeat(now, old, out)).unwrap_err();
    assert_eq!(gone.code, ErrorCode::SessionGone);
    // A member that the newer session did not name keeps the timers of the old one (C4).
    assert_eq!(cluster.member(B, "orders-2").status(), Status::Up);
    cluster.run(secs(19));
    assert_eq!(cluster.member(B, "orders-2").status(), Status::Down);
}

/// C7: drain marks and creation times survive sessions and owners.
#[test]
fn the_drain_mark_and_the_time_of_creation_survive_attaching_again_and_takeover() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    cluster.attach(A, 1, &attach("client", 1, &["orders-1"])).unwrap();
    let created = cluster.member(A, "orders-1").created();
    assert!(created > 0);
    cluster.call(A, |node, now, out| node.drain(now, "orders-1", true, out)).unwrap();
    let mut steps = [
        (A, attach("client", 2, &["orders-1"])),
        (B, attach("client", 3, &["orders-1"])),
        (A, takeover("rival", 4, "orders-1")),
        (B, takeover("client", 5, "orders-1")),
    ]
    .into_iter()
    .enumerate();
    for (step, (at, request)) in &mut steps {
        cluster.run(secs(2));
        cluster.attach(at, 10 + step as u64, &request).unwrap();
        cluster.run(secs(1));
        for at in [A, B] {
            let member = cluster.member(at, "orders-1");
            assert!(member.drained() && !member.routable(), "step {step}");
            assert_eq!((member.created(), member.status()), (created, Status::Up), "step {step}");
        }
    }
    // Unregistered and registered again, it is another member.
    let left = Attach { unregistered: vec!["orders-1".to_owned()], ..attach("client", 6, &[]) };
    cluster.attach(B, 20, &left).unwrap();
    cluster.run(secs(1));
    cluster.attach(A, 21, &attach("client", 7, &["orders-1"])).unwrap();
    let member = cluster.member(A, "orders-1");
    assert!(!member.drained() && member.created() > created);
}

/// the member of a node belongs to the node.
#[test]
fn clients_cannot_change_the_member_that_stands_for_a_node() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    let session = cluster.attach(A, 1, &attach("client", 99, &["orders-1"])).unwrap().session;
    cluster.run(secs(1));
    let before = [A, B].map(|at| (cluster.node(at).slot("convoke.a"), cluster.node(at).slot("convoke.b")));
    let update = MetadataUpdate::set("k", "v");
    let mut seqs = 1..;
    let mut seq = || seqs.next().unwrap();
    for id in ["convoke.a", "convoke.b"] {
        for spec in [MemberSpec::new(id, "orders"), MemberSpec::new(id, "convoke"), MemberSpec::new("x", "convoke")] {
            let member = AttachMember { spec, takeover: true };
            let request = Attach { members: vec![member.clone()], ..attach("rival", 100, &[]) };
            assert_eq!(cluster.attach(A, 2, &request).unwrap_err().code, ErrorCode::PermissionDenied);
            let rejection = cluster.call(A, |node, now, out| node.register(now, session, seq(), &member, out));
            assert_eq!(rejection.unwrap_err().code, ErrorCode::PermissionDenied);
        }
        let rejection = cluster.call(A, |node, now, out| node.update(now, session, seq(), id, &update, None, out));
        assert_eq!(rejection.unwrap_err().code, ErrorCode::PermissionDenied);
        let rejection = cluster.call(A, |node, now, out| node.unregister(now, session, seq(), id, out));
        assert_eq!(rejection.unwrap_err().code, ErrorCode::PermissionDenied);
        // A repeated unregistration of another client's member is ignored.
        let request = Attach { unregistered: vec![id.to_owned()], ..attach("rival", 100 + id.len() as u64, &[]) };
        let _ = cluster.attach(B, 3, &request);
        cluster.run(secs(1));
        let after = [A, B].map(|at| (cluster.node(at).slot("convoke.a"), cluster.node(at).slot("convoke.b")));
        assert_eq!(after, before);
    }
}
