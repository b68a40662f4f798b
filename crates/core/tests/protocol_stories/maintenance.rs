//! Draining, stopping, and large numbers of clients (R-16, N6, P7).

use crate::cluster::{Cluster, Seen, attach};
use convoke_core::ErrorCode;
use convoke_core::Node;
use convoke_core::member::{Drain, Liveness, REASON_BYTES_MAX, Status};
use convoke_core::node::{Attach, ConnId, Notice, PeerState, RegistryEvent, StopReason};
use std::time::Duration;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn drain(cluster: &mut Cluster, at: usize, id: &str, drained: bool) -> Result<(), ErrorCode> {
    let result = cluster.call(at, |node, now, out| node.drain(now, id, drained, out));
    cluster.run(Duration::from_millis(10));
    result.map_err(|rejection| rejection.code)
}

#[test]
fn a_member_is_drained_and_undrained_from_any_node() {
    let mut cluster = Cluster::settled(&["a", "b", "c"]);
    cluster.attach(A, 1, &attach("client", 1, &["orders-1"])).unwrap();
    cluster.run(secs(1));
    let shown = |cluster: &Cluster| {
        [A, B, C].map(|at| {
            let member = cluster.member(at, "orders-1");
            assert_eq!((member.status(), member.owner().node), (Status::Up, "a"), "still listed and up");
            assert_eq!(member.routable(), !member.drained());
            member.drained()
        })
    };
    for (at, drained) in [(B, true), (C, false), (A, true), (B, true), (C, false), (C, false), (B, true)] {
        drain(&mut cluster, at, "orders-1", drained).unwrap();
        assert_eq!(shown(&cluster), [drained; 3]);
    }
    let services = cluster.node(C).services();
    let orders = services.iter().find(|service| service.service == "orders").unwrap();
    assert_eq!((orders.up, orders.drained), (0, 1));
}

#[test]
fn draining_an_unknown_or_unreachable_member_is_rejected() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    cluster.attach(A, 1, &attach("client", 1, &["orders-1"])).unwrap();
    cluster.run(secs(1));
    assert_eq!(drain(&mut cluster, B, "unknown", true), Err(ErrorCode::NotFound));
    cluster.crash(A);
    cluster.run(secs(1));
    assert_eq!(drain(&mut cluster, B, "orders-1", true), Err(ErrorCode::NotReady));
    assert!(!cluster.member(B, "orders-1").drained());
    // Its client moves; now B is the owner.
    cluster.attach(B, 1, &attach("client", 2, &["orders-1"])).unwrap();
    drain(&mut cluster, B, "orders-1", true).unwrap();
    assert!(cluster.member(B, "orders-1").drained());
}

fn drain_for(cluster: &mut Cluster, at: usize, lasts: Option<Duration>, reason: &str) -> Result<(), String> {
    let wanted = Drain { lasts, reason: reason.to_owned(), until: 7 };
    let result = cluster.call(at, |node, now, out| node.mark(now, "orders-1", Some(&wanted), out));
    cluster.run(Duration::from_millis(10));
    result.map_err(|rejection| rejection.message)
}

/// C21: every node shows reason and end, and the remaining time falls.
#[test]
fn a_drain_with_an_end_ends_by_itself() {
    let mut cluster = Cluster::settled(&["a", "b", "c"]);
    cluster.attach(A, 1, &attach("client", 1, &["orders-1"])).unwrap();
    cluster.run(secs(1));
    drain_for(&mut cluster, B, Some(secs(30)), "new disk").unwrap();
    cluster.run(secs(10));
    for at in [A, B, C] {
        let member = cluster.member(at, "orders-1");
        let maintenance = member.maintenance().unwrap();
        assert_eq!((maintenance.reason(), maintenance.until()), ("new disk", Some(7)));
        let explained = cluster.node(at).explain("orders-1").unwrap().maintenance.unwrap();
        let remaining = explained.remaining.unwrap();
        // The node counts from its last tick.
        assert!((secs(19)..secs(21)).contains(&remaining), "{remaining:?}");
    }
    cluster.run(secs(19));
    assert!(cluster.member(C, "orders-1").drained());
    cluster.run(secs(3));
    for at in [A, B, C] {
        let member = cluster.member(at, "orders-1");
        assert!(!member.drained() && member.maintenance().is_none());
    }
    assert_eq!(cluster.node(A).counters().drains_ended, 1);
    cluster.assert_agreed();
}

