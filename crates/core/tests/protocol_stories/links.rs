//! Links between nodes (P1–P6).

use crate::cluster::{CHUNK_ABORT, Cluster, EVERY_HOST, PING, Seen, attach};
use convoke_core::Time;
use convoke_core::member::Status;
use convoke_core::node::{PeerState, RegistryEvent};
use std::time::Duration;

/// Checks that there is one link, both sides show each other as up, and no link was ever lost.
#[track_caller]
fn assert_one_link(cluster: &Cluster, names: [&str; 2]) {
    for at in 0..2 {
        assert_eq!(cluster.node(at).sizes().links, 1, "{}", names[at]);
        assert_eq!(cluster.peer_state(at, names[1 - at]), PeerState::Up, "{}", names[at]);
    }
    cluster.assert_agreed();
}

fn losses(cluster: &Cluster) -> usize {
    (0..2).map(|at| cluster.events(at).filter(|event| matches!(event, RegistryEvent::PeerLost { .. })).count()).sum()
}

/// Two nodes seeded with each other start within moments of each other, in either order of ids and of starts.
#[test]
fn nodes_that_dial_each_other_at_once_settle_on_one_link() {
    for names in [["a", "b"], ["b", "a"]] {
        for head_start in [0, 1, 5, 9, 10, 11, 15, 20, 25, 30] {
            let mut cluster = Cluster::new(&names);
            cluster.delay = Duration::from_millis(10);
            cluster.config(0).seeds = vec![format!("{}:7000", names[1])];
            cluster.start(0);
            cluster.run(Duration::from_millis(head_start));
            cluster.start(1);
            // They find each other by the next attempt at the latest.
            cluster.run(Duration::from_millis(13_500));
            assert_one_link(&cluster, names);
            assert_eq!(losses(&cluster), 0, "{names:?}, {head_start} ms apart: {:?}", cluster.log);
        }
    }
}

/// Nodes that share a list of seeds: a seed that connected first need not be dialled, now or later.
#[test]
fn a_seed_that_is_connected_is_not_dialled_again_and_again() {
    let mut cluster = Cluster::new(&["a", "b"]);
    cluster.config(0).seeds = vec!["b:7000".to_owned()];
    cluster.start(0);
    cluster.run(Duration::from_millis(1));
    cluster.start(1);
    cluster.run(Duration::from_secs(60));
    for at in [0, 1] {
        let dials = cluster.times(at, |seen| matches!(seen, Seen::Dialled(_)));
        assert!(dials.len() <= 2, "host {at} dialled at {dials:?}");
    }
    assert_one_link(&cluster, ["a", "b"]);
}

/// P12: the name of a headless service, which leads every node to itself first.
#[test]
fn nodes_with_one_name_as_their_only_seed_find_each_other() {
    let names = ["a", "b", "c", "d"];
    let mut cluster = Cluster::new(&names);
    for at in 0..4 {
        cluster.config(at).seeds = vec![EVERY_HOST.to_owned()];
        cluster.start(at);
    }
    cluster.run(Duration::from_secs(10));
    for (at, name) in names.iter().enumerate() {
        assert!(cluster.node(at).is_serving() && !cluster.node(at).is_alone(), "{name}");
        assert_eq!(cluster.node(at).sizes().links, 3, "{name}");
    }
    cluster.assert_agreed();
    let seeds_failed = |event: &&RegistryEvent| matches!(event, RegistryEvent::SeedFailed { .. });
    assert_eq!(cluster.events(0).filter(seeds_failed).count(), 0);
    // Every node knows all others, so the name need not be dialled again.
    let dials = |cluster: &Cluster, at| cluster.times(at, |seen| matches!(seen, Seen::Dialled(_))).len();
    let before = [0, 1, 2, 3].map(|at| dials(&cluster, at));
    cluster.run(Duration::from_secs(60));
    assert_eq!([0, 1, 2, 3].map(|at| dials(&cluster, at)), before);
}

