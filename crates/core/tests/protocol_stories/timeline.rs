//! The timeline of R-46, step by step.

use crate::cluster::{Cluster, HEALTH_QUERY, Seen, attach, ms};
use convoke_core::member::Status;
use convoke_core::node::{LossReason, PeerState, RegistryEvent};
use std::time::Duration;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

#[test]
fn a_crash_at_10_s_is_recovered_at_25_1_s() {
    let mut cluster = Cluster::new(&["a", "b", "c"]);
    cluster.delay = Duration::from_millis(15);

    // 0 s: A and B (and C) are connected, exchanging normally.
    for at in [A, B, C] {
        cluster.start(at);
        cluster.run(Duration::from_millis(500));
    }
    cluster.call(A, |node, now, out| node.register_name(now, "actor", "a/1", out)).unwrap();
    cluster.attach(A, 1, &attach("client", 1, &["orders-1"])).unwrap();
    cluster.run_until(ms(9_999));
    cluster.assert_agreed();
    assert_eq!(cluster.peer_state(B, "a"), PeerState::Up);

    // 10 s: A crashes.
    cluster.run_until(ms(10_000));
    cluster.crash(A);

    // 10.003 s: B detects the end of file; A is lost, and its registrations stay.
    cluster.run_until(ms(10_003));
    let lost = |seen: &Seen| matches!(seen, Seen::Event(RegistryEvent::PeerLost { node, reason: LossReason::Closed }) if node.as_str() == "a");
    assert_eq!(cluster.times(B, lost), [ms(10_003)]);
    assert_eq!(cluster.peer_state(B, "a"), PeerState::Lost);
    assert_eq!(cluster.node(B).name("actor").unwrap().location, "a/1");
    assert_eq!(cluster.member(B, "orders-1").status(), Status::Up);

    // 10.103 s: B asks the other node about A; within moments the majority agrees.
    cluster.run_until(ms(10_102));
    assert_eq!(cluster.times(B, |seen| *seen == Seen::Sent(HEALTH_QUERY)), []);
    cluster.run_until(ms(10_200));
    assert_eq!(cluster.times(B, |seen| *seen == Seen::Sent(HEALTH_QUERY)), [ms(10_103)]);
    let failed = |seen: &Seen| matches!(seen, Seen::Event(RegistryEvent::PeerFailed { node, votes: 2, answers: 2 }) if node.as_str() == "a");
    assert_eq!(cluster.times(B, failed).len(), 1);
    assert_eq!(cluster.peer_state(B, "a"), PeerState::Failed);
    assert_eq!(cluster.node(B).name("actor").unwrap().location, "a/1", "nothing is removed");

    // 15 s and 20 s: B retries and fails.
    cluster.run_until(ms(24_900));
    let to_a = |seen: &Seen| *seen == Seen::Dialled("a:7000".to_owned());
    let tries: Vec<_> = cluster.times(B, to_a).into_iter().filter(|at| *at > ms(10_000)).collect();
    assert_eq!(tries, [ms(15_003), ms(20_003)]);
    let fails: Vec<_> =
        cluster.times(B, |seen| *seen == Seen::DialFailed).into_iter().filter(|at| *at > ms(10_000)).collect();
    assert_eq!(fails, [ms(15_003), ms(20_003)]);

    // 25 s: A restarts at the same address. B retries: a connection, which by itself is not evidence.
    cluster.run_until(ms(25_000));
    cluster.start(A);
    cluster.call(A, |node, now, out| node.register_name(now, "actor", "a/2", out)).unwrap();
    cluster.run_until(ms(25_003));
    let tries: Vec<_> = cluster.times(B, to_a).into_iter().filter(|at| *at > ms(21_000)).collect();
    assert_eq!(tries, [ms(25_003)]);
    assert_eq!(cluster.times(B, |seen| *seen == Seen::Connected).last(), Some(&ms(25_003)));
    assert_eq!(cluster.peer_state(B, "a"), PeerState::Failed);
    cluster.run_until(ms(25_030));
    assert_eq!(cluster.peer_state(B, "a"), PeerState::Failed, "A has sent nothing yet");

    // 25.1 s: A has sent a message; B has reset its failure, and the state is normal again.
    cluster.run_until(ms(25_100));
    assert_eq!(cluster.peer_state(B, "a"), PeerState::Up);
    let up = |seen: &Seen| matches!(seen, Seen::Event(RegistryEvent::PeerUp { node }) if node.as_str() == "a");
    assert_eq!(cluster.times(B, up).last(), Some(&ms(25_033)), "with A's first message");
    assert_eq!(cluster.node(B).name("actor").unwrap().location, "a/2");
    assert_eq!(cluster.node(A).origin().incarnation.number, 2, "a new incarnation (N1)");
    cluster.run_until(ms(25_200));
    cluster.assert_agreed();
    // The client's member is still owned by the old incarnation, and ages as on a silent node (N2) until its client
    // returns.
    assert_eq!(cluster.member(A, "orders-1").status(), Status::Up);
    cluster.attach(A, 1, &attach("client", 2, &["orders-1"])).unwrap();
    cluster.run_until(ms(26_200));
    assert_eq!(cluster.member(C, "orders-1").owner().node, "a");
    cluster.assert_agreed();
}

/// The same with two nodes only: there is no other node to ask, so the own view decides.
#[test]
fn a_node_without_other_peers_decides_alone_that_its_peer_failed() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    let crash = cluster.now;
    cluster.crash(A);
    cluster.run(Duration::from_millis(102));
    assert_eq!(cluster.peer_state(B, "a"), PeerState::Lost);
    cluster.run(Duration::from_millis(2));
    assert_eq!(cluster.peer_state(B, "a"), PeerState::Failed);
    let failed = |seen: &Seen| matches!(seen, Seen::Event(RegistryEvent::PeerFailed { votes: 1, answers: 1, .. }));
    assert_eq!(cluster.times(B, failed), [crash + Duration::from_millis(103)]);
    assert_eq!(cluster.times(B, |seen| *seen == Seen::Sent(HEALTH_QUERY)), []);
}

/// One other node that still reaches the peer keeps it from being marked as failed.
#[test]
fn a_peer_that_others_reach_is_lost_but_not_failed() {
    let mut cluster = Cluster::settled(&["a", "b", "c"]);
    cluster.cut(A, B);
    cluster.run(Duration::from_secs(8));
    assert_eq!(cluster.peer_state(B, "a"), PeerState::Lost);
    assert_eq!(cluster.peer_state(A, "b"), PeerState::Lost);
    assert!(!cluster.events(B).any(|event| matches!(event, RegistryEvent::PeerFailed { .. })));
    // And its members stay up: C relays the evidence.
    cluster.run(Duration::from_secs(60));
    assert_eq!(cluster.member(B, "convoke.a").status(), Status::Up);
    assert!(cluster.node(B).admits(cluster.node(A).origin()));
}
