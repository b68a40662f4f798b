//! Losing a node, a member or the session.

use super::*;

#[test]
fn after_a_loss_everything_is_attached_again_with_a_higher_claim() {
    let (mut story, registrations) = Story::attached(&["m1", "m2"]);
    let update = story.session.update("m1", registrations[0], Update::merge().set("k", "v"), None).unwrap();
    assert_eq!(story.requests().len(), 1);
    story.lose();
    assert!(story.disconnected());
    let attach = story.connect();
    assert_eq!((attach.claim, attach.previous_claim, ids(&attach)), (2, 1, vec!["m1", "m2"]));
    assert_eq!(attach.members[0].member.as_ref().unwrap().metadata["k"], "v", "the update goes with it");
    story.accept(&attach);
    assert_eq!(story.done(update), Some(Ok("v2".into())));
    assert!(story.requests().is_empty(), "and is not sent again");
}

#[test]
fn a_node_that_answers_stale_for_ever_is_left() {
    let mut story = Story::new();
    let mut attach = story.connect();
    for _ in 0..50 {
        let known = attach.claim;
        story.reject(&attach, stale(known));
        if story.disconnected() {
            return;
        }
        attach = story.sent_attach();
        assert_eq!(attach.claim, known + 1);
    }
    panic!("it goes on for ever");
}

#[test]
fn not_registered_means_attach_again_without_the_applications_help() {
    let (mut story, registrations) = Story::attached(&["m1"]);
    let update = story.session.update("m1", registrations[0], Update::merge().set("k", "v"), None).unwrap();
    let seq = story.requests()[0].seq;
    story.reject_request(seq, Error::new(ErrorCode::NotRegistered, "gone"));
    assert!(story.disconnected());
    let attach = story.connect();
    assert_eq!(ids(&attach), ["m1"]);
    story.accept(&attach);
    assert!(story.done(update).unwrap().is_ok());
}

#[test]
fn a_session_that_is_gone_is_noticed_by_its_heartbeat() {
    let (mut story, _) = Story::attached(&["m1"]);
    story.now = story.session.next_wake().unwrap();
    story.session.wake(story.now, &mut story.out);
    let sent = match story.sent().pop() {
        Some(ToNode::Heartbeat(heartbeat)) => heartbeat.sent,
        other => panic!("no heartbeat: {other:?}"),
    };
    let error = Some(Error::new(ErrorCode::SessionGone, "gone").into());
    story.receive(FromNode::HeartbeatAck(v1::HeartbeatAck { sent, error, ..Default::default() }));
    assert!(story.disconnected());
    assert_eq!(ids(&story.connect()), ["m1"]);
}

#[test]
fn the_reconnect_delay_grows_with_the_number_of_clients() {
    let (mut story, _) = Story::attached(&[]);
    let pauses = (0..100).map(|_| {
        story.receive(FromNode::HeartbeatAck(v1::HeartbeatAck { sent: 1, spread_ms: 4_000, ..Default::default() }));
        story.lose();
        let pause = story.session.next_wake().unwrap() - story.now;
        let attach = story.connect();
        story.accept(&attach);
        pause
    });
    let longest = pauses.max().unwrap();
    assert!(longest > Duration::from_secs(3) && longest <= Duration::from_secs(4), "{longest:?}");
}

#[test]
fn heartbeats_that_are_not_answered_end_the_connection_and_old_echoes_do_not_help() {
    let (mut story, _) = Story::attached(&[]);
    let start = story.now;
    for _ in 0..3 {
        story.now = story.session.next_wake().unwrap();
        story.session.wake(story.now, &mut story.out);
        // An echo of long ago arrives again and again.
        story.receive(FromNode::HeartbeatAck(v1::HeartbeatAck { sent: 1, ..Default::default() }));
    }
    assert!(story.disconnected());
    assert!(story.now - start <= Duration::from_secs(15));
}

#[test]
fn answered_heartbeats_keep_it_alive() {
    let (mut story, _) = Story::attached(&[]);
    for _ in 0..100 {
        story.now = story.session.next_wake().unwrap();
        story.session.wake(story.now, &mut story.out);
        let Some(ToNode::Heartbeat(heartbeat)) = story.sent().pop() else { panic!("no heartbeat") };
        story.now += Duration::from_millis(900);
        story.receive(FromNode::HeartbeatAck(v1::HeartbeatAck { sent: heartbeat.sent, ..Default::default() }));
    }
    assert!(!story.disconnected());
}

