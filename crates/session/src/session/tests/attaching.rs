//! Attaching: parts, claims, rejections.

use super::*;

#[test]
fn registrations_before_the_connection_are_sent_with_the_attach() {
    let mut story = Story::new();
    let (operation, _) = story.register("m1");
    let attach = story.connect();
    assert_eq!((attach.claim, attach.previous_claim, ids(&attach)), (1, 0, vec!["m1"]));
    assert_eq!(story.done(operation), None, "not before the node says so");
    story.accept(&attach);
    assert_eq!(story.done(operation), Some(Ok("v1".into())));
    assert!(story.requests().is_empty());
}

#[test]
fn an_answer_of_an_older_connection_or_attach_is_ignored() {
    let (mut story, _) = Story::attached(&["m1"]);
    let old = story.connection;
    story.lose();
    let attach = story.connect();
    let new = std::mem::replace(&mut story.connection, old);
    story.accept(&attach);
    assert!(matches!(story.session.phase, crate::session::Phase::Attaching { .. }));
    story.connection = new;
    story.accept(&v1::Attach { claim: 1, ..attach.clone() });
    assert!(matches!(story.session.phase, crate::session::Phase::Attaching { .. }));
    story.accept(&attach);
    assert!(matches!(story.session.phase, crate::session::Phase::Attached { .. }));
}

#[test]
fn a_stale_claim_is_raised_on_the_same_connection() {
    let mut story = Story::new();
    let (operation, _) = story.register("m1");
    let attach = story.connect();
    story.reject(&attach, stale(41));
    let again = story.sent_attach();
    assert_eq!((again.claim, ids(&again)), (42, vec!["m1"]));
    story.accept(&again);
    assert!(story.done(operation).unwrap().is_ok());
}

#[test]
fn a_stale_registration_attaches_the_whole_session_anew() {
    let (mut story, _) = Story::attached(&["m1"]);
    let (operation, _) = story.register("m2");
    let seq = story.requests()[0].seq;
    story.reject_request(seq, stale(9));
    let attach = story.sent_attach();
    assert_eq!((attach.claim, attach.previous_claim, ids(&attach)), (10, 1, vec!["m1", "m2"]));
    story.accept(&attach);
    assert_eq!(story.done(operation), Some(Ok("v10".into())));
}

#[test]
fn an_attach_on_the_same_stream_waits_for_what_is_under_way_and_names_its_outcome() {
    let (mut story, registrations) = Story::attached(&["m1"]);
    let (operation, _) = story.register("m2");
    let update = Update::merge().set("k", "v").if_version("v1");
    let conditional = story.session.update("m1", registrations[0], update, None).unwrap();
    let seqs: Vec<u64> = story.requests().iter().map(|request| request.seq).collect();
    story.reject_request(seqs[0], stale(9));
    let (late, _) = story.register("m3");
    assert!(story.sent().is_empty(), "nothing is sent in between");
    story.answer(seqs[1], "v2");
    assert_eq!(story.done(conditional), Some(Ok("v2".into())));
    let attach = story.sent_attach();
    assert_eq!((attach.claim, ids(&attach)), (10, vec!["m1", "m2", "m3"]));
    assert_eq!(attach.members[0].member.as_ref().unwrap().metadata["k"], "v", "what was acknowledged stays");
    story.accept(&attach);
    assert!(story.done(operation).unwrap().is_ok() && story.done(late).unwrap().is_ok());
}

#[test]
fn one_bad_member_does_not_keep_the_others_out() {
    let (mut story, _) = Story::attached(&["good"]);
    story.lose();
    let (bad, _) = story.register("bad");
    let (fine, _) = story.register("fine");
    let attach = story.connect();
    assert_eq!(ids(&attach), ["bad", "fine", "good"]);
    story.reject(&attach, Error::new(ErrorCode::InvalidMember, "control character").field("service"));
    let careful = story.sent_attach();
    assert_eq!(ids(&careful), ["good"], "only what was accepted before");
    story.accept(&careful);
    let requests = story.requests();
    assert_eq!(requests.len(), 2, "the rest is asked for one by one");
    story.reject_request(requests[0].seq, Error::new(ErrorCode::InvalidMember, "control character").field("service"));
    story.answer(requests[1].seq, "v");
    assert_eq!(story.code(bad), Some(ErrorCode::InvalidMember));
    assert_eq!(story.done(fine), Some(Ok("v".into())));
    story.lose();
    assert_eq!(ids(&story.connect()), ["fine", "good"]);
}