/// N7: the name leads to the node itself until the other one starts.
#[test]
fn a_name_that_leads_only_to_the_node_itself_is_dialled_until_it_leads_to_another() {
    let mut cluster = Cluster::new(&["a", "b"]);
    for at in 0..2 {
        cluster.config(at).seeds = vec![EVERY_HOST.to_owned()];
    }
    cluster.start(0);
    cluster.run(Duration::from_secs(60));
    assert!(cluster.node(0).is_alone());
    cluster.start(1);
    cluster.run(Duration::from_secs(10));
    assert!(!cluster.node(0).is_alone());
    assert_one_link(&cluster, ["a", "b"]);
}

/// N7: reaching itself does not count, and an address without a name leads to no other node.
#[test]
fn a_node_whose_only_seed_is_its_own_address_is_alone() {
    let mut cluster = Cluster::new(&["a"]);
    let own = "10.0.0.1:7701".to_owned();
    cluster.config(0).peer_address.clone_from(&own);
    cluster.config(0).seeds = vec![own];
    cluster.start(0);
    cluster.run(Duration::from_secs(60));
    assert!(cluster.node(0).is_serving() && cluster.node(0).is_alone());
    assert!(cluster.node(0).absence_unknown().message.contains("10.0.0.1:7701: is this node itself"));
    assert_eq!(cluster.times(0, |seen| matches!(seen, Seen::Dialled(_))).len(), 1);
}

/// P4: the only node that has the other as a seed starts first, by moments.
#[test]
fn a_seed_that_starts_a_moment_later_is_found_soon() {
    let mut cluster = Cluster::new(&["a", "b"]);
    cluster.config(0).seeds = vec!["b:7000".to_owned()];
    cluster.config(1).seeds = Vec::new();
    cluster.start(0);
    cluster.run(Duration::from_millis(100));
    cluster.start(1);
    cluster.run(Duration::from_millis(300));
    assert_one_link(&cluster, ["a", "b"]);
}

/// P4: a partition heals; once one link is up, the others are tried at once.
#[test]
fn a_link_that_comes_up_triggers_retries() {
    let mut cluster = Cluster::settled(&["a", "b", "c"]);
    cluster.cut(0, 1);
    cluster.run(Duration::from_secs(2));
    cluster.cut(0, 2);
    cluster.run(Duration::from_secs(40));
    assert_eq!((cluster.peer_state(0, "b"), cluster.peer_state(0, "c")), (PeerState::Failed, PeerState::Failed));
    cluster.heal();
    let healed = cluster.now;
    cluster.run(Duration::from_secs(6));
    let up = |seen: &Seen| matches!(seen, Seen::Event(RegistryEvent::PeerUp { .. }));
    let up: Vec<Time> = cluster.times(0, up).into_iter().filter(|at| *at > healed).collect();
    assert!(up.len() == 2 && up[1].since(up[0]) < Duration::from_millis(350), "{up:?}");
}

/// The dials cross exactly: both nodes start, listening, before either connection is made.
#[test]
fn seeds_that_cross_settle_on_one_link_without_losing_it() {
    for names in [["a", "b"], ["b", "a"]] {
        let mut cluster = Cluster::new(&names);
        cluster.delay = Duration::from_millis(10);
        cluster.config(0).seeds = vec![format!("{}:7000", names[1])];
        // Starting only queues the dials; both connect at the same time.
        cluster.start(0);
        cluster.start(1);
        cluster.run(Duration::from_secs(2));
        let up = |at: usize| cluster.times(at, |seen| matches!(seen, Seen::Event(RegistryEvent::PeerUp { .. })));
        assert_eq!(losses(&cluster), 0, "{names:?}: up at {:?} and {:?}", up(0), up(1));
        cluster.run(Duration::from_secs(10));
        assert_one_link(&cluster, names);
    }
}

/// A link breaks and both sides try again after the same interval.
#[test]
fn peers_that_dial_each_other_again_at_once_settle_on_one_link() {
    for names in [["a", "b"], ["b", "a"]] {
        for delay in [1, 10, 40] {
            let mut cluster = Cluster::settled(&names);
            cluster.delay = Duration::from_millis(delay);
            cluster.reset(0, 1);
            cluster.run(Duration::from_millis(100));
            assert_eq!((cluster.peer_state(0, names[1]), losses(&cluster)), (PeerState::Lost, 2));
            let before = cluster.now;
            cluster.run(Duration::from_secs(7));
            let dials = |at: usize| {
                let dialled = |seen: &Seen| matches!(seen, Seen::Dialled(_));
                cluster.times(at, dialled).into_iter().filter(|time| *time > before).collect::<Vec<Time>>()
            };
            assert_eq!(dials(0), dials(1), "both dialled at the same time");
            assert_one_link(&cluster, names);
            assert_eq!(losses(&cluster), 2, "{names:?}, {delay} ms away");
        }
    }
}

