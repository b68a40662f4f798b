//! `explain`: the status of a member and its evidence.

use crate::cluster::{Cluster, attach};
use convoke_core::member::Status;
use convoke_core::node::Explanation;
use convoke_core::version::NodeId;
use std::time::Duration;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

#[track_caller]
fn explain(cluster: &Cluster, at: usize, id: &str) -> Explanation {
    cluster.node(at).explain(id).unwrap_or_else(|| panic!("{id} is unknown"))
}

fn three_with_a_member_at_a() -> Cluster {
    let mut cluster = Cluster::settled(&["a", "b", "c"]);
    cluster.attach(A, 1, &attach("client", 7, &["orders-1"])).unwrap();
    cluster.run(Duration::from_secs(2));
    cluster
}

#[test]
fn a_member_that_is_up_is_explained_by_its_owner_and_by_others() {
    let cluster = three_with_a_member_at_a();
    let here = explain(&cluster, A, "orders-1");
    assert_eq!((here.shown, here.stated, here.owner_admitted), (Status::Up, Status::Up, true));
    assert_eq!((here.client.as_str(), here.claim), ("client", 7));
    assert_eq!(here.written.origin, *cluster.node(A).origin());
    let session = here.session.clone().expect("its client is attached here");
    assert!(session.connected && !session.superseded && session.silence >= Duration::from_secs(1));
    assert_eq!((here.inferred.clone(), here.responsible.clone()), (None, None));

    let there = explain(&cluster, B, "orders-1");
    assert_eq!((there.shown, there.session.clone(), there.version), (Status::Up, None, here.version));
    assert_eq!(there.evidence.via, None, "B receives evidence from A directly");
    assert!(there.evidence.liveness_counter > 0 && there.evidence.age <= Duration::from_secs(1));
    assert!(cluster.node(B).explain("unknown").is_none());
}

#[test]
fn relayed_evidence_names_its_relay() {
    let mut cluster = three_with_a_member_at_a();
    cluster.cut(A, B);
    cluster.run(Duration::from_secs(30));
    let there = explain(&cluster, B, "orders-1");
    assert_eq!(there.evidence.via.as_ref().map(NodeId::as_str), Some("c"));
    assert!(there.owner_admitted && there.evidence.age < Duration::from_secs(5), "{there:?}");
}

#[test]
fn a_member_of_a_silent_client_is_stated_down_by_its_owner() {
    let mut cluster = three_with_a_member_at_a();
    cluster.run(Duration::from_secs(19));
    for at in [A, B] {
        let down = explain(&cluster, at, "orders-1");
        assert_eq!((down.shown, down.stated, down.owner_admitted), (Status::Down, Status::Down, true));
        assert_eq!(down.responsible, None, "A judges its own sessions");
    }
    assert!(explain(&cluster, A, "orders-1").session.unwrap().silence >= Duration::from_secs(20));
}

#[test]
fn a_member_of_a_silent_node_is_down_although_stated_up() {
    let mut cluster = three_with_a_member_at_a();
    cluster.crash(A);
    cluster.run(Duration::from_secs(22));
    assert_eq!(explain(&cluster, B, "orders-1").shown, Status::Up, "its client may move within the admission window");
    cluster.run(Duration::from_secs(3));
    let (by_b, by_c) = (explain(&cluster, B, "orders-1"), explain(&cluster, C, "orders-1"));
    for down in [&by_b, &by_c] {
        assert_eq!((down.shown, down.stated, down.owner_admitted), (Status::Down, Status::Up, false));
        assert!(down.evidence.age >= Duration::from_secs(23), "{down:?}");
        assert_eq!((down.inferred.clone(), down.session.clone()), (None, None));
    }
    assert!(by_b.responsible.is_some());
    assert_eq!(by_b.responsible, by_c.responsible, "all agree on one responsible node");
    assert_eq!(by_b.version, by_c.version);
}