/// C21: a drain without an end replaces one that has an end, and the same drain again changes nothing.
#[test]
fn a_drain_is_replaced_by_a_later_one() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    cluster.attach(A, 1, &attach("client", 1, &["orders-1"])).unwrap();
    cluster.run(secs(1));
    drain_for(&mut cluster, B, Some(secs(30)), "").unwrap();
    cluster.run(secs(1));
    drain(&mut cluster, B, "orders-1", true).unwrap();
    let version = cluster.member(A, "orders-1").version();
    drain(&mut cluster, B, "orders-1", true).unwrap();
    assert_eq!(cluster.member(A, "orders-1").version(), version);
    cluster.run(secs(60));
    assert!(cluster.member(A, "orders-1").drained());
    drain_for(&mut cluster, A, None, "moved").unwrap();
    assert_eq!(cluster.member(B, "orders-1").maintenance().unwrap().reason(), "moved");
    drain(&mut cluster, B, "orders-1", false).unwrap();
    assert!(!cluster.member(B, "orders-1").drained());
}

#[test]
fn an_invalid_reason_or_time_of_a_drain_is_rejected() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    cluster.attach(A, 1, &attach("client", 1, &["orders-1"])).unwrap();
    let year = secs(366 * 24 * 60 * 60);
    let mut rejected = |lasts, reason: &str| drain_for(&mut cluster, A, lasts, reason).unwrap_err();
    assert!(rejected(Some(Duration::ZERO), "").contains("1 ms"));
    assert!(rejected(Some(year + secs(1)), "").contains("1 ms"));
    assert!(rejected(None, "a\nb").contains("control character"));
    assert!(rejected(None, &"x".repeat(REASON_BYTES_MAX + 1)).contains("256 bytes"));
    drain_for(&mut cluster, A, Some(year), &"x".repeat(REASON_BYTES_MAX)).unwrap();
}

/// C7: the mark was set at the old owner while the member was moving to the new one.
#[test]
fn a_drain_mark_survives_a_concurrent_move() {
    let mut cluster = Cluster::settled(&["a", "b", "c"]);
    cluster.attach(A, 1, &attach("client", 1, &["orders-1"])).unwrap();
    cluster.run(secs(1));
    cluster.cut(A, B);
    cluster.cut(A, C);
    drain(&mut cluster, A, "orders-1", true).unwrap();
    cluster.attach(B, 2, &attach("client", 2, &["orders-1"])).unwrap();
    cluster.run(secs(10));
    assert!(!cluster.member(B, "orders-1").drained());
    cluster.heal();
    cluster.run(secs(8));
    for at in [A, B, C] {
        let member = cluster.member(at, "orders-1");
        assert!(member.drained(), "at {at}");
        assert_eq!(member.owner().node, "b");
    }
    cluster.assert_agreed();
}

#[test]
fn a_node_is_drained_as_a_member() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    cluster.call(A, |node, now, out| node.drain_node(now, true, out)).unwrap();
    cluster.run(secs(1));
    let node = cluster.member(B, "convoke.a");
    assert!(node.drained() && node.status() == Status::Up && !node.routable());
    assert!(cluster.node(A).is_serving(), "it continues to serve");
}