/// R-46a: the address of a dead node is given to a node of another cluster.
#[test]
fn a_foreign_cluster_is_rejected_even_at_a_reused_address() {
    let mut cluster = Cluster::new(&["a", "b", "stranger"]);
    cluster.config(2).cluster = "another".to_owned();
    cluster.config(2).peer_address = "a:7000".to_owned();
    cluster.config(2).seeds = vec!["b:7000".to_owned()];
    cluster.config(2).timers.lone_start_wait = Duration::from_secs(1);
    cluster.start(0);
    cluster.start(1);
    cluster.run(Duration::from_secs(5));
    cluster.attach(0, 1, &attach("client", 1, &["orders-1"])).unwrap();
    cluster.run(Duration::from_secs(1));
    cluster.crash(0);
    cluster.run(Duration::from_secs(1));
    cluster.start(2);
    cluster.run(Duration::from_millis(15_500));

    assert!(cluster.node(2).is_serving(), "it is the only node of its cluster");
    let rejected = |seen: &Seen| matches!(seen, Seen::Event(RegistryEvent::PeerRejected { reason, .. }) if reason == "the cluster names differ");
    assert!(cluster.times(1, rejected).len() >= 2, "in both directions, repeatedly");
    assert!(!cluster.times(2, rejected).is_empty());
    assert_eq!(cluster.peer_state(1, "a"), PeerState::Failed, "an answer of another node is not evidence");
    assert!(cluster.node(2).peers().is_empty());
    assert!(cluster.node(2).member("orders-1").is_none());
    assert_eq!(cluster.node(2).slots().len(), 1, "nothing was exchanged");
    assert_eq!(cluster.member(1, "orders-1").status(), Status::Up, "nothing was removed");
    assert_eq!(cluster.node(1).sizes().links, 0);

    // The real node returns at another address.
    cluster.crash(2);
    cluster.config(0).seeds = vec!["b:7000".to_owned()];
    cluster.start(0);
    cluster.run(Duration::from_secs(10));
    assert_eq!(cluster.peer_state(1, "a"), PeerState::Up);
    cluster.assert_agreed();
}

/// a cable is pulled; no side gets an end of file.
#[test]
fn a_half_open_link_is_detected_by_both_sides_and_re_established() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    cluster.cut(0, 1);
    cluster.run(Duration::from_millis(3_100));
    assert!([(0, "b"), (1, "a")].iter().all(|(at, name)| cluster.peer_state(*at, name) != PeerState::Up));
    cluster.run(Duration::from_secs(20));
    assert_eq!(cluster.peer_state(1, "a"), PeerState::Failed);
    cluster.heal();
    cluster.run(Duration::from_millis(5_500));
    assert_one_link(&cluster, ["a", "b"]);
}

#[test]
fn a_restarted_node_replaces_its_older_incarnation_at_once() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    cluster.crash(0);
    cluster.config(0).seeds = vec!["b:7000".to_owned()];
    cluster.run(Duration::from_millis(10));
    cluster.start(0);
    cluster.run(Duration::from_secs(1));
    assert!(cluster.node(0).is_serving());
    assert_one_link(&cluster, ["a", "b"]);
    let known = cluster.node(1).peers();
    assert_eq!(known[0].incarnation, Some(cluster.node(0).origin().incarnation));
}

/// A node that lost its disk starts again: its number is above that of its last incarnation, whatever the nonces (N1).
#[test]
fn a_node_without_a_disk_takes_a_higher_number() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    let first = cluster.node(1).origin().incarnation;
    cluster.crash(1);
    cluster.lose_disk(1);
    cluster.run(Duration::from_secs(1));
    cluster.start(1);
    cluster.run(Duration::from_secs(2));
    let second = cluster.node(1).origin().incarnation;
    assert!(cluster.node(1).is_serving());
    assert_eq!((first.number, second.number), (1, 2));
    assert!(second.nonce > first.nonce, "the nonce must be higher for this test");
    cluster.assert_agreed();
}