#[test]
fn a_member_of_a_lost_node_is_expired_by_one_node() {
    let mut cluster = three_with_a_member_at_a();
    cluster.crash(A);
    cluster.run(Duration::from_secs(25));
    let responsible = explain(&cluster, B, "orders-1").responsible.expect("A is silent");
    cluster.run(Duration::from_secs(5 * 60));
    for at in [B, C] {
        let left = explain(&cluster, at, "orders-1");
        assert_eq!((left.shown, left.stated, left.owner_admitted), (Status::Left, Status::Up, false));
        let inferred = left.inferred.clone().expect("a node inferred it");
        assert_eq!(
            (&inferred.by, inferred.applies, inferred.liveness_counter),
            (&responsible, true, left.evidence.liveness_counter)
        );
        assert!(cluster.node(at).member("orders-1").is_none());
    }
    let written: u64 = [B, C].iter().map(|at| cluster.node(*at).counters().members_expired).sum();
    // The member of the client and A's own record, each by one node.
    assert_eq!(written, 2);
    cluster.assert_agreed();
}

/// L3: the owner was only unreachable. The return of its members needs no write.
#[test]
fn a_node_that_returns_from_behind_a_split_voids_the_inference() {
    let mut cluster = three_with_a_member_at_a();
    let session = cluster.attach(A, 1, &attach("client", 8, &["orders-1"])).unwrap().session;
    cluster.cut(A, B);
    cluster.cut(A, C);
    for _ in 0..70 {
        cluster.run(Duration::from_secs(5));
        cluster.call(A, |node, now, out| node.heartbeat(now, session, out)).unwrap();
    }
    assert_eq!(explain(&cluster, B, "orders-1").shown, Status::Left);
    assert_eq!(explain(&cluster, A, "orders-1").shown, Status::Up, "the owner's side never changes the status");
    let writes = cluster.node(A).counters().local_writes;
    cluster.heal();
    cluster.run(Duration::from_secs(8));
    for at in [A, B, C] {
        assert_eq!(explain(&cluster, at, "orders-1").shown, Status::Up);
    }
    assert!(!explain(&cluster, B, "orders-1").inferred.unwrap().applies);
    assert_eq!(cluster.node(A).counters().local_writes, writes);
}

/// The first question about a member that is gone: did its client leave, or did it crash?
#[test]
fn an_unregistered_member_is_told_from_an_expired_one_at_every_node() {
    let mut cluster = three_with_a_member_at_a();
    let session = cluster.attach(A, 2, &attach("other", 3, &["orders-2"])).unwrap().session;
    cluster.call(A, |node, now, out| node.unregister(now, session, 1, "orders-2", out)).unwrap();
    cluster.run(Duration::from_secs(10));
    for at in [A, B, C] {
        let left = explain(&cluster, at, "orders-2");
        let departure = left.departure.expect("it has left");
        assert_eq!((left.shown, departure.expired), (Status::Left, false));
        assert!(departure.age >= Duration::from_secs(9) && departure.age < Duration::from_secs(12), "{departure:?}");
        assert_eq!(explain(&cluster, at, "orders-1").departure, None);
    }
    // The client of orders-1 is silent: down after 20 s, gone 5 min later.
    cluster.run(Duration::from_secs(6 * 60));
    for at in [A, B, C] {
        let left = explain(&cluster, at, "orders-1");
        assert!(left.departure.expect("it has left").expired, "{left:?}");
    }
}

/// A client that closes its session unregisters its members, also if they were down.
#[test]
fn a_closed_session_is_no_expiry() {
    let mut cluster = Cluster::settled(&["a", "b", "c"]);
    let session = cluster.attach(A, 1, &attach("client", 7, &["orders-1"])).unwrap().session;
    cluster.run(Duration::from_secs(25));
    assert_eq!(explain(&cluster, A, "orders-1").shown, Status::Down);
    cluster.call(A, |node, now, out| node.close_session(now, session, out)).unwrap();
    cluster.run(Duration::from_secs(2));
    assert!(!explain(&cluster, B, "orders-1").departure.unwrap().expired);
}

/// A node that expired the members of a lost node is the witness of their departure.
#[test]
fn an_inferred_departure_is_an_expiry() {
    let mut cluster = three_with_a_member_at_a();
    cluster.crash(A);
    cluster.run(Duration::from_secs(6 * 60));
    let departure = explain(&cluster, B, "orders-1").departure.expect("it has left");
    assert!(departure.expired && departure.age > Duration::ZERO, "{departure:?}");
}