#[test]
fn a_graceful_stop_hands_over_all_sessions_without_down() {
    let mut cluster = Cluster::settled(&["a", "b", "c"]);
    let ids: Vec<String> = (0..12).map(|i| format!("orders-{i}")).collect();
    for (i, id) in ids.iter().enumerate() {
        cluster.attach(A, i as u64, &attach(&format!("client-{i}"), 1, &[id])).unwrap();
    }
    cluster.call(A, |node, now, out| node.register_name(now, "actor", "a", out)).unwrap();
    cluster.run(secs(1));
    cluster.call(A, Node::stop);
    assert_eq!(cluster.attach(A, 99, &attach("late", 1, &["x"])).unwrap_err().code, ErrorCode::NotReady);

    // Each client moves to the named node, a moment after its notice.
    let mut moved = vec![false; ids.len()];
    let asked = cluster.now;
    for _ in 0..300 {
        cluster.run(Duration::from_millis(100));
        for i in 0..ids.len() {
            let notices = cluster.notices(A, ConnId(i as u64));
            if moved[i] || notices.is_empty() {
                continue;
            }
            let [Notice::Handover { target: Some(target) }] = &notices[..] else { panic!("{notices:?}") };
            assert_eq!(target.client_address, format!("{}:7001", target.node));
            let at = if target.node.as_str() == "b" { B } else { C };
            moved[i] = true;
            cluster.attach(at, i as u64, &attach(&format!("client-{i}"), 2, &[&ids[i]])).unwrap();
        }
        for id in &ids {
            assert!([B, C].iter().all(|at| cluster.member(*at, id).status() == Status::Up), "{id}");
        }
        if !cluster.is_running(A) {
            break;
        }
    }
    assert!(moved.iter().all(|moved| *moved));
    let stopped = cluster.times(A, |seen| *seen == Seen::Stopped(StopReason::Graceful));
    assert!(stopped.len() == 1 && stopped[0] <= asked + secs(3), "a few sessions move quickly: {stopped:?}");
    cluster.run(secs(1));
    for at in [B, C] {
        assert_eq!(cluster.peer_state(at, "a"), PeerState::Left);
        assert!(cluster.events(at).any(|event| matches!(event, RegistryEvent::PeerLeft { .. })));
        assert!(cluster.node(at).member("convoke.a").is_none(), "its own record is unregistered");
        assert!(cluster.node(at).name("actor").is_none(), "and its names are unregistered");
    }
    cluster.run(secs(60));
    for id in &ids {
        let member = cluster.member(B, id);
        assert!(member.owner().node != "a", "{id}");
    }
    cluster.assert_agreed();
}

/// Many sessions are notified evenly, and all within the first third of the timeout, even as notified ones leave (N6).
#[test]
fn a_graceful_stop_hands_many_sessions_over_evenly() {
    const CLIENTS: u64 = 3_000;
    let mut cluster = Cluster::settled(&["a", "b"]);
    for i in 0..CLIENTS {
        cluster.attach(A, i, &attach(&format!("client-{i}"), 1, &[&format!("m{i}")])).unwrap();
    }
    cluster.run(secs(1));
    let asked = cluster.now;
    cluster.call(A, Node::stop);
    let mut notified = vec![false; CLIENTS as usize];
    let mut batches = Vec::new();
    while cluster.is_running(A) {
        let now: Vec<u64> =
            (0..CLIENTS).filter(|i| !notified[*i as usize] && !cluster.notices(A, ConnId(*i)).is_empty()).collect();
        for i in &now {
            notified[*i as usize] = true;
            cluster.attach(B, *i, &attach(&format!("client-{i}"), 2, &[&format!("m{i}")])).unwrap();
        }
        batches.push(now.len());
        cluster.run(secs(1));
    }
    assert!(notified.iter().all(|notified| *notified));
    assert!(batches.iter().all(|batch| *batch <= 400), "{batches:?}");
    assert!(cluster.now <= asked + secs(13), "{batches:?}");
}

/// Sessions move to the nodes that clients would choose: not to drained nodes, and to other regions only if necessary
/// (N6).
#[test]
fn a_graceful_stop_avoids_drained_and_distant_targets() {
    for (drained, target) in [(false, "b"), (true, "c")] {
        let mut cluster = Cluster::new(&["a", "b", "c"]);
        cluster.config(C).region = "far".to_owned();
        for at in [A, B, C] {
            cluster.start(at);
            cluster.run(secs(2));
        }
        for i in 0..10 {
            cluster.attach(A, i, &attach(&format!("client-{i}"), 1, &[])).unwrap();
        }
        cluster.call(B, |node, now, out| node.drain_node(now, drained, out)).unwrap();
        cluster.run(secs(1));
        assert_eq!(cluster.peer_state(A, "c"), PeerState::Up);
        cluster.call(A, Node::stop);
        for i in 0..10 {
            let notices = cluster.notices(A, ConnId(i));
            let [Notice::Handover { target: Some(to) }] = &notices[..] else { panic!("{notices:?}") };
            assert_eq!(to.node.as_str(), target);
        }
    }
}

