//! Frames from strangers, other clusters and broken peers.

use super::Lone;
use convoke_core::node::{Effect, LinkId, RegistryEvent, Start};
use convoke_core::version::NodeId;
use convoke_core::wire::PROTOCOL_VERSION;
use convoke_core::{Config, Limits, Node, Output, Time};
use std::time::Duration;

/// The Hello of a node that dials `a`.
fn hello(change: impl FnOnce(&mut Config)) -> Vec<u8> {
    let mut config = Config::new(NodeId::new("b").unwrap());
    config.seeds = vec!["a:1".to_owned()];
    change(&mut config);
    let mut node = Node::new(config, Start { nonce: 2, ..Start::default() }, Time::ZERO).unwrap();
    let mut out = Output::default();
    node.begin(Time::ZERO, &mut out);
    let dial = out.effects.iter().find_map(|effect| match effect {
        Effect::Dial { dial, .. } => Some(*dial),
        _ => None,
    });
    let mut out = Output::default();
    node.dialled(Time::ZERO, dial.expect("a seed is dialled"), LinkId(1), &mut out);
    let [Effect::Send { frame, .. }] = &out.effects[..] else { panic!("{out:?}") };
    frame.to_vec()
}

#[test]
fn malformed_frames_close_their_link_and_are_counted() {
    let mut lone = Lone::new();
    let good = hello(|_| ());
    let mut bad: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![0xff],
        vec![0; 64],
        vec![0xff; 4096],
        // A count that exceeds the frame by far: 2^60 entries.
        vec![3, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10],
        [&good[..], &[0]].concat(),
        good[..good.len() - 1].to_vec(),
        vec![0; Limits::default().frame_bytes + 1],
    ];
    bad.extend((1..good.len()).map(|len| good[..len].to_vec()));
    for (count, frame) in bad.iter().enumerate() {
        let link = lone.connect();
        let events = lone.closes_on(link, frame);
        assert!(matches!(events[..], [RegistryEvent::PeerRejected { node: None, .. }]), "{events:?}");
        assert_eq!(lone.node.counters().frames_malformed, count as u64 + 1);
    }
    assert!(lone.node.peers().is_empty());
}

#[test]
fn any_message_before_a_hello_closes_the_link() {
    let mut lone = Lone::new();
    // Goodbye, an unsolicited Welcome, a rejection, an acknowledgement, a query: all well-formed.
    let mut welcome = hello(|_| ());
    welcome[0] = 1;
    for frame in
        [vec![12, 1], welcome, vec![2, 0, 1, b'b', 0], vec![7, 1, 1], vec![9, 1, 1, b'b'], vec![11, 1, b'm', 1, 0]]
    {
        let link = lone.connect();
        let events = lone.closes_on(link, &frame);
        assert!(
            matches!(&events[..], [RegistryEvent::PeerRejected { reason, .. }] if reason.contains("message order"))
        );
    }
    assert_eq!(lone.node.counters().frames_malformed, 6);
    assert!(!lone.node.member("m").unwrap().drained());
}

#[test]
fn another_cluster_another_version_and_oneself_are_rejected() {
    let mut lone = Lone::new();
    let mut another_version = hello(|_| ());
    assert_eq!(u32::from(another_version[1]), PROTOCOL_VERSION, "the version comes first");
    another_version[1] += 1;
    let foreign = hello(|config| config.cluster = "another".to_owned());
    let same_id = hello(|config| config.node = NodeId::new("a").unwrap());
    for (count, (frame, reason)) in [
        (foreign, "the cluster names differ"),
        (another_version, "the protocol versions differ"),
        (same_id, "another process uses the node id"),
    ]
    .into_iter()
    .enumerate()
    {
        let link = lone.connect();
        let events = lone.closes_on(link, &frame);
        assert!(
            matches!(&events[..], [RegistryEvent::PeerRejected { reason: found, .. }] if found == reason),
            "{events:?}"
        );
        // The other side gets the reason.
        let notified = lone.out.effects.iter().any(|e| matches!(e, Effect::Send { frame, .. } if frame[0] == 2));
        assert!(notified, "{:?}", lone.out.effects);
        assert_eq!(lone.node.counters().handshakes_rejected, count as u64 + 1);
    }
    assert_eq!(lone.node.counters().frames_malformed, 0);
    assert!(lone.node.peers().is_empty());
}

#[test]
fn an_established_link_is_closed_by_garbage_too() {
    let mut lone = Lone::new();
    for frame in [vec![0xff], hello(|_| ()), vec![0; Limits::default().frame_bytes + 1], vec![4, 1, b'b']] {
        let link = lone.connect();
        lone.node.received(lone.now, link, &hello(|_| ()), &mut lone.out);
        assert_eq!(lone.node.sizes().links, 1);
        let events = lone.closes_on(link, &frame);
        let lost =
            events.iter().any(|event| matches!(event, RegistryEvent::PeerLost { node, .. } if node.as_str() == "b"));
        assert!(lost, "{events:?}");
    }
}

#[test]
fn a_silent_connection_is_closed() {
    let mut lone = Lone::new();
    let link = lone.connect();
    lone.out = Output::default();
    lone.advance(Duration::from_secs(4));
    assert!(lone.out.effects.contains(&Effect::CloseLink { link }));
    assert_eq!(lone.node.sizes().links, 0);
    lone.serves();
}

#[test]
fn ts3_a_peer_is_the_node_that_its_certificate_names_or_nobody() {
    let mut lone = Lone::new();
    let link = lone.connect();
    lone.node.authenticated(link, NodeId::new("c").unwrap());
    let events = lone.closes_on(link, &hello(|_| ()));
    let names_both = |event: &RegistryEvent| matches!(event, RegistryEvent::PeerRejected { reason, .. } if reason.contains("names node c") && reason.contains("node b"));
    assert!(events.iter().any(names_both), "{events:?}");
    // The id of this node itself, with the certificate of another: this node goes on.
    let link = lone.connect();
    lone.node.authenticated(link, NodeId::new("c").unwrap());
    let same_id = hello(|config| config.node = NodeId::new("a").unwrap());
    lone.closes_on(link, &same_id);
    let link = lone.connect();
    lone.node.authenticated(link, NodeId::new("b").unwrap());
    lone.node.received(lone.now, link, &hello(|_| ()), &mut lone.out);
    assert_eq!(lone.node.sizes().links, 1, "the node that the certificate names is accepted");
}