#[test]
fn a_member_taken_over_is_reported_and_not_registered_again() {
    let (mut story, registrations) = Story::attached(&["m1", "m2"]);
    let update = story.session.update("m1", registrations[0], Update::merge().set("k", "v"), None).unwrap();
    story.notice(v1::notice::Notice::TakenOver(v1::notice::TakenOver { id: "m1".into() }));
    assert_eq!(story.ended(registrations[0]), Some(ErrorCode::TakenOver));
    assert_eq!(story.code(update), Some(ErrorCode::TakenOver));
    assert_eq!(story.ended(registrations[1]), None);
    let rejected = story.session.update("m1", registrations[0], Update::merge(), None).unwrap_err();
    assert_eq!(rejected.code, ErrorCode::NotRegistered);
    story.lose();
    assert_eq!(ids(&story.connect()), ["m2"]);
}

#[test]
fn a_member_lost_while_disconnected_is_reported_as_taken_over() {
    let (mut story, registrations) = Story::attached(&["m1"]);
    story.lose();
    let attach = story.connect();
    let error = Some(Error::new(ErrorCode::AlreadyRegistered, "taken").into());
    story.receive(FromNode::Attached(v1::Attached {
        claim: attach.claim,
        rejected: vec![v1::RejectedMember { id: "m1".into(), error }],
        ..v1::Attached::default()
    }));
    assert_eq!(story.ended(registrations[0]), Some(ErrorCode::TakenOver));
    story.lose();
    assert!(ids(&story.connect()).is_empty());
}

#[test]
fn another_process_with_the_same_client_id_wins_after_a_second_look() {
    let (mut story, registrations) = Story::attached(&["m1"]);
    story.notice(v1::notice::Notice::Superseded(v1::notice::Superseded { known: 5 }));
    let waited = story.session.next_wake().unwrap() - story.now;
    assert_eq!(waited, Duration::from_secs(25), "longer than the other one could be silent");
    for _ in 0..2 {
        assert_eq!(story.ended(registrations[0]), None);
        let attach = story.connect();
        assert_eq!(ids(&attach), ["m1"]);
        story.reject(&attach, Error::new(ErrorCode::Superseded, "other"));
    }
    assert_eq!(story.ended(registrations[0]), Some(ErrorCode::Superseded));
    let rejected = story.session.register(MemberSpec::new("m2", "s"), false, None).unwrap_err();
    assert_eq!(rejected.code, ErrorCode::Superseded);
    // Watches still want a connection.
    story.now = story.session.next_wake().unwrap();
    story.session.wake(story.now, &mut story.out);
    assert!(matches!(story.out.last(), Some(Effect::Connect { attach: false, .. })));
}

#[test]
fn old_notices_are_not_about_this_session() {
    let (mut story, _) = Story::attached(&["m1"]);
    story.lose();
    let attach = story.connect();
    story.accept(&attach);
    story.out.clear();
    story.notice(v1::notice::Notice::Lost(v1::notice::Lost { known: 1 }));
    story.notice(v1::notice::Notice::Superseded(v1::notice::Superseded { known: 1 }));
    assert!(story.out.is_empty());
    story.notice(v1::notice::Notice::Lost(v1::notice::Lost { known: 8 }));
    assert!(story.disconnected());
    assert_eq!(story.connect().claim, 9);
}

#[test]
fn a_handover_names_the_next_node() {
    let (mut story, _) = Story::attached(&["m1"]);
    // One of many clients; but a node that stops tells its clients little by little.
    story.receive(FromNode::HeartbeatAck(v1::HeartbeatAck { sent: 1, spread_ms: 8_000, ..Default::default() }));
    let handover = v1::notice::Handover { node: "n9".into(), address: "c:7700".into() };
    story.notice(v1::notice::Notice::Handover(handover));
    let pause = story.session.next_wake().unwrap() - story.now;
    assert!(pause <= Duration::from_millis(500));
    story.connect();
    let address = story.out.iter().rev().find_map(|effect| match effect {
        Effect::Connect { address, .. } => Some(address.as_str()),
        _ => None,
    });
    assert_eq!(address, Some("c:7700"));
}