/// A peer reads more slowly than this node writes: pushing stops, the exchange brings the rest, pushing resumes (D5).
#[test]
fn a_congested_peer_is_served_by_exchanges() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    let link = cluster.link(0, 1);
    cluster.call(0, |node, _, _| node.congested(link));
    let pushes = cluster.node(0).counters().pushes_sent;
    cluster.attach(0, 1, &attach("c", 1, &["x"])).unwrap();
    cluster.run(Duration::from_millis(10));
    assert_eq!(cluster.node(0).counters().pushes_sent, pushes);
    assert_eq!(cluster.node(0).counters().pushes_suspended, 1);
    assert!(cluster.node(1).member("x").is_none());
    cluster.run(Duration::from_secs(3));
    assert!(cluster.node(1).member("x").is_some());
    cluster.attach(0, 2, &attach("d", 1, &["y"])).unwrap();
    cluster.run(Duration::from_millis(10));
    assert!(cluster.node(1).member("y").is_some());
    assert!(cluster.node(0).counters().pushes_sent > pushes);
    assert_eq!(losses(&cluster), 0);
}

/// The only peer stops in the middle of the first exchange: the records received so far are not the registry (N3).
#[test]
fn a_node_that_has_a_part_of_the_registry_is_not_ready() {
    for heals in [true, false] {
        let mut cluster = Cluster::new(&["a", "b"]);
        cluster.config(0).limits.chunk_bytes = 1_000;
        cluster.start(0);
        let ids: Vec<String> = (0..1_000).map(|i| format!("m{i}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        cluster.attach(0, 1, &attach("c", 1, &ids)).unwrap();
        cluster.start(1);
        // Long enough that a node alone would begin to serve.
        cluster.delay = Duration::from_millis(400);
        cluster.run(Duration::from_secs(6));
        let part = cluster.node(1).sizes().members;
        assert!(part > 10 && part < 1_000, "{part}");
        cluster.cut(0, 1);
        cluster.run(Duration::from_secs(12));
        assert!(!cluster.node(1).is_serving());
        if heals {
            cluster.delay = Duration::from_millis(1);
            cluster.heal();
            cluster.run(Duration::from_secs(8));
            assert!(cluster.node(1).is_serving());
            cluster.assert_agreed();
        } else {
            // No peer returns: then these records are all there are.
            cluster.run(Duration::from_secs(15));
            assert!(cluster.node(1).is_serving());
        }
    }
}

/// A difference in one ping may be in flight; a difference in two in a row is missing (D7).
#[test]
fn a_difference_in_two_pings_starts_an_exchange() {
    let mut cluster = Cluster::settled(&["a", "b"]);
    let asked = |cluster: &Cluster| [0, 1].map(|at| cluster.node(at).counters().exchanges_started);
    let before = asked(&cluster);
    let pinged = |cluster: &Cluster| *cluster.times(1, |seen| *seen == Seen::Sent(PING)).last().unwrap();
    let interval = Duration::from_secs(1);

    // A write and a ping cross each other.
    cluster.run_until(pinged(&cluster) + interval);
    assert_eq!(pinged(&cluster), cluster.now, "the ping is in flight");
    cluster.attach(0, 1, &attach("c", 1, &["x"])).unwrap();
    cluster.run(interval * 7 / 2);
    cluster.assert_agreed();
    assert_eq!(asked(&cluster), before);

    // A push gets lost.
    cluster.cut(0, 1);
    cluster.attach(0, 2, &attach("d", 1, &["y"])).unwrap();
    cluster.heal();
    cluster.run_until(pinged(&cluster) + interval + cluster.delay);
    assert_eq!(asked(&cluster), before, "only one ping has shown it");
    cluster.run(interval + cluster.delay * 3);
    assert_eq!(asked(&cluster), [before[0] + 1, before[1]], "the smaller id sends the request");
    cluster.assert_agreed();
}

/// One side has abandoned a delta, the other has not received that: it learns it with the next chunk, and starts over
/// (D6).
#[test]
fn a_delta_without_a_receiver_is_aborted() {
    let mut cluster = Cluster::new(&["a", "b"]);
    cluster.config(0).limits.chunk_bytes = 200;
    cluster.config(0).limits.chunk_window = 1;
    cluster.start(0);
    cluster.run(Duration::from_secs(8));
    cluster.start(1);
    cluster.run(Duration::from_secs(3));
    let link = cluster.link(0, 1);
    cluster.call(0, |node, _, _| node.congested(link));
    cluster.delay = Duration::from_millis(50);
    let ids: Vec<String> = (0..100).map(|i| format!("m{i}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    cluster.attach(0, 1, &attach("c", 1, &ids)).unwrap();
    while cluster.node(1).sizes().members < 20 {
        cluster.run(Duration::from_millis(10));
    }
    let link = cluster.link(1, 0);
    for exchange in 1..10 {
        cluster.call(1, |node, now, out| node.received(now, link, &[CHUNK_ABORT, exchange], out));
    }
    cluster.run(Duration::from_secs(8));
    cluster.assert_agreed();
    cluster.attach(0, 2, &attach("d", 1, &["y"])).unwrap();
    cluster.run(Duration::from_millis(60));
    assert!(cluster.node(1).member("y").is_some(), "pushing continues");
    assert_eq!(losses(&cluster), 0);
}

/// A peer that reads too slowly gets no pushes, of any author, until an exchange has brought the missing writes. That
/// exchange is requested without waiting for anything else (D5, P9).
#[test]
fn a_congested_link_carries_no_pushes_of_others_either_and_recovers_soon() {
    const C: usize = 2;
    let mut cluster = Cluster::new(&["a", "b", "c"]);
    cluster.config(C).region = "far".to_owned();
    // The third has only the second as a seed.
    cluster.config(C).seeds = vec!["b:7000".to_owned()];
    for at in 0..3 {
        cluster.start(at);
        cluster.run(Duration::from_secs(2));
    }
    cluster.cut(0, C);
    cluster.reset(0, C);
    cluster.run(Duration::from_secs(20));
    cluster.attach(0, 1, &attach("client", 1, &["before"])).unwrap();
    cluster.run(Duration::from_millis(100));
    assert!(cluster.node(C).member("before").is_some(), "forwarded by the second");
    let link = cluster.link(1, C);
    cluster.call(1, |node, _, _| node.congested(link));
    cluster.attach(0, 2, &attach("other", 1, &["meanwhile"])).unwrap();
    cluster.run(Duration::from_millis(20));
    assert!(cluster.node(1).member("meanwhile").is_some() && cluster.node(C).member("meanwhile").is_none());
    cluster.run(Duration::from_millis(1_500));
    assert!(cluster.node(C).member("meanwhile").is_some(), "the next tick requests it");
    cluster.attach(0, 3, &attach("third", 1, &["after"])).unwrap();
    cluster.run(Duration::from_millis(100));
    assert!(cluster.node(C).member("after").is_some(), "pushing continues");
}

/// nodes that lost the same peer do not dial it at the same moments.
#[test]
fn retries_are_jittered_by_a_tenth_of_the_interval() {
    let mut cluster = Cluster::new(&["a", "b", "c"]);
    cluster.config(1).retry_jitter = 0.1;
    for at in 0..3 {
        cluster.start(at);
    }
    cluster.run(Duration::from_secs(5));
    cluster.crash(0);
    cluster.run(Duration::from_secs(600));
    let dials = cluster.times(1, |seen| *seen == Seen::Dialled("a:7000".to_owned()));
    // The oldest ones are those of the start, and the first retry follows the loss.
    let pauses: Vec<u128> = dials.windows(2).rev().map(|pair| pair[1].since(pair[0]).as_millis()).take(100).collect();
    assert_eq!(pauses.len(), 100, "{} dials in ten minutes", dials.len());
    assert!(pauses.iter().all(|pause| (4_500..=5_500).contains(pause)), "{pauses:?}");
    let distinct: std::collections::BTreeSet<u128> = pauses.iter().copied().collect();
    assert!(distinct.len() > 50, "{distinct:?}");
}