#[test]
fn a_graceful_stop_is_bounded_and_immediate_without_sessions() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    let session = cluster.attach(A, 1, &attach("client", 1, &["orders-1"])).unwrap().session;
    let asked = cluster.now;
    cluster.call(A, Node::stop);
    for _ in 0..5 {
        cluster.run(secs(5));
        cluster.call(A, |node, now, out| node.heartbeat(now, session, out)).expect("the session exists");
    }
    cluster.run(secs(7));
    let stopped = cluster.times(A, |seen| *seen == Seen::Stopped(StopReason::Graceful));
    assert!(stopped.len() == 1 && stopped[0] >= asked + secs(30), "{stopped:?}");
    // Its member is not unregistered: the client may attach elsewhere.
    assert_eq!(cluster.member(B, "orders-1").status(), Status::Up);
    cluster.attach(B, 1, &attach("client", 2, &["orders-1"])).unwrap();

    // A lone node has no handover target.
    let asked = cluster.now;
    cluster.call(B, Node::stop);
    assert_eq!(cluster.times(B, |seen| matches!(seen, Seen::Stopped(_))), [asked]);
}

/// One of two nodes stops while the other is still starting: it waits for that one, which considers its registry
/// complete (N3, N6).
#[test]
fn a_graceful_stop_waits_for_a_starting_peer() {
    let mut cluster = Cluster::new(&["a", "b"]);
    // So that the transfer of the registry takes longer than the notice that its sender is stopping.
    cluster.config(A).limits.chunk_bytes = 200;
    cluster.config(A).limits.chunk_window = 1;
    for at in [A, B] {
        cluster.start(at);
        cluster.run(secs(2));
    }
    let ids: Vec<String> = (0..30).map(|i| format!("orders-{i}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    cluster.attach(A, 1, &attach("client", 1, &ids)).unwrap();
    cluster.run(secs(1));
    cluster.call(B, Node::stop);
    cluster.run(secs(3));
    assert!(!cluster.is_running(B));
    cluster.start(B);
    cluster.delay = Duration::from_millis(200);
    while cluster.peer_state(A, "b") != PeerState::Up {
        cluster.run(Duration::from_millis(50));
    }
    assert!(!cluster.node(B).is_serving());
    cluster.call(A, Node::stop);
    cluster.run(secs(2));
    assert!(!cluster.node(B).is_serving(), "it knows by now that the other node is stopping");
    cluster.run(secs(10));
    assert!(cluster.is_running(A), "it did not wait");
    assert!(cluster.node(B).is_serving(), "{:?}", cluster.events(B).collect::<Vec<_>>());
    let notices = cluster.notices(A, ConnId(1));
    assert!(matches!(&notices[..], [Notice::Handover { target: Some(to) }] if to.node.as_str() == "b"), "{notices:?}");
    cluster.attach(B, 1, &attach("client", 2, &ids)).unwrap();
    cluster.run(secs(3));
    assert!(!cluster.is_running(A));
    assert_eq!(cluster.member(B, "orders-1").status(), Status::Up);
}

/// With `fast` liveness a lost connection counts, but not one that a stopping node has closed itself. A client that
/// attaches to it gets the address of another node (N6, C6).
#[test]
fn a_graceful_stop_does_not_mark_closed_sessions_down() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    let fast = Attach { liveness: Liveness::Fast, ..attach("fast", 1, &["fast"]) };
    cluster.attach(A, 1, &fast).unwrap();
    // Does not move for a while, so that the node stays.
    cluster.attach(A, 2, &attach("slow", 1, &["slow"])).unwrap();
    cluster.run(secs(1));
    cluster.call(A, |node, now, out| node.disconnected(now, ConnId(1), out));
    cluster.call(A, Node::stop);
    cluster.run(secs(3));
    assert!(cluster.is_running(A));
    assert_eq!(cluster.member(B, "fast").status(), Status::Up);
    let rejection = cluster.attach(A, 3, &Attach { claim: 2, ..fast }).unwrap_err();
    assert_eq!(
        (rejection.code, rejection.message.as_str()),
        (ErrorCode::NotReady, "this node is stopping; attach to b:7001 instead")
    );
}

/// A node that is stopped just as it is cut off stays until a peer has received the last changes of its clients, or
/// until its time is over (N6).
#[test]
fn a_graceful_stop_waits_until_a_peer_has_its_writes() {
    for heals in [true, false] {
        let mut cluster = Cluster::settled(&["a", "b"]);
        let session = cluster.attach(A, 1, &attach("client", 1, &["orders-1"])).unwrap().session;
        cluster.run(secs(1));
        cluster.cut(A, B);
        cluster.reset(A, B);
        cluster.run(secs(1));
        cluster.call(A, |node, now, out| node.unregister(now, session, 1, "orders-1", out)).unwrap();
        cluster.call(A, |node, now, out| node.disconnected(now, ConnId(1), out));
        let asked = cluster.now;
        cluster.call(A, Node::stop);
        cluster.run(secs(5));
        let stopped = |cluster: &Cluster| cluster.times(A, |seen| matches!(seen, Seen::Stopped(_)));
        assert_eq!(stopped(&cluster), [], "{heals}");
        if heals {
            cluster.heal();
        }
        cluster.run(secs(30));
        assert!(stopped(&cluster).len() == 1 && stopped(&cluster)[0] <= asked + secs(31), "{:?}", stopped(&cluster));
        assert_eq!(cluster.node(B).member("orders-1").is_none(), heals);
    }
}

/// Names that do not fit into a push are still unregistered before their node stops (N6).
#[test]
fn a_graceful_stop_unregisters_more_names_than_fit_into_a_push() {
    let mut cluster = Cluster::new(&["a", "b"]);
    cluster.config(A).limits.push_backlog = 4;
    cluster.start(A);
    cluster.run(secs(8));
    cluster.start(B);
    cluster.run(secs(3));
    for i in 0..20 {
        cluster.call(A, |node, now, out| node.register_name(now, &format!("name-{i}"), "here", out)).unwrap();
        cluster.run(Duration::from_millis(10));
    }
    assert!(cluster.node(B).name("name-19").is_some());
    cluster.call(A, Node::stop);
    cluster.run(secs(5));
    assert_eq!(cluster.times(A, |seen| *seen == Seen::Stopped(StopReason::Graceful)).len(), 1);
    assert!((0..20).all(|i| cluster.node(B).name(&format!("name-{i}")).is_none()));
    assert!(cluster.node(B).member("convoke.a").is_none());
}

/// P7: however many clients with however long ids change at once, no frame exceeds the limit (`Cluster` checks each).
#[test]
fn many_clients_with_long_ids_fit_into_frames() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    // All in one batch of inputs, as when a whole site returns: pushed together.
    cluster.call(A, |node, now, out| {
        for i in 0..15_000u64 {
            let client = format!("{i:0>256}");
            let id = format!("m{i}");
            node.attach(now, ConnId(i), &attach(&client, 1, &[&id]), out).unwrap();
        }
    });
    cluster.run(secs(2));
    assert!(cluster.node(B).member("m14999").is_some());
    assert!(!cluster.events(B).any(|event| matches!(event, RegistryEvent::PeerLost { .. })));
    cluster.assert_agreed();
}

/// A drained node is still listed and up everywhere, but pickers skip it; and the mark can be cleared.
#[test]
fn a_node_is_drained_and_undrained() {
    let mut cluster = Cluster::settled(&["a", "b", "c"]);
    for drained in [true, false] {
        cluster.call(A, |node, now, out| node.drain_node(now, drained, out)).unwrap();
        cluster.run(secs(1));
        for at in [A, B, C] {
            let member = cluster.member(at, "convoke.a");
            assert_eq!((member.status(), member.drained(), member.routable()), (Status::Up, drained, !drained));
        }
    }
}