#[test]
fn a_large_attach_comes_in_parts() {
    let mut story = Story::new();
    for index in 0..300 {
        let spec = MemberSpec::new(format!("m{index:03}"), "s").metadata("k", "x".repeat(15_000));
        story.session.register(spec, false, None).unwrap();
    }
    story.now = story.session.next_wake().unwrap();
    story.session.wake(story.now, &mut story.out);
    story.session.connected(story.now, crate::session::ConnectionId(601), &mut story.out);
    let parts: Vec<v1::Attach> = story
        .sent()
        .into_iter()
        .map(|message| match message {
            ToNode::Attach(attach) => attach,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(parts.len() > 3);
    assert!(parts.iter().all(|part| prost::Message::encoded_len(part) < convoke_proto::MESSAGE_BYTES_MAX));
    assert_eq!(parts.iter().map(|part| part.members.len()).sum::<usize>(), 300);
    assert!(parts.iter().rev().skip(1).all(|part| part.more) && !parts.last().unwrap().more);
}

/// Nodes reject messages with too many elements before they decode them.
#[test]
fn many_small_members_come_in_parts() {
    let mut story = Story::new();
    for index in 0..6_000 {
        let spec = MemberSpec::new(format!("m{index}"), "s").metadata("k", "v").metadata("l", "v");
        story.session.register(spec, false, None).unwrap();
    }
    story.now = story.session.next_wake().unwrap();
    story.session.wake(story.now, &mut story.out);
    story.session.connected(story.now, crate::session::ConnectionId(12_001), &mut story.out);
    let (mut members, mut parts) = (0, 0);
    for message in story.sent() {
        let ToNode::Attach(part) = message else { panic!("{message:?}") };
        let elements: usize = part.members.iter().map(convoke_proto::of_register).sum();
        assert!(elements <= convoke_proto::PART_ELEMENTS, "{elements}");
        members += part.members.len();
        parts += 1;
    }
    assert_eq!((members, parts), (6_000, 3));
}

/// The parts of an attach of about so many MiB.
fn connect_with(story: &mut Story, mebibytes: usize) -> Vec<v1::Attach> {
    for index in 0..mebibytes * 64 {
        let spec = MemberSpec::new(format!("m{index:05}"), "s").metadata("k", "x".repeat(16_000));
        story.session.register(spec, false, None).unwrap();
    }
    story.now = story.session.next_wake().unwrap();
    story.session.wake(story.now, &mut story.out);
    let connect = story.out.iter().find_map(|effect| match effect {
        Effect::Connect { connection, .. } => Some(*connection),
        _ => None,
    });
    story.connection = connect;
    story.session.connected(story.now, connect.unwrap(), &mut story.out);
    let parts = story.sent().into_iter().map(|message| match message {
        ToNode::Attach(attach) => attach,
        other => panic!("{other:?}"),
    });
    parts.collect()
}

#[test]
fn a_large_attach_may_take_longer() {
    let mut story = Story::new();
    let parts = connect_with(&mut story, 10);
    let until = story.session.next_wake().unwrap();
    assert_eq!(until - story.now, Duration::from_secs(10) + (parts.len() as u32 - 1) * Duration::from_secs(2));
    assert!(until - story.now >= Duration::from_secs(28));
    story.now = until - Duration::from_millis(1);
    story.session.wake(story.now, &mut story.out);
    assert!(!story.disconnected(), "a slow link is no silence");
    let members = parts.iter().flat_map(|part| part.members.clone()).collect();
    story.accept(&v1::Attach { members, ..parts[0].clone() });
    // How long the attach took is not held against the node: it is asked at once, and has its two intervals.
    for _ in 0..2 {
        story.now = story.session.next_wake().unwrap();
        story.session.wake(story.now, &mut story.out);
        assert!(!story.disconnected());
        assert!(matches!(story.sent().pop(), Some(ToNode::Heartbeat(_))));
    }
    story.now = story.session.next_wake().unwrap();
    story.session.wake(story.now, &mut story.out);
    assert!(story.disconnected());
    assert!(story.now <= until + Duration::from_secs(10));
}

#[test]
fn short_intervals_do_not_shorten_the_time_for_answers() {
    let (mut story, _) = Story::attached(&["m1"]);
    story.lose();
    let attach = story.connect();
    story.receive(FromNode::Attached(v1::Attached {
        claim: attach.claim,
        heartbeat_interval_ms: 300,
        timeout_ms: 1_000,
        ..v1::Attached::default()
    }));
    story.lose();
    let attach = story.connect();
    let answer_time = Duration::from_secs(10);
    assert_eq!(story.session.next_wake(), Some(story.now + answer_time));
    story.accept(&attach);
    story.session.close(story.now, &mut story.out);
    assert_eq!(story.session.next_wake(), Some(story.now + answer_time));
}

#[test]
fn a_rejected_client_id_fails_waiting_calls() {
    let mut story = Story::new();
    let (operation, _) = story.register("m1");
    let attach = story.connect();
    story.reject(&attach, Error::new(ErrorCode::InvalidArgument, "client has a control character").field("client"));
    assert_eq!(story.code(operation), Some(ErrorCode::InvalidArgument));
    assert!(story.disconnected(), "and it is tried again: the node may be mended");
}
