//! Nodes that have reached none of their seeds, or that their seeds reject: nothing is reported as absent (N7, P2).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use convoke_core::ErrorCode;
use convoke_core::filter::Filter;
use convoke_core::member::{NODE_ID_PREFIX, Space};
use convoke_core::node::{RegistryEvent, Resume, StreamEvent, WatchSelection};
use convoke_node::{Config, Node, NodeEvent, Phase};
use convoke_testkit::{TestClient, eventually, member, patient_timers, start_alone};

#[tokio::test]
async fn nothing_is_absent_at_a_node_that_is_alone() {
    let mut config = Config::new("n0").unwrap();
    config.timers = patient_timers();
    let node = start_alone(config).await;
    let _client = TestClient::attach(&node, "c", vec![member("m", "s")]).await;
    node.register("held", "10.0.0.1:1").await.unwrap();
    let services = Filter::service("s");

    // What it holds is served.
    assert_eq!(node.find_member("m").unwrap().unwrap().id(), "m");
    assert_eq!(node.held_members(&services, None, 10).unwrap().members.len(), 1);
    assert_eq!(node.lookup("held").unwrap().location, "10.0.0.1:1");

    // What it does not hold is unknown.
    let rejections = [
        node.absence().err(),
        node.find_member("other").err(),
        node.members(&services, None, 10).err(),
        node.find_services().err(),
        node.explain("other").await.err(),
    ];
    for (at, rejection) in rejections.into_iter().enumerate() {
        let rejection = rejection.unwrap_or_else(|| panic!("question {at} was answered"));
        assert_eq!(rejection.code, ErrorCode::NotReady, "{rejection:?}");
        assert!(rejection.message.contains("none of its seeds"), "{rejection:?}");
    }

    // A watch has the members and is not complete.
    let selection = WatchSelection::new(Space::Member, services.clone());
    let mut watch = node.watch(selection, Resume::default()).await.unwrap();
    let mut events = Vec::new();
    let shows = |events: &[StreamEvent]| events.iter().any(|event| matches!(event, StreamEvent::Snapshot(..)));
    while !shows(&events) {
        events.extend(watch.next().await.unwrap());
    }
    assert!(!events.contains(&StreamEvent::CaughtUp), "{events:?}");

    node.declare_first().await.unwrap();
    while !events.contains(&StreamEvent::CaughtUp) {
        events.extend(watch.next().await.unwrap());
    }
    node.ready().await.unwrap();
    assert_eq!(node.phase(), Phase::Ready);
    assert!(node.absence().is_ok() && node.find_member("other").unwrap().is_none());
}

/// Its peers cannot store the records of another incarnation of the node, so they reject it, and both sides say why.
#[tokio::test]
async fn an_incarnation_beyond_the_limit_is_rejected_with_the_reason() {
    let config = |id: &str| {
        let mut config = Config::new(id).unwrap();
        config.timers = patient_timers();
        config
    };
    let mut tracking = config("a");
    tracking.limits.incarnations_per_node = 2;
    let a = Node::start(tracking).await.unwrap();
    a.ready().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let start = async || {
        let mut config = config("b");
        config.join = vec![a.peer_address().to_owned()];
        config.data_dir = Some(dir.path().to_owned());
        Node::start(config).await.unwrap()
    };
    for _ in 0..2 {
        let b = start().await;
        b.ready().await.unwrap();
        let incarnation = b.status().await.unwrap().incarnation;
        eventually("the incarnation has written", async || {
            a.member(&format!("{NODE_ID_PREFIX}b")).is_some_and(|member| member.origin().incarnation == incarnation)
        })
        .await;
        b.abort();
        b.stopped().await;
    }

    let b = start().await;
    b.phases().wait_for(|phase| *phase == Phase::Alone).await.unwrap();
    eventually("the node says why it is alone", async || {
        b.absence()
            .is_err_and(|rejection| rejection.message.contains("has no room for another incarnation of this node"))
    })
    .await;
    let rejected = |event: &NodeEvent| {
        matches!(event, NodeEvent::Registry(RegistryEvent::PeerRejected { node: Some(node), reason })
            if node.as_str() == "b" && reason == "no room for another incarnation of the node")
    };
    assert!(a.events_after(0).iter().any(|event| rejected(&event.what)));
    assert!(a.counters().await.unwrap().registry.handshakes_rejected > 0);
}
